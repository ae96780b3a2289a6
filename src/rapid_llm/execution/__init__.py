"""From priced rows to the time of a step: passes, overlap, schedules."""

from typing import TYPE_CHECKING

from rapid_llm.lazy import exports

if TYPE_CHECKING:
    from rapid_llm.execution.forward import ForwardSteps, forward_steps
    from rapid_llm.execution.machine import Machine
    from rapid_llm.execution.passes import Passes
    from rapid_llm.execution.pricing import Priced
    from rapid_llm.execution.step import TrainingStep, training_step
    from rapid_llm.execution.stragglers import Slow

__all__ = ["ForwardSteps", "Machine", "Passes", "Priced", "Slow", "TrainingStep", "forward_steps", "training_step"]

__getattr__ = exports(__name__, "forward", "machine", "passes", "pricing", "step", "stragglers")
