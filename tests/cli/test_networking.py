"""``network collective`` through the command line."""

import gzip
import json
from pathlib import Path

import pytest

from .shell import rapid_llm

FLAGS = {"--system": "dgx-h100", "--accelerators": "64", "--size": "256MiB"}


def run(*more, **flags):
    given = {**FLAGS, **{f"--{name}": value for name, value in flags.items()}}
    ran = rapid_llm("network", "collective", "all_reduce", *(text for pair in given.items() for text in pair), *more)
    return ran.code, ran.out, ran.err


def test_time_bandwidths_algorithm_and_tiers():
    code, out, _ = run()
    assert code == 0
    lines = {line[:13].strip(): line[13:] for line in out.splitlines() if line[:1].isalpha()}
    assert lines["all_reduce"] == "256 MiB on 64 accelerators of dgx-h100, 8 nodes"
    assert {"time", "algbw", "busbw", "algorithm", "each rank"} <= lines.keys()
    assert "tree       LL128" in out
    assert len(out.splitlines()) <= 30


def test_json_agrees_with_nccl_tests_conventions():
    code, out, _ = run("--json")
    answer = json.loads(out)
    assert code == 0
    assert answer["algbw_bytes_per_s"] == pytest.approx(2**28 / answer["seconds"])
    assert answer["busbw_bytes_per_s"] == pytest.approx(answer["algbw_bytes_per_s"] * 2 * 63 / 64)
    assert answer["seconds"] == min(c["seconds"] for c in answer["candidates"])
    assert [tier["tier"] for tier in answer["tiers"]] == ["node", "leaf"]


def test_one_algorithm_only():
    _, out, _ = run("--json", algorithm="ring")
    assert {c["algorithm"] for c in json.loads(out)["candidates"]} == {"ring"}


def test_an_algorithm_of_ones_own(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("ops: [all_reduce]\nphases: [{pattern: direct, load: n - 1}]\n")
    code, out, _ = run("--json", algorithm=str(file))
    assert code == 0
    assert json.loads(out)["algorithm"] == "custom"


def test_a_folder_with_the_answer_and_its_page(tmp_path):
    code, _, _ = run(out=str(tmp_path / "run"))
    assert code == 0
    assert json.loads((tmp_path / "run" / "collective.json").read_text())["op"] == "all_reduce"
    page = (tmp_path / "run" / "collective.html").read_text()
    assert page.count("<svg") == 3
    assert "nvls-tree NVLS" in page


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("size", "256"), "--size needs a unit, such as '80 GiB' (got 256)."),
        (("size", "0MB"), "--size must be above 0 (got 0MB)."),
        (("size", "-5MiB"), "--size must be positive (got -5MiB). Try 5MiB."),
        (("stride", "-1"), "--stride must be at least 1 (got -1). Try 1."),
        (("stride", "0"), "--stride must be at least 1 (got 0). Try 1."),
        (("library", "nope"), "collective library 'nope' is not in the catalogue. Known: hccl, nccl, "),
        (("accelerators", "1"), "one accelerator has nobody to talk to. Use --accelerators 2 or more."),
        (
            ("accelerators", "20000"),
            "a group of 20000 ranks, 1 apart, does not fit 'dgx-h100': 16384 accelerators are connected. "
            "Use fewer ranks or a larger system.",
        ),
        (("accelerators", "0"), "--accelerators must be at least 2 (got 0). Try 8."),
        (("size", "1e30TB"), "--size must be at most 1 EiB (got 1e30TB). Try 256MiB."),
        (("algorithm", "rong"), "algorithm 'rong' is unknown. Did you mean 'ring'?"),
        (("library", "ncll"), "collective library 'ncll' is not in the catalogue. Did you mean 'nccl'?"),
        (("system", "dgx-h10"), "'dgx-h10' is not in the catalogue"),
    ],
)
def test_bad_input_is_one_sentence(change, sentence):
    code, out, err = run(**dict([change]))
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_calibrate_fabric_from_a_table(tmp_path):
    table, out = tmp_path / "t.csv", tmp_path / "mine.yaml"
    rows = [f"all_reduce,16,{2**k},{60 + 2**k / 1e5}" for k in range(10, 30)]
    table.write_text("\n".join(["op,ranks,bytes,time_us", *rows]))
    ran = rapid_llm("calibrate", "fabric", "dgx-h100", "--table", str(table), "--out", str(out))
    assert ran.code == 0, ran.err
    assert "infiniband-ndr, costs of nccl" in ran.out
    assert "before" in ran.out and "rows held out" in ran.out
    again = run("--json", accelerators="16", library=str(out))
    assert json.loads(again[1])["library"] == str(out)
    ran = rapid_llm("calibrate", "fabric", "dgx-h100", "--table", str(tmp_path / "none.csv"))
    assert (ran.code, ran.err.count("\n")) == (2, 1)


