import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.network import toys

from rapid_llm.errors import InputError
from rapid_llm.network import Fabric, Tier, clusters, price, shapes, templates
from rapid_llm.network.engine import run, simulate
from rapid_llm.network.faults import apply, read_faults
from rapid_llm.network.programs import program, run_in_slices
from rapid_llm.network.routing import route
from rapid_llm.network.tasks import ALL, csr, tasks

GB = 1e9
LATENCY = 1e-6
SIZE = 512e6


def flows(paths, amount=1.0, **more):
    start, resource = csr(paths)
    return tasks(amount, start, resource, **more)


def test_two_equal_flows_on_a_link_get_half_each():
    result = run(flows([[0], [0]], 1e6), np.array([1e6]))
    assert result.finish.tolist() == [2.0, 2.0]
    assert result.peak[0] == pytest.approx(1e6)


def test_a_limit_leaves_the_rest_to_others():
    result = run(flows([[0], [0], [1]], 1e6, limit=np.array([0.25e6, np.inf, 0.5e6])), np.array([1e6, 1e6]))
    assert result.finish.tolist() == pytest.approx([4.0, 4 / 3, 2.0])
    assert result.peak.tolist() == pytest.approx([1e6, 0.5e6])
    assert len(result.moved) == 2


def test_the_parking_lot_is_max_min_fair():
    long, *short = [[0, 1, 2], [0], [1], [2]]
    result = run(flows([long, *short], np.array([1.0, 1.0, 1.0, 1.0])), np.array([1.0, 2.0, 4.0]))
    # 1/2 on link 0 for the long flow; the short ones have 1/2, 3/2, 7/2
    assert result.finish.tolist() == pytest.approx([2.0, 2.0, 2 / 3, 2 / 7])


def test_a_flow_that_leaves_gives_its_share_to_the_others():
    result = run(flows([[0], [0]], np.array([1.0, 3.0])), np.array([1.0]))
    assert result.finish.tolist() == pytest.approx([2.0, 4.0])
    assert result.busy.tolist() == pytest.approx([4.0])
    assert result.moved.tolist() == [4.0]


def test_coefficients_weigh_what_a_task_takes():
    start, resource = csr([[0, 1], [1]])
    kernel_and_flow = tasks(np.array([1.0, 1.0]), start, resource, coefficient=np.array([1.0, 0.5, 1.0]))
    # both rise to 2/3 on resource 1, which they fill with 1/2 + 1
    assert run(kernel_and_flow, np.array([1.0, 1.0])).finish.tolist() == pytest.approx([1.5, 1.5])


def test_a_queue_runs_in_the_order_of_posting():
    late_first = flows([[0], [0], [0]], 1.0, queue=np.array([7, 7, 7]), delay=np.array([0.5, 0.0, 0.0]))
    assert run(late_first, np.array([1.0])).finish.tolist() == pytest.approx([3.0, 1.0, 2.0])


def test_latency_comes_after_the_drain_and_delay_before_the_start():
    chain = flows([[0], [0]], 1.0, latency=0.25, delay=np.array([0.0, 0.5]), dependencies=csr([[], [0]]))
    result = run(chain, np.array([1.0]))
    assert result.start.tolist() == [0.0, 1.75]
    assert result.finish.tolist() == [1.25, 3.0]


def test_tasks_without_resources_take_their_latency():
    assert run(flows([[], [0]], 1.0, latency=0.5, dependencies=csr([[], [0]])), np.array([1.0])).seconds == 2.0


def test_rounds_are_the_same_as_tasks_written_out():
    n, rounds = 6, 10
    capacity = np.array([1.0, 0.5, 1.0, 2.0, 1.0, 1.0])
    ring = flows(
        [[i] for i in range(n)],
        1.0,
        rounds=rounds,
        latency=0.1,
        lag=1,
        dependencies=csr([[(i - 1) % n] for i in range(n)]),
    )
    paths, before = [], []
    for k in range(rounds):
        for i in range(n):
            paths.append([i])
            before.append([(k - 1) * n + (i - 1) % n] if k else [])
    queues = np.tile(np.arange(n), rounds)
    written = flows(paths, 1.0, queue=queues, latency=0.1, dependencies=csr(before))
    assert run(ring, capacity).seconds == pytest.approx(run(written, capacity).seconds, rel=1e-9)


