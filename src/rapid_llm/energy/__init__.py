"""Power and energy of the accelerators of a job, from its priced passes."""

from rapid_llm.energy.power import UNCERTAINTY, PowerModel, drawn, missing, of_ranks, of_step

__all__ = ["UNCERTAINTY", "PowerModel", "drawn", "missing", "of_ranks", "of_step"]
