"""Closed forms against flow simulation of the same links: within 1 % wherever the sends of a step do not meet on links
beyond what the closed form counts, which is told by what the links carry. ``benchmarks/closed_forms.py`` has all sizes.
"""

import pytest

from rapid_llm import hardware
from rapid_llm.network import Fabric, candidates, price
from rapid_llm.network.agreement import LINKS, compared, may_meet, on_system, on_topology, sampled
from rapid_llm.network.flow_prices import Carrier, Links, interconnect, price_flow
from rapid_llm.network.groups import group_of
from rapid_llm.network.lines import ways
from rapid_llm.network.specimens import FAMILIES
from rapid_llm.network.technologies import library_for

GROUPS = ((2, 1), (3, 1), (8, 1), (64, 1), (72, 1), (8, 8), (3, 8), (16, 4), (2, 32))
SIZES = (2.0**14, 2.0**20, 2.0**28)
LARGE = ("azure-nd-h100-v5", "l40s-pcie-8", "p5", "a3-mega", "mi300x-8", "lumi-g", "tpu-v5e-pod")
MANY = {"dgx-h100": (256, 1024), "gb200-nvl72": (144,), **dict.fromkeys(LARGE, (256,))}
"""Larger groups, of systems that differ in what joins their nodes."""
MOST = {"": 128, "direct": 16, "one-shot": 16, "two-shot": 8, "tree": 64, "halving-doubling": 32}


def tiers(name):
    return tuple(
        (t.kind, t.span, t.bandwidth, t.latency, t.port, t.astray, t.in_network_reduction, t.dimensions)
        for t in Fabric.of(hardware.system(name)).tiers
    )


SYSTEMS = sorted({tiers(name): name for name in (*hardware.system_names(), *MANY) if tiers(name)}.values())


