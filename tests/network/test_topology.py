import subprocess
import sys

import numpy as np
import pytest

from rapid_llm.charts.svg import colour
from rapid_llm.errors import InputError
from rapid_llm.hardware import system
from rapid_llm.network import clusters, shapes
from rapid_llm.network.files import read_topology, read_traffic, topology_of_edges, topology_of_matrix
from rapid_llm.network.picture import topology_svg
from rapid_llm.network.topology import Topology


@pytest.mark.parametrize(
    ("topology", "nodes", "links"),
    [
        (shapes.ring(8, 1e9), 8, 16),
        (shapes.ring(2, 1e9), 2, 2),
        (shapes.mesh((4, 4), 1e9), 16, 48),
        (shapes.torus((4, 4), (1e9, 2e9)), 16, 64),
        (shapes.torus((2, 2, 4), 1e9), 16, 64),
        (shapes.hypercube(8, 1e9), 8, 24),
        (shapes.fully_connected(8, 1e9), 8, 56),
        (shapes.king_mesh((3, 3), 1e9), 9, 40),
        (clusters.switch(8, 1e9), 9, 16),
        (clusters.nvl72(1e9), 73, 144),
        (clusters.leaf_spine(32, 8, 1e9, oversubscription=2), 32 + 4 + 4, 2 * 32 + 2 * 16),
        (clusters.fat_tree(4, 1e9), 36, 96),
        (clusters.dragonfly(4, 3, 2, 1e9), 36, 84),
    ],
    ids=lambda value: value.name if isinstance(value, Topology) else "",
)
def test_constructors_have_their_nodes_and_links(topology, nodes, links):
    assert (topology.nodes, topology.links) == (nodes, links)


def test_a_torus_has_its_bandwidth_by_axis():
    torus = shapes.torus((4, 4), (1e9, 2e9))
    assert sorted(set(torus.bandwidth.tolist())) == [1e9, 2e9]


def test_two_to_one_leaves_have_half_the_bandwidth_upwards():
    fabric = clusters.leaf_spine(32, 8, 1e9, oversubscription=2)
    up = [link for link in range(fabric.links) if fabric.link_name(link).startswith("leaf0 > spine")]
    assert fabric.bandwidth[up].sum() == 4e9


def test_boxes_of_different_sizes_nest():
    boxes = [clusters.switch(4, 4e9), clusters.switch(6, 4e9)]
    cluster = clusters.nested(boxes, clusters.leaf_spine(4, 4, 1e9))
    assert len(cluster.accelerators) == 10
    assert cluster.names[cluster.accelerators[4]] == "node1.gpu0"


def test_a_rail_joins_the_same_place_of_every_box():
    outer = clusters.leaf_spine(16, 2, 1e9, rails=8)
    cluster = clusters.nested([clusters.switch(8, 4e9)] * 2, outer)
    leaf = cluster.target[cluster.links_between(cluster.node("node0.nic3"), cluster.node("leaf0.3"))]
    assert len(leaf) == 1
    assert len(cluster.links_between(cluster.node("node1.nic3"), cluster.node("leaf0.3"))) == 1


@pytest.mark.parametrize(
    ("name", "count"), [("dgx-h100", 8), ("dgx-h100", 64), ("p4d", 16), ("mi300x-8", 16), ("tpu-v5p-pod", 64)]
)
def test_catalogue_systems_have_an_interconnect(name, count):
    topology = Topology.of(system(name), count)
    assert len(topology.accelerators) == count
    assert topology.links > 0