def test_a_slow_link_in_a_ring_costs_its_full_factor():
    ring = shapes.ring(8, 50 * GB)
    health = ring.health.copy()
    health[ring.links_between(0, 1)] = 0.5
    phases = templates.ring("all_reduce", (8,), 1)
    slow = ring.with_health(health)
    one_way = {"channels": 1}
    healthy = simulate(program(phases, (8,), SIZE, ring, **one_way), ring).seconds
    assert simulate(program(phases, (8,), SIZE, slow, **one_way), slow).seconds == pytest.approx(2 * healthy)


def test_nothing_takes_no_time():
    assert run(flows([], 1.0), np.array([1.0])).seconds == 0.0


def test_a_cycle_is_refused():
    with pytest.raises(InputError, match="2 of 2 tasks wait for each other, such as task 0"):
        run(flows([[0], [0]], 1.0, dependencies=csr([[1], [0]])), np.array([1.0]))


def test_every_round_of_another_task_can_be_waited_for():
    both = flows([[0], [1]], 1.0, rounds=np.array([3, 1]), dependencies=csr([[], [0]]), lag=ALL)
    assert run(both, np.array([1.0, 1.0])).finish.tolist() == [3.0, 4.0]


links = st.integers(2, 5)


@st.composite
def programs(draw):
    many = draw(links)
    count = draw(st.integers(1, 12))
    paths = [draw(st.lists(st.integers(0, many - 1), min_size=1, max_size=many, unique=True)) for _ in range(count)]
    amount = np.array([draw(st.sampled_from([1.0, 2.0, 3.0])) for _ in range(count)])
    before = [draw(st.lists(st.integers(0, i - 1), max_size=2, unique=True)) if i else [] for i in range(count)]
    capacity = np.array([draw(st.sampled_from([1.0, 2.0, 5.0])) for _ in range(many)])
    latency = np.array([draw(st.sampled_from([0.0, 0.1])) for _ in range(count)])
    return paths, amount, before, capacity, latency


@given(programs())
@settings(max_examples=60, deadline=None)
def test_properties_of_any_program(drawn):
    paths, amount, before, capacity, latency = drawn
    some = flows(paths, amount, dependencies=csr(before), latency=latency)
    result = run(some, capacity)
    load = np.zeros(len(capacity))
    for path, size in zip(paths, amount, strict=True):
        load[path] += size
    assert result.moved == pytest.approx(load)  # bytes on links are bytes sent times hops
    assert result.seconds >= (load / capacity).max() * (1 - 1e-9)  # no faster than the busiest link
    assert (result.peak <= capacity * (1 + 1e-9)).all()
    assert (result.busy <= result.seconds * (1 + 1e-9)).all()
    unfolded = run(some, capacity, fold=False)
    assert result.finish == pytest.approx(unfolded.finish, rel=1e-9)  # folding changes nothing


@given(programs(), st.randoms())
@settings(max_examples=40, deadline=None)
def test_relabelling_changes_nothing(drawn, random):
    paths, amount, before, capacity, latency = drawn
    order = list(range(len(paths)))
    random.shuffle(order)
    place = {old: new for new, old in enumerate(order)}
    moved = flows(
        [paths[i] for i in order],
        amount[order],
        dependencies=csr([[place[j] for j in before[i]] for i in order]),
        latency=latency[order],
    )
    first = run(flows(paths, amount, dependencies=csr(before), latency=latency), capacity)
    assert run(moved, capacity).finish == pytest.approx(first.finish[order], rel=1e-9)


@given(programs())
@settings(max_examples=40, deadline=None)
def test_simultaneous_flows_finish_sooner_on_faster_links(drawn):
    paths, amount, _, capacity, _ = drawn
    some = flows(paths, amount)
    assert run(some, 2 * capacity).finish == pytest.approx(run(some, capacity).finish / 2, rel=1e-9)


def test_two_replicas_on_disjoint_links_are_one():
    one = run(flows([[0, 1], [0]], np.array([1.0, 2.0])), np.ones(2))
    two = run(flows([[0, 1], [0], [2, 3], [2]], np.array([1.0, 2.0, 1.0, 2.0])), np.ones(4))
    assert two.finish.tolist() == one.finish.tolist() * 2
    assert two.classes == 2


def tier(kind, span, bandwidth, scope="intra", latency=LATENCY, **more):
    return Tier(kind, span, bandwidth, latency, "toy", kind if kind in ("ring", "full") else "switch", scope, **more)


