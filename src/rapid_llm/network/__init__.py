"""Tiers of a system, collectives as step templates, and their time in closed form."""

from rapid_llm.network.collectives import CollectivePrices, algorithm_bandwidth, bus_bandwidth, price
from rapid_llm.network.fabric import Fabric, Tier
from rapid_llm.network.technologies import Library, Link, LinkCost, Protocol, library, link
from rapid_llm.network.templates import ALGORITHMS, OPS

__all__ = [
    "ALGORITHMS",
    "OPS",
    "CollectivePrices",
    "Fabric",
    "Library",
    "Link",
    "LinkCost",
    "Protocol",
    "Tier",
    "algorithm_bandwidth",
    "bus_bandwidth",
    "library",
    "link",
    "price",
]
