"""Tables of kernel timings: their rows as columns of operator families, the sets of rows that a kernel is scored on."""

from rapid_llm.validation.kernels.samples import Sample, samples
from rapid_llm.validation.kernels.slices import SLICES, KernelSlice, chosen, slice_of

__all__ = ["SLICES", "KernelSlice", "Sample", "chosen", "samples", "slice_of"]
