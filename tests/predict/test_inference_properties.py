"""What holds for every model and accelerator: growth, conservation, and nothing for nothing."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rapid_llm.nouns import replaced
from rapid_llm.predict import evaluate, predict
from rapid_llm.scenario import from_mapping

FEW = settings(max_examples=8, deadline=None)
MODELS = st.sampled_from(["llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v2-lite", "gemma-3-4b", "jamba-v0.1"])
EXPERTS = ("qwen3-30b-a3b", "deepseek-v2-lite", "jamba-v0.1")
CHIPS = st.sampled_from(["h200-sxm", "mi300x", "b200-sxm", "rtx-pro-6000"])


def scenario(model, system, *, tp=1, experts=None, **work):
    mapping = {"model": model, "system": system, "parallelism": {"tp": tp}, "runtime": "vllm", "precision": "bf16"}
    given_ = {"kind": "inference", "batch_size": 8, "prompt_tokens": 500, "output_tokens": 50, **work}
    return from_mapping({**mapping, "workload": given_}, checked=False)


@FEW
@given(model=MODELS, chip=CHIPS, batch=st.integers(1, 48), prompt=st.integers(10, 3000))
def test_decode_grows_with_requests_and_with_the_cache(model, chip, batch, prompt):
    base, more, longer = (
        evaluate(scenario(model, chip, batch_size=b, prompt_tokens=p)).tpot_s
        for b, p in ((batch, prompt), (2 * batch, prompt), (batch, 2 * prompt))
    )
    one_split = 1e-3  # more sequences need fewer splits of the cache, whose results need no merging
    one_tile = 0.08 if model in EXPERTS else one_split  # engines pick the tile of experts by rule, not by time
    assert more >= base * (1 - one_tile)
    assert longer >= base * (1 - one_split)


@FEW
@given(chip=CHIPS, batch=st.integers(1, 64))
def test_decode_does_not_grow_with_experts_that_nobody_chooses(chip, batch):
    """All tokens go to 8 experts, as counted: 120 more in memory cost no time in their kernels, but where the tile is
    that of the average expert (Blackwell)."""
    few, many = ({"counts": [1] * 8 + [0] * rest} for rest in (0, 120))
    given_ = scenario("qwen3-30b-a3b", chip, batch_size=batch, routing=many)
    block = given_.model.blocks[0]
    small = replaced(block, ffn=replaced(block.ffn, num_experts=8))
    model = replaced(given_.model, blocks=(small,))
    work = replaced(scenario("qwen3-30b-a3b", chip, batch_size=batch, routing=few).workload)
    fewer = replaced(given_, model=model, workload=work)
    experts = [
        sum(
            leaf.seconds
            for leaf in predict(one, allow_infeasible=True).phases["decode"].leaves()
            if leaf.name == "experts"
        )
        for one in (given_, fewer)
    ]
    assert experts[0] == pytest.approx(experts[1], rel=0.1 if chip.startswith("b200") else 1e-6)


@FEW
@given(model=MODELS, chip=CHIPS, chunk=st.integers(64, 900))
def test_chunks_never_lose_work(model, chip, chunk):
    """A prompt in chunks multiplies as much as the whole, and takes no less time."""
    whole = scenario(model, chip, batch_size=1, prompt_tokens=1800, output_tokens=1)
    engine = whole.runtime
    cut = replaced(whole, runtime=replaced(engine, serving=replaced(engine.serving, max_batched_tokens=chunk)))
    one, chunks = (evaluate(each) for each in (whole, cut))
    assert chunks.ttft_s >= one.ttft_s * 0.999
    flops = [_flops(table) for table in (one, chunks)]
    assert flops[1] >= flops[0] * (1 - 1e-9)


def _flops(table):
    """FLOPs of all prefill passes, but for the LM head, which runs once a pass."""
    priced, total = table.steps.priced, 0.0
    passes, runs = priced.lowered.layers.sum(axis=2), table.prefill + table.streamed
    for kernels in priced.kernels:
        rows = kernels.rows
        layers = (rows.unit < len(passes) - 1)[:, None]
        total += float((layers * kernels.prices.flops * rows.count * passes[rows.unit]).sum(axis=0) @ runs)
    return total


@FEW
@given(model=MODELS, chip=CHIPS)
def test_one_accelerator_sends_nothing(model, chip):
    report = predict(scenario(model, chip), allow_infeasible=True)
    names = {part.name for phase in report.phases.values() for part in phase.children}
    assert "exposed communication" not in names


@FEW
@given(model=MODELS, chip=CHIPS, drafts=st.integers(1, 5), draft=st.sampled_from(["mtp", "ngram"]))
def test_drafts_that_are_never_accepted_cost_more_than_none(model, chip, drafts, draft):
    vain = {"draft": draft, "acceptance": [0.0] * drafts}
    assert evaluate(scenario(model, chip, speculation=vain)).tpot_s > evaluate(scenario(model, chip)).tpot_s
