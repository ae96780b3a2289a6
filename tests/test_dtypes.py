import pytest

from rapid_llm.documents import build
from rapid_llm.dtypes import DTYPES, PRESETS, Precision, dtype, precision
from rapid_llm.errors import InputError


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("bf16", 2), ("fp32", 4), ("fp8", 1),
        ("nvfp4", 0.5625),  # NVIDIA: 4 bit and an e4m3 scale per 16
        ("mxfp4", 0.53125),  # OCP MX v1.0: 4 bit and an 8-bit scale per 32
        ("mxfp8", 1.03125),
        ("fp8_block", 1 + 4 / 128**2),  # DeepSeek-V3, arXiv 2412.19437 section 3.3
        ("int4_wo", 0.5 + 2.5 / 128), ("int4_g32_wo", 0.5625),  # 16-bit scales per 128 with zero points, per 32 without
        ("q4_0", 0.5625), ("q8_0", 1.0625),  # ggml block_q4_0: 18 bytes, block_q8_0: 34 bytes, of 32 weights
    ],
)  # fmt: skip
def test_bytes(name, size):
    assert dtype(name).bytes == size


def test_weight_only_computes_at_16_bit_without_a_pass():
    for one in DTYPES.values():
        if one.weight_only:
            assert one.rate == "fp16" and not one.quantise
    assert dtype("fp8").quantise and dtype("fp8_block").rate == "fp8" and dtype("nvfp4").rate == "fp4"


def test_aliases():
    assert dtype("bfloat16") is dtype("bf16")
    assert dtype("fp8_e4m3") is dtype("fp8")
    assert build(Precision, {**PRESETS["bf16"], "kv_cache": "float16"}).kv_cache == "fp16"


@pytest.mark.parametrize(
    ("preset", "persistent"),
    [("bf16-mixed", 18), ("fp16-mixed", 20), ("fp32", 16), ("fp8-mixed", 18)],
)
def test_bytes_per_parameter(preset, persistent):
    """Megatron-LM, docs/source/api-guide/dist_optimizer: 18 bf16 (fp32 gradients), 20 fp16, 16 fp32."""
    one = precision(preset)
    assert dtype(one.weights).bytes + dtype(one.gradients).bytes + one.optimizer.bytes == persistent


@pytest.mark.parametrize("name", PRESETS)
def test_presets(name):
    one = precision(name)
    assert one.name == name
    assert hash(one) == hash(precision(name))


def test_sentences():
    with pytest.raises(InputError) as error:
        precision("bf61")
    assert str(error.value) == (
        "precision 'bf61' is unknown. Did you mean 'bf16'? Known: bf16, fp16, fp8, bf16-mixed, fp16-mixed, fp8-mixed, "
        "fp8-delayed-mixed, fp8-row-mixed, fp8-block-mixed, mxfp8-mixed, nvfp4-mixed, fp32, tf32, fp8-block, mxfp8, "
        "nvfp4, nvfp4-experts, mxfp4, mxfp4-w4a4, mxfp4-experts, int8, fp8-wo, int8-wo, int4-wo, nf4, int4-experts, "
        "q8-0, q6-k, q5-k, q4-k, q3-k, iq4-xs, q4-0."
    )
    with pytest.raises(InputError) as error:
        dtype("fp88")
    assert str(error.value).startswith("number format 'fp88' is unknown. Did you mean 'fp8'? Known: bf16, fp16,")
    with pytest.raises(InputError) as error:
        build(Precision, {**PRESETS["bf16"], "weights": "bf61"}, prefix="precision")
    assert str(error.value).startswith("precision.weights 'bf61' is unknown. Did you mean 'bf16'? Known: bf16,")


def test_experts_multiply_in_their_own_format_unless_it_is_of_weights_alone():
    rounded, expanded = precision("nvfp4-experts").of_experts, precision("mxfp4-experts").of_experts
    assert (rounded.compute, rounded.weights, rounded.activations) == ("nvfp4", "nvfp4", "bf16")
    assert (expanded.compute, expanded.weights) == ("bf16", "mxfp4_wo")
