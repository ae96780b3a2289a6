"""Bytes per rank by category over the schedule, and the verdict."""

from rapid_llm.memory.account import CATEGORIES, Account
from rapid_llm.memory.footprint import inference_footprint, training_footprint
from rapid_llm.memory.inference import CacheBudget, cache_budget, cache_room, inference_account, predictor_bytes
from rapid_llm.memory.training import Holdings, holdings, training_account
from rapid_llm.memory.verdict import fit_probability, spread, verdict
from rapid_llm.memory.walk import PARTS, Walk, walk

__all__ = [
    "CATEGORIES",
    "PARTS",
    "Account",
    "CacheBudget",
    "Holdings",
    "Walk",
    "cache_budget",
    "cache_room",
    "fit_probability",
    "holdings",
    "inference_account",
    "inference_footprint",
    "predictor_bytes",
    "spread",
    "training_account",
    "training_footprint",
    "verdict",
    "walk",
]