SCENARIO = """\
model: llama-3.1-8b
system: dgx-h100
parallelism: {tp: 4, pp: 2, dp: 4}
placement: {order: [dp, tp, cp, ep, pp]}
workload: {kind: training, global_batch_size: 32, micro_batch_size: 1, sequence_length: 4096}
"""


def test_placement_says_what_it_gained(tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text(SCENARIO)
    ran = rapid_llm("network", "placement", str(file), "--json")
    answer = json.loads(ran.out)
    assert answer["asked"] == ["dp", "tp", "cp", "ep", "pp"]
    assert answer["best"].index("tp") < answer["best"].index("dp")
    assert answer["gain"] > 0.3
    assert answer["best_step_time_s"] < answer["step_time_s"]
    words = rapid_llm("network", "placement", str(file)).out
    assert "of communication a step" in words
    assert "step time" in words


def test_links_that_were_drawn_are_named():
    drawn = {"accelerators": "16", "fault": "random: {links: 2, seed: 3}, bandwidth: 50 %"}
    code, out, _ = run(**drawn)
    assert code == 0
    names = out.splitlines()[1]
    assert names.startswith("drawn        ")
    alone = rapid_llm("network", "links", "dgx-h100", "all_reduce", "--size", "1MiB", "--accelerators", "16",
                      "--fault", drawn["fault"]).out  # fmt: skip
    assert alone.splitlines()[1] == names
    assert json.loads(run("--json", **drawn)[1])["drawn_links"] == names.removeprefix("drawn").strip().split(", ")


def test_link_by_link_with_a_fault(tmp_path):
    page = tmp_path / "page.html"
    code, out, _ = run(
        accelerators="16", network="flow", fault="link: [node0.nic0, leaf0.0], bandwidth: 80 %", html=str(page)
    )
    assert code == 0
    assert "link by link (closed form " in out
    assert "re-plan: without rail 0 " in out
    assert "busiest link node" in out
    assert "box 1" in page.read_text()
    code, _, err = run(accelerators="16", network="flow", fault="accelerator: 9, down: true")
    assert (code, err) == (
        3,
        "no live path joins accelerator 9 (node1.gpu1) with the other 15, with 2 links down: group 0 spans them. "
        "Try another placement or fewer faults.\n",
    )
    code, _, err = run(accelerators="16", network="flow", fault="node: node1, down: true")
    assert (code, err.count("(node1.gpu")) == (3, 8)
    assert "15 (node1.gpu7) with the other 8, with 24 links down: group 0 spans them." in err
    code, _, err = run(fault="link: [node0.nic0, leaf0.0], down: true", network="closed-form")
    assert (code, err) == (2, "the closed form knows no single link: --fault needs --network flow.\n")


def test_neighbours_over_nodes_link_by_link():
    words = ("network", "collective", "send_recv", "--system", "dgx-h100", "--accelerators", "16", "--size", "64MiB")
    closed, flow = (json.loads(rapid_llm(*words, "--json", *more).out) for more in ([], ["--network", "flow"]))
    assert flow["seconds"] == pytest.approx(closed["seconds"], rel=0.01)


EDGES = """from,to,bandwidth,latency
gpu0,gpu1,50 GB/s,1 us
gpu1,gpu2,50 GB/s,1 us
gpu2,gpu3,25 GB/s,1 us
gpu3,gpu0,50 GB/s,1 us
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder with a user's files; ``links(*words)`` runs a 64 MiB all-reduce on one of them."""
    monkeypatch.chdir(tmp_path)
    files = {
        "edges.csv": EDGES,
        "matrix.csv": " D\\D 0 1\n 0 900 25\n 1 50 900\n",
        "narrow.csv": "0,1,2\n1,0,2\n",
        "negative.csv": "0,1\n-1,0\n",
        "slow.csv": "from,to,bandwidth\na,b,-5 GB/s\n",
        "apart.csv": "from,to,bandwidth\na,b,5 GB/s\nc,d,5 GB/s\n",
        "routes.csv": "from,to,via\ngpu0,gpu1,gpu3 gpu2\n",
        "nowhere.csv": "from,to,via\ngpu0,gpu2,\n",
        "ends.csv": "from,to,via\ngpu0,gpu1,gpu0 gpu3 gpu2\n",
        "others.csv": "from,to,bytes\ngpu2,gpu3,64MiB\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return lambda *words: rapid_llm("network", "links", *words, "--size", "64MiB")


def test_a_collective_on_own_links(own):
    answer = json.loads(own("edges.csv", "all_reduce", "--json", "--svg", "links.svg").out)
    assert answer["algorithm"] == "two-way-ring"
    assert answer["seconds"] == pytest.approx(2 * 3 / 4 * 2**26 / 50e9, rel=0.01)  # half each way over 25 GB/s
    assert "<svg" in Path("links.svg").read_text()
    matrix = json.loads(own("matrix.csv", "send_recv", "--json").out)
    assert matrix["seconds"] == pytest.approx(2**26 / 25e9)


@pytest.mark.parametrize("mark", [";", "\t"])
def test_edges_as_spreadsheets_and_archives_hold_them(own, mark):
    comma = own("edges.csv", "all_reduce").out
    Path("other.csv").write_bytes(b"\xef\xbb\xbf" + EDGES.replace(",", mark).replace("\n", "\r\n").encode())
    Path("packed.csv.gz").write_bytes(gzip.compress(EDGES.encode()))
    for name in ("other", "packed"):
        found = own(f"{name}.csv{'.gz' if name == 'packed' else ''}", "all_reduce").out
        assert found.replace(f"of {name},", "of edges,") == comma


def test_own_routes_and_background_traffic_cost_what_they_take(own):
    alone, routed, beside, hurt = (
        json.loads(own("edges.csv", "all_reduce", "--algorithm", "two-way-ring", "--json", *more).out)["seconds"]
        for more in (
            [],
            ["--routing", "routes.csv"],
            ["--traffic", "others.csv"],
            ["--fault", "link: [gpu0, gpu1], down: true"],
        )
    )
    assert routed > 1.5 * alone  # gpu0 to gpu1 over the slow link, where half of a ring runs
    assert 1.5 * alone < beside <= alone + 2**26 / 25e9  # shared fairly, at most behind it
    assert hurt >= alone


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (
            ["narrow.csv", "all_reduce"],
            2,
            "narrow.csv:1: a bandwidth matrix is square, one row and column an accelerator",
        ),
        (["negative.csv", "all_reduce"], 2, "negative.csv:2: '-1' is not a bandwidth in GB/s, 0 or more."),
        (["slow.csv", "all_reduce"], 2, "slow.csv:2: links[0].bandwidth of slow must be above 0 (got '-5 GB/s')."),
        (["apart.csv", "all_reduce"], 3, "apart is disconnected: no live path joins accelerators 0 (a), 1 (b)"),
        (["none.csv", "all_reduce"], 2, "none.csv: no such file."),
        (["edges.csv", "allreduc"], 2, "collective 'allreduc' is unknown. Did you mean 'all_reduce'?"),
        (["edges.csv", "all_reduce", "--routing", "nowhere.csv"], 2, "nowhere.csv:2: a route goes from gpu0 to gpu2, "),
        (["edges.csv", "all_reduce", "--routing", "ends.csv"], 2, "Try only the nodes between them."),
        (["edges.csv", "all_reduce", "--routing", "spry"], 2, "routing 'spry' is unknown. Did you mean 'spray'?"),
        (
            ["edges.csv", "all_reduce", "--accelerators", "9"],
            2,
            "edges has 4 accelerators; a collective takes 2 or more",
        ),
        (
            ["edges.csv", "all_reduce", "--fault", "link: [gpu0, gpu9], down: true"],
            2,
            "edges has no node 'gpu9'. Did you",
        ),
        (["edges.csv", "all_reduce", "--fault", "link: [gpu0, gpu2], down: true"], 2, "is joined to gpu3, gpu1."),
        (["edges.csv", "all_reduce", "--fault", "accelerator: 2, down: true"], 3, "disconnected: no live path joins"),
        (["dgx-h100", "all_reduce", "--accelerators", "20000"], 2, "has 16384 accelerators, not 20000."),
    ],
)
def test_own_links_that_make_no_sense_are_one_sentence(own, words, code, sentence):
    answer = own(*words)
    assert answer.code == code
    assert sentence in answer.err
    assert answer.err.count("\n") == 1


