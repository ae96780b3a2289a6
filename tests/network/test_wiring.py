"""Every constructor from a system's file: links, tiers, flow, faults, and the sentences for what does not fit."""

import numpy as np
import pytest

from rapid_llm import hardware
from rapid_llm.documents import parse_yaml
from rapid_llm.errors import InputError
from rapid_llm.hardware.health import Fault
from rapid_llm.network import Fabric, candidates
from rapid_llm.network.agreement import LINKS, on_system
from rapid_llm.network.flow_prices import Links, interconnect, under_faults
from rapid_llm.network.picture import topology_svg
from rapid_llm.network.routing import route
from rapid_llm.network.specimens import WRITTEN, written
from rapid_llm.network.system_tiers import SWITCH_HOP
from rapid_llm.network.topology import LINK_KINDS, NODE_KINDS, Topology

CHIPS = "{{name: s, node: {{accelerator: tpu-v5p, accelerators: 1}}, nodes: {n}, fabric: {{topology: {t}}}}}"
BOX = "{{name: s, node: {{accelerator: h100-sxm, accelerators: {n}, scale_up: {{topology: {t}}}}}}}"
POD = "{{base: dgx-h100, name: s, nodes: {n}, fabric: {{topology: {t}}}}}"
GB = 1e9


def system(text: str, n: int, t: str):
    return hardware.build_system(parse_yaml(text.format(n=n, t=t), "s.yaml"))


CASES = [
    *((CHIPS, 16, t) for t in ("ring", "hypercube", "full", "torus, sides: [4, 4]", "king-mesh, sides: [4, 4]")),
    (CHIPS, 32, "torus, sides: [8, 2, 2], link_bandwidth: [100 GB/s, 50 GB/s, 50 GB/s]"),
    *((BOX, 8, t) for t in ("ring", "mesh, sides: [4, 2]", "torus, sides: [4, 2]", "hypercube", "king-mesh", "full")),
    *((POD, 8, t) for t in ("ring", "mesh, sides: [4, 2]", "torus, sides: [4, 2]", "hypercube", "king-mesh", "full")),
    (POD, 8, "dragonfly, groups: 4, routers: 2"),
    (POD, 8, "fat-tree, arity: 8"),
    (POD, 40, "leaf-spine, leaf_nodes: 4, spines: 16"),
]


@pytest.mark.parametrize(("text", "n", "t"), CASES)
def test_all_of_it_is_linked_priced_and_drawn(text, n, t):
    built = system(text, n, t)
    top = Topology.of(built)
    assert len(top.accelerators) == built.accelerators
    assert topology_svg(top).startswith("<svg")
    fabric, net = Fabric.of(built), interconnect(built, Links(built.accelerators))
    for op in ("all_reduce", "all_to_all"):
        best = candidates(op, 2.0**26, built.accelerators, fabric=fabric, library="nccl")[0]
        flow = under_faults(best, 2.0**26, net).best
        assert flow.use.max() <= 1 + 1e-6
        assert flow.seconds > 0
        assert 0.5 < flow.flow / flow.bare < 2


