"""Unlike groups of nodes at the door: the answer, the catalogue, pages."""

import json
from pathlib import Path

import pytest

from .shell import rapid_llm

JOB = (
    "train", "llama-3.1-8b", "--system", "2x dgx-h100 + 2x dgx-a100", "--tp", "4", "--pp", "2",
    "--global-batch-size", "64", "--sequence-length", "8192",
)  # fmt: skip


def flat(text: str) -> str:
    return " ".join(text.split())


def test_the_answer_names_groups_and_who_waits():
    ran = rapid_llm(*JOB)
    assert ran.code == 0, ran.err
    out = flat(ran.out)
    assert "stages 0 on dgx-h100 (h100-sxm): " in out
    assert "; 1 on dgx-a100 (a100-sxm): " in out
    assert "others wait for stage 1 on dgx-a100 (a100-sxm); layers_per_stage [24, 8] would take " in out
    assert "over the dense bf16 peaks of all accelerators together" in out
    assert "accelerators 32 (all groups of the system)" in out
    assert len(ran.out.splitlines()) <= 30
    dealt = rapid_llm(*JOB, "--layers-per-stage", "[24, 8]", "--json")
    seats = json.loads(dealt.out)["seats"]
    assert [stage["layers"] for stage in seats["stages"]] == [24, 8]
    assert seats["balanced_layers_per_stage"] is None


def test_replicas_that_wait_are_named():
    out = flat(rapid_llm(*JOB, "--set", "placement.order=[tp, pp, cp, ep, dp]").out)
    assert "0 to 1 on dgx-a100 (a100-sxm)" in out
    assert "replicas on dgx-h100 wait for these" in out


def test_the_catalogue_shows_groups_and_what_joins_them(tmp_path: Path):
    file = tmp_path / "sites.yaml"
    file.write_text(
        "name: two sites\n"
        "groups: [{name: paris, node: dgx-h100, nodes: 4}, {name: oslo, node: dgx-a100, nodes: 4}]\n"
        "links: [{bandwidth: 10 GB/s, latency: 8 ms}]\n"
    )
    out = flat(rapid_llm("show", "system", file).out)
    assert "group paris 4 nodes of 8 h100-sxm, 80.0 GiB, 989 TFLOP/s bf16 each" in out
    assert "paris - oslo 10.0 GB/s in all, 312 MB/s an accelerator" in out
    joined = flat(rapid_llm("show", "system", "4x dgx-h100 + 4x dgx-a100").out)
    assert "dgx-h100 - dgx-a100 25.0 GB/s an accelerator" in joined
    linked = rapid_llm("run", EXAMPLE, "--set", f"system={file}")
    assert linked.code == 0, linked.err


EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "two-generations-training.yaml"


def test_the_schedule_page_says_what_each_stage_sits_on(tmp_path: Path):
    page = tmp_path / "schedule.html"
    assert rapid_llm(*JOB, "--timeline", page).code == 0
    text = page.read_text()
    assert "stage 1 dgx-h100" in text
    assert "stage 2 dgx-a100" in text


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (("network", "collective", "all_reduce", "--system", "1x dgx-h100 + 1x dgx-a100", "--size", "1MiB"),
         "system '1x dgx-h100 + 1x dgx-a100' joins unlike groups of nodes, dgx-h100 and dgx-a100"),
        (("network", "placement", str(EXAMPLE)), "network placement orders axes on equal nodes"),
        (("infer", "llama-3.1-8b", "--system", "1x dgx-h100 + 1x dgx-a100", "--batch-size", "8", "--prompt-tokens", "9",
          "--output-tokens", "9"), "which only the stages and replicas of a training job can be laid over"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_of_groups(argv: tuple[str, ...], sentence: str):
    ran = rapid_llm(*argv)
    assert ran.code == 2
    assert sentence in flat(ran.err)


UNJOINED = """workload: {kind: training, global_batch_size: 64, sequence_length: 512}
model: llama-3.1-8b
parallelism: {tp: 8, pp: 3}
system:
  groups: [{node: dgx-h100, nodes: 1}, {node: dgx-a100, nodes: 1}, {node: dgx-h200, nodes: 1}]
"""


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ("  links: [{bandwidth: 10 GB/s, between: [dgx-h100, dgx-a100]}]\n",
         "{f}:5: system '1x dgx-h100 + 1x dgx-a100 + 1x dgx-h200' does not say what joins dgx-h100 and dgx-h200. "
         "Try links: [{bandwidth: 100 Gb/s, latency: 10 us, between: [dgx-h100, dgx-h200]}]."),
        ("  fabric: {topology: ring}\n",
         "{f}:5: system '1x dgx-h100 + 1x dgx-a100 + 1x dgx-h200': a ring joins nodes of one kind, so no fabric joins "
         "it. Try a fabric in each group."),
    ],
)  # fmt: skip
def test_groups_that_nothing_joins_fail_a_check(tmp_path: Path, more: str, sentence: str):
    file = tmp_path / "job.yaml"
    file.write_text(UNJOINED + more)
    said = sentence.replace("{f}", str(file))
    ran = rapid_llm("run", file)
    assert (ran.code, ran.err) == (2, said + "\n")
    assert "groups are joined" in rapid_llm("check", file).out


@pytest.mark.parametrize("name", ["1.5x dgx-h100 + 4x dgx-a100", "4x dgx-h100 +", "dgx-h100 + dgx-a100"])
def test_a_system_meant_as_groups_says_how_they_are_written(name: str):
    ran = rapid_llm("train", "llama-3.1-8b", "--system", name, "--global-batch-size", 8, "--sequence-length", 512)
    assert (ran.code, ran.err) == (
        2,
        f"system '{name}' does not say its groups of nodes, each a whole number of a system. "
        "Try '4x dgx-h100 + 4x dgx-a100', or --system dgx-h100 for one group.\n",
    )


def test_fewer_than_no_nodes():
    ran = rapid_llm("train", "llama-3.1-8b", "--system", "-1x dgx-h100 + 4x dgx-a100")
    assert (ran.code, ran.err) == (
        2,
        "--system '-1x dgx-h100 + 4x dgx-a100' names no system. Try '4x dgx-h100 + 4x dgx-a100', or dgx-h100.\n",
    )


def test_a_group_is_not_set_by_itself(tmp_path: Path):
    file = tmp_path / "job.yaml"
    file.write_text(UNJOINED)
    ran = rapid_llm("run", file, "--set", "system.groups.0.nodes=0")
    said = "system.groups is a list: give the whole list. Try --set system.groups=[...].\n"
    assert (ran.code, ran.err) == (2, said)


def test_a_group_has_the_bound_of_a_job():
    ran = rapid_llm(*JOB[:3], "1000000000x dgx-h100 + 2x dgx-a100", *JOB[4:], "--accelerators", "16")
    assert (ran.code, ran.err) == (2, "groups[0].nodes must be at most 1,048,576 (got 1000000000).\n")