def test_the_picture_of_a_system(tmp_path):
    picture = tmp_path / "dgx.svg"
    assert rapid_llm("show", "system", "dgx-h100", "--topology", str(picture), "--accelerators", "16").code == 0
    assert "node1.gpu7" in picture.read_text()
    assert rapid_llm("show", "model", "llama-3.1-70b", "--topology", str(picture)).err == (
        "--topology draws the links of a system, not of a model.\n"
    )


def ask(op, *more):
    ran = rapid_llm("network", "collective", op, "--system", "dgx-h100", *more)
    return ran.code, ran.out, ran.err


@pytest.mark.parametrize("name", ["AllReduce", "allreduce", "all-reduce"])
def test_any_spelling_of_an_operation(name):
    code, out, _ = ask(name, "--size", "1MiB", "--accelerators", "8")
    assert code == 0
    assert out.startswith("all_reduce ")


def test_an_exchange_by_a_matrix(tmp_path):
    file = tmp_path / "m.csv"
    file.write_text("0,1MiB,1048576\n1MiB,0,1MiB\n1MiB,1MiB,0\n")
    code, out, _ = ask("all_to_allv", "--matrix", str(file), "--json")
    answer = json.loads(out)
    assert code == 0
    assert answer["sent_bytes"] == [2 * 2**20] * 3
    assert answer["seconds"] == pytest.approx(answer["even_seconds"])
    code, out, _ = ask("alltoallv", "--matrix", str(file), "--network", "flow", "--html", str(tmp_path / "m.html"))
    assert "busiest link gpu0 > nvswitch: 2.00 MiB" in out
    assert "Use of the busiest link" in (tmp_path / "m.html").read_text()


