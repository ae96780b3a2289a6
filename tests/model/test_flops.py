"""FLOP counts against published formulas."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rapid_llm import model
from rapid_llm.model.flops import attention_flops, block_matmul_flops, head_flops, mean_keys, step_flops


@pytest.mark.parametrize("name", ["gpt-1.7b", "gpt-22b", "gpt-175b", "gpt-1t"])
def test_gpt_has_the_flops_of_narayanan(name):
    """Narayanan et al. 2021, equation 2, without recompute: 72 s l h^2 (1 + s/6h + V/12lh) a sequence."""
    gpt, s = model.load(name), 2048
    h, layers, vocabulary = gpt.hidden_size, gpt.num_hidden_layers, gpt.vocab_size
    published = 72 * layers * h**2 * (1 + s / (6 * h) + vocabulary / (12 * layers * h))
    assert model.training_flops(gpt, s) == pytest.approx(published, rel=1e-12)


def test_block_of_llama_2_70b():
    """2 (h H d + 2 h Hkv d + H d h) + 2 g h f, and 4 s H d for full attention."""
    block = model.load("llama-2-70b").blocks[0]
    assert block_matmul_flops(block, 8192) == 2 * (2 * 8192 * 8192 + 2 * 8192 * 1024) + 6 * 8192 * 28672
    assert attention_flops(block, 4096, causal=False) == 4 * 4096 * 8192
    assert attention_flops(block, 4096, causal=True) == 2 * 4096 * 8192


def test_routed_experts_count_where_a_token_is_sent():
    block = model.load("mixtral-8x7b").blocks[0]
    attention = 2 * (2 * 4096 * 4096 + 2 * 4096 * 1024)
    assert block_matmul_flops(block, 4096) == attention + 2 * 4096 * 8 + 2 * (6 * 4096 * 14336)


def test_delta_net_counts_its_recurrence():
    block = model.load("qwen3.5-27b").blocks[0]
    state, channels = 48 * 128 * 128, 2 * 16 * 128 + 48 * 128
    assert attention_flops(block, 10_000, causal=True) == 2 * (3 * state + 4 * channels)


@given(s=st.integers(1, 100_000), w=st.integers(1, 100_000))
def test_a_window_never_adds_keys(s, w):
    full, causal = mean_keys(s, w, causal=False), mean_keys(s, w, causal=True)
    assert 0 < causal <= full <= min(s, w)
    assert causal == pytest.approx(mean_keys(s, None, causal=True)) or w < s
    exact = sum(min(i, w) for i in range(1, s + 1)) / s if s < 2000 else causal
    assert causal == pytest.approx(exact, abs=0.5 + 1e-9)


@pytest.mark.parametrize("name", model.names())
def test_every_model_has_flops_near_twice_its_active_weights(name):
    found = model.load(name)
    full, causal, head = step_flops(found, 1024, 1024 if found.encoder else 0)
    assert head == 1024 * head_flops(found)
    assert 0 < causal <= full
    looked_up = found.vocab_size * found.hidden_size if found.head == "none" else 0  # a table without a head
    looked_up += found.extra_parameters  # mostly tables of an embedding for each layer
    assert causal > 1.1 * (model.active_parameters(found) - looked_up) * 1024 or found.vision
