"""Kernel files: every one loads, keeps to seven fitted numbers, and says where they come from."""

from dataclasses import fields

import pytest

from rapid_llm import hardware, operators
from rapid_llm.errors import InputError
from rapid_llm.operators.kernels import AttentionKernel


@pytest.mark.parametrize("name", operators.kernel_names())
def test_every_kernel_loads_with_sources_and_at_most_seven_numbers(name):
    kernel = operators.kernel(name)
    assert kernel.name == name
    sources = operators.kernel_sources(name)
    for architecture, constants in kernel.constants.items():
        given = [f.name for f in fields(constants) if getattr(constants, f.name) != f.default]
        kinds = [sources[f"constants.{architecture}.{name}"].kind for name in given]
        assert len(given) - kinds.count("architecture") <= 7


@pytest.mark.parametrize("name", operators.kernel_names())
def test_partners_of_attention_kernels_exist(name):
    kernel = operators.kernel(name)
    if isinstance(kernel, AttentionKernel):
        assert operators.kernel(kernel.decode).family == "decode"
        assert operators.kernel(kernel.latent or name).family == "attention"


@pytest.mark.parametrize("accelerator", hardware.accelerator_names())
def test_every_architecture_finds_numbers(accelerator):
    architecture = hardware.accelerator(accelerator).architecture
    for name in operators.kernel_names():
        kernel = operators.kernel(name)
        assert kernel.stands_in(architecture) in kernel.constants


def test_an_unmeasured_architecture_takes_its_nearest_and_says_so():
    cublas, fp8 = operators.kernel("cublas"), operators.kernel("cutlass-fp8")
    assert cublas.stands_in("hopper") == "hopper"
    assert cublas.stands_in("ampere-rtx") == "ampere"
    assert fp8.stands_in("cdna3") == "hopper"
    assert operators.kernel("int8-wo").stands_in("hopper") == "ampere"


def test_unknown_kernel():
    with pytest.raises(InputError, match=r"kernel 'cublass' is not in the catalogue. Did you mean 'cublas'\?"):
        operators.kernel("cublass")


def test_a_stand_in_lends_its_structure_with_its_numbers():
    kernel = operators.kernel("flash-decode")
    assert kernel.shaped("blackwell-rtx").kv_tile == kernel.shaped("ada").kv_tile != kernel.shaped("ampere").kv_tile