def test_links_of_a_matrix_agree_with_its_closed_form_and_feel_others(tmp_path):
    matrix, traffic = tmp_path / "m.csv", tmp_path / "t.csv"
    matrix.write_text("\n".join(",".join("0" if i == j else "8MiB" for j in range(16)) for i in range(16)))
    traffic.write_text("from,to,bytes\nnode0.gpu0,node1.gpu0,1 GiB\n")
    given = ("all_to_allv", "--matrix", str(matrix), "--json")
    alone = json.loads(ask(*given, "--network", "flow")[1])
    assert alone["seconds"] == pytest.approx(alone["closed_form_seconds"], rel=0.01)
    beside = json.loads(ask(*given, "--traffic", str(traffic))[1])
    assert beside["seconds"] > 1.05 * alone["seconds"]
    assert all(link["use"] <= 1 for link in beside["busiest_links"])


@pytest.mark.parametrize("op", ["dispatch", "combine"])
def test_tokens_go_once_to_each_rank_and_node(op):
    given = (op, "--tokens", "4096", "--accelerators", "32", "--json")
    answer = json.loads(ask(*given)[1])
    assert answer["destinations_per_token"]["ranks"] == pytest.approx(32 * (1 - (1 - 1 / 32) ** 8))
    assert answer["destinations_per_token"]["nodes"] == pytest.approx(4 * (1 - 0.75**8))
    element = {"dispatch": 1 + 4 / 128, "combine": 2}[op]
    nodes = answer["destinations_per_token"]["nodes"]
    assert answer["node_bytes"] == pytest.approx(4096 * 7168 * element * nodes * 3 / 4)
    flow = json.loads(ask(*given, "--network", "flow")[1])
    assert flow["seconds"] == pytest.approx(answer["seconds"], rel=0.02)
    assert len(flow["busiest_links"]) == 5
    hurt = json.loads(ask(*given, "--fault", "nic: node1.nic3, down: true")[1])
    assert hurt["seconds"] > flow["seconds"]


