"""The emitted script against a stand-in for PyTorch that knows shapes alone: its control flow, its tables."""

import contextlib
import csv
import sys
from types import ModuleType, SimpleNamespace

import pytest

from rapid_llm.calibration.benchmark import script
from rapid_llm.validation import tables
from rapid_llm.validation.kernels import samples, slice_of


class Tensor:
    def __init__(self, *shape, **_):
        self.shape = shape

    def transpose(self, first, second):
        shape = list(self.shape)
        shape[first], shape[second] = shape[second], shape[first]
        return Tensor(*shape)

    def t(self):
        return self.transpose(0, 1)

    def to(self, *_):
        return self

    cumsum = __mod__ = __floordiv__ = to

    def __getitem__(self, index):
        return Tensor(index.shape[0], self.shape[1])

    def chunk(self, parts, dim):
        assert dim == -1
        return [Tensor(self.shape[0], self.shape[1] // parts)] * parts

    def __mul__(self, other):
        assert other.shape in (self.shape, (self.shape[0], 1))
        return self

    def index_add_(self, _, index, rows):
        assert rows.shape == (index.shape[0], self.shape[1])


class Event:
    def __init__(self, **_):
        pass

    def record(self):
        pass

    def elapsed_time(self, _):
        return 10.0


def product(a, b, **_):
    assert a.shape[-1] == b.shape[-2]
    return Tensor(a.shape[0], b.shape[-1])


def torch(grouped):
    """PyTorch with or without a grouped product."""
    module, functional = ModuleType("torch"), ModuleType("torch.nn.functional")
    functional.linear = lambda x, w: product(x, w.t())
    functional.silu = lambda x: x
    functional.scaled_dot_product_attention = lambda q, k, v, is_causal=False, enable_gqa=False: q
    if grouped:
        functional.grouped_mm = product
    cuda = {"synchronize": lambda: None, "empty_cache": lambda: None, "is_available": lambda: True, "Event": Event}
    graph = {"CUDAGraph": lambda: SimpleNamespace(replay=lambda: None), "graph": lambda _: contextlib.nullcontext()}
    device = {"get_device_name": lambda: "H100", "get_device_capability": lambda: (9, 0)}
    device["get_device_properties"] = lambda _: SimpleNamespace()
    module.cuda, module.version = SimpleNamespace(**device, **cuda, **graph), SimpleNamespace(hip=None)
    module.randn, module.ones, module.arange = Tensor, Tensor, Tensor
    module.bincount, module.argsort = lambda t, minlength: Tensor(minlength), lambda t, stable: t
    module.zeros_like, module._scaled_mm = lambda t: Tensor(*t.shape), product
    module.bfloat16 = module.int32 = module.float8_e4m3fn = None
    module.__version__ = "2.9.0"
    return {"torch": module, "torch.nn": ModuleType("torch.nn"), "torch.nn.functional": functional}


@pytest.mark.parametrize("grouped", [True, False])
def test_the_script_writes_tables_that_kernels_are_fitted_on(tmp_path, monkeypatch, grouped):
    for name, module in torch(grouped).items():
        monkeypatch.setitem(sys.modules, name, module)
    sys.modules["torch"].nn = sys.modules["torch.nn"]
    monkeypatch.setattr(sys, "argv", ["script", "--gpu", "h100-sxm", "--minutes", "0.1", "--out", str(tmp_path)])
    exec(compile(script(), "kernel_benchmark.py", "exec"), {"__name__": "__main__"})
    found = tables.find(tmp_path)
    expected = {"kernel_gemm", "kernel_context", "kernel_generation"} | ({"kernel_moe"} if grouped else set())
    assert {table.schema for table in found} == expected
    kernels = ("cublas", "cublas-fp8", "vllm-fa2", "flash-decode") + (("cutlass-moe",) if grouped else ())
    for kernel in kernels:
        rows = sum(len(sample.seconds) for sample in samples(slice_of(kernel), found))
        part = next(table for table in found if table.schema == slice_of(kernel).schema)
        assert 0 < rows <= len(list(csv.reader(part.path.open())))
