import numpy as np
import pytest

from rapid_llm import hardware
from rapid_llm.errors import InfeasibleError, InputError
from rapid_llm.network import clusters, shapes
from rapid_llm.network.faults import apply, read_faults
from rapid_llm.network.files import topology_of_edges
from rapid_llm.network.routing import route
from rapid_llm.network.topology import Topology


def pairs(topology):
    ends = topology.accelerators
    a, b = np.meshgrid(ends, ends, indexing="ij")
    apart = a != b
    return a[apart], b[apart]


def down(topology, *names):
    health = topology.health.copy()
    for a, b in names:
        for one, other in ((a, b), (b, a)):
            health[topology.links_between(topology.node(one), topology.node(other))] = 0.0
    return topology.with_health(health)


def leads(topology, routes, source, target):
    for i in range(len(routes)):
        row = routes.row(i)
        nodes = [topology.source[row[0]], *topology.target[row]]
        assert nodes[0] == source[i]
        assert nodes[-1] == target[i]
        assert (topology.source[row[1:]] == topology.target[row[:-1]]).all()
        assert len(set(nodes)) == len(nodes), "a loop"
        assert (topology.capacity[row] > 0).all()


TOPOLOGIES = [
    shapes.ring(8, 1e9),
    shapes.torus((4, 4), 1e9),
    shapes.mesh((3, 4), 1e9),
    shapes.king_mesh((3, 3), 1e9),
    clusters.leaf_spine(16, 4, 1e9, oversubscription=2),
    clusters.fat_tree(4, 1e9),
    clusters.dragonfly(4, 3, 2, 1e9),
    clusters.nested([clusters.switch(4, 4e9)] * 4, clusters.leaf_spine(16, 2, 1e9, rails=4)),
]


@pytest.mark.parametrize("policy", ["shortest", "ecmp", "balanced", "adaptive", "rail"])
@pytest.mark.parametrize("topology", TOPOLOGIES, ids=lambda t: t.name)
def test_routes_lead_from_source_to_target_without_a_loop(topology, policy):
    source, target = pairs(topology)
    leads(topology, route(topology, source, target, policy=policy), source, target)


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=lambda t: t.name)
def test_spraying_sends_everything_out_and_in(topology):
    source, target = pairs(topology)
    routes = route(topology, source, target, policy="spray")
    load = routes.load(topology.links)
    into = np.bincount(topology.target, weights=load, minlength=topology.nodes)
    out = np.bincount(topology.source, weights=load, minlength=topology.nodes)
    others = np.setdiff1d(np.arange(topology.nodes), topology.accelerators)
    assert np.allclose(into, out)
    assert np.allclose(into[others], out[others])
    shortest = route(topology, source, target, policy="shortest")
    assert load.sum() == pytest.approx(len(shortest.link))


def test_ties_on_a_ring_go_both_ways():
    ring = shapes.ring(8, 1e9)
    load = route(ring, *pairs(ring)).load(ring.links)
    assert load.tolist() == [8.0] * 16  # n^2 / 8 (notes: S n / (8 B))


def test_dimension_order_goes_along_the_first_axis_first():
    torus = shapes.torus((4, 4), 1e9)
    pair = np.array([0]), np.array([5])
    assert torus.target[route(torus, *pair).row(0)].tolist() == [1, 5]
    assert torus.target[route(torus, *pair, policy="alternating").row(0)].tolist() == [4, 5]


def test_balanced_routes_share_uplinks_evenly_and_hashes_collide():
    fabric = clusters.leaf_spine(32, 8, 1e9)
    source = np.arange(8)
    target = source + 8
    assert route(fabric, source, target, policy="balanced").load(fabric.links).max() == 1.0
    worst = max(route(fabric, source, target, policy="ecmp", seed=s).load(fabric.links).max() for s in range(4))
    assert worst >= 2.0
    spread = route(fabric, source, target, policy="ecmp", queue_pairs=16).load(fabric.links)
    assert spread.max() < worst


def test_ecmp_is_the_same_for_a_seed():
    fabric = clusters.fat_tree(4, 1e9)
    first, again, other = (route(fabric, *pairs(fabric), policy="ecmp", seed=s).link.tolist() for s in (1, 1, 2))
    assert first == again
    assert first != other


def test_seed_and_queue_pairs_of_a_hash_are_written_behind_it():
    """More queue pairs spread a permutation better over the spines."""
    ends = np.arange(8), np.arange(8) + 8
    net = clusters.leaf_spine(16, 8, 50e9)
    a, b = (net.accelerators[end] for end in ends)
    worst = [
        route(net, a, b, policy=policy).load(net.links).max() for policy in ("ecmp:3", "ecmp:3:2", "ecmp:3:64", "spray")
    ]
    assert (route(net, a, b, policy="ecmp:3").link == route(net, a, b, policy="ecmp", seed=3).link).all()
    assert worst[0] > worst[2] >= worst[3]
    for policy in ("ecmp:", "ecmp:x", "ecmp:3:0", "ecmp:-1"):
        with pytest.raises(InputError, match=r"is not ecmp:SEED or ecmp:SEED:QUEUE_PAIRS. Try ecmp:7 or ecmp:7:4."):
            route(net, a, b, policy=policy)