def test_edges_of_a_csv_file(tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text("from,to,bandwidth,latency\ngpu0,switch0,50 GB/s,1 us\ngpu1,switch0,400 Gb/s,\n")
    topology = read_topology(file)
    assert topology.names == ("gpu0", "switch0", "gpu1")
    assert len(topology.accelerators) == 2
    assert topology.bandwidth.tolist() == [50e9] * 4


def test_edges_of_a_yaml_file(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("name: pair\nlinks:\n- {from: a, to: b, bandwidth: 1 GB/s, reverse: 2 GB/s}\n")
    assert read_topology(file).bandwidth.tolist() == [1e9, 2e9]


def test_a_table_made_by_a_spreadsheet_may_end_its_lines_with_commas(tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text("from, to, bandwidth, kind,\na, b, 1 GB/s, nic,\n\n")
    topology = read_topology(file)
    assert (topology.bandwidth.tolist(), topology.names) == ([1e9] * 2, ("a", "b"))


HEAD = "from,to,bandwidth,latency\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (HEAD.replace("latency", "latencyy") + "a,b,1 GB/s,1 us\n", ":1: column 'latencyy' is unknown. Did you mean "
         "'latency'? Known: from, to, bandwidth, latency, reverse, kind."),
        ("form,to,bandwidth\na,b,1 GB/s\n", ":1: column 'form' is unknown. Did you mean 'from'? Known: from, to, "
         "bandwidth, latency, reverse, kind."),
        ("from,to,bandwidth,kind\na,b,1 GB/s,magic\n", ":2: links[0].kind 'magic' is unknown. Known: scale-up, host, "
         "nic, fabric, global."),
        (HEAD + "a,b,1 GB/s,1 us,2 GB/s\n", ":2: has 5 cells below 4 columns."),
        (HEAD + "a,b,1 GB/s\na,b\n", ":3: links[1] of mine needs bandwidth."),
        (HEAD + HEAD.replace("latency", "1"), ":2: links[0].bandwidth is not a quantity, such as '3.35 TB/s' "
         "(got 'bandwidth')."),
        (HEAD, ": has a header and no row below it."),
        ("from,to,bandwidth\na,b,1e40 GB/s\n", ":2: links[0].bandwidth is beyond any network (got 1e40 GB/s)."),
        ("from,to\na,b\n", ":1: needs the columns from, to, bandwidth."),
        ("from,to,to,bandwidth\na,b,c,1 GB/s\n", ":1: has more than one column to."),
        ("a,b,1 GB/s\nb,c,1 GB/s\n", ":1: has no header: its first line must be from,to,bandwidth."),
        ("", ": cannot be read: it is empty."),
        (" \n", ": cannot be read: it is empty."),
        (b"\x89PNG\xff\xfe\x00", ": cannot be read: it is not text in UTF-8."),
        (b"PK\x03\x00", ": cannot be read: it is not text."),
    ],
)  # fmt: skip
def test_a_bad_edge_list_is_one_sentence(tmp_path, text, sentence):
    file = tmp_path / "mine.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError) as error:
        read_topology(file)
    assert str(error.value) == f"{file}{sentence}"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("links: [{from: a, to: b, bandwidth: 1 GB/s, latencyy: 1 us}]", "unknown field 'links[0].latencyy'. Did you "
         "mean 'latency'?"),
        ("nodes: {hub0: leaf}\nlinks: [{from: a, to: hub, bandwidth: 1 GB/s}]", "nodes of mine name 'hub0', which no "
         "link joins. Did you mean 'hub'?"),
        ("link: []", "must hold a list 'links' of {from, to, bandwidth}."),
    ],
)  # fmt: skip
def test_bad_edges_of_a_yaml_file_are_one_sentence(tmp_path, text, sentence):
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(InputError) as error:
        read_topology(file)
    assert error.value.message == sentence


def test_a_matrix_is_a_link_for_every_pair():
    topology = topology_of_matrix([[0, 1e9], [2e9, 0]])
    assert topology.bandwidth.tolist() == [1e9, 2e9]