def test_tokens_of_decode_go_as_engines_decode():
    given = ("dispatch", "--tokens", "128", "--accelerators", "64")
    out = ask(*given)[1]
    assert "mode low-latency" in out and "also wait for the host" in out
    assert "mode (closed form, healthy)" in ask(*given, "--network", "flow")[1]
    out = ask("dispatch", "--tokens", "129", *given[3:])[1]
    assert "mode normal" in out and "wait for the host" not in out


def test_faults_without_blanks_routes_and_a_picture(tmp_path):
    routes, picture = tmp_path / "routes.csv", tmp_path / "links.svg"
    routes.write_text("from,to,via\nnode0.gpu0,node1.gpu0,node0.nic0 leaf0.0 node1.nic0\n")
    given = ("all_reduce", "--size", "64MiB", "--accelerators", "16", "--routing", str(routes))
    code, out, _ = ask(*given, "--fault", "link:[node0.nic0,leaf0.0],bandwidth:50%", "--svg", str(picture))
    assert code == 0
    assert "link by link" in out
    assert picture.read_text().startswith("<svg")


def test_nodes_that_a_group_fills_in_part():
    code, out, _ = ask("all_reduce", "--size", "64MiB", "--accelerators", "12", "--network", "flow")
    assert code == 0
    assert "candidate (closed form, healthy)  protocol" in out
    assert "12 accelerators of dgx-h100, 2 nodes" in out


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("all_reduce",), "all_reduce needs --size, such as --size 256MiB."),
        (("all_to_allv",), "all_to_allv needs --matrix, such as --matrix FILE."),
        (("dispatch",), "dispatch needs --tokens, such as --tokens 4096."),
        (("all_reduce", "--size", "1MiB", "--tokens", "8"), "all_reduce does not take --tokens; it takes --size."),
        (("all_reduce", "--size", "1MiB", "--topk", "8"), "all_reduce does not take --topk; it takes --size."),
        (("dispatch", "--tokens", "8", "--small", "nccl"), "dispatch does not take --small; it takes --tokens."),
        (
            ("all_gather", "--size", "1MiB", "--small", "nccl"),
            "--small is a library for all_reduce (got all_gather). Try to leave it out.",
        ),
        (("all_reduce", "--size", "1MiB", "--units", "4"), "all_reduce does not take --units; it takes --size."),
        (("all_reduce", "--size", "1MiB", "--svg", ""), "--svg is empty. Try the path of a file, or to leave it out."),
        (("all_to_allv", "--matrix", ""), "--matrix is empty. Try the path of a file, or to leave it out."),
        (
            ("dispatch", "--tokens", "8", "--accelerators", "32", "--node-limit", "99"),
            "--node-limit 99 is more than the nodes of these ranks, 4. Try 4, or to leave it out.",
        ),
        (("dispatch", "--tokens", "8", "--size", "1MiB"), "dispatch does not take --size; it takes --tokens."),
        (("dispach", "--tokens", "8"), "collective 'dispach' is unknown. Did you mean 'dispatch'?"),
        (("combine", "--tokens", "0", "--accelerators", "8"), "--tokens must be at least 1 (got 0). Try 1."),
        (
            ("dispatch", "--tokens", "8", "--accelerators", "24"),
            "--experts 256 must be a multiple of the 24 ranks that hold them; give --accelerators 16.",
        ),
        (
            ("dispatch", "--tokens", "8", "--accelerators", "8", "--topk", "300"),
            "--topk 300 is above --experts 256. Try --topk 256.",
        ),
        (("dispatch", "--tokens", "8", "--accelerators", "8", "--mode", "lowlatency"), "Did you mean 'low-latency'?"),
        (("all_reduce", "--size", "1MiB", "--svg", "x.png"), "--svg x.png: the picture is SVG. Try --svg x.svg."),
    ],
)
def test_what_an_operation_lacks_or_does_not_take(more, sentence):
    code, out, err = ask(*more)
    assert (code, out) == (2, "")
    assert sentence in err


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("0,1,2\n1,5\n", ":1: must be square, a row and a column for each rank (got 2 rows and 3 columns)."),
        ("0,1\n1,-5\n", ":2: a message must be 0 bytes or more (got -5)."),
        ("a,b\n0,1\n1,0\n", ":1: line 1 is a header. Try rows of numbers alone."),
        ("0,1\n1e308,0\n", ":2: a message must be at most 1 EiB (got 1e308). Try a size such as 1MiB."),
        ("0,x\n1,5\n", ":1: a message is not a quantity"),
        ("0\n", "one accelerator has nobody to talk to"),
    ],
)
def test_a_matrix_that_is_none(tmp_path, text, sentence):
    file = tmp_path / "m.csv"
    file.write_text(text)
    code, _, err = ask("all_to_allv", "--matrix", str(file))
    assert code == 2
    assert sentence in err