def test_the_rail_policy_crosses_inside_the_box():
    cluster = clusters.nested([clusters.switch(4, 4e9)] * 2, clusters.leaf_spine(8, 2, 1e9, rails=4))
    row = route(cluster, cluster.accelerators[[0]], cluster.accelerators[[6]], policy="rail").row(0)
    names = [cluster.names[n] for n in cluster.target[row]]
    assert names == ["node0.nvswitch", "node0.gpu2", "node0.nic2", "leaf0.2", "node1.nic2", "node1.gpu2"]


def test_minimal_routes_of_a_dragonfly_stay_in_two_groups_and_ugal_leaves_them_under_load():
    fly = clusters.dragonfly(5, 4, 2, 1e9)
    source, target = np.arange(8), np.arange(8) + 8  # all of group 0 to group 1 over one global link
    minimal = route(fly, source, target, policy="minimal")
    assert all(set(fly.box[fly.target[minimal.row(i)]].tolist()) <= {0, 1} for i in range(8))
    assert minimal.load(fly.links).max() == 8.0
    assert route(fly, source, target, policy="ugal").load(fly.links).max() < 8.0


def test_a_detour_leaves_other_rows_and_takes_the_idle_way():
    torus = shapes.torus((4, 4), 1e9)
    nodes = np.arange(16)
    right = nodes // 4 * 4 + (nodes + 1) % 4  # a ring along every row, one way
    broken = down(torus, ("gpu0", "gpu1"))
    before, after = route(torus, nodes, right), route(broken, nodes, right)
    assert [before.row(i).tolist() for i in range(1, 16)] == [after.row(i).tolist() for i in range(1, 16)]
    assert broken.target[after.row(0)].tolist() == [3, 2, 1]  # the idle reverse way, not the busy neighbour row


def test_a_dead_card_is_reached_through_a_peer():
    cluster = clusters.nested([clusters.switch(4, 4e9)] * 2, clusters.leaf_spine(8, 2, 1e9, rails=4))
    broken = down(cluster, ("node0.nic1", "leaf0.1"))
    source, target = cluster.accelerators[[1]], cluster.accelerators[[5]]
    routes = route(broken, source, target)
    leads(broken, routes, source, target)
    assert "node0.nic1" not in [broken.names[n] for n in broken.target[routes.row(0)]]


def test_a_partition_names_the_ranks_it_cuts_off():
    broken = down(shapes.ring(6, 1e9), ("gpu0", "gpu1"), ("gpu2", "gpu3"))
    with pytest.raises(InfeasibleError) as error:
        route(broken, *pairs(broken))
    assert error.value.exit_code == 3
    assert error.value.message == (
        "ring-6 is disconnected: no live path joins accelerators 1 (gpu1), 2 (gpu2) with the other 4; "
        "remove a fault or leave these accelerators out."
    )


def test_a_dead_box_is_named_whole_though_nothing_in_it_is_joined():
    net = apply(Topology.of(hardware.system("dgx-h100"), 16), read_faults([{"node": 1, "down": True}]))
    with pytest.raises(
        InfeasibleError, match=r"accelerators 8 \(node1\.gpu0\), .* 15 \(node1\.gpu7\) with the other 8;"
    ):
        route(net, net.accelerators[:1], net.accelerators[12:13])


def test_a_way_that_lacks_one_direction_is_no_partition():
    edges = [{"from": "a", "to": "b", "bandwidth": "1 GB/s", "reverse": "0 GB/s"}]
    net = topology_of_edges(edges)
    with pytest.raises(
        InfeasibleError, match=r"^edges has no live path from b to a that routing may take; remove a fault"
    ):
        route(net, np.array([1]), np.array([0]))


@pytest.mark.parametrize("policy", ["minimal", "ugal"])
def test_routing_of_a_dragonfly_is_refused_elsewhere(policy):
    net = Topology.of(hardware.system("dgx-h100"), 32)
    with pytest.raises(
        InputError,
        match=rf"^routing '{policy}' is for a dragonfly, .* has no links between groups\. Try auto, balanced",
    ):
        route(net, *pairs(net), policy=policy)


def test_policies_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match=r"^routing 'balance' is unknown. Did you mean 'balanced'\?"):
        route(shapes.ring(4, 1e9), np.array([0]), np.array([1]), policy="balance")
    with pytest.raises(InputError, match="has no axes to route along; use shortest, balanced or spray"):
        route(clusters.switch(4, 1e9), np.array([0]), np.array([1]), policy="dimension-order")


def test_traffic_of_a_box_stays_on_its_own_links():
    """A GCD of LUMI reaches its neighbours' neighbours over Infinity Fabric, not over the network cards."""
    lumi = Topology.of(hardware.system("lumi-g"), 16)
    source, target = (a.ravel() for a in np.meshgrid(np.arange(8), np.arange(8), indexing="ij"))
    apart = source != target
    routes = route(lumi, lumi.accelerators[source[apart]], lumi.accelerators[target[apart]])
    assert (lumi.node_kind[lumi.target[routes.link]] == 0).all()
    distance = np.abs(source - target)[apart]
    both = np.where(distance == 4, 8, np.minimum(distance, 8 - distance))  # halves go both ways to the rank opposite
    assert np.diff(routes.start).tolist() == both.tolist()
    assert set(routes.share[np.repeat(distance == 4, both)].tolist()) == {0.5}
