"""Requests served at a fixed concurrency, as cases of the inference suite."""

from rapid_llm.predict import predict
from rapid_llm.scenario import from_mapping
from rapid_llm.validation.suites import SUITES
from rapid_llm.validation.tables import SCHEMAS, Table, schema_of

RUN = {
    "backend": "trtllm",
    "backend_version": "1.1.0",
    "model_path": "meta-llama/Llama-3.1-70B",
    "system": "b200_sxm",
    "precision": "fp8",
    "mode": "agg",
    "isl": "1024",
    "osl": "1024",
    "batch_size": "4",
    "tp_size": "8",
    "attention_dp_size": "1",
    "moe_tp_size": "8",
    "moe_ep_size": "1",
    "concurrency": "4",
    "ttft_ms": "61.7",
    "tpot_ms": "5.45",
}


def cases(*changes):
    return list(SUITES["inference"](Table("served", "", tuple(RUN | change for change in changes))))


def test_the_schema_is_known_by_its_columns():
    assert schema_of(frozenset(RUN) | {"source"}) == "served" and SCHEMAS["served"] <= frozenset(RUN)


def test_a_run_is_a_closed_loop_of_its_mean_lengths():
    case, first = cases({})
    assert (first.metric, first.quoted, first.scenario) == ("ttft", False, case.scenario)
    assert (case.group, case.metric, case.headline) == ("e2e_serving/b200-sxm/trtllm", "tpot", False)
    work = case.scenario["workload"]
    assert (work["batching"], work["batch_size"], work["prompt_tokens"], work["output_tokens"]) == (
        "continuous",
        4,
        922,
        922,
    )
    assert abs(predict(from_mapping(case.scenario)).tpot_s / case.measured - 1) < 0.15


def test_runs_of_a_tool_of_their_own_have_the_lengths_that_they_name():
    case = cases({"source": "local:h100_sxm/trtllm/1.0.0rc3/meta-llama_Llama-3.1-8B.csv"})[0]
    work = case.scenario["workload"]
    assert (work["prompt_tokens"], work["output_tokens"], "prompt_spread" in work) == (1024, 1024, False)


def test_servers_run_as_their_scripts_start_them():
    waits, whole = cases({})[0].scenario["runtime"], cases({"isl": "8192"})[0].scenario["runtime"]
    assert (waits["serving"], whole["serving"]) == ({"max_batched_tokens": 16384},) * 2
    few = cases({"tp_size": "2"})[0].scenario["runtime"]["serving"]
    assert (few["batch_wait"], few["batch_wait_share"]) == (20, 0.9)
    deepseek = {"backend": "sglang", "backend_version": "0.5.9", "model_path": "deepseek-ai/DeepSeek-R1-0528"}
    seen = [cases(deepseek | {"concurrency": c, "batch_size": c})[0].scenario["runtime"] for c in ("8", "32")]
    assert [one["serving"]["receive_interval"] for one in seen] == [10, 30]
    assert "first wave" in cases(deepseek | {"backend_version": ""})[0].reason


def test_a_run_in_two_dumps_counts_once_and_disaggregated_ones_not():
    assert len(cases({}, {"source": "another dump"})) == 2
    assert not cases({"mode": "disagg"})


def test_runs_of_one_setting_that_differ_are_set_aside():
    reasons = {case.reason for case in cases({}, {"tpot_ms": "8.5", "ttft_ms": "90"})}
    assert reasons == {"runs of one setting differ in what is not stated"}
    assert all(case.scenario for case in cases({}, {"tpot_ms": "5.5"}))


def test_what_a_replica_is_must_be_known():
    for case in cases({"attention_dp_size": "4"}):
        assert case.scenario is None and "not stated" in case.reason