def test_links_of_a_system_of_ones_own(tmp_path):
    file = tmp_path / "mesh.yaml"
    file.write_text(
        "{name: mesh, node: {accelerator: h100-sxm, accelerators: 8, scale_up: {topology: mesh, sides: [4, 2]}}}"
    )
    ran = rapid_llm("network", "links", str(file), "all_reduce", "--size", "64MiB")
    assert ran.code == 0
    assert "8 accelerators of mesh-4x2" in ran.out
    ran = rapid_llm("show", "system", str(file), "--topology", str(tmp_path / "mesh.svg"))
    assert (ran.code, (tmp_path / "mesh.svg").read_text()[:4]) == (0, "<svg")


def test_ranks_are_placed_on_accelerators_of_ones_own(tmp_path):
    file = tmp_path / "matrix.csv"
    file.write_text("0,20,200,20\n20,0,20,200\n200,20,0,20\n20,200,20,0\n")
    asked = ("network", "links", str(file), "all_reduce", "--size", "64MiB", "--algorithm", "halving-doubling")
    ran = rapid_llm(*asked, "--place", "best")
    assert ran.code == 0
    assert " in order" in ran.out and "% less than 3.52 ms" in ran.out
    found = json.loads(rapid_llm(*asked, "--place", "best", "--json").out)
    assert found["seconds"] < found["unplaced_seconds"]
    there = json.loads(rapid_llm(*asked, "--place", ",".join(found["ranks_on"]), "--json").out)
    assert (there["seconds"], there["unplaced_seconds"]) == (found["seconds"], None)
    for place, sentence in (
        ("gpu0,gpu2,gpu0,gpu3", "placement puts ranks 0 and 2 both on gpu0; an accelerator holds one rank."),
        ("gpu0,gpu9", "matrix has no node 'gpu9'."),
    ):
        ran = rapid_llm(*asked, "--place", place)
        assert ran.code == 2
        assert sentence in ran.err
    ran = rapid_llm(*asked, "--place", "gpu0,gpu2", "--accelerators", "4")
    assert ran.code == 2
    assert "--place names 2 accelerators, and --accelerators asks for 4; leave one out." in ran.err


