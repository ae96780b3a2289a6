"""The collectives suite: how rows of its tables become cases."""

from pathlib import Path

import pytest

from rapid_llm.validation import run
from rapid_llm.validation.suites import collectives
from rapid_llm.validation.tables import Table

DATA = Path(__file__).parents[2] / "../shared/data"
HEADER = ("lib", "op", "dtype", "ngpus", "bytes", "latency_us", "framework", "version", "kernel")
SIZES = ("1024", "1048576", "268435456")


def box(*rows, name="nccl_h100_sxm.csv"):
    return Table("collectives", Path(name), tuple(dict(zip(HEADER, row, strict=True)) for row in rows))


def nccl(op="all_reduce", dtype="fp16", sizes=SIZES):
    return box(*[("nccl", op, dtype, "8", size, "100", "nccl", "2.27.3", "NCCL") for size in sizes])


def test_a_row_is_a_case_of_its_accelerator_library_and_operation():
    first, *_ = collectives.cases(nccl("alltoall"))
    assert (first.group, first.key) == ("h100-sxm/nccl/all_to_all", "h100-sxm/nccl/all_to_all/8")
    assert (first.quantity, first.metric) == ("seconds", "latency")
    assert first.measured == pytest.approx(1e-4)
    assert 5e-6 < first.answer() < 15e-6


def test_the_switch_reduces_no_integers():
    floating, whole = ([case.answer() for case in collectives.cases(nccl(dtype=d))] for d in ("fp16", "int8"))
    assert floating[-1] < whole[-1]


def test_engines_have_their_own_all_reduce_and_host_launches_are_set_aside():
    replayed, eager = sorted(
        collectives.cases(
            box(
                ("custom", "all_reduce", "bf16", "8", "8192", "5", "vllm", "0.19.0", "vLLM_custom_graph"),
                ("custom", "all_reduce", "bf16", "8", "8192", "50", "vllm", "0.19.0", "vLLM_custom_eager"),
            )
        ),
        key=lambda case: case.id,
    )
    assert replayed.key == "h100-sxm/custom/all_reduce/vllm/8"
    assert replayed.answer() < 6e-6
    assert eager.reason == "launched by the host, whose time it is"


def test_a_box_that_nobody_described_is_a_reason():
    (case,) = collectives.cases(
        box(("nccl", "all_reduce", "fp16", "8", "8", "9", "nccl", "2", ""), name="nccl_v100.csv")
    )
    assert (case.group, case.reason) == ("v100-sxm/nccl/all_reduce", "no box of v100-sxm is described")


@pytest.mark.parametrize(("a", "b"), [(1e-5, 1e-11), (0.0, 1e-11), (1e-5, 0.0)])
def test_the_naive_line_finds_itself(a, b):
    sizes = [1e3, 1e6, 1e8]
    assert collectives.alpha_beta(sizes, [a + b * s for s in sizes]) == pytest.approx([a + b * s for s in sizes])


UNSEEN = {  # a little above what is reached on rows that no fit saw
    **{f"{gpu}/nccl/all_reduce": 0.08 for gpu in ("a100-sxm", "h100-sxm", "b200-sxm")},
    **{f"{gpu}/nccl/all_gather": 0.1 for gpu in ("a100-sxm", "h100-sxm", "b200-sxm")},
    **{f"{gpu}/nccl/reduce_scatter": 0.08 for gpu in ("a100-sxm", "h100-sxm", "b200-sxm")},
    **{f"{gpu}/nccl/all_to_all": 0.1 for gpu in ("a100-sxm", "h100-sxm", "b200-sxm")},
    **{f"{gpu}/custom/all_reduce": 0.1 for gpu in ("a100-sxm", "h100-sxm", "b200-sxm")},
    **{
        f"{gpu}/deepep-{mode}/{phase}": 0.13
        for gpu in ("h100-sxm", "b200-sxm")
        for mode in ("normal", "low-latency")
        for phase in ("dispatch", "combine")
    },
    "l40s/nccl/all_reduce": 0.15,
    "l40s/custom/all_reduce": 0.15,
}
LOGS = {
    "h100-sxm/nccl-2x4/all_reduce": 0.2,
    "h100-sxm/nccl-2x1/all_reduce": 0.2,
    "h100-sxm/nccl-2x8/all_reduce": 0.1,
    "h100-sxm/nccl-2x8/all_to_all": 0.1,
    "h100-sxm/nccl-1x8/all_reduce": 0.1,
    "gb200/nccl-1x4/all_reduce": 0.1,
    "mi250x/rccl-4x8/all_reduce": 0.15,
    "mi250x/rccl-4x8/all_gather": 0.15,
    "mi355x/rccl-1x8/all_reduce": 0.05,
    "mi355x/rccl-1x8/all_to_all": 0.1,
}


@pytest.mark.shared
@pytest.mark.skipif(not DATA.is_dir(), reason="no ../shared/data beside the checkout")
def test_the_scorecard_of_measured_tables():
    rows = {(row.group, row.split): row for row in run(["collectives"], DATA).rows}
    reached = {group: rows[group, "unseen"].mape for group in UNSEEN} | {g: rows[g, "all"].mape for g in LOGS}
    assert not {group: mape for group, mape in reached.items() if mape > {**UNSEEN, **LOGS}[group]}
