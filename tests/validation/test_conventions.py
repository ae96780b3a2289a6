"""Golden numbers: Korthikanti 2022 (arXiv:2205.05198) tables 3 and 5, Narayanan 2021 (arXiv:2104.04473)."""

import pytest

from rapid_llm.validation import conventions

A100_PEAK = 312e12
NARAYANAN = "96Bslh^2(1+s/6h+V/16lh): hardware FLOPs INCLUDING full-layer recompute (4x fwd)"
KORTHIKANTI = "MFU: 72BLsh^2(1+s/6h+v/12hL), full (non-causal) attention, LM head incl., no recompute"


def gpt(hidden, layers, heads, batch, gpus, **cells):
    sizes = {"hidden": hidden, "layers": layers, "heads": heads, "global_batch": batch, "n_gpus": gpus}
    row = {"vocab": "51200", "seq_len": "2048", "gated_mlp": "0", **{k: str(v) for k, v in sizes.items()}}
    return row | cells


def test_equation_3_of_narayanan():
    row = gpt(25600, 128, 160, 3072, 3072, flop_convention=NARAYANAN)
    b, s, el, h, v = 3072, 2048, 128, 25600, 51200
    assert conventions.step_flops(row) == pytest.approx(96 * b * s * el * h**2 * (1 + s / (6 * h) + v / (16 * el * h)))


def test_equation_4_of_narayanan_the_trillion_parameter_run():
    # 8 T P / (n X): 450 G tokens, 1008 G parameters, 3072 GPUs at 163 TFLOP/s: 84 days
    row = gpt(25600, 128, 160, 3072, 3072, flop_convention=NARAYANAN, metric="tflops_per_gpu", value="163")
    step = conventions.step_time(row, A100_PEAK)
    assert step == pytest.approx(102.6, abs=0.1)
    assert 450e9 / (3072 * 2048) * step / 86400 == pytest.approx(84, rel=0.02)


@pytest.mark.parametrize(
    ("sizes", "seconds", "mfu"),
    [
        ((6144, 48, 64, 4, 8), 1.10, 0.415),
        ((12288, 96, 96, 64, 64), 13.75, 0.514),
        ((20480, 105, 128, 280, 280), 37.83, 0.560),
        ((25600, 128, 160, 512, 512), 71.49, 0.563),
    ],
)
def test_model_flops_utilisation_of_korthikanti_table_5(sizes, seconds, mfu):
    row = gpt(*sizes, flop_convention=KORTHIKANTI)
    found = conventions.step_flops(row) / (seconds * sizes[-1] * A100_PEAK)
    assert found == pytest.approx(mfu, abs=0.002)  # 1.10 s is rounded
    back = row | {"metric": "mfu", "value": str(100 * found)}
    assert conventions.step_time(back, A100_PEAK) == pytest.approx(seconds)


def test_a_published_step_time_is_taken_as_it_is():
    row = gpt(12288, 96, 96, 64, 64, metric="step_time_s", value="18.13")
    assert conventions.step_time(row, A100_PEAK) == 18.13


def test_tokens_per_second():
    row = gpt(4096, 32, 32, 128, 8, seq_len="8192", metric="tokens_per_s_per_gpu", value="13812")
    assert conventions.step_time(row, A100_PEAK) == pytest.approx(128 * 8192 / (8 * 13812))


def test_llama_3_8b_has_57_9_gflop_a_token():
    # Megatron-LM examples/llama/README.md: 57.9 GFLOP a token for Llama 3 8B at 8192 tokens
    row = gpt(4096, 32, 32, 128, 8, seq_len="8192", kv_heads="8", ffn_hidden="14336", vocab="128256", gated_mlp="1")
    row["flop_convention"] = "full attention + LM head, no recompute"
    assert conventions.step_flops(row) / (128 * 8192) == pytest.approx(57.9e9, rel=0.005)


def test_qwen3_235b_at_19_7_seconds_makes_245_tflops():
    # NVIDIA's MoE model zoo: the same run printed both, counting causal attention by half
    row = gpt(4096, 94, 64, 2048, 256, seq_len="4096", kv_heads="4", head_dim="128", vocab="151936", moe_experts="128")
    row |= {"moe_topk": "8", "moe_ffn": "1536", "flop_convention": "Megatron-Core (causal-halved attention)"}
    assert conventions.step_flops(row) / (19.7 * 256) == pytest.approx(245e12, rel=0.01)


def test_metrics_that_are_not_of_a_step():
    row = gpt(6144, 1, 64, 4, 8, metric="layer_fwd_bwd_time_s", value="0.0196")
    with pytest.raises(ValueError, match="metric layer_fwd_bwd_time_s is not of a step"):
        conventions.step_time(row, A100_PEAK)
    with pytest.raises(ValueError, match="no FLOP convention"):
        conventions.step_time(row | {"metric": "mfu", "flop_convention": "n/a (time)"}, A100_PEAK)
