"""The flow engine: columns of tasks over shared resources. numba is imported when it runs, not before."""

from rapid_llm.network.engine.simulate import run, simulate

__all__ = ["run", "simulate"]