def closed(op, algorithm, bounds, *tiers):
    fabric = Fabric(tiers, "toy")
    return price(op, SIZE, bounds[-1], 1, fabric=fabric, library=toys.library(algorithm)).seconds.item()


def flow(op, algorithm, bounds, topology, inside=1):
    template = templates.BUILDERS[algorithm][0](op, bounds, inside)

    def run(slices):
        return simulate(program(template, bounds, SIZE, topology, slices=slices), topology)

    return run_in_slices(template, run).seconds


@pytest.mark.parametrize("n", [2, 4, 16, 128, 1024])
@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter"])
def test_rings_take_their_closed_form(op, n):
    switch = clusters.switch(n, 50 * GB, LATENCY)
    expected = closed(op, "ring", (n,), tier("node", n, 50 * GB))
    assert flow(op, "ring", (n,), switch) == pytest.approx(expected, rel=1e-6)
    ring = shapes.ring(n, 50 * GB, LATENCY)
    expected = closed(op, "ring", (n,), tier("ring", n, (100 if n > 2 else 50) * GB))
    assert flow(op, "ring", (n,), ring) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("n", [2, 4, 8, 16])
def test_exchanges_take_their_closed_form(n):
    for topology, place in (
        (clusters.switch(n, 50 * GB, LATENCY), tier("node", n, 50 * GB)),
        (shapes.fully_connected(n, 50 * GB, LATENCY), tier("full", n, 50 * GB * (n - 1))),
        (shapes.ring(n, 50 * GB, LATENCY), tier("ring", n, (100 if n > 2 else 50) * GB)),
    ):
        for op, algorithm in (("all_to_all", "direct"), ("all_reduce", "one-shot"), ("all_reduce", "two-shot")):
            expected = closed(op, algorithm, (n,), place)
            assert flow(op, algorithm, (n,), topology) == pytest.approx(expected, rel=1e-3), (topology.name, algorithm)


