import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rapid_llm.errors import InfeasibleError, InputError
from rapid_llm.network import clusters, shapes, templates
from rapid_llm.network.engine import simulate
from rapid_llm.network.faults import apply, read_faults, speeds
from rapid_llm.network.programs import program
from rapid_llm.network.replan import recover
from rapid_llm.network.routing import route
from rapid_llm.network.tasks import tasks
from rapid_llm.network.topology import LINK_KINDS

SIZE = 64e6


def cluster(boxes=4, inner=4):
    outer = clusters.leaf_spine(boxes * inner, boxes, 50e9, 2e-6, rails=inner, upper=1e-6)
    return clusters.nested([clusters.switch(inner, 450e9, 1e-6)] * boxes, outer)


def seconds(topology, template="hierarchical", bounds=(4, 16)):
    build, _ = templates.BUILDERS[template]
    return simulate(program(build("all_reduce", bounds, 1), bounds, SIZE, topology), topology).seconds


def broken(topology, *items):
    return apply(topology, read_faults(items))


def test_a_degraded_link_keeps_its_share():
    net = cluster()
    slow = broken(net, {"link": ["node0.nic0", "leaf0.0"], "bandwidth": "50 %", "latency": "2 us"})
    hit = np.flatnonzero(slow.health < 1)
    assert [slow.link_name(link) for link in hit] == ["node0.nic0 > leaf0.0", "leaf0.0 > node0.nic0"]
    assert slow.capacity[hit].tolist() == [25e9, 25e9]
    assert slow.latency[hit].tolist() == pytest.approx([3e-6, 3e-6])


@pytest.mark.parametrize(("link", "got"), [(["a", "b", "c"], "3 of them"), (["a"], "1 of them"), ("a", "'a'")])
def test_a_link_joins_two_nodes(link, got):
    with pytest.raises(InputError) as error:
        read_faults([{"link": link, "down": True}])
    said = "faults[0].link must name the two nodes that it joins, such as [node0.nic0, leaf0.0]"
    assert error.value.message == f"{said} (got {got})."


def test_faults_at_cards_switches_nodes_and_accelerators():
    net = cluster()
    for fault in ({"nic": "node1.nic2"}, {"switch": "leaf0.1"}, {"node": 2}, {"node": "node2"}, {"accelerator": 9}):
        assert (broken(net, {**fault, "down": True}).health == 0).any()
    by_place, by_name = (broken(net, {"accelerator": at, "down": True}) for at in (9, "node2.gpu1"))
    assert (by_place.health == by_name.health).all()
    for at in (9, "node2.gpu1"):
        assert speeds(read_faults([{"accelerator": at, "speed": "80 %"}]), 16, range(0, 20, 4)) == {9: 0.8}
    assert speeds(read_faults([{"node": "node1", "speed": 0.5}]), 16, range(0, 20, 4)) == dict.fromkeys(
        range(4, 8), 0.5
    )


def test_random_faults_are_the_same_for_a_seed():
    net = cluster()
    first, again, other = (
        broken(net, {"random": {"links": 2, "seed": seed}, "down": True}).health for seed in (7, 7, 8)
    )
    assert (first == again).all()
    assert (first == 0).sum() == 4
    assert (first != other).any()


def test_any_number_of_faults_at_once():
    net = cluster()
    both = broken(
        net, {"nic": "node1.nic2", "bandwidth": "50 %"}, {"link": ["node1.nic2", "leaf0.2"], "bandwidth": "50 %"}
    )
    assert both.health.min() == 0.25


def test_full_health_is_no_fault():
    net = cluster()
    assert seconds(broken(net, {"switch": "leaf0.0", "bandwidth": "100 %"})) == seconds(net)


@pytest.mark.parametrize(
    "fault",
    [
        {"nic": "node1.nic2", "down": True},
        {"link": ["leaf0.0", "node0.nic0"], "bandwidth": "50 %"},
        {"switch": "leaf0.3", "bandwidth": "20 %"},
        {"random": {"links": 1, "seed": 3}, "bandwidth": "50 %"},
    ],
)
def test_a_fault_never_helps(fault):
    net = cluster()
    assert seconds(broken(net, fault)) >= seconds(net) * (1 - 1e-9)


@given(st.integers(0, 1000), st.sampled_from(["ring", "direct"]))
@settings(max_examples=25, deadline=None)
def test_no_random_fault_of_a_torus_helps(seed, template):
    net = shapes.torus((4, 4), 50e9, 1e-6)
    build, ops = templates.BUILDERS[template]
    phases = build(ops[0], (16,), 1)
    hurt = broken(net, {"random": {"links": 2, "seed": seed}, "down": True})
    before = simulate(program(phases, (16,), SIZE, net, channels=1), net).seconds
    assert simulate(program(phases, (16,), SIZE, hurt, channels=1), hurt).seconds >= before * (1 - 1e-9)


