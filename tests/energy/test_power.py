"""Power: its floor and its limit, what it grows with, and where it is not modelled."""

import pytest

from rapid_llm import hardware
from rapid_llm.energy import PowerModel, missing
from rapid_llm.errors import InputError
from rapid_llm.predict import predict
from rapid_llm.scenario import from_mapping

WORK = {"kind": "inference", "batch_size": 8, "prompt_tokens": 512, "output_tokens": 512}
STEP = {"kind": "training", "global_batch_size": 64, "sequence_length": 4096}


def inference(system="h100-sxm", model="llama-3.1-8b", plan=None, price=None, **work):
    given = {"model": model, "system": system, "parallelism": plan or {}, "workload": {**WORK, **work}}
    return from_mapping(given | ({"price_per_hour": price} if price else {}))


def training(**work):
    plan = {"tp": 8, "pp": 2}
    return from_mapping(
        {"model": "llama-3.1-70b", "system": "dgx-h100", "accelerators": 64, "parallelism": plan}
        | {"workload": {**STEP, **work}}
    )


MODELLED = [name for name in hardware.accelerator_names() if PowerModel.of(hardware.accelerator(name))]


@pytest.mark.parametrize("name", MODELLED)
def test_floor_stands_between_idle_and_limit(name):
    power = hardware.accelerator(name).power
    assert power.idle <= power.awake < 0.4 * power.limit
    assert 4e-12 * 8 < power.per_byte < 30e-12 * 8, "J a bit: more than HBM alone (3.9 pJ, O'Connor et al. 2017)"


@pytest.mark.parametrize("batch", [1, 8, 64, 256])
@pytest.mark.parametrize("system", ["a100-sxm", "h100-sxm", "h200-sxm", "b200-sxm", "mi300x"])
def test_power_stays_between_floor_and_limit(system, batch):
    energy = predict(inference(system, batch_size=batch)).energy
    power = hardware.accelerator(system).power
    assert power.awake < energy.mean_power_w_per_accelerator <= power.limit


@pytest.mark.parametrize(
    ("system", "model", "batch", "output", "watts"),
    [
        ("h100-sxm", "llama-3.1-8b", 8, 404, 486.4),
        ("h100-sxm", "llama-3.1-8b", 128, 404, 669.2),
        ("h100-sxm", "qwen3-14b", 64, 623, 525.0),
        ("b200-sxm", "gemma-3-27b", 8, 697, 804.6),
        ("a100-sxm-40gb", "llama-2-7b", 1, 1024, 222.1),
    ],
)
def test_mean_power_of_published_runs(system, model, batch, output, watts):
    """ML.ENERGY leaderboard v3 (task lm-arena-chat) and LLM-Inference-Bench figure 16 (the last)."""
    found = predict(inference(system, model, batch_size=batch, output_tokens=output, batching="continuous"))
    assert found.energy.mean_power_w_per_accelerator == pytest.approx(watts, rel=0.29)


def test_energy_a_token_falls_with_the_batch_and_power_is_tokens_times_it():
    reports = [predict(inference(batch_size=batch)) for batch in (1, 8, 64)]
    each = [one.energy.joules_per_output_token for one in reports]
    assert each == sorted(each, reverse=True)
    for one in reports:
        assert one.energy.mean_power_w == pytest.approx(one.energy.joules_per_output_token * one.output_tokens_per_s)


def test_replicas_of_equal_load_draw_alike():
    one = predict(inference(plan={"tp": 1}, system="dgx-h100")).energy
    four = predict(inference(plan={"tp": 1, "dp": 4}, system="dgx-h100", batch_size=32)).energy
    assert four.mean_power_w == pytest.approx(4 * one.mean_power_w)
    assert four.joules_per_output_token == pytest.approx(one.joules_per_output_token)


