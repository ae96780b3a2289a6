"""Tiers of a system, collectives as step templates, and their time in closed form."""

from rapid_llm.network.collectives import CollectivePrices, algorithm_bandwidth, bus_bandwidth, price
from rapid_llm.network.experts import PHASES, ExpertLibrary, ExpertPrices, expert_library, price_experts
from rapid_llm.network.fabric import Fabric, Tier
from rapid_llm.network.technologies import Library, Link, LinkCost, Protocol, library, link
from rapid_llm.network.templates import ALGORITHMS, OPS

__all__ = [
    "ALGORITHMS",
    "OPS",
    "PHASES",
    "CollectivePrices",
    "ExpertLibrary",
    "ExpertPrices",
    "Fabric",
    "Library",
    "Link",
    "LinkCost",
    "Protocol",
    "Tier",
    "algorithm_bandwidth",
    "bus_bandwidth",
    "expert_library",
    "library",
    "link",
    "price",
    "price_experts",
]
