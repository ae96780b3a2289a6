"""Routes over an explicit topology."""

from rapid_llm.network.routing.routes import POLICIES, Routes, route

__all__ = ["POLICIES", "Routes", "route"]
