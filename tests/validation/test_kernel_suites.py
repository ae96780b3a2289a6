"""The suites of kernels on small tables: groups, metrics, baselines, what is set aside and why."""

from pathlib import Path

import numpy as np
import pytest

from rapid_llm.errors import InputError
from rapid_llm.validation import running, tables
from rapid_llm.validation.kernels.baselines import three_constants
from rapid_llm.validation.kernels.columns import context, convolution
from rapid_llm.validation.kernels.loads import Routed, loads
from rapid_llm.validation.kernels.samples import read_cells
from rapid_llm.validation.suites import SUITES
from rapid_llm.validation.suites import kernels as suite

GEMM = "m,n,k,dtype,latency_us,framework,version,kernel\n"
CONTEXT = "batch,isl,prefix,heads,kv_heads,head_dim,window,attn_dtype,kv_dtype,latency_us,framework,version,kernel\n"


def cases(name, tmp_path, file, text):
    path = tmp_path / file
    path.write_text(text)
    table = tables.read(path)
    return list(SUITES[name](table))


def test_gemm_rows_become_cases_of_their_group(tmp_path):
    rows = "1,4096,4096,bf16,15.0,vllm,0.24.0,linear\n4096,4096,4096,bf16,190,vllm,0.24.0,linear\n"
    found = cases("gemm", tmp_path, "gemm_h100_sxm.csv", GEMM + rows)
    assert {case.group for case in found} == {"h100-sxm/bf16/vllm"}
    assert [case.metric for case in found] == ["latency"] * 2 + ["latency_lent"] * 2  # the device without its fit, too
    assert found[0].answer() == pytest.approx(15e-6, rel=0.15)
    assert set(found[0].baselines) == {"three-constants", "roofline", "structural fit"}
    assert found[0].baselines["roofline"].prediction < found[0].measured


def test_bad_tables_are_set_aside_with_their_reason(tmp_path):
    rows = "1,4096,4096,fp8_block,79,vllm,0.24.0,deepgemm\n"
    (case,) = cases("gemm", tmp_path, "gemm_h100_sxm.csv", GEMM + rows)
    assert case.answer is None
    assert case.reason.startswith("block fp8 of vLLM")


def test_what_an_earlier_version_of_an_engine_runs_is_scored(tmp_path):
    rows = "64,4096,4096,fp8,15,trtllm,1.0,linear\n64,4096,4096,bf16,15,trtllm,1.0,linear\n"
    found = cases("gemm", tmp_path, "gemm_h100_sxm.csv", GEMM + rows)  # trtllm-fp8 rounds its input: TensorRT-LLM 0.20
    assert {case.group for case in found if case.answer} == {"h100-sxm/fp8/trtllm", "h100-sxm/bf16/trtllm"}
    (case,) = cases("gemm", tmp_path, "gemm_b200_sxm.csv", GEMM + "64,4096,4096,fp8_block,15,sglang,0.5,linear\n")
    assert case.reason == "measured on deepgemm; the engine's own choice here is trtllm-fp8-block"


SSM = (
    "op,kernel_source,phase,batch_size,seq_len,d_conv,nheads,head_dim,n_groups,d_state,num_k_heads,head_k_dim,"
    "num_v_heads,head_v_dim,latency_us,framework,version\n"
)


def test_what_a_convolution_runs_over_is_what_its_table_ran(tmp_path):
    layer = ",4,,,,,16,128,64,128,"
    rows = (
        f"gdn,causal_conv1d_fn,context,1,4096{layer}64,vllm,0.24.0\n"  # queries, keys and values
        f"gdn,causal_conv1d_fn,context,1,4096{layer}18,trtllm,1.3\n"  # keys alone
        "mamba2,causal_conv1d_fn,context,1,4096,4,128,64,8,128,,,,,70,trtllm,1.3\n"
        f"gdn,causal_conv1d_update,generation,64,{layer}4,vllm,0.24.0\n"
        f"gdn,causal_conv1d_fn,context,1,4096{layer}18,sglang,0.5.10\n"
        f"kda,causal_conv1d_fn_qkv3,context,1,4096{layer}500,vllm,0.24.0\n"
    )
    path = tmp_path / "ssm_h100_sxm.csv"
    path.write_text(SSM + rows)
    cells = read_cells(tables.read(path))
    assert list(convolution(cells)["channels"][:5]) == [12288, 2048, 10240, 12288, 2048]
    found = cases("ssm", tmp_path, "ssm_h100_sxm.csv", SSM + rows)
    scored = {(case.group, case.metric) for case in found if case.answer}
    engines = [("h100-sxm/bf16/vllm", "convolution"), ("h100-sxm/bf16/trtllm", "convolution")]
    assert scored == {*engines, ("h100-sxm/bf16/vllm", "convolution update")}
    reasons = {case.reason for case in found if not case.answer}
    assert "measured on causal-conv1d; the engine's own choice here is sglang-conv1d" in reasons
    assert len(reasons) == 2


