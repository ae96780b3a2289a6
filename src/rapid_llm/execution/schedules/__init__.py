"""Pipeline schedules as data: for each stage the order of its tasks, and what follows from the order alone."""

from rapid_llm.execution.schedules.catalogue import ALL_FORWARD_FIRST, CODES, SCHEDULES
from rapid_llm.execution.schedules.held import filling, micro_batches_in_flight
from rapid_llm.execution.schedules.tasks import BACKWARD, DIRECTIONS, FORWARD, HELD, INPUT, WEIGHT, Schedule, Task

__all__ = [
    "ALL_FORWARD_FIRST",
    "BACKWARD",
    "CODES",
    "DIRECTIONS",
    "FORWARD",
    "HELD",
    "INPUT",
    "SCHEDULES",
    "WEIGHT",
    "Schedule",
    "Task",
    "filling",
    "micro_batches_in_flight",
]
