"""Bytes per rank by category over the schedule, and the verdict."""

from rapid_llm.memory.account import CATEGORIES, Account, inference_account, training_account

__all__ = ["CATEGORIES", "Account", "inference_account", "training_account"]