def test_a_dead_card_costs_its_rail_twice():
    """PXN-like detour: NVLink to a peer and its card, which then carries two rails (notes, section 10)."""
    net = cluster()
    ratio = seconds(broken(net, {"nic": "node1.nic1", "down": True})) / seconds(net)
    assert 1.3 < ratio < 2.6


def test_a_dead_link_is_never_used_at_full_speed():
    net = shapes.ring(4, 1e9)
    routes = route(net, np.array([0]), np.array([1]))
    dead = broken(net, {"link": ["gpu0", "gpu1"], "down": True})
    with pytest.raises(InfeasibleError, match="traffic is routed over gpu0 > gpu1, which is down"):
        simulate(tasks(1.0, routes.start, routes.link), dead)


def test_replanning_puts_the_dead_link_out_of_the_ring():
    """Two neighbours without their link: a full mesh has other rings, which cost nothing."""
    net = shapes.fully_connected(8, 50e9, 1e-6)
    dead = broken(net, {"link": ["gpu2", "gpu3"], "down": True})
    phases = templates.ring("all_reduce", (8,), 1)

    def laid_out(plan):
        return simulate(program(phases, (8,), SIZE, dead, placement=dead.accelerators[plan.members[0]]), dead)

    answer = recover(laid_out, dead, net, np.arange(8)[None, :], 1, order=True)
    healthy = simulate(program(phases, (8,), SIZE, net), net).seconds
    assert answer.best == "replan"
    assert answer.plan.words == "in another order"
    assert answer.replan.seconds == pytest.approx(healthy)
    assert answer.detour.seconds > healthy


@pytest.mark.parametrize("build", [templates.ring, templates.tree])
def test_rails_that_are_left_carry_the_rest(build):
    """Without one rail of four, the others carry 4/3 each; every rank still takes part."""
    net = cluster()
    phases = build("all_reduce", (4, 16), 1)
    whole = simulate(program(phases, (4, 16), SIZE, net), net)
    some = program(phases, (4, 16), SIZE, net, lanes=(0, 1, 3))
    left = simulate(some, net)
    cards = np.flatnonzero([name.startswith("node") and ".nic" in name for name in net.names])
    out = np.isin(net.source, cards) & (net.kind == LINK_KINDS.index("nic"))
    rail = net.rail[net.source]
    busiest = [left.moved[out & (rail == k)].max() / whole.moved[out & (rail == k)].max() for k in range(4)]
    assert busiest[2] == 0
    assert [busiest[k] for k in (0, 1, 3)] == pytest.approx([4 / 3] * 3)
    assert left.seconds == pytest.approx(whole.seconds * 4 / 3, rel=0.05)
    assert left.moved.sum() >= whole.moved.sum() * (1 - 1e-9)


@pytest.mark.parametrize(
    ("item", "sentence"),
    [
        (
            {"link": ["node0.nic0", "leaf0.1"], "down": True},
            "has no link from 'node0.nic0' to 'leaf0.1'; 'node0.nic0' is joined to leaf0.0.",
        ),
        ({"link": ["node0.nik0", "leaf0.0"], "down": True}, "has no node 'node0.nik0'. Did you mean 'node0.nic0'"),
        ({"nic": "leaf0.0", "down": True}, "'leaf0.0' of"),
        ({"node": 9, "down": True}, "has node0 to node3, not '9'."),
        ({"accelerator": 99, "down": True}, "has accelerators 0 to 15, not 99."),
        ({"accelerator": "node0.nic1", "down": True}, "is of kind nic, not accelerator."),
        ({"random": {"links": 999}, "down": True}, "links; 999 of them cannot fail."),
    ],
)
def test_faults_that_do_not_exist_are_refused(item, sentence):
    with pytest.raises(InputError) as error:
        broken(cluster(), item)
    assert sentence in error.value.message


@pytest.mark.parametrize(
    ("item", "sentence"),
    [
        ({"down": True}, "must be at one of link, nic, switch, node, accelerator or random (got none)"),
        ({"nic": "a", "node": 1, "down": True}, "(got nic and node)"),
        ({"nic": "a"}, "does nothing at nic; give down: true, bandwidth, latency or speed"),
        ({"nic": "a", "speed": "50 %"}, "takes speed at an accelerator or a node, not at a nic"),
    ],
)
def test_faults_that_say_nothing_are_refused(item, sentence):
    with pytest.raises(InputError) as error:
        read_faults([item])
    assert sentence in error.value.message


@pytest.mark.parametrize(
    ("at", "sentence"),
    [("node9.gpu1", "but the job has 0 to 15."), ("node2.gpu7", "but the job has 0 to 15."), ("gpu", "Try its place")],
)
def test_slow_accelerators_that_a_job_lacks_are_refused(at, sentence):
    with pytest.raises(InputError) as error:
        speeds(read_faults([{"accelerator": at, "speed": 0.5}]), 16, range(0, 20, 4))
    assert sentence in error.value.message