def test_requests_that_wait_cost_no_energy_beyond_their_tokens():
    """Of more requests than the cache holds the rest waits: power and J a token stay."""
    both = (inference(batch_size=b, batching="continuous") for b in (1024, 2048))
    held, queued = (predict(one, allow_infeasible=True) for one in both)
    assert queued.e2e_s == pytest.approx(2 * held.e2e_s)
    assert queued.energy.mean_power_w == pytest.approx(held.energy.mean_power_w)
    assert queued.energy.joules_per_output_token == pytest.approx(held.energy.joules_per_output_token)


def test_memory_of_more_bandwidth_draws_more():
    fast = {"base": "h100-sxm", "memory": {"hbm": {"capacity": "80 GiB", "bandwidth": "5 TB/s"}}}
    plain, faster = (predict(inference(one)).energy for one in ("h100-sxm", {"base": "dgx-h100", "accelerator": fast}))
    assert faster.mean_power_w_per_accelerator > plain.mean_power_w_per_accelerator
    assert faster.joules_per_output_token < plain.joules_per_output_token


def test_a_step_and_a_run():
    report = predict(training(tokens=64 * 4096 * 100), allow_infeasible=True)
    energy = report.energy
    assert energy.run_joules == pytest.approx(100 * energy.joules_per_step)
    assert energy.mean_power_w == pytest.approx(energy.joules_per_step / report.step_time_s)
    assert 400 < energy.mean_power_w_per_accelerator <= 700
    assert predict(training(), allow_infeasible=True).energy.run_joules is None


def test_pools_draw_for_both():
    pools = {"prefill": {"parallelism": {"tp": 1, "dp": 2}}, "decode": {"parallelism": {"tp": 2, "dp": 2}}}
    work = {**WORK, "batch_size": 64, "batching": "continuous"}
    base = {"model": "llama-3.1-8b", "system": "dgx-h100", "workload": work}
    report = predict(from_mapping({**base, "pools": pools}))
    assert 120 < report.energy.mean_power_w_per_accelerator <= 700
    assert report.energy.mean_power_w == pytest.approx(
        report.energy.joules_per_output_token * report.output_tokens_per_s
    )
    pools["prefill"]["system"] = "l40s-pcie-8"
    assert predict(from_mapping({**base, "pools": {**pools, "link": "infiniband-ndr"}})).energy is None


def test_an_accelerator_that_does_not_say_is_not_modelled():
    assert predict(inference("rtx-4090", "llama-3.2-1b")).energy is None
    assert missing(hardware.accelerator("rtx-4090")) == "rtx-4090 has no power.awake and no power.per_byte"


def test_no_times_no_energy():
    report = predict(inference(model="llama-3.1-70b"))
    assert not report.feasible
    assert report.energy is None
    assert report.to_dict()["energy"] is None


def test_a_floor_above_the_limit_is_refused():
    chip = {"base": "h100-sxm", "power": {"awake": "800 W"}}
    with pytest.raises(InputError, match=r"awake 800 W and limit 700 W: awake must be below limit"):
        inference({"base": "dgx-h100", "accelerator": chip})


def test_money():
    report = predict(inference(price=2.0))
    assert report.price.per_hour == 2.0
    assert report.price.per_million_output_tokens == pytest.approx(2.0 / 3600 / report.output_tokens_per_s * 1e6)
    assert predict(inference()).price is None
    with pytest.raises(InputError, match="price_per_hour must be greater than 0"):
        inference(price=-1)


def test_pools_have_prices_of_their_own():
    pools = {
        "prefill": {"parallelism": {"tp": 1, "dp": 2}, "price_per_hour": 1.5},
        "decode": {"parallelism": {"tp": 2, "dp": 2}},
    }
    given = {"model": "llama-3.1-8b", "system": "dgx-h100", "workload": WORK, "pools": pools, "price_per_hour": 3.0}
    scenario = from_mapping(given)
    assert predict(scenario).price.per_hour == pytest.approx(2 * 1.5 + 4 * 3.0)
    assert from_mapping(scenario.to_mapping()).hash == scenario.hash
