"""A device as if nothing had been measured on it or on its architecture."""

from dataclasses import fields

import pytest

from rapid_llm import hardware, operators
from rapid_llm.validation.kernels import slice_of
from rapid_llm.validation.kernels.unmeasured import without_its_fit


def test_nothing_fitted_on_the_device_or_its_architecture_is_left():
    kernel, device = without_its_fit(slice_of("cublas"), "l40s", "vllm", "bf16")
    own = hardware.accelerator("l40s")
    assert "ada" not in kernel.constants
    assert kernel.stands_in("ada") == "ampere"
    assert device.peak == own.peak
    assert device.sustained == hardware.typical("l40s").sustained != own.sustained
    assert device.sustained.matrix == 1.0


@pytest.mark.parametrize(
    ("kernel", "device", "framework", "lender"),
    [("trtllm-gen", "b200-sxm", "vllm", "vllm-fa3"), ("sglang-fa3", "a100-sxm", "sglang", "sglang-fa3")],
)
def test_a_kernel_of_one_architecture_keeps_its_structure_and_takes_other_numbers(kernel, device, framework, lender):
    found, device = without_its_fit(slice_of(kernel), device, framework, "bf16")
    own, other = operators.kernel(kernel).shaped(device.architecture), operators.kernel(lender)
    assert found.on(device.architecture) == other.on("hopper")
    kept = {field.name for field in fields(own)} - {"constants", "variants"}
    assert all(getattr(found, name) == getattr(own, name) for name in kept)


def test_numbers_are_lent_among_kernels_of_the_same_instructions_with_what_they_are_a_share_of():
    hopper, _ = without_its_fit(slice_of("trtllm-decode"), "h100-sxm", "trtllm", "bf16")
    assert hopper.stands_in("hopper") == "ampere"  # not Blackwell, whose kernel another generation wrote
    blackwell, _ = without_its_fit(slice_of("trtllm-gen-decode"), "b200-sxm", "vllm", "bf16")
    assert blackwell.on("blackwell") == operators.kernel("trtllm-decode-fp8").on("hopper")
    assert not blackwell.warps
    assert operators.kernel("trtllm-gen-decode").warps


def test_a_kernel_that_no_other_architecture_has_numbers_for_is_left_out():
    assert without_its_fit(slice_of("vllm-flashinfer-kv8"), "l40s", "vllm", "bf16-kv8") is None


def test_what_is_the_engines_is_lent_as_such():
    """FlashInfer is FlashAttention-2 below Hopper, written into the cache of SGLang; no kernel of SGLang on Ampere
    leaves query heads alone."""
    tiled, _ = without_its_fit(slice_of("flashinfer"), "l40s", "sglang", "bf16")
    attention, engine = operators.kernel("vllm-fa2").on("ampere"), operators.kernel("sglang-fa3").on("ampere")
    assert (tiled.on("ada").rate, tiled.on("ada").token) == (attention.rate, engine.token)
    assert tiled.append == "token"
    decode, _ = without_its_fit(slice_of("flashinfer-decode"), "l40s", "sglang", "bf16")
    alone = operators.kernel("trtllm-decode").shaped("ampere")
    assert decode.on("ada").lone_rate == alone.on("ampere").lone_rate
    assert decode.on("ada").lone_item == alone.on("ampere").lone_item / alone.lone_blocks


def test_products_of_8_bits_take_those_of_16_of_a_near_architecture():
    kernel, _ = without_its_fit(slice_of("trtllm-fmha-fp8"), "l40s", "trtllm", "fp8")
    assert kernel.on("ada") == operators.kernel("trtllm-fmha").on("ampere")
    near, _ = without_its_fit(slice_of("trtllm-fmha-fp8"), "h100-sxm", "trtllm", "fp8")
    assert near.on("hopper") == operators.kernel("trtllm-fmha-fp8").on("blackwell")
