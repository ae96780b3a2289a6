"""From a block, shapes and plans to rows of kernels, messages and tensors. Knows no time."""

from rapid_llm.lowering.lower import Lowered, lower
from rapid_llm.lowering.shapes import Shapes
from rapid_llm.lowering.table import PHASES, Kernels, Messages

__all__ = ["PHASES", "Kernels", "Lowered", "Messages", "Shapes", "lower"]