def test_bad_numbers_of_a_file_are_told_with_their_line(tmp_path):
    matrix, flows = tmp_path / "matrix.csv", tmp_path / "flows.csv"
    matrix.write_text("0,50\n-50,0\n")
    with pytest.raises(InputError, match="'-50' is not a bandwidth in GB/s, 0 or more") as caught:
        read_topology(matrix)
    assert caught.value.line == 2
    edges = tmp_path / "edges.csv"
    for field in ("latency", "reverse"):
        given = {"latency": "-1 us", "reverse": "-1 GB/s"}[field]
        edges.write_text(f"from,to,bandwidth,{field}\ngpu0,gpu1,1 GB/s,{given}\n")
        with pytest.raises(InputError, match=rf"links\[0\].{field} of edges must be 0 or more \(got '{given}'\)"):
            read_topology(edges)
    flows.write_text("from,to,bytes\ngpu0,gpu1,1MiB\ngpu1,gpu0,-1MiB\n")
    with pytest.raises(InputError, match=r"a flow must be 0 bytes or more, and at most 1 EiB \(got -1MiB\)") as caught:
        read_traffic(flows, shapes.ring(2, 1e9))
    assert caught.value.line == 3
    flows.write_text("from,to,bytes\ngpu0,gpu1,1MiB\ngpu1,gpu1,1MiB\n")
    with pytest.raises(InputError, match=r"a flow goes from gpu1 to itself\. Leave it out\."):
        read_traffic(flows, shapes.ring(2, 1e9))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: topology_of_matrix([[0, 1, 2], [1, 0, 2]]),
            "a bandwidth matrix is square, one row and column an accelerator (got 2 x 3).",
        ),
        (
            lambda: topology_of_matrix([[0, -1], [1, 0]]),
            "bandwidth from accelerator 0 to 1 must be 0 or more (got -1 B/s).",
        ),
        (
            lambda: shapes.ring(4, -1e9),
            "ring-4: bandwidth from gpu0 to gpu1 must be at least 1 B/s (got -1e+09 B/s); "
            "leave out a link that does not exist.",
        ),
        (
            lambda: shapes.hypercube(6, 1e9),
            "a hypercube needs a power of two accelerators (got 6); try 4 or 8.",
        ),
        (
            lambda: clusters.fat_tree(3, 1e9),
            "a fat tree needs an even number of ports per switch (got 3).",
        ),
        (
            lambda: topology_of_edges([{"from": "a", "to": "b", "bandwidth": "-1 GB/s"}]),
            "links[0].bandwidth of edges must be above 0 (got '-1 GB/s').",
        ),
        (
            lambda: topology_of_edges([{"from": "a", "bandwidth": "1 GB/s"}]),
            "links[0] of edges needs to.",
        ),
        (
            lambda: clusters.nested([clusters.switch(4, 1e9)] * 3, clusters.leaf_spine(4, 4, 1e9)),
            "leaf-spine-4 has 4 ports, which do not divide among 3 boxes; "
            "give it the same number of ports for every box.",
        ),
    ],
)
def test_bad_input_is_one_sentence(make, sentence):
    with pytest.raises(InputError) as error:
        make()
    assert error.value.message == sentence


def test_the_picture_shows_faults_and_load():
    ring = shapes.ring(4, 1e9)
    health = ring.health.copy()
    health[0] = 0.0
    picture = topology_svg(ring.with_health(health), load=np.arange(ring.links, dtype=float))
    assert picture.startswith("<svg")
    assert picture.count("<line") == ring.links
    assert colour(4) in picture
    said = "4 nodes; links: the stronger, the nearer to the load of the busiest; red, dashed: down</text>"
    assert said in picture


def test_importing_the_room_does_not_import_numba():
    code = "import sys; from rapid_llm.network import engine, programs, routing; print('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (lambda: shapes.fully_connected(1_000_000, 1e9), "full-1000000 has 999,999,000,000"),
        (lambda: shapes.ring(600_000, 1e9), "ring-600000 has 1,199,998"),
        (lambda: clusters.dragonfly(9, 200_000, 1, 1e9), "dragonfly-9x200000x1 has 360,001,800,072"),
    ],
)
def test_too_many_links_are_refused_before_they_are_built(make, count):
    with pytest.raises(InputError) as error:
        make()
    assert error.value.message == (
        f"{count} nodes or links, and at most 1,000,000 are built one by one. Try fewer, or topology: leaf-spine."
    )
