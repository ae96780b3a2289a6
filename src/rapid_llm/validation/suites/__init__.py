"""The suites: how the rows of a table become cases."""

from collections.abc import Callable, Iterator, Mapping

from rapid_llm.validation.cases import Case
from rapid_llm.validation.suites import collectives, energy, inference, kernels, memory, network, training
from rapid_llm.validation.tables import Table

SUITES: Mapping[str, Callable[[Table], Iterator[Case]]] = {
    "training": training.cases,
    "memory": memory.cases,
    "inference": inference.cases,
    "energy": energy.cases,
    "collectives": collectives.cases,
    "network": network.cases,
    **{name: kernels.suite(name) for name in kernels.SCHEMAS},
}
"""Name of a suite to the function that reads its cases from a table; a table of another schema gives none."""

__all__ = ["SUITES"]
