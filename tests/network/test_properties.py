"""What must hold for any topology, collective and faults: drawn at random."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rapid_llm.errors import InfeasibleError
from rapid_llm.network import clusters, shapes
from rapid_llm.network.engine import simulate
from rapid_llm.network.faults import apply, read_faults
from rapid_llm.network.links_alone import nesting, runs, templates, without_faults
from rapid_llm.network.programs import program
from rapid_llm.network.routing import route
from rapid_llm.network.tasks import tasks
from rapid_llm.network.templates import OPS
from rapid_llm.network.topology import Builder

RATES = (10e9, 25e9, 50e9)
DELAYS = (0.0, 1e-6, 3e-6)


@st.composite
def graphs(draw):
    """A connected graph of accelerators and maybe switches: a random tree and further cables."""
    count, switches = draw(st.integers(2, 9)), draw(st.integers(0, 3))
    build = Builder("drawn")
    nodes = build.add([f"gpu{i}" for i in range(count)], "accelerator")
    nodes = np.concatenate([build.add([f"leaf{i}" for i in range(switches)], "leaf"), nodes])
    pairs = {(draw(st.integers(0, i - 1)), i) for i in range(1, len(nodes))}
    pairs |= draw(st.sets(st.tuples(st.integers(0, len(nodes) - 1), st.integers(0, len(nodes) - 1)), max_size=8))
    if switches == 0 or draw(st.booleans()):  # accelerators forward only where there is nothing else
        pairs |= {(0, i) for i in range(1, len(nodes))}
    for a, b in sorted({(min(p), max(p)) for p in pairs if p[0] != p[1]}):
        build.join(nodes[[a]], nodes[[b]], draw(st.sampled_from(RATES)), draw(st.sampled_from(DELAYS)))
    return build.build()


@st.composite
def built(draw):
    """A topology of a constructor."""
    rate, delay = draw(st.sampled_from(RATES)), draw(st.sampled_from(DELAYS))
    sides = draw(st.lists(st.integers(2, 4), min_size=1, max_size=3))
    boxes, inner = draw(st.integers(2, 4)), draw(st.sampled_from([2, 4]))
    outer = clusters.leaf_spine(boxes * inner, boxes, rate, delay, rails=inner, upper=delay)
    return draw(
        st.sampled_from(
            [
                shapes.torus(sides, rate, delay),
                shapes.mesh(sides, rate, delay),
                shapes.fully_connected(sides[0] + 1, rate, delay),
                clusters.switch(sides[0] + 1, rate, delay),
                clusters.leaf_spine(2 * sides[0], sides[0], rate, delay, oversubscription=2.0),
                clusters.nested([clusters.switch(inner, 9 * rate, delay)] * boxes, outer),
                clusters.nested([shapes.ring(inner, 3 * rate, delay)] * boxes, outer),
            ]
        )
    )


networks = st.one_of(graphs(), built())
sizes = st.sampled_from([2.0**10, 2.0**20, 2.0**26])
effects = st.sampled_from([{"down": True}, {"bandwidth": 0.5}, {"bandwidth": 0.1}, {"latency": "5 us"}])


@st.composite
def collectives(draw):
    """A topology, and a collective of all its accelerators on it: operation, algorithm, template, bounds, bytes."""
    net = draw(networks)
    bounds = nesting(net, len(net.accelerators))
    op = draw(st.sampled_from(OPS))
    algorithm, template, _ = draw(st.sampled_from(templates(op, bounds, None)))
    return net, op, algorithm, template, bounds, draw(sizes)


def laid_out(drawn):
    net, _, _, template, bounds, size = drawn
    try:
        return program(template, bounds, size, net, slices=4)
    except InfeasibleError:  # accelerators behind accelerators, which do not forward beside switches
        assume(False)


@given(collectives())
@settings(max_examples=150, deadline=None)
def test_links_carry_what_is_sent_over_each_hop_and_take_their_time(drawn):
    net, some = drawn[0], laid_out(drawn)
    result = simulate(some, net)
    part = some.coefficient if len(some.coefficient) else np.ones(len(some.resource))
    sent = np.bincount(some.resource, np.repeat(some.total, np.diff(some.resource_start)) * part, net.links)
    assert result.moved == pytest.approx(sent)
    assert result.seconds >= (sent / net.capacity).max() * (1 - 1e-9)
    assert result.seconds >= some.latency.max() * (1 - 1e-9)
    assert (result.peak <= net.capacity * (1 + 1e-9)).all()
    assert (result.busy <= result.seconds * (1 + 1e-9)).all()


@given(collectives(), st.floats(1.0, 8.0))
@settings(max_examples=60, deadline=None)
def test_more_bandwidth_never_hurts(drawn, factor):
    """Of all links alike; routes stay."""
    net, some = drawn[0], laid_out(drawn)
    faster = net.with_health(net.health * factor)
    assert simulate(some, faster).seconds <= simulate(some, net).seconds * (1 + 1e-9)


@given(networks, st.integers(0, 10**6), st.floats(1.0, 4.0))
@settings(max_examples=100, deadline=None)
def test_a_faster_link_never_delays_flows_of_one_path(net, seed, factor):
    """Of flows that share one link at most, none is later where any link is faster."""
    random = np.random.default_rng(seed)
    a, b = random.permutation(net.accelerators)[:2]
    try:
        routes = route(net, np.array([a]), np.array([b]))
    except InfeasibleError:
        assume(False)
    more = net.with_health(np.where(random.random(net.links) < 0.5, factor, 1.0))
    one = tasks(1e6, routes.start, routes.link, coefficient=routes.share if len(routes.share) else None)
    assert simulate(one, more).seconds <= simulate(one, net).seconds * (1 + 1e-9)


@given(networks, st.integers(0, 10**6), st.integers(2, 5))
@settings(max_examples=100, deadline=None)
def test_equal_flows_get_equal_shares(net, seed, count):
    random = np.random.default_rng(seed)
    a, b = random.permutation(net.accelerators)[:2]
    try:
        routes = route(net, np.array([a]), np.array([b]))
    except InfeasibleError:
        assume(False)
    share = routes.share if len(routes.share) else np.ones(len(routes.link))
    start = len(routes.link) * np.arange(count + 1)
    same = tasks(1e6, start, np.tile(routes.link, count), coefficient=np.tile(share, count))
    alone = tasks(1e6, start[:2], routes.link, coefficient=share)
    finish = simulate(same, net).finish
    assert finish == pytest.approx(count * simulate(alone, net).seconds)


@given(collectives(), st.integers(0, 10**6), st.integers(1, 3), effects)
@settings(max_examples=120, deadline=None)
def test_no_fault_of_any_topology_helps(drawn, seed, links, effect):
    net, op, algorithm, *_, size = drawn
    links = min(links, net.links // 2)
    hurt = apply(net, read_faults([{"random": {"links": links, "seed": seed}, **effect}]))
    laid_out(drawn)
    (whole,) = runs(op, size, net, algorithm=algorithm)
    try:
        (found,) = runs(op, size, hurt, algorithm=algorithm)
    except InfeasibleError as error:
        assert effect == {"down": True}
        assert "no live path" in error.message or "disconnected" in error.message
        return
    dead = np.flatnonzero(hurt.health <= 0)
    assert found.result.moved[dead].sum() == 0
    assert without_faults(found, whole).seconds >= whole.seconds
    bound = (found.result.moved / np.maximum(hurt.capacity, 1e-300)).max()
    assert found.seconds >= bound * (1 - 1e-6) or algorithm in (
        "tree",
        "ring",
        "pxn",
    )  # slices are taken to their limit


@given(collectives())
@settings(max_examples=40, deadline=None)
def test_full_health_is_no_fault(drawn):
    net, some = drawn[0], laid_out(drawn)
    same = apply(net, read_faults([{"random": {"links": 1, "seed": 1}, "bandwidth": "100 %"}]))
    again = program(drawn[3], drawn[4], drawn[5], same, slices=4)
    assert simulate(again, same).finish.tolist() == simulate(some, net).finish.tolist()


@given(collectives(), st.randoms())
@settings(max_examples=80, deadline=None)
def test_renaming_links_changes_nothing(drawn, random):
    """The same routes over the same cables in another order take the same time."""
    net, some = drawn[0], laid_out(drawn)
    order = list(range(net.links))
    random.shuffle(order)
    place = np.empty(net.links, np.int64)
    place[order] = np.arange(net.links)
    moved = tasks(
        some.amount, some.resource_start, place[some.resource],
        coefficient=some.coefficient if len(some.coefficient) else None,
        dependencies=(some.dependency_start, some.dependency), lag=some.lag, rounds=some.rounds, latency=some.latency,
        limit=some.limit if len(some.limit) else None,
    )  # fmt: skip
    build = Builder("again")
    build.add(list(net.names), "accelerator")
    build.join(
        net.source[order], net.target[order], net.bandwidth[order], net.latency[order], net.kind[order], both=False
    )
    assert simulate(moved, build.build()).finish == pytest.approx(simulate(some, net).finish, rel=1e-9)
