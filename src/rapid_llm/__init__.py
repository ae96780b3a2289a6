"""RAPID-LLM: how long distributed LLM training and inference takes, whether it fits, and what limits it.

The names below are loaded when first used (PEP 562), so that ``import rapid_llm`` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rapid_llm.errors import InfeasibleError, InputError, RapidError
    from rapid_llm.predict import Report, fit, infer, predict, stepper, train
    from rapid_llm.scenario import Scenario, load

__version__ = "0.1.0"

_HOMES = {
    "Report": "rapid_llm.predict",
    "fit": "rapid_llm.predict",
    "infer": "rapid_llm.predict",
    "predict": "rapid_llm.predict",
    "stepper": "rapid_llm.predict",
    "train": "rapid_llm.predict",
    "Scenario": "rapid_llm.scenario",
    "load": "rapid_llm.scenario",
    "RapidError": "rapid_llm.errors",
    "InputError": "rapid_llm.errors",
    "InfeasibleError": "rapid_llm.errors",
}

__all__ = [
    "InfeasibleError",
    "InputError",
    "RapidError",
    "Report",
    "Scenario",
    "__version__",
    "fit",
    "infer",
    "load",
    "predict",
    "stepper",
    "train",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'rapid_llm' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
