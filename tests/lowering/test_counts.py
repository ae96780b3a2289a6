"""FLOPs, parameters and saved activations of lowered layers against the papers' counts."""

import numpy as np
import pytest

from rapid_llm import model as models

from .tables import gemm_flops, plan, table

GPT = {  # Korthikanti et al. 2022, table 3: hidden, heads
    "gpt-22b": (6144, 64),
    "gpt-175b": (12288, 96),
    "gpt-530b": (20480, 128),
    "gpt-1t": (25600, 160),
}
SEQUENCE, BATCH = 2048, 2
TOKENS = SEQUENCE * BATCH


@pytest.mark.parametrize("name", GPT)
def test_products_of_a_gpt_layer(name: str) -> None:
    # Narayanan et al. 2021, appendix: 24 B s h^2 + 4 B s^2 h forward, twice that backward, once more recomputed.
    hidden, _ = GPT[name]
    lowered = table(plan(BATCH, recompute="full"), name, "megatron-core@2021")
    forward = 24 * TOKENS * hidden**2 + 4 * TOKENS * SEQUENCE * hidden
    assert gemm_flops(lowered, "forward") == pytest.approx(forward, rel=1e-12)
    assert gemm_flops(lowered, "backward") == pytest.approx(2 * forward, rel=1e-12)
    assert gemm_flops(lowered, "recompute") == pytest.approx(forward, rel=1e-12)


def test_products_of_the_head() -> None:
    lowered = table(plan(BATCH), "gpt-175b", "megatron-core@2021")
    head = len(lowered.units) - 1
    assert gemm_flops(lowered, "forward", head) == pytest.approx(2 * TOKENS * 12288 * 51200, rel=1e-12)


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_tensor_parallelism_divides_the_products(tp: int) -> None:
    whole, cut = (table(plan(BATCH, tp=t), "gpt-22b", "megatron-core@2021") for t in (1, tp))
    assert gemm_flops(cut, "forward") == pytest.approx(gemm_flops(whole, "forward") / tp)


@pytest.mark.parametrize("name", GPT)
@pytest.mark.parametrize("tp", [1, 8])
def test_saved_activations(name: str, tp: int) -> None:
    # Korthikanti et al. 2022, equations 1, 2 and 4, table 2, with dropout masks, 16 bit.
    hidden, heads = GPT[name]
    sbh, scores = TOKENS * hidden, 5 * heads * SEQUENCE / hidden

    def saved(sp: bool, recompute: str) -> float:
        plans = plan(BATCH, recompute=recompute, tp=tp, sp=sp)
        return float(table(plans, name, "megatron-core@2021").saved[0, 0])

    assert saved(False, "none") == pytest.approx(sbh * (10 + (24 + scores) / tp), rel=1e-12)
    assert saved(False, "full") == pytest.approx(sbh * 2, rel=1e-12)
    if tp > 1:
        assert saved(True, "none") == pytest.approx(sbh * (34 + scores) / tp, rel=1e-12)
        assert saved(True, "selective") == pytest.approx(sbh * 34 / tp, rel=1e-12)
        assert saved(True, "full") == pytest.approx(sbh * 2 / tp, rel=1e-12)


@pytest.mark.parametrize("name", ["gpt-22b", "llama-3.1-8b", "mixtral-8x7b", "deepseek-v3"])
def test_one_rank_holds_every_parameter_once(name: str) -> None:
    lowered = table(plan(), name)
    model = models.load(name)
    held = float(np.einsum("ups,up->", lowered.layers, lowered.dense + lowered.expert))
    padding = (np.ceil(model.vocab_size / 128) * 128 - model.vocab_size) * model.hidden_size
    padding *= 1 if model.tie_word_embeddings else 2
    assert held - padding == pytest.approx(models.parameters(model) - model.extra_parameters, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "pp", "first", "last"), [("gpt-22b", 8, 6, 6), ("llama-3.1-405b", 8, 15, 15), ("llama-3.1-405b", 16, 7, 7)]
)
def test_layers_of_the_end_stages(name: str, pp: int, first: int, last: int) -> None:
    # Llama 3, section 3.3.2: 126 layers on 16 stages leave one place each to embedding and head.
    layers = table(plan(pp=pp), name).layers[:-2, 0].sum(axis=0)
    assert layers.sum() == models.load(name).num_hidden_layers
    assert (layers[0], layers[-1]) == (first, last)


def test_a_selective_scan_streams_its_tokens_once():
    """Mamba-1 (Gu and Dao 2023, section 3.3.2): of a token, channel and state 9 FLOPs and an exponential; tokens in 16
    bits, states in 32."""
    tokens, channels, state = 2 * 2048.0, 8192.0, 16.0
    (rows,) = [k for k in table(plan(2), "falcon-mamba-7b").kernels if "recurrence" in k.names]
    read, write, flops = (float(column[rows.names.index("recurrence"), 0]) for column in rows.columns.values())
    assert rows.family == "pointwise"
    assert flops == tokens * channels * state * 25.0
    held = 2.0 * channels * state * 4.0
    assert write == 2.0 * tokens * channels + held
    assert read == 2.0 * tokens * (3.0 * channels + 2.0 * state) + held