def test_links_of_a_system_carry_any_ranks_at_any_places():
    asked = ("network", "links", "dgx-h100", "all_reduce", "--size", "1MiB", "--json")
    some = json.loads(rapid_llm(*asked, "--accelerators", "12").out)  # a node and a half
    assert (some["accelerators"], some["ranks_on"][-1]) == (12, "node1.gpu3")
    there = json.loads(rapid_llm(*asked, "--place", "node0.gpu0,node3.gpu5,node9.gpu1").out)
    assert there["ranks_on"] == ["node0.gpu0", "node3.gpu5", "node9.gpu1"]


def test_links_that_are_shared_by_turns_are_told_of_ones_own(tmp_path):
    """Pairs of a ring that are not neighbours go round it, while others have gone on to the next step."""
    file = tmp_path / "ring.csv"
    file.write_text("from,to,bandwidth\ngpu0,gpu1,50 GB/s\ngpu1,gpu2,50 GB/s\ngpu2,gpu3,25 GB/s\ngpu3,gpu0,50 GB/s\n")
    asked = ("network", "links", str(file), "all_reduce", "--size", "64MiB")
    assert "do not follow how sends of halving-doubling share links by turns" in rapid_llm(*asked).out
    assert "by turns" not in rapid_llm(*asked, "--algorithm", "ring").out


def test_reducing_switches_between_nodes_run_link_by_link(tmp_path):
    file = tmp_path / "sharp.yaml"
    file.write_text("{name: sharp, base: dgx-h100, fabric: {in_network_reduction: true}}")
    asked = ("network", "collective", "all_reduce", "--system", str(file), "--accelerators", "64", "--size", "256MiB")
    ran = rapid_llm(*asked, "--network", "flow", "--json")
    assert ran.code == 0
    told = json.loads(ran.out)
    assert told["algorithm"] == "sharp"
    assert told["seconds"] == pytest.approx(json.loads(rapid_llm(*asked, "--json").out)["seconds"], rel=0.01)


def test_where_a_reducing_switch_is_out_of_reach_libraries_fall_back(tmp_path):
    file = tmp_path / "sharp.yaml"
    file.write_text("{name: sharp, base: dgx-h100, fabric: {in_network_reduction: true}}")
    asked = ("network", "collective", "all_reduce", "--system", str(file), "--accelerators", "64", "--size", "256MiB")
    down = ("--fault", "link: [node0.nic0, leaf0.0], down: true")
    ran = rapid_llm(*asked, *down, "--json")
    assert (ran.code, json.loads(ran.out)["algorithm"]) == (0, "ring")
    ran = rapid_llm(*asked, *down, "--algorithm", "sharp")
    assert ran.code != 0
    assert "node0.gpu0 to a switch that reduces. Try another algorithm, such as ring." in ran.err


def test_sends_that_share_links_by_turns_are_told():
    flags = {"accelerators": "8", "stride": "3", "algorithm": "halving-doubling"}
    _, out, _ = run(**flags)
    assert "share links by turns" in out
    assert json.loads(run("--json", **flags)[1])["shares_links_by_turns"]
    assert not json.loads(run("--json")[1])["shares_links_by_turns"]
    assert "share links by turns" not in run("--network", "flow", **flags)[1]


def test_links_of_a_large_system_are_those_of_its_first_nodes():
    ran = rapid_llm("network", "links", "gb200-nvl72", "all_reduce", "--size", "1MiB", "--algorithm", "hierarchical")
    assert "on 216 accelerators" in ran.out
    assert "the first 216 of 9216 accelerators; --accelerators takes more" in ran.out
