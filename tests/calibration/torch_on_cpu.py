"""Run the emitted script on PyTorch itself without a GPU: small cases on the CPU, behind what ``torch.cuda`` says."""

import contextlib
import time
from types import SimpleNamespace

import torch
from torch.overrides import TorchFunctionMode

from rapid_llm.calibration.benchmark import script

SMALL = {
    "TOKENS": (1, 2, 16, 48),
    "WIDTHS": (256, 512),
    "HUGE": (512,),
    "BATCHES": (1, 2),
    "LENGTHS": (16, 64),
    "CACHES": (128,),
    "DECODED": (1, 2),
    "MIXTURES": ((256, 128, 8, 2),),
    "settle": lambda: 1e12,
}


class OnCpu(TorchFunctionMode):
    """What is asked of a GPU is made on the CPU."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        given = dict(kwargs or {})
        return function(*args, **(given | {"device": "cpu"} if given.get("device") == "cuda" else given))


class Event:
    def __init__(self, *, enable_timing):
        assert enable_timing

    def record(self):
        self.at = time.perf_counter()

    def synchronize(self):
        pass

    def elapsed_time(self, other):
        return (other.at - self.at) * 1e3


def main():
    nothing = {name: lambda *_: None for name in ("synchronize", "empty_cache", "set_stream", "set_sync_debug_mode")}
    said = {
        "is_available": lambda: True,
        "get_device_name": lambda: "NVIDIA H100 80GB HBM3",
        "get_device_capability": lambda: (9, 0),
        "mem_get_info": lambda: (8e9, 8e9),
        "default_stream": lambda: None,
        "CUDAGraph": lambda: SimpleNamespace(replay=lambda: time.sleep(1e-5)),
        "graph": lambda _: contextlib.nullcontext(),
        "Event": Event,
    }
    for name, value in {**nothing, **said}.items():
        setattr(torch.cuda, name, value)
    names = {"__name__": "kernel_benchmark"}
    exec(compile(script(), "kernel_benchmark.py", "exec"), names)
    names.update(SMALL)
    with OnCpu():
        names["main"]()


if __name__ == "__main__":
    main()
