"""Helix parallelism: in decode ranks share the cache of their heads by its tokens, and are regrouped for all the rest.

N = tpa x kvp ranks (Bhatia et al. 2025, arXiv 2507.07120, sections 2.1 to 2.3): tpa cut the heads of queries and of the
cache, kvp of them hold each its share of the tokens of the same heads, and compute the queries of all these heads
alike, so that nothing is gathered before the core. One all-to-all over the kvp ranks then turns partial outputs of all
their heads into whole ones of H / N heads; everything behind it is cut over all N ranks. ``Plans`` says N as tp.
Prompts are read as tensor parallelism over N ranks reads them; each rank keeps the keys and values of its tokens.
"""

from __future__ import annotations

from rapid_llm.lowering.operators import FP32_BYTES, Canonical, Collective, Column, pointwise
from rapid_llm.lowering.shapes import Shapes
from rapid_llm.operators.elementwise import where


def attending(s: Shapes) -> Column:
    """Ranks over which a pass cuts the heads of attention [P]: all of tp, but for decode steps whose cache is dealt."""
    return where(s.decode > 0, s.plans.tpa, s.plans.tp) if s.cache_dealt else s.plans.tp


def cached_share(s: Shapes) -> Column | float:
    """Ranks over which the tokens are dealt that a query of a decode step meets [P]."""
    return where(s.decode > 0, s.plans.kvp, 1.0) if s.cache_dealt else 1.0


def gathered_cache(width: Column | float, s: Shapes) -> list[Canonical]:
    """Before the core of a prompt that goes on from cached tokens, ``width`` elements of each from the other ranks."""
    if not s.cache_dealt:
        return []
    size = s.documents * s.past * width * s.kv
    when = (s.plans.kvp > 1) * s.prefill * (s.past > 0)
    return [Collective("attention cache gather", "all_gather", "", "kvp", size, when=when)]


def regroup(tensor: str, heads: Column, width: int, s: Shapes) -> list[Canonical]:
    """Behind the core of a decode step: partial outputs of ``heads`` heads of ``width`` elements with the log of their
    sums travel, and each rank adds up those of its own heads, scaled (section 2.1.2). Bytes do not depend on what is
    cached."""
    if not s.cache_dealt:
        return []
    partial = s.tokens * heads * (width * s.act + FP32_BYTES)
    when = (s.plans.kvp > 1) * s.decode
    own = {tensor: s.tokens * heads / s.plans.kvp * width * s.act}
    return [
        Collective("attention heads exchange", "all_to_all", "", "kvp", partial, when=when),
        pointwise("attention_merge", "stream", {tensor: partial}, own, when=when),
    ]
