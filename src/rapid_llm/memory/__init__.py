"""Bytes per rank by category over the schedule, and the verdict."""

from rapid_llm.memory.account import CATEGORIES, Account
from rapid_llm.memory.inference import (
    CacheBudget,
    cache_budget,
    cache_room,
    concurrent_sequences,
    inference_account,
)
from rapid_llm.memory.training import Holdings, holdings, training_account

__all__ = [
    "CATEGORIES",
    "Account",
    "CacheBudget",
    "Holdings",
    "cache_budget",
    "cache_room",
    "concurrent_sequences",
    "holdings",
    "inference_account",
    "training_account",
]
