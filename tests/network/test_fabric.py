"""Tiers of the catalogue's systems."""

from dataclasses import replace

import pytest
from pydantic import ValidationError

from rapid_llm import hardware
from rapid_llm.errors import InputError
from rapid_llm.network import Fabric, library, link
from rapid_llm.network.groups import group_of
from rapid_llm.network.technologies import LIBRARIES, LINKS
from rapid_llm.network.topology import Topology

NAMES = [
    *(f"nvlink{n}" for n in (2, 3, 4, 5)),
    *(f"pcie{n}-x16" for n in (3, 4, 5, 6)),
    *("infinity-fabric3", "infinity-fabric4", "tpu-ici-v5p", "tpu-ici-v6e", "gaudi-roce", "c2c"),
    *(
        "infiniband-hdr",
        "infiniband-ndr",
        "infiniband-xdr",
        "roce-400",
        "efa-v1",
        "efa-v2",
        "efa-v3",
        "efa-v4",
        "slingshot-11",
    ),
    *("gpudirect-tcpx-200g", "ethernet-100g"),
]


def tiers(name):
    return Fabric.of(hardware.system(name)).tiers


def test_dgx_h100():
    node, rail, spine = tiers("dgx-h100")
    assert (node.span, node.bandwidth, node.kind, node.in_network_reduction) == (8, 450e9, "switch", True)
    assert (rail.span, rail.bandwidth) == (256, 50e9)  # 32 nodes below a rail leaf, a 400 Gb/s card for each GPU
    assert spine.bandwidth == 50e9
    assert spine.latency > rail.latency > node.latency


def test_rack_scale_domain():
    assert tiers("gb200-nvl72")[0].span == 72


def test_nvlink_pairs_reach_the_rest_over_the_host():
    pair, host = tiers("a100-pcie-4-nvlink-pairs")
    assert (pair.span, pair.bandwidth, host.span, host.kind) == (2, 300e9, 4, "shared")
    assert host.bandwidth == pytest.approx(31.5e9, rel=1e-3)


def test_cards_without_peer_to_peer_meet_in_host_memory():
    """GeForce: two RTX 4090 exchange 15 GB/s each way, not 25 of their lanes; offloading keeps the lanes."""
    (host,) = tiers("rtx-4090-2")
    assert (host.link, host.kind) == ("host-staged", "shared")
    assert host.bandwidth * library("nccl").links["host-staged"].memory == pytest.approx(15e9, rel=0.01)
    assert hardware.system("rtx-4090-2").groups[0].node.host_link.link == "pcie4-x16"
    assert tiers("rtx-pro-6000-8")[0].link == "pcie5-x16"
    assert [tier.link for tier in tiers("rtx-3090-2-nvlink")] == ["nvlink3"]


def test_torus_has_one_tier():
    (torus,) = tiers("tpu-v5p-pod")
    assert (torus.kind, torus.dimensions) == ("torus", 3)
    assert torus.reach(4, 1) == pytest.approx(torus.bandwidth / 3)
    assert torus.reach(64, 1) == torus.bandwidth


def test_four_cards_for_eight_accelerators():
    assert tiers("p4d")[1].bandwidth == pytest.approx(4 * 12.5e9 / 8)


@pytest.mark.parametrize(("name", "nodes"), [("p5", 2), ("p4d", 16), ("oci-a100", 8), ("dgx-h100", 32), ("lumi-g", 4)])
def test_a_leaf_takes_the_cards_that_its_ports_hold(name, nodes):
    """64 ports of 100 Gb/s hold the 32 cards of two nodes; a port of 400 Gb/s splits into four cards of 100."""
    leaf = next(tier for tier in tiers(name) if tier.name == "leaf")
    assert leaf.span == nodes * tiers(name)[0].span


def test_a_fabric_may_say_how_many_nodes_share_a_leaf():
    system = hardware.system("grand-teton-h100")  # two servers a rack, a switch on top
    assert Fabric.of(system).tiers[1].span == 16
    assert Topology.of(system, 64).names.count("leaf3") == 1
    wider = replace(system, fabric=replace(system.fabric, leaf_nodes=4))
    assert Fabric.of(wider).tiers[1].span == 32


def test_one_accelerator_has_no_tier():
    assert tiers("h100-sxm") == ()


@pytest.mark.parametrize("name", hardware.system_names())
def test_every_system_has_nested_tiers(name):
    spans = [tier.span for tier in tiers(name)]
    assert spans == sorted(set(spans))
    assert all(tier.bandwidth > 0 and tier.latency > 0 for tier in tiers(name))


@pytest.mark.parametrize("name", NAMES)
def test_link_technologies(name):
    sources = LINKS.load(name)[1]
    assert link(name).bandwidth > 1e9
    assert {"bandwidth", "latency"} <= sources.keys()


@pytest.mark.parametrize("name", LIBRARIES.names())
def test_every_number_of_a_library_has_a_source(name):
    data, sources = LIBRARIES.load(name)
    assert library(name).name == name
    for part in ("protocols", "links"):
        names = {"algorithms", "without", "tuner"}
        numbers = {f"{part}.{key}.{field}" for key, cost in data[part].items() for field in cost if field not in names}
        believed = {f"{part}.{key}.tuner.rate.LL" for key, cost in data[part].items() if "tuner" in cost}
        assert numbers | believed <= sources.keys()


def test_a_library_needs_its_defaults():
    with pytest.raises(ValidationError, match="links must hold the default 'inter'"):
        replace(library("nccl"), links={"intra": library("nccl").links["intra"]})


def test_unknown_names():
    with pytest.raises(InputError, match=r"^link 'nvlink6' is not in the catalogue\. Did you mean 'nvlink\d'\?"):
        link("nvlink6")
    with pytest.raises(InputError, match=r"^collective library 'ncll' is not in the catalogue\. Did you mean 'nccl'\?"):
        library("ncll")


def test_ends_of_a_pipeline_lie_within_their_job():
    fabric = Fabric.of(hardware.system("selene"), 3072)
    ends = group_of(fabric, 2, 3072 - 48)  # the next two, as far apart, would be beyond it
    assert (ends.scattered, ends.bounds) == (False, (2,))
