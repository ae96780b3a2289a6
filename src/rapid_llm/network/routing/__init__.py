"""Routes over an explicit topology."""

from rapid_llm.network.routing.routes import POLICIES, Routes, Table, gathered, route

__all__ = ["POLICIES", "Routes", "Table", "gathered", "route"]