@pytest.mark.parametrize("name", WRITTEN)
def test_closed_forms_are_what_links_carry(name):
    """Strided groups, parts of a job and those that straddle nodes alike, wherever unlike sends do not take turns."""
    of = written(name)
    node, whole = of.groups[0].node.accelerators, of.accelerators
    some = node * max(1, 3 * whole // node // 4)
    groups = [
        (whole, 1),
        (whole // 2, 2),
        (4, 2),
        (2, 1),
        (3, 1),
        (12, 1),
        (whole // node, node),
        (some, 1),
        (some // 2, 1),
    ]
    found = [
        one
        for total in {whole, some}
        for one in on_system(of, total, [g for g in groups if g[0] > 1], [2.0**14, 2.0**26])
    ]
    assert [one for one in found if not one.meets and abs(one.off) > 0.001] == []
    assert sum(not one.meets for one in found) > 5


def test_what_a_library_adds_to_links_is_added_to_their_closed_form():
    of = system(POD, 8, "torus, sides: [4, 2]")
    fabric = Fabric.of(of, 64)
    bare, ours = (candidates("all_reduce", 2.0**26, 8, 8, fabric=fabric, library=one, algorithm="ring")[0].seconds
                  for one in (LINKS, "nccl"))  # fmt: skip
    assert bare < ours < 2 * bare


@pytest.mark.parametrize(
    ("t", "links"), [("ring", 2), ("full", 7), ("hypercube", 3), ("torus, sides: [8]", 2), ("torus", 6)]
)
def test_rings_between_nodes_take_what_their_links_give(t, links):
    tier = Fabric.of(system(POD, 8, t)).tiers[-1]
    assert tier.kind == "wired"
    both = 2 if t in ("ring", "full", "torus, sides: [8]") else 1  # of others a link carries both ways of some hops
    assert tier.wires.reach(8, 8) == pytest.approx(50 * GB * both / links, rel=0.51 if both == 1 else 1e-6)


def test_link_bandwidth_of_every_axis():
    top = Topology.of(system(BOX, 8, "mesh, sides: [4, 2], link_bandwidth: [100 GB/s, 25 GB/s]"))
    assert set(top.bandwidth.tolist()) == {100 * GB, 25 * GB}
    assert (top.bandwidth == 100 * GB).sum() == 12


def test_nodes_that_are_joined_directly_have_a_router():
    top = Topology.of(system(POD, 8, "hypercube"))
    routers = np.flatnonzero(top.node_kind == NODE_KINDS.index("router"))
    assert [top.names[r] for r in routers[:2]] == ["node0.router", "node1.router"]
    between = np.isin(top.source, routers) & np.isin(top.target, routers)
    assert between.sum() == 8 * 3
    assert top.bandwidth[between] == pytest.approx(8 * 50 * GB / 3)


@pytest.mark.parametrize("t", ["king-mesh, sides: [4, 4]", "torus, sides: [4, 4]", "hypercube"])
def test_a_job_on_some_of_it_may_pass_through_the_rest(t):
    top = Topology.of(system(CHIPS, 16, t), 6)
    assert len(top.accelerators) == 6
    assert top.nodes == 16


def test_a_broken_link_between_routers_is_gone_round():
    built = system(POD, 8, "ring")
    broken = Fault(link=("node0.router", "node1.router"), down=True)
    net = interconnect(built, Links(64, (broken,)))
    best = candidates("all_reduce", 2.0**26, 64, fabric=Fabric.of(built), library="nccl")[0]
    found = under_faults(best, 2.0**26, net)
    assert found.best.seconds > under_faults(best, 2.0**26, interconnect(built, Links(64))).best.seconds


@pytest.mark.parametrize(
    ("text", "n", "t", "said"),
    [
        (POD, 8, "mesh, sides: [4, 3]", "fabric has sides 4 x 3 = 12, but 8 nodes; give sides whose product is 8"),
        (POD, 12, "hypercube", "fabric is a hypercube of 12 nodes; it needs a power of two, such as 8 or 16"),
        (POD, 8, "dragonfly", "fabric needs groups and routers for a dragonfly"),
        (POD, 8, "ring, sides: [8]", "takes sides with mesh, torus, king-mesh only"),
        (POD, 8, "kingmesh", "Did you mean 'king-mesh'"),
        (POD, 8, "fat-tree, arity: 5", "even number of ports"),
        (POD, 8, "fat-tree, arity: 8, oversubscription: 2", "full bisection where arity says its switches"),
        (POD, 8, "leaf-spine, groups: 3", "takes groups with dragonfly only"),
        (BOX, 12, "torus, sides: [4, 4]", "sides 4 x 4 = 16, but 12 accelerators"),
        (BOX, 8, "torus, sides: [4, 2], link_bandwidth: [1 GB/s, 1 GB/s, 1 GB/s]", "3 link bandwidths"),
        (BOX, 8, "king-mesh, sides: [2, 2, 2]", "two sides for a king-mesh"),
        (BOX, 8, "mesh, sides: [4, 2], link_bandwidth: -5 GB/s", "must be greater than 0"),
    ],
)
def test_what_does_not_fit_is_said_in_one_sentence(text, n, t, said):
    with pytest.raises(InputError, match=said.replace("(", r"\(")):
        system(text, n, t)


def test_pods_of_a_fat_tree_are_a_tier():
    """Two nodes a pod of switches with 8 ports: three switches on the way inside, five from pod to pod."""
    tiers = Fabric.of(system(POD, 16, "fat-tree, arity: 8")).tiers
    assert [(tier.name, tier.span) for tier in tiers[1:]] == [("spine", 16), ("core", 128)]
    assert tiers[2].latency - tiers[1].latency == pytest.approx(2 * SWITCH_HOP)
    assert tiers[2].bandwidth == tiers[1].bandwidth  # full bisection
    sixteen = Fabric.of(system(POD, 20, "fat-tree, arity: 16")).tiers
    assert [(tier.name, tier.span) for tier in sixteen[1:]] == [("spine", 64), ("core", 160)]
    assert [tier.name for tier in Fabric.of(system(POD, 6, "fat-tree, arity: 16")).tiers[1:]] == ["spine"]


def test_places_that_are_too_few():
    with pytest.raises(InputError, match=r"16 places.*give a larger arity"):
        Topology.of(system(POD, 8, "fat-tree, arity: 4"))
    with pytest.raises(InputError, match="needs network cards"):
        Fabric.of(system("{{name: s, node: {{accelerator: h100-sxm, accelerators: 8}}, nodes: {n}, "
                         "fabric: {{topology: {t}}}}}", 4, "ring"))  # fmt: skip


def test_groups_of_a_dragonfly_are_known_where_boxes_hang_on_it():
    top = Topology.of(system(POD, 8, "dragonfly, groups: 4, routers: 2"))
    assert len(set(top.zones.tolist())) == 4
    ends = top.accelerators[[0, 63]]
    minimal = route(top, ends[:1], ends[1:], policy="minimal").row(0)
    assert (top.kind[minimal] == LINK_KINDS.index("global")).sum() == 1
