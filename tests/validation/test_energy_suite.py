"""Rows of power and energy as cases: what is metered, what is asked, what is left out and why."""

from pathlib import Path

import pytest

from rapid_llm.validation.evaluation import READINGS, evaluate, predictor
from rapid_llm.validation.suites.energy import cases
from rapid_llm.validation.tables import Table

ROW = {
    "id": "E-1",
    "source": "ml_energy_v3",
    "gpu": "NVIDIA H100 SXM 80GB",
    "n_gpus": "2",
    "engine": "vLLM",
    "model": "Qwen3-32B",
    "dtype_weights": "bfloat16",
    "tp": "2",
    "batch_or_concurrency": "31.99",
    "scenario": "gpqa; max_num_seqs 32",
    "input_len": "",
    "output_len": "8057.9",
    "metric": "power_w",
    "value": "1037.6",
    "scope": "GPU only, sum over n_gpus",
}


def case(**changes):
    (found,) = cases(Table("energy", Path("energy.csv"), ({**ROW, **changes},)))
    return found


def test_power_is_of_one_accelerator():
    found = case()
    assert found.measured == pytest.approx(518.8)
    assert found.scenario["workload"] == {
        "kind": "inference", "batch_size": 32, "prompt_tokens": 500, "output_tokens": 8058, "batching": "continuous",
            "prompt_spread": 0.96, "output_spread": 0.77,
    }  # fmt: skip
    assert found.baselines["limit"].prediction == 700
    (result,) = evaluate([found], predictor())
    assert result.error == pytest.approx(0.0, abs=0.29)


def test_a_share_of_the_limit_is_watts():
    found = case(metric="avg_power_frac_tdp", value="0.5", scope="per GPU, fraction of TDP", input_len="512")
    assert found.measured == 350


def test_energy_of_a_token():
    found = case(metric="energy_j_per_tok", value="1.2")
    assert (found.metric, found.measured) == ("energy", 1.2)
    assert found.quantity in READINGS


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"value": "0"}, "the value is blank or not positive"),
        ({"scope": "wall power of the system"}, "metered at the wall: hosts and cooling are in it"),
        ({"scenario": "image-chat; max_num_seqs 32"}, "batch size or lengths are not stated"),
        ({"gpu": "abacus"}, "no accelerator 'abacus' in the catalogue"),
    ],
)
def test_what_is_left_out(change, reason):
    found = case(**change)
    assert (found.scenario, found.reason) == (None, reason)


def test_metrics_of_other_suites_are_theirs():
    assert not list(cases(Table("energy", Path("energy.csv"), ({**ROW, "metric": "itl_ms"},))))
