"""What a pipeline schedule asks of a plan, and the sentences that say so."""

import pytest

from rapid_llm.errors import InputError
from rapid_llm.scenario import from_mapping


def scenario(*, batch: int = 64, accelerators: int = 64, **plan):
    return from_mapping(
        {
            "model": "llama-2-7b",
            "system": "dgx-h100",
            "accelerators": accelerators,
            "parallelism": {"tp": 8, **plan},
            "workload": {"kind": "training", "global_batch_size": batch, "sequence_length": 4096},
        }
    )


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        ({"pp": 4, "schedule": "breadth-first"},
         "schedule breadth-first needs vpp above 1 (got vpp 1). Try vpp 2, or schedule: 1f1b."),
        ({"pp": 4, "vpp": 2, "schedule": "zb-h1"},
         "parallelism.vpp 2 needs schedule: interleaved (got zb-h1). Try vpp 1."),
        ({"pp": 4, "vpp": 2, "schedule": "zb-v"},
         "schedule zb-v has two chunks a stage of its own (got vpp 2). Try vpp 1."),
        ({"pp": 4, "vpp": 2, "schedule": "dualpipe"},
         "schedule dualpipe has two chunks a stage of its own (got vpp 2). Try vpp 1."),
        ({"pp": 5, "accelerators": 40, "schedule": "dualpipe"},
         "schedule dualpipe needs an even pp, since micro-batches enter at both ends (got pp 5). "
         "Try pp 6, or schedule: dualpipe-v."),
        ({"pp": 3, "accelerators": 24, "schedule": "zb-v"},
         "schedule zb-v cuts each of pp 3 stages in 2 chunks: 32 layers / 6 leaves 2. Try pp 1, 2, 4, 8, 16."),
        ({"pp": 8, "batch": 14, "schedule": "dualpipe"},
         "schedule dualpipe needs 16 micro-batches for pp 8, else its stages wait (got 14). "
         "Try global_batch_size 16, or schedule: 1f1b."),
        ({"pp": 8, "batch": 17, "schedule": "dualpipe"},
         "schedule dualpipe needs an even number of micro-batches, half of them for each way (got 17). "
         "Try global_batch_size 16 or 18."),
        ({"pp": 8, "batch": 15, "schedule": "dualpipe-v"},
         "schedule dualpipe-v needs 16 micro-batches for pp 8, else its stages wait (got 15). "
         "Try global_batch_size 16, or schedule: 1f1b."),
        ({"pp": 8, "vpp": 2, "batch": 7, "schedule": "breadth-first"},
         "schedule breadth-first needs 8 micro-batches for pp 8, else its stages wait (got 7). "
         "Try global_batch_size 8, or schedule: 1f1b."),
    ],
)  # fmt: skip
def test_sentences(plan: dict, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        assert scenario(**plan).parallelism.schedule == plan["schedule"]
    assert caught.value.message == sentence


@pytest.mark.parametrize(
    "plan",
    [
        {"pp": 8, "schedule": "dualpipe"},
        {"pp": 8, "schedule": "zb-v", "batch": 3},
        {"pp": 4, "schedule": "zb-h2", "accelerators": 32},
        {"pp": 8, "vpp": 2, "schedule": "breadth-first", "batch": 9},
        {"pp": 8, "schedule": "pipedream-2bw"},
    ],
)
def test_what_is_taken(plan: dict) -> None:
    assert scenario(**plan).parallelism.schedule == plan["schedule"]