def test_a_set_that_beats_the_roofline_is_mislabelled_as_a_whole(tmp_path):
    rows = "".join(
        f"8,{s},0,32,8,128,0,bf16,bf16,{t},trtllm,1,torch_flow\n" for s, t in ((8192, 9), (4096, 9), (64, 90))
    )
    found = cases("attention", tmp_path, "attn_context_h100_sxm.csv", CONTEXT + rows)
    assert {case.reason for case in found} == {suite._MISLABELLED}


def test_one_new_token_is_decode(tmp_path):
    (case,) = cases(
        "attention", tmp_path, "attn_context_h100_sxm.csv", CONTEXT + "1,1,64,8,1,128,0,bf16,bf16,9,vllm,1,x\n"
    )
    assert "generation" in case.reason


def test_a_window_of_none_that_was_handed_on_is_one_of_a_token():
    names = ("batch", "isl", "prefix", "heads", "kv_heads", "head_dim", "window", "kv_dtype", "source", "version")
    rows = [("1", "64", "0", "8", "1", "128", "0", "bf16", kernel, "0.5.10") for kernel in ("trtllm_mha", "triton")]
    cells = {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
    assert context(cells)["window"].tolist() == [1.0, 0.0]


def test_tables_of_unknown_accelerators_are_set_aside_in_a_sentence(tmp_path):
    row = "1,4096,4096,bf16,15,vllm,1,linear\n"
    (tmp_path / "gemm_x9000.csv").write_text(GEMM + row)
    with pytest.raises(InputError, match=r"gemm_x9000\.csv must have a column gpu, .*is set aside\. Nothing is left"):
        running.run(["gemm"], tmp_path)
    (tmp_path / "gemm_h100_sxm.csv").write_text(GEMM + row)
    (said,) = running.run(["gemm"], tmp_path).broken
    assert said.endswith("or be named after an accelerator as gemm_h100_sxm.csv is. The table is set aside.")


def test_broken_rows_are_those_of_the_suites_that_were_asked_for(tmp_path):
    (tmp_path / "gemm_h100_sxm.csv").write_text(GEMM + "1,4096,4096,bf16,15,vllm,1,linear\n")
    columns = "lib,op,dtype,ngpus,bytes,latency_us,framework,version,kernel\n"
    (tmp_path / "nccl_h100_sxm.csv").write_text(columns + "nccl,all_reduce,half,8,1024,x,nccl,2.20,\n")
    assert running.run(["gemm"], tmp_path).broken == ()
    (said,) = running.run(["gemm", "collectives"], tmp_path).broken
    assert "nccl_h100_sxm.csv:2: latency_us must be a number above 0" in said


def test_a_time_of_zero_is_an_error_that_names_the_line(tmp_path):
    with pytest.raises(InputError, match=":2: latency_us must be microseconds, a number above 0"):
        cases("gemm", tmp_path, "gemm_h100_sxm.csv", GEMM + "1,4096,4096,bf16,0,vllm,1,linear\n")


def test_three_constants_find_themselves():
    import numpy as np

    flops, moved = np.logspace(6, 13, 40), np.logspace(4, 9, 40)[::-1]
    seconds = 5e-6 + np.maximum(flops / 5e14, moved / 2e12)
    assert np.abs(three_constants(flops, moved, seconds) / seconds - 1.0).mean() < 0.05


def test_round_robin_fills_every_expert_alike():
    assert loads(Routed(1024, 8, 128, 8), "bal") == (1024.0, 16.0, 64.0, 8192.0, 1024.0)
    rows, hit, largest, pairs, tokens = loads(Routed(4096, 8, 256, 8), "pl1.2")
    assert 4096 < rows < 4096 * 8
    assert 1 <= hit <= 32
    assert rows / hit < largest <= 4096
    assert (pairs, tokens) == (4096 * 8, 4096)


def test_choices_of_other_ranks_fall_on_the_first_expert_where_a_collector_clamped_them():
    local, first = (loads(Routed(1024, 8, 128, 8), "bal", how) for how in ("local", "first"))
    assert first.rows == first.pairs == local.pairs
    assert first.largest == 64 + 7 * 1024
    assert first.hit == local.hit


def test_a_grouped_router_that_finds_groups_equal_fills_the_first_of_them():
    alike, grouped = (loads(Routed(512, 8, 256, 1), "bal", how) for how in ("local", "grouped"))
    assert grouped.rows == alike.rows
    assert grouped.hit == 128
    assert grouped.largest >= 500


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "metric", "bound"),
    [
        ("gemm", "latency", 0.12), ("attention", "context", 0.14), ("attention", "generation", 0.14),
        ("mla", "module", 0.10), ("mla", "generation", 0.12), ("ssm", "latency", 0.10),
        ("ssm", "convolution", 0.07), ("ssm", "convolution update", 0.10),
        ("moe", "balanced", 0.13), ("moe", "power_law", 0.14),
    ],
)  # fmt: skip
def test_mean_over_unseen_groups(name, metric, bound, request):
    folder = Path(__file__).parents[3] / "shared/data/silicon"
    if not folder.is_dir():
        pytest.skip(f"needs the measured tables in {folder}")
    from rapid_llm.validation import run

    card = run([name], folder)
    row = next(r for r in card.rows if (r.group, r.metric, r.split) == ("all", metric, "unseen"))
    assert row.mape < bound
    assert row.mape < row.baseline_mape
