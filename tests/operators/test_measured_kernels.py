"""The fitted kernels against measured tables kept beside the checkout: unseen rows only, bounds as scored."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rapid_llm import hardware, operators
from rapid_llm.documents import Document, read_yaml
from rapid_llm.validation import tables
from rapid_llm.validation.kernels import samples, slice_of

TABLES = Path(__file__).parents[3] / "shared/data/silicon"

READ = [t for t in map(tables.read, sorted(TABLES.glob("*.csv.gz"))) if t] if TABLES.is_dir() else []
ROWS = 400
# kernel -> accelerator -> highest mean absolute error on unseen rows, a few points above what the fit scores
BOUNDS = {
    "cublas": {"a100-sxm": 0.085, "h100-sxm": 0.065, "b200-sxm": 0.09, "l40s": 0.14},
    "cutlass-fp8": {"h100-sxm": 0.125, "b200-sxm": 0.115, "l40s": 0.155},
    "vllm-fp8": {"h100-sxm": 0.085, "b200-sxm": 0.17, "l40s": 0.13},
    "trtllm-fp8": {"h100-sxm": 0.06, "b200-sxm": 0.09, "l40s": 0.11},
    "deepgemm": {"h100-sxm": 0.11, "b200-sxm": 0.13},
    "cutlass-nvfp4": {"b200-sxm": 0.085},
    "int8-wo": {"a100-sxm": 0.13},
    "vllm-fa2": {"a100-sxm": 0.10, "l40s": 0.15},
    "sglang-fa3": {"h100-sxm": 0.14},
    "vllm-fa3": {"h100-sxm": 0.14},
    "trtllm-gen": {"b200-sxm": 0.15},
    "sglang-gen": {"b200-sxm": 0.09},
    "sglang-gen-fp8": {"b200-sxm": 0.10},
    "sglang-gen-kv8": {"b200-sxm": 0.10},
    "trtllm-fmha": {"a100-sxm": 0.06, "h100-sxm": 0.11, "b200-sxm": 0.10, "l40s": 0.15},
    "flash-decode": {"a100-sxm": 0.21, "l40s": 0.17},
    "vllm-fa3-decode": {"h100-sxm": 0.11},
    "trtllm-gen-decode": {"b200-sxm": 0.12},
    "trtllm-decode": {"a100-sxm": 0.18, "h100-sxm": 0.17, "b200-sxm": 0.11},
    "flash-decode-fp8": {"h100-sxm": 0.15, "l40s": 0.16},
    "trtllm-gen-mla": {"b200-sxm": 0.10},
    "trtllm-gen-mla-decode": {"b200-sxm": 0.10},
    "fa3-mla-decode": {"h100-sxm": 0.10},
    "fa3-mla-decode-kv8": {"h100-sxm": 0.13},
    "mla-decode": {"a100-sxm": 0.11, "h100-sxm": 0.12, "b200-sxm": 0.15, "l40s": 0.12},
    "cutlass-moe": {"a100-sxm": 0.15, "h100-sxm": 0.20, "b200-sxm": 0.16, "l40s": 0.14},
    "deepgemm-moe": {"h100-sxm": 0.11, "b200-sxm": 0.12},
    "triton-moe": {"h100-sxm": 0.25},
    "flashinfer-moe-nvfp4": {"b200-sxm": 0.20},
    "flashinfer-gdn": {"h100-sxm": 0.11, "b200-sxm": 0.14},
}


@pytest.mark.shared
@pytest.mark.parametrize("kernel", BOUNDS)
def test_unseen_rows(kernel):
    if not TABLES.is_dir():
        pytest.skip(f"needs the measured tables in {TABLES}")
    errors: dict[str, list[np.ndarray]] = {}
    for sample in samples(slice_of(kernel), READ):
        rows = sample.half("unseen").some(ROWS)
        errors.setdefault(rows.accelerator, []).append(rows.price() / rows.seconds - 1.0)
    for accelerator, bound in BOUNDS[kernel].items():
        assert np.abs(np.concatenate(errors[accelerator])).mean() < bound, accelerator


@pytest.mark.shared
@pytest.mark.parametrize("accelerator", ["a100-sxm", "h100-sxm", "b200-sxm"])
def test_a_device_without_a_fit_of_its_own(accelerator):
    """GEMM constants of the nearest other architecture, sustained numbers typical of its own."""
    if not TABLES.is_dir():
        pytest.skip(f"needs the measured tables in {TABLES}")
    device, cublas = hardware.accelerator(accelerator), operators.kernel("cublas")
    typical = read_yaml(Path(hardware.__file__).parent / "data/architectures.yaml").data[device.architecture]
    bare = hardware.build_accelerator(Document({"base": accelerator, "sustained": typical["sustained"]}))
    others = {name: c for name, c in cublas.constants.items() if name != device.architecture}
    borrowed = replace(cublas, constants=others)
    rows = [s.half("unseen").some(ROWS) for s in samples(slice_of("cublas"), READ) if s.accelerator == accelerator]
    errors = [np.abs(s.price(borrowed, bare) / s.seconds - 1.0) for s in rows]
    assert np.concatenate(errors).mean() < 0.15
