"""A step on a machine: overlap, host floors, skew, and what every step obeys."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowering.tables import plan, table
from rapid_llm import hardware
from rapid_llm import runtime as runtimes
from rapid_llm.execution import Machine, TrainingStep, training_step
from rapid_llm.execution.beside import occupied_share
from rapid_llm.execution.machine import slowest
from rapid_llm.execution.pricing import lateness, price_table
from rapid_llm.lowering.table import BACKWARD, CAST, FORWARD, RECOMPUTE
from rapid_llm.nouns import replaced
from rapid_llm.operators import POINTWISE_KINDS
from rapid_llm.parallelism import AXES, Plans
from rapid_llm.runtime import Communication, Comparing, Host, Overlap
from rapid_llm.workload import Recompute, Training

MODEL = "llama-3.1-8b"


@cache
def machine(runtime: str = "megatron-core", system: str = "dgx-h100", **changes: Any) -> Machine:
    return Machine.of(hardware.system(system), replaced(runtimes.load(runtime), **changes))


def step(plans: Plans, **changes: Any) -> TrainingStep:
    return training_step(table(plans, MODEL), machine(**changes))


def time(plans: Plans, **changes: Any) -> float:
    return float(step(plans, **changes).total[0])


def test_hidden_messages_cost_their_compute_units_or_what_sticks_out() -> None:
    # max(M, C + sigma M): sigma the share of compute units that the library occupies.
    plans = plan(2, tp=8, sp=True)
    plain, hidden = step(plans, overlap=Overlap()), step(plans, overlap=Overlap(tensor_parallel=True))
    share = occupied_share(hidden.priced.machine)
    for phase in (FORWARD, BACKWARD):
        moved = plain.passes.blocking[phase, 0, 0] - hidden.passes.blocking[phase, 0, 0]
        assert hidden.passes.side[phase, 0, 0] == pytest.approx(moved)
        assert share * moved <= hidden.passes.exposed[phase, 0, 0] <= moved
    assert hidden.total[0] < plain.total[0]


def test_hidden_messages_take_memory_from_kernels_that_wait_for_it() -> None:
    """Sharded weights are gathered beside a layer: sigma M + mu H, H the time in which memory is read and written once
    for every byte sent, mu the share of the layer in which kernels wait for memory."""
    plans = plan(4, dp=8, zero_stage=3)
    found = step(plans, runtime="fsdp", overlap=Overlap(parameter_gather=True))
    chip, passes = found.priced.machine.accelerator, found.passes
    (gathers,) = (m for m in found.priced.messages if m.rows.axis == "shard" and m.rows.op == "all_gather")
    here = (gathers.rows.phase == FORWARD) & (gathers.rows.unit == 0)
    sent = float((gathers.prices.wire_bytes * gathers.rows.count)[here].sum())
    memory = 2.0 * sent / (chip.memory.hbm.bandwidth * chip.sustained.hbm)
    waits = passes.reading[FORWARD, 0, 0] / (passes.kernels + passes.blocking)[FORWARD, 0, 0]
    moved = passes.side[FORWARD, 0, 0]
    assert 0.05 < waits < 0.9
    expected = occupied_share(found.priced.machine) * moved + waits * memory
    assert passes.exposed[FORWARD, 0, 0] == pytest.approx(expected, rel=1e-9)


def test_messages_beside_gradients_hide_in_the_backward_pass_alone() -> None:
    # Megatron-LM: the gather that is repeated beside dgrad, the reduction of the input's gradient beside wgrad.
    plans = plan(2, tp=8, sp=True)
    plain, hidden = (step(plans, overlap=Overlap(tensor_parallel_gradients=on)) for on in (False, True))
    assert hidden.passes.blocking[FORWARD, 0, 0] == plain.passes.blocking[FORWARD, 0, 0]
    moved = plain.passes.blocking[BACKWARD, 0, 0] - hidden.passes.blocking[BACKWARD, 0, 0]
    assert moved == pytest.approx(4 / 6 * plain.passes.blocking[BACKWARD, 0, 0], rel=0.1)
    assert 0 < hidden.passes.exposed[BACKWARD, 0, 0] < moved


def test_a_wider_collective_kernel_slows_what_hides_it() -> None:
    plans = plan(1, dp=8, zero_stage=3)
    narrow, wide = (Communication(library="nccl", compute_units=units) for units in (4, 40))
    assert time(plans, communication=wide) > time(plans, communication=narrow)


def test_gradients_hide_but_for_the_last_message() -> None:
    plans = plan(4, dp=8, zero_stage=0)
    exposed = {
        on: float(step(plans, overlap=Overlap(gradient_reduce=on)).messages[0].exposed.sum()) for on in (False, True)
    }
    whole = float(step(plans).messages[0].seconds.sum())
    assert exposed[False] == pytest.approx(whole)
    assert whole / 34 < exposed[True] < whole / 2


def test_interleaved_messages_hide_between_chunks() -> None:
    apart, beside = (Overlap(pipeline=on) for on in (False, True))
    plans = plan(1, 32, pp=4, vpp=2, schedule="interleaved")
    exposed, hidden = step(plans, overlap=apart), step(plans, overlap=beside)
    saved = exposed.send[0] - hidden.send[0]
    assert hidden.send[0] == pytest.approx(occupied_share(hidden.priced.machine) * exposed.send[0])
    # Each of 32 micro-batches waits that much less twice on the pacing stage; the hops of fill and drain stay.
    assert exposed.total[0] - hidden.total[0] == pytest.approx(2 * 32 * saved, rel=0.1)
    assert time(plan(1, 8, pp=4), overlap=apart) == time(plan(1, 8, pp=4), overlap=beside)


def test_launches_are_a_floor_under_small_passes_alone() -> None:
    slow, free = Host(per_kernel="1 ms"), Host()
    small, large = plan(1, tp=8, sp=True), plan(64)
    assert time(small, host=slow) > 2 * time(small, host=free)
    assert time(large, host=slow) == pytest.approx(time(large, host=free), rel=0.05)


def test_captured_passes_launch_nothing() -> None:
    slow = Host(per_kernel="1 ms", captured=("forward", "backward"))
    assert time(plan(1), host=slow) == pytest.approx(time(plan(1), host=Host()))


def test_comparing_collectives_is_a_floor_that_grows_with_their_ranks() -> None:
    # TORCH_DISTRIBUTED_DEBUG=DETAIL: hosts compare before they launch, while the accelerators run on.
    slow = Host(comparing=Comparing(inside="1 ms", across="2 ms"))
    eight, four = (float(step(plan(1, tp=tp, sp=True), host=slow).forward[0, 0]) for tp in (8, 4))
    assert eight == pytest.approx(2.0 * four, rel=0.05)
    assert time(plan(64), host=slow) == time(plan(64), host=Host())
    # One call for all sharded gradients, one for all weights, and three over the whole job.
    sharded = table(plan(1, dp=64, zero_stage=1), MODEL, "nanotron")
    slowed, plain = (training_step(sharded, machine("nanotron", "p5", host=host)) for host in (slow, Host()))
    speed, spare = slowed.priced.machine.host_speed, float(plain.backward[0, 0])
    late = 64 * 2e-3 / speed
    assert slowed.total[0] - plain.total[0] == pytest.approx(5 * late - min(late, spare), rel=0.01)


def test_a_collective_that_hosts_launch_waits_for_the_last_of_its_ranks() -> None:
    # The expected maximum of n normal variates: 0.564, 1.029 and 1.424 standard deviations of 2, 4 and 8.
    for ranks, expected in ((1, 0.0), (2, 0.564), (4, 1.029), (8, 1.424)):
        assert lateness(ranks) == pytest.approx(expected, abs=0.03)
    plans = plan(2, tp=8, sp=True)
    plain, late, graph = (
        step(plans, overlap=Overlap(), host=Host(skew=skew, captured=captured))
        for skew, captured in ((0.0, ()), ("1 ms", ()), ("1 ms", ("forward", "backward")))
    )
    waited = late.passes.blocking[FORWARD, 0, 0] - plain.passes.blocking[FORWARD, 0, 0]
    assert waited == pytest.approx(4 * lateness(8) * 1e-3 / late.priced.machine.host_speed)
    assert graph.total[0] == plain.total[0]


def test_gaps_between_kernels_are_the_accelerators_and_not_the_hosts() -> None:
    plans = plan(2)
    plain, gaps = (step(plans, host=Host(per_layer={"forward": gap})) for gap in (0.0, "1 ms"))
    assert gaps.priced.machine.host_speed != 1.0
    assert (gaps.passes.host - plain.passes.host)[FORWARD, 0, 0] == pytest.approx(1e-3)


def test_fewer_network_cards_slow_what_crosses_nodes() -> None:
    one = Communication(library="nccl", nics=1)
    assert time(plan(1, dp=64, zero_stage=3), communication=one) > 2 * time(plan(1, dp=64, zero_stage=3))
    assert time(plan(1, tp=8), communication=one) == time(plan(1, tp=8), communication=Communication(library="nccl"))


def test_stages_sum_their_layers() -> None:
    found = step(plan(1, 8, pp=4))
    layers = found.priced.lowered.layers[:, 0]
    assert found.forward[0] == pytest.approx(found.passes.forward[:, 0] @ layers)
    assert found.backward[0] == pytest.approx(found.passes.backward[:, 0] @ layers)


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]), st.integers(1, 32))
@settings(max_examples=25, deadline=None)
def test_more_micro_batches_take_longer(tp: int, pp: int, m: int) -> None:
    assert time(plan(1, m + 1, tp=tp, pp=pp)) > time(plan(1, m, tp=tp, pp=pp))


def test_zero_bubble_shortens_a_pipeline_and_nothing_else() -> None:
    assert time(plan(1, 8, pp=8, schedule="zb-h1")) < 0.95 * time(plan(1, 8, pp=8))
    assert time(plan(1, 8, schedule="zb-h1")) == time(plan(1, 8))


@pytest.mark.parametrize("recompute", ["selective", "full"])
def test_recompute_takes_longer(recompute: str) -> None:
    assert time(plan(1, recompute=recompute, tp=2)) > time(plan(1, tp=2))


def test_faster_network_cards_never_slow_a_step() -> None:
    system = hardware.system("dgx-h100")
    group = system.groups[0]
    cards = group.node.nics
    assert cards is not None
    double = replaced(group, node=replaced(group.node, nics=replaced(cards, count=16)))
    faster = Machine.of(replaced(system, groups=(double,)), runtimes.load("megatron-core"))
    for plans in (plan(1, dp=64, zero_stage=3), plan(1, 8, tp=8, pp=4), plan(1, dp=64)):
        assert training_step(table(plans, MODEL), faster).total[0] <= time(plans)


@pytest.mark.parametrize("axis", ["tp", "cp", "dp"])
def test_placement_of_a_single_axis_changes_nothing(axis: str) -> None:
    orders = (AXES, tuple(reversed(AXES)))
    times = {time(replaced_order(plan(1, **{axis: 8}), order)) for order in orders}
    assert len(times) == 1


def replaced_order(plans: Plans, order: tuple[str, ...]) -> Plans:
    return replace(plans, order=order)


def test_many_plans_are_timed_as_the_plans_one_by_one() -> None:
    plans = [
        plan(1, 4, tp=8, sp=True, dp=2),
        plan(2, 8, recompute="full", tp=2, pp=4, zero_stage=1, dp=2),
        plan(1, 8, pp=4, vpp=2, schedule="interleaved"),
        plan(1, 8, pp=8, schedule="gpipe"),
        plan(1, 8, pp=8, schedule="zb-h1"),
        plan(1, dp=64, zero_stage=3),
    ]
    assert step(Plans.stack(plans)).total == pytest.approx(np.array([time(p) for p in plans]), rel=1e-9)


def test_shared_experts_hide_dispatch_and_combine_as_far_as_they_last() -> None:
    plans, shapes = plan(1, dp=8, ep=8), "deepseek-v2"

    def exposed(overlap: Overlap) -> float:
        passes = training_step(table(plans, shapes), machine(overlap=overlap)).passes
        return float((passes.blocking + passes.exposed)[FORWARD, 1, 0])

    none, shared, everything = (
        exposed(overlap)
        for overlap in (Overlap(), Overlap(shared_experts=True), Overlap(shared_experts=True, expert_all_to_all=True))
    )
    assert everything < shared < none


def test_messages_that_wait_stay_on_the_compute_stream() -> None:
    plans = plan(2, tp=8, sp=True)
    free, gathers = (step(plans, overlap=Overlap(tensor_parallel=True, waits=w)) for w in ((), ("reduce_scatter",)))
    assert free.passes.blocking[FORWARD, 0, 0] == 0.0
    assert gathers.passes.blocking[FORWARD, 0, 0] + gathers.passes.side[FORWARD, 0, 0] == pytest.approx(
        free.passes.side[FORWARD, 0, 0]
    )
    again = step(plans, overlap=Overlap(tensor_parallel=True, waits=("again",)))
    assert again.passes.blocking[FORWARD, 0, 0] == 0.0 < again.passes.blocking[BACKWARD, 0, 0]


def test_what_a_backward_pass_gathers_travels_while_its_layer_is_recomputed() -> None:
    plans = plan(1, recompute="full", dp=64, zero_stage=3)
    slow = Communication(library="nccl", nics=1)
    rules = (Overlap(parameter_gather=True, fetched_once=on) for on in (False, True))
    beside, after = (step(plans, overlap=rule, communication=slow) for rule in rules)
    assert beside.passes.exposed[BACKWARD, 0, 0] < after.passes.exposed[BACKWARD, 0, 0]
    assert beside.passes.exposed[FORWARD, 0, 0] == after.passes.exposed[FORWARD, 0, 0]


def test_gradients_of_shards_wait_where_the_runtime_reduces_on_the_compute_stream() -> None:
    plans = plan(1, dp=64, zero_stage=3)
    both, gathers = (step(plans, overlap=Overlap(parameter_gather=True, gradient_reduce=on)) for on in (True, False))
    assert both.passes.blocking[BACKWARD, 0, 0] == 0.0 < gathers.passes.blocking[BACKWARD, 0, 0]
    assert both.passes.side[FORWARD, 0, 0] == gathers.passes.side[FORWARD, 0, 0]


def test_a_list_of_tensors_is_copied_rank_by_rank() -> None:
    plans = plan(1, dp=64, zero_stage=3)
    flat, listed = (step(plans, communication=Communication(library="nccl", piece=s)) for s in (0, "16 us"))
    more = listed.passes.side[FORWARD, 0, 0] + listed.passes.blocking[FORWARD, 0, 0]
    less = flat.passes.side[FORWARD, 0, 0] + flat.passes.blocking[FORWARD, 0, 0]
    assert more - less == pytest.approx(64 * 16e-6)


def test_part_of_launching_hides_behind_nothing() -> None:
    plans = plan(4)
    behind, serial = (step(plans, host=Host(per_kernel="10 us", serial=share)) for share in (0.0, 0.5))
    assert behind.passes.host[FORWARD, 0, 0] == 0.0 < serial.passes.host[FORWARD, 0, 0]


def test_a_pass_through_experts_has_a_floor_of_its_own() -> None:
    lowered = table(plan(dp=8, ep=8), "qwen3-235b-a22b")
    floors = [
        training_step(lowered, machine(host=Host(per_dispatch=s))).passes.total[FORWARD, 0, 0] for s in (0, "1 s")
    ]
    assert floors[0] < floors[1] == pytest.approx(1.0 / machine().host_speed)


def test_attention_draws_less_power_than_products_and_runs_at_more_of_the_clock() -> None:
    # What the limit holds is activity x frequency^3: B200 runs long products at 0.61 of boost, attention at more.
    lowered, own = table(plan(), MODEL, sequence=16384), machine(system="dgx-b200")
    at = {clock: training_step(lowered, replace(own, clock=clock)) for clock in (own.clock, 1.0)}
    times = {
        clock: {table.rows.family: table.prices.seconds for table in found.priced.kernels}
        for clock, found in at.items()
    }
    slow, boost = times[own.clock], times[1.0]
    assert (boost["attention"] < slow["attention"]).all()
    assert (slow["attention"] / boost["attention"]).max() < (slow["gemm"] / boost["gemm"]).max()


def test_a_job_waits_for_the_slowest_chip_of_all() -> None:
    """1 + sigma E[max of n normal variates], over that of a node of eight; none where no power limit slows a chip, or
    its clock is fixed."""
    chip = hardware.accelerator("h100-sxm")
    paces = [slowest(chip, count) for count in (1, 8, 64, 2048, 16384)]
    assert paces == sorted(paces, reverse=True)
    assert slowest(chip, 0) == paces[1] == slowest(hardware.accelerator("tpu-v5p"), 2048) == 1.0
    assert paces[3] == pytest.approx((1 + 0.015 * lateness(8)) / (1 + 0.015 * lateness(2048)))
    lowered, own = table(plan(), MODEL, sequence=16384), machine()
    small, large = (float(training_step(lowered, replace(own, pace=pace)).forward[0, 0]) for pace in (1.0, paces[3]))
    assert 1.02 * small < large < small / paces[3]
    unbound = replace(own, clock=1.0, accelerator=replaced(chip, sustained=replaced(chip.sustained, clock=1.0)))
    assert training_step(lowered, replace(unbound, pace=0.5)).total == training_step(lowered, unbound).total


def test_collectives_on_engines_of_their_own_take_no_compute_units() -> None:
    assert occupied_share(machine(system="gaudi2-8")) == 0.0
    assert occupied_share(machine(system="tpu-v5p-pod", runtime="maxtext")) == 0.0
    assert occupied_share(machine(system="mi300x-8")) > 0.0
    assert occupied_share(machine(runtime="maxtext")) > 0.0


def test_narrow_products_hold_a_clock_of_their_own() -> None:
    own = machine(system="gb200-nvl72")
    chip = own.accelerator
    alike = replace(own, accelerator=replaced(chip, sustained=replaced(chip.sustained, narrow=None)))

    def seconds(dtype: str, one: Machine) -> float:
        tables = training_step(table(plan(), MODEL, sequence=16384, preset="fp8-mixed"), one).priced.kernels
        return sum(float(part.seconds.sum()) for part in tables if part.rows.dtype == dtype)

    assert seconds("bf16", own) == seconds("bf16", alike)
    assert seconds("fp8", own) > 1.1 * seconds("fp8", alike)


def test_a_message_between_stages_costs_its_host() -> None:
    plans = plan(1, 8, pp=2, schedule="1f1b")
    free, taken = (step(plans, host=Host(per_send=s)) for s in (0, "1 ms"))
    assert taken.send[0] - free.send[0] == pytest.approx(1e-3 / machine().host_speed)


def test_single_experts_and_casts_are_launched_at_a_cost_of_their_own() -> None:
    lowered = table(plan(dp=8, ep=8), "qwen3-235b-a22b", preset="fp8-mixed")
    none, expert, cast = (
        training_step(lowered, machine(host=host)).passes.total[FORWARD, 0, 0] * machine().host_speed
        for host in (Host(per_dispatch="1 s", **more) for more in ({}, {"per_expert": "1 s"}, {"per_cast": "1 s"}))
    )
    # Two products of 16 experts and the rounding of their inputs; queries to output, both products of experts.
    assert expert - none == pytest.approx(2 * 16 * (1.0 + 1.0))
    assert cast - none == pytest.approx(4.0)


def test_what_runs_again_of_a_layer_is_launched_with_its_backward_pass() -> None:
    def hosts(*modules: str) -> np.ndarray:
        recompute = Recompute(mode="selective", modules=modules)
        work = Training(sequence_length=2048, global_batch_size=1, micro_batch_size=1, recompute=recompute)
        lowered = table(plan(recompute="selective"), MODEL, work=work)
        return training_step(lowered, machine(host=Host(per_kernel="10 ms"))).passes.total[:, 0, 0]

    norms, none = hosts("layernorm"), step(plan(), host=Host(per_kernel="10 ms")).passes.total[:, 0, 0]
    assert norms[RECOMPUTE] < 1e-3
    launches = 2 * 10e-3 / machine().host_speed
    assert norms[BACKWARD] + norms[RECOMPUTE] - none[BACKWARD] == pytest.approx(launches, rel=0.01)


def test_products_that_read_either_way_need_no_turned_copies() -> None:
    # Per-tensor fp8 on Blackwell; scales of blocks run along the sum, and Hopper multiplies one layout alone.
    def turned(preset: str, system: str) -> float:
        priced = training_step(table(plan(), MODEL, preset=preset), machine(system=system)).priced
        found = next(t for t in priced.kernels if t.rows.family == "pointwise")
        kind = POINTWISE_KINDS.index("gather")
        chosen = [n.endswith(CAST) and k == kind for n, k in zip(found.rows.names, found.rows.kind, strict=True)]
        return float(found.prices.seconds[chosen].sum())

    assert turned("fp8-mixed", "dgx-b200") == 0.0
    assert min(turned("mxfp8-mixed", "dgx-b200"), turned("fp8-mixed", "dgx-h100")) > 0.0


def test_products_of_eight_bits_are_widened_where_an_accelerator_has_no_rate() -> None:
    # An indexer's scores are fp8 whatever the precision, which an accelerator without fp8 units can run as well.
    rows = next(rows for rows in table(plan(), MODEL).kernels if rows.family == "gemm")
    eight = replace(rows, dtype="fp8")
    hopper, ampere = machine("vllm", "dgx-h100"), machine("vllm", "dgx-a100")
    assert price_table(eight, hopper).kernel != price_table(rows, hopper).kernel
    assert price_table(eight, ampere).kernel == price_table(rows, ampere).kernel
    assert np.array_equal(price_table(eight, ampere).seconds, price_table(rows, ampere).seconds)
