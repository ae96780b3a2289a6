"""Rows of tables that offload their states."""

import pytest

from rapid_llm.validation.cases import Skip
from rapid_llm.validation.suites.training import scenario_of

ROW = {
    "source": "stas00-upgrade",
    "gpu": "H200-SXM-141GB",
    "n_gpus": "8",
    "framework": "DeepSpeed 0.19.2 ZeRO-3 + HF transformers 5.14 + Liger",
    "model": "llama3-8b",
    "hidden": "4096",
    "layers": "32",
    "heads": "32",
    "kv_heads": "8",
    "ffn_hidden": "14336",
    "vocab": "128256",
    "seq_len": "65536",
    "gated_mlp": "1",
    "global_batch": "8",
    "micro_batch": "1",
    "zero_stage": "zero3 + CPU AdamW offload",
    "recompute": "full",
    "precision": "bf16",
}


def test_an_optimizer_on_the_cpu_takes_the_gradients_along():
    found = scenario_of(ROW)
    assert found["runtime"] == "deepspeed@liger"
    assert found["parallelism"] == {"zero_stage": 3}
    assert found["workload"]["offload"] == {"optimizer": True, "gradients": 1.0}


def test_an_offload_that_is_not_spelled_out_is_no_case():
    with pytest.raises(Skip, match="the offload is not known part by part"):
        scenario_of({**ROW, "zero_stage": "zero2 offload"})
