"""Layer profiles of other tools as kernel rows: what transfers to devices that no constant was fitted on."""

from pathlib import Path

import pytest

from rapid_llm.validation import run, tables
from rapid_llm.validation.kernels import profiles
from rapid_llm.validation.kernels.loads import Routed, loads

VIDUR = (
    "device,model,tp,d_model,d_ff,n_head,n_kv_head,tokens,attn_pre_proj_ms,attn_post_proj_ms,mlp_up_proj_ms,"
    "mlp_down_proj_ms\na40,meta-llama/Llama-2-70b-hf,2,8192,28672,64,8,1024,1.0,0.8,4.0,2.0\n"
)
ATTENTION = (
    "hardware,model,tp,prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n"
    "RTX4090,meta-llama/Llama-3.1-8B,1,512,1024,0,0,90\nRTX4090,meta-llama/Llama-3.1-8B,1,0,0,16,2048,80\n"
    "RTX4090,meta-llama/Llama-3.1-8B,1,512,0,16,2048,150\n"
)


def read(tmp_path, text):
    path = tmp_path / "profile.csv"
    path.write_text(text)
    return dict(profiles.cells_of(tables.read(path)))


def test_projections_follow_from_the_model(tmp_path):
    cells = read(tmp_path, VIDUR)["kernel_gemm"]
    shapes = list(zip(cells["m"], cells["n"], cells["k"], strict=True))
    assert shapes == [
        ("1024", "5120", "8192"), ("1024", "8192", "4096"), ("1024", "28672", "8192"), ("1024", "8192", "14336"),
    ]  # fmt: skip
    assert set(cells["gpu"]) == {"a40"}
    assert cells["latency_us"].astype(float).tolist() == [1000.0, 800.0, 4000.0, 2000.0]


def test_mixed_batches_are_left_to_serving(tmp_path):
    found = read(tmp_path, ATTENTION)
    assert len(found["kernel_context"]["line"]) == len(found["kernel_generation"]["line"]) == 1
    assert found["kernel_context"]["prefix"][0] == "1024"
    assert set(found["kernel_generation"]["gpu"]) == {"rtx-4090"}


def test_experts_are_dealt_evenly_to_those_that_were_active(tmp_path):
    model = "Qwen/Qwen3-30B-A3B-Instruct-2507"
    text = f"hardware,model,tp,tokens,activated_experts,time_us\nRTXPRO6000,{model},1,32,64,429.3\n"
    cells = read(tmp_path, text)["kernel_moe"]
    assert (cells["dist"][0], cells["hidden"][0], cells["inter"][0]) == ("even64", "2048", "768")
    assert loads(Routed(32, 8, 128, 1), "even64") == (256.0, 64.0, 4.0, 256.0, 32.0)


@pytest.mark.shared
def test_architecture_constants_transfer():
    folder = Path(__file__).parents[3] / "shared/data/kernels"
    if not folder.is_dir():
        pytest.skip(f"needs the measured tables in {folder}")
    rows = {
        (r.metric, r.group.split("/")[0]): r for r in run(["gemm", "attention", "moe"], folder).rows if r.split == "all"
    }
    for device in ("a40", "rtx-4090", "rtx-pro-6000"):
        assert rows["latency", device].mape < 0.14
    assert rows["even", "rtx-pro-6000"].mape < 0.12
    for device in ("rtx-4090", "rtx-pro-6000"):
        assert rows["context", device].mape < 0.31
        assert rows["generation", device].mape < 0.25
