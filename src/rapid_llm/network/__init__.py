"""Tiers of a system, collectives as step templates, and their time in closed form."""

from rapid_llm.network.candidates import Candidate, candidates
from rapid_llm.network.collectives import CollectivePrices, algorithm_bandwidth, bus_bandwidth, price
from rapid_llm.network.experts import PHASES, ExpertLibrary, ExpertPrices, expert_library, price_experts
from rapid_llm.network.fabric import Fabric
from rapid_llm.network.recipes import Recipe, read_recipe
from rapid_llm.network.technologies import Library, Link, LinkCost, Protocol, library, link
from rapid_llm.network.templates import ALGORITHMS, NCCL_TESTS, OPS
from rapid_llm.network.tier import Tier
from rapid_llm.network.uneven import MatrixPrice, price_matrix

__all__ = [
    "ALGORITHMS",
    "NCCL_TESTS",
    "OPS",
    "PHASES",
    "Candidate",
    "CollectivePrices",
    "ExpertLibrary",
    "ExpertPrices",
    "Fabric",
    "Library",
    "Link",
    "LinkCost",
    "MatrixPrice",
    "Protocol",
    "Recipe",
    "Tier",
    "algorithm_bandwidth",
    "bus_bandwidth",
    "candidates",
    "expert_library",
    "library",
    "link",
    "price",
    "price_experts",
    "price_matrix",
    "read_recipe",
]