@pytest.mark.parametrize("bounds", [(8, 32), (8, 64), (4, 16), (8, 32, 64)])
def test_hierarchies_take_their_closed_form(bounds):
    inner, n = bounds[0], bounds[-1]
    leaf = 4 if len(bounds) > 2 else 32
    outer = clusters.leaf_spine(n, leaf, 50 * GB, 2 * LATENCY, rails=inner, upper=LATENCY)
    topology = clusters.nested([clusters.switch(inner, 450 * GB, LATENCY)] * (n // inner), outer)
    tiers = [tier("node", inner, 450 * GB), tier("leaf", bounds[1], 50 * GB, "inter", 2 * LATENCY)]
    if len(bounds) > 2:
        tiers.append(tier("spine", n, 50 * GB, "inter", 3 * LATENCY))
    for op in ("all_reduce", "all_gather", "reduce_scatter"):
        expected = closed(op, "hierarchical", bounds, *tiers)
        assert flow(op, "hierarchical", bounds, topology) == pytest.approx(expected, rel=1e-6)
    expected = closed("all_to_all", "direct", bounds, *tiers)
    assert flow("all_to_all", "direct", bounds, topology) == pytest.approx(expected, rel=1e-2)
    expected = closed("all_reduce", "tree", (inner, n), *tiers[:1], *tiers[-1:])
    assert flow("all_reduce", "tree", (inner, n), topology) == pytest.approx(expected, rel=1e-2)


def test_nvls_takes_its_closed_form():
    box = clusters.switch(8, 50 * GB, LATENCY)
    expected = closed("all_reduce", "nvls", (8,), tier("node", 8, 50 * GB, in_network_reduction=True))
    assert flow("all_reduce", "nvls", (8,), box) == pytest.approx(expected, rel=1e-2)


def test_a_chain_in_slices_takes_its_closed_form():
    """(c + h - 1) S / (c B) + h L, c = 32 slices over h = 7 hops: 803.9 us in the packet pattern of 32 MB."""
    ring = shapes.ring(8, 50 * GB, 0.5e-6)
    relay = program(templates.ring("broadcast", (8,), 1), (8,), 32 * 2**20, ring, slices=32)
    assert simulate(relay, ring).seconds == pytest.approx(38 * (2**20 / (50 * GB)) + 7 * 0.5e-6, rel=1e-6)


def test_a_large_symmetric_collective_is_a_few_classes():
    ring = shapes.ring(1024, 50 * GB, LATENCY)
    result = simulate(program(templates.ring("all_reduce", (1024,), 1), (1024,), SIZE, ring), ring)
    assert result.classes <= 4
    assert result.events <= 10_000


def test_placement_is_checked():
    ring = shapes.ring(4, GB)
    phases = templates.ring("all_reduce", (4,), 1)
    with pytest.raises(InputError) as error:
        program(phases, (4,), SIZE, ring, placement=[0, 1, 1, 3])
    assert error.value.message == "placement puts ranks 1 and 2 both on gpu1; an accelerator holds one rank."
    with pytest.raises(InputError, match="ring-4 has places for 4 ranks, but 8 take part"):
        program(templates.ring("all_reduce", (8,), 1), (8,), SIZE, ring)


@st.composite
def trains(draw):
    """Tasks of several rounds that hand over round by round or wait for all of them."""
    paths, amount, before, capacity, latency = draw(programs())
    rounds = np.array([draw(st.integers(1, 4)) for _ in paths])
    lag = np.array([draw(st.sampled_from([0, 1, ALL])) for one in before for _ in one], np.int64)
    queue = np.array([draw(st.sampled_from([-1, -1, -1, 0])) for _ in paths])
    return flows(
        paths, amount, dependencies=csr(before), latency=latency, rounds=rounds, lag=lag, queue=queue
    ), capacity


@given(trains())
@settings(max_examples=200, deadline=None)
def test_tasks_that_run_free_end_when_events_say_so(drawn):
    some, capacity = drawn
    engine = sys.modules["rapid_llm.network.engine.simulate"]
    mixed = run(some, capacity, fold=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "ATTEMPTS", 0)
        events = run(some, capacity, fold=False)
    for name in ("start", "finish", "moved", "busy", "peak"):
        assert getattr(mixed, name) == pytest.approx(getattr(events, name), rel=1e-8, abs=1e-12), name


def test_one_failed_link_leaves_most_tasks_free():
    """The answer is that of events for every task, at a fraction of their number."""
    outer = clusters.leaf_spine(64, 8, 50 * GB, 2e-6, rails=8, upper=1e-6)
    net = clusters.nested([clusters.switch(8, 450 * GB, LATENCY)] * 8, outer)
    dead = apply(net, read_faults([{"link": ["node5.nic3", "leaf0.3"], "down": True}]))
    some = program(templates.hierarchical("all_reduce", (8, 64), 1), (8, 64), 64e6, dead)
    engine = sys.modules["rapid_llm.network.engine.simulate"]
    mixed = simulate(some, dead)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "ATTEMPTS", 0)
        events = simulate(some, dead)
    assert mixed.finish == pytest.approx(events.finish, rel=1e-9)
    assert mixed.busy == pytest.approx(events.busy, rel=1e-9)
    assert mixed.peak == pytest.approx(events.peak, rel=1e-9)


def test_the_interpreted_loop_gives_the_same_answer():
    code = (
        "from rapid_llm.network import shapes, templates\n"
        "from rapid_llm.network.engine import simulate\n"
        "from rapid_llm.network.programs import program\n"
        "net = shapes.torus((2, 4), (1e9, 2e9), 1e-6)\n"
        "some = program(templates.direct('all_to_all', (8,), 1), (8,), 1e6, net)\n"
        "print(repr(simulate(some, net, fold=False).seconds), repr(simulate(some, net).seconds))\n"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"NUMBA_DISABLE_JIT": flag},
        ).stdout
        for flag in ("0", "1")
    }
    assert len(answers) == 1


def test_a_second_process_pays_no_compilation():
    code = (
        "import numpy as np\n"
        "from rapid_llm.network.engine import run\n"
        "from rapid_llm.network.tasks import csr, tasks\n"
        "run(tasks(1.0, *csr([[0], [0]])), np.ones(1), fold=False)\n"
        "from rapid_llm.network.engine import loop\n"
        "print(sum(loop.run.stats.cache_misses.values()))\n"
    )
    misses = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(2)
    ]
    assert misses[1].stdout == "0\n"


def test_background_traffic_shares_links():
    net = clusters.switch(4, GB)
    routes = route(net, np.array([0, 2]), np.array([1, 1]))
    alone = run(tasks(1e9, routes.start[:2], routes.link[: routes.start[1]]), net.capacity).seconds
    both = run(tasks(1e9, routes.start, routes.link), net.capacity).seconds
    assert both == pytest.approx(2 * alone)
