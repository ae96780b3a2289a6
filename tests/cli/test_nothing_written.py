"""Jobs that write no token: no beams, no draft, no time per output token."""

import pytest

from .shell import rapid_llm

SILENT = "infer llama-3.1-8b --accelerator h100-sxm --prompt-tokens 512 --output-tokens 0"
ENCODER = "infer bert-large --accelerator l4 --prompt-tokens 512"
NOTHING = "workload.output_tokens 0 leaves nothing to write, and"
LIMIT = "slo tpot is of tokens that are written, and output_tokens is 0. Try ttft alone"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            f"{SILENT} --batch-size 1 --beams 4",
            f"{NOTHING} beams 4 is asked for. Try output_tokens 64, or to leave beams 4 out.",
        ),
        (
            f"{SILENT} --batch-size 1 --draft ngram --acceptance [0.4]",
            f"{NOTHING} speculation is asked for. Try output_tokens 64, or to leave speculation out.",
        ),
        (f"{SILENT} --slo tpot=1ms", f"{LIMIT}, or output_tokens 64."),
        (f"{ENCODER} --slo tpot=1ms", f"{LIMIT}."),
    ],
)
def test_what_is_written_is_asked_for(words: str, sentence: str):
    ran = rapid_llm(*words.split())
    assert (ran.code, ran.out, ran.err) == (2, "", sentence + "\n")


@pytest.mark.parametrize(
    ("limit", "why"),
    [
        ("1s", "TTFT 1.00 s for 100 users: its one accelerator holds 72 of them. Try 72 users, or a larger system."),
        ("1us", "TTFT 1.00 µs for even one user. Try a longer limit, or a faster system."),
    ],
)
def test_why_no_plan_keeps_an_objective(limit: str, why: str):
    ran = rapid_llm(*ENCODER.split(), "--slo", f"ttft={limit}", "--users", 100)
    assert (ran.code, ran.err) == (3, f"no plan of l4 keeps {why}\n")
