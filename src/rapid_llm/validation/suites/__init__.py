"""The suites: how the rows of a table become cases."""

from collections.abc import Callable, Iterator, Mapping

from rapid_llm.validation.cases import Case
from rapid_llm.validation.suites import collectives, energy, inference, kernels, memory, network, served, training
from rapid_llm.validation.tables import Table


def _inference(table: Table) -> Iterator[Case]:
    """Batches, and requests served at a fixed concurrency."""
    yield from inference.cases(table)
    yield from served.cases(table)


SUITES: Mapping[str, Callable[[Table], Iterator[Case]]] = {
    "training": training.cases,
    "memory": memory.cases,
    "inference": _inference,
    "energy": energy.cases,
    "collectives": collectives.cases,
    "network": network.cases,
    **{name: kernels.suite(name) for name in kernels.SCHEMAS},
}
"""Name of a suite to the function that reads its cases from a table; a table of another schema gives none."""

__all__ = ["SUITES"]
