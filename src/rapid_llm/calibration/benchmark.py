"""The script that a user runs on their own GPU to make tables for ``calibrate``."""

from importlib import resources


def script() -> str:
    """A self-contained PyTorch script: it times GEMMs and attention for some minutes and writes two tables."""
    return resources.files(__package__).joinpath("data", "kernel_benchmark.txt").read_text("utf-8")