@pytest.mark.parametrize("name", SYSTEMS)
def test_closed_forms_are_those_of_the_links(name):
    system = hardware.system(name)
    node = system.groups[0].node.accelerators
    torus = Fabric.of(system).tiers[-1].kind == "torus"
    jobs = {(total, ((total, 1),)) for total in (2, 4, 8, 16, 64)} if torus else {(node, GROUPS), (8 * node, GROUPS)}
    jobs |= {(total, ((total, 1), (total // 8, 8))) for total in MANY.get(name, ())}
    found = [
        one
        for total, groups in jobs
        if total <= system.accelerators and (total <= node or system.fabric is not None)
        for one in on_system(system, total, groups, SIZES[1 if total < 128 else 2 :])
    ]
    assert [one for one in found if not one.meets and abs(one.off) > 0.01] == []
    fabrics = {total: Fabric.of(system, total) for total, _ in jobs}
    assert [one for one in found if one.meets and not scattered(fabrics, one)] == []


def scattered(fabrics, one):
    return group_of(fabrics[one.total], one.ranks, one.stride).scattered


def takes(ranks):
    return lambda op, algorithm: ranks <= MOST.get(algorithm, MOST[""])


@pytest.mark.parametrize("name", FAMILIES)
def test_closed_forms_are_those_of_any_topology(name):
    """Where sends get ahead of each other by turns, it takes less, or a little more where they meet those of the next
    step. Of part of a topology, and of links of a user's own that are all unlike, only what does not meet is told.
    """
    own = name in ("edge list", "matrix")
    sizes = [n for n in (2, 3, 6, 8, 16, 36, 54, 72, 128, 144) if FAMILIES[name].has(n)]
    found = [
        one
        for total in sizes
        for ranks in {total, max(2, 2 * total // 3)}
        for one in on_topology(
            FAMILIES[name].of(total),
            ranks,
            SIZES[1:],
            takes=takes(ranks),
            where=name,
            meeting=ranks == total and not own,
        )
    ]
    assert found
    assert [one for one in found if not one.meets and abs(one.off) > 0.01] == []
    assert [one for one in found if one.meets and one.off > 0.05] == []


@pytest.mark.parametrize("name", ["ring", "switch", "hypercube"])
def test_a_ring_of_a_thousand_takes_its_closed_form(name):
    found = list(on_topology(FAMILIES[name].of(1024), 1024, takes=lambda op, algorithm: algorithm == "ring"))
    assert found
    assert [one for one in found if not one.meets and abs(one.off) > 0.01] == []


def test_any_job_of_any_system_and_any_interconnect():
    """Constructors, systems that name one and systems of the catalogue, of any size up to 1,024 ranks, with all
    collectives and algorithms, in messages from 1 KiB to 1 GiB.
    """
    found = list(sampled(300, 4))
    assert sum(not one.meets for one in found) > 200
    assert [one for one in found if not one.meets and abs(one.off) > 0.01] == []


@pytest.mark.parametrize("name", ["dgx-h100", "p4d", "mi300x-8", "gb200-nvl72"])
def test_groups_that_straddle_nodes_wait_for_their_cards(name):
    """Three ranks in a row on nodes of eight: those that hold the end of a node cross to the next."""
    system = hardware.system(name)
    total = 3 * system.groups[0].node.accelerators
    found = list(on_system(system, total, [(3, 1), (6, 1), (3, 4), (12, 2)], meeting=True))
    assert found
    assert [one for one in found if one.algorithm in ("ring", "p2p", "direct") and abs(one.off) > 0.02] == []


@pytest.mark.parametrize(
    ("name", "total", "groups", "algorithm"),
    [
        ("lumi-g", 24, [(3, 1), (6, 2), (12, 1)], "ring"),  # unlike links of a ring inside a node
        ("gb200-nvl72", 144, [(48, 1)], "tree"),  # the deepest tree is not that of the busiest port
        ("a3-ultra", 264, [(33, 1)], "tree"),  # nor the deepest chain of one tree its slowest
        ("mi300x-8", 40, [(5, 1), (10, 1), (3, 4)], "tree"),  # each edge has a link of the mesh
        ("h800-8", 24, [(12, 1)], "tree"),  # chains in a node wait for the trees at its ports
        ("gaudi3-8", 24, [(8, 3)], "two-way-ring"),  # channels of a mesh take all links one way round
    ],
)
def test_groups_that_straddle_nodes_take_what_their_own_links_carry(name, total, groups, algorithm):
    system = hardware.system(name)
    found = [
        one
        for group in groups
        for way in ways("all_reduce", group_of(Fabric.of(system, total), *group), LINKS)
        if way.algorithm == algorithm
        for one in compared(system, total, "all_reduce", way)
    ]
    assert [one for one in found if not one.meets]
    assert [one for one in found if not one.meets and abs(one.off) > 0.01] == []


def test_a_candidate_says_where_its_sends_share_links_by_turns():
    dgx = hardware.system("dgx-h100")
    fabric = Fabric.of(dgx)

    def told(op, ranks, stride, algorithm):
        return may_meet(
            dgx, candidates(op, 2**20, ranks, stride, fabric=fabric, library="nccl", algorithm=algorithm)[0].way
        )

    assert told("all_reduce", 8, 3, "halving-doubling")  # those that have a node to themselves begin their next step
    assert not told("all_reduce", 8, 3, "ring")
    assert not told("all_to_all", 64, 1, "direct")


@pytest.mark.parametrize(
    ("name", "n"),
    [
        *((name, 64) for name in ("dgx-h100", "p5", "mi300x-8", "lumi-g", "l40s-pcie-8", "a3-mega", "tpu-v5e-pod")),
        ("gb200-nvl72", 144),
        ("dgx-h100", 256),
    ],
)
def test_what_a_library_takes_is_one_number(name, n):
    system = hardware.system(name)
    fabric, library = Fabric.of(system), library_for(system.groups[0].node.accelerator.vendor)
    carrier = Carrier(interconnect(system, Links(n)), fabric, library)
    for op in ("all_reduce", "all_gather", "all_to_all"):
        sizes = [2**20, 2**24, 2**28]
        closed = price(op, sizes, n, 1, fabric=fabric, library=library).seconds
        assert price_flow(op, sizes, n, 1, carrier).seconds == pytest.approx(closed, rel=0.01), op


def test_what_leaves_a_node_by_one_card_has_all_of_it():
    """Three in a row on nodes of eight that share a card: chains cross it once."""
    found = list(on_system(hardware.system("a100-pcie-8"), 24, [(3, 1)]))
    assert {"send_recv", "broadcast"} <= {one.op for one in found if not one.meets}
    assert max(abs(one.off) for one in found if not one.meets) < 0.01


def test_two_groups_that_meet_at_one_card_share_it_there_alone():
    """Groups of 26 on nodes of eight that share a card: a ring has the cards of nodes that it fills to itself."""
    system = hardware.system("p3dn")
    ways_of = {way.algorithm: way for way in ways("all_reduce", group_of(Fabric.of(system, 104), 26, 1), LINKS)}
    found = list(compared(system, 104, "all_reduce", ways_of["ring"]))
    assert not any(one.meets for one in found)
    assert max(abs(one.off) for one in found) < 1e-3


def test_exchanges_along_an_open_chain_start_from_its_middle():
    system = hardware.system("trn2")

    def two_shot(ranks):
        found = {way.algorithm: way for way in ways("all_reduce", group_of(Fabric.of(system, 64), ranks, 1), LINKS)}
        return found["two-shot"]

    short = list(compared(system, 64, "all_reduce", two_shot(8)))
    assert max(abs(one.off) for one in short) < 1e-3
    assert not may_meet(system, two_shot(8))
    assert may_meet(system, two_shot(32))


def test_a_long_ring_in_fewer_rounds_passes_slow_and_fast_links_in_proportion():
    system = hardware.system("trn1")
    ways_of = {way.algorithm: way for way in ways("all_gather", group_of(Fabric.of(system, 512), 512, 1), LINKS)}
    found = list(compared(system, 512, "all_gather", ways_of["ring"], [1024.0]))
    assert abs(found[0].off) < 2e-3
