"""A stand-in for PyTorch on a GPU of given rates: it knows shapes, formats, memory, captures and times.

It refuses what PyTorch refuses (formats, layouts, waiting inside a capture, memory that is not there) and has the names
that a version has. Its host's clock goes on as kernels run, so that a budget of minutes can be held to.
"""

import contextlib
import math
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace

BYTES = {"bfloat16": 2, "float8_e4m3fn": 1, "float8_e4m3fnuz": 1, "int32": 4, "int64": 8, "float32": 4}


@dataclass
class Gpu:
    """Rates (FLOP/s, B/s), launch (s), memory (B), what a capture takes the host (s), and what PyTorch says of it."""

    name: str = "NVIDIA H100 80GB HBM3"
    capability: tuple[int, int] = (9, 0)
    version: str = "2.9.0+cu128"
    arch: str = ""
    rate: float = 700e12
    bandwidth: float = 3.0e12
    launch: float = 2e-6
    memory: float = 80e9
    host: float = 10e-3
    flash: bool = True
    kernels: bool = True
    clock: float = 0.0
    live: float = 0.0
    peak: float = 0.0
    capture: list | None = None
    strict: bool = False
    calls: set = field(default_factory=set)

    @property
    def release(self):
        return tuple(map(int, self.version.split(".")[:2]))

    def run(self, seconds):
        """A kernel: into the graph that is captured, or now."""
        if not self.kernels:
            raise RuntimeError("CUDA error: no kernel image is available for execution on the device\nmore lines")
        if self.capture is not None:
            self.capture.append(seconds + self.launch)
        else:
            self.clock += seconds + self.launch + 5e-6

    def wait(self, what):
        """The host waits for the GPU."""
        if self.capture is not None:
            raise RuntimeError(f"CUDA error: operation not permitted when stream is capturing ({what})")
        if self.strict:
            raise RuntimeError("called a synchronizing CUDA operation")


class Tensor:
    """Shape, format and whether its last two dimensions are swapped in memory."""

    def __init__(self, gpu, shape, dtype="bfloat16", swapped=False, view=False):
        self.gpu, self.shape, self.dtype, self.swapped, self.view = gpu, tuple(shape), dtype, swapped, view
        if not view:
            if gpu.live + self.bytes > gpu.memory:
                self.view = True  # nothing to give back
                raise RuntimeError("CUDA out of memory. Tried to allocate more")
            gpu.live += self.bytes
            gpu.peak = max(gpu.peak, gpu.live)

    def __del__(self):
        if not self.view:
            self.gpu.live -= self.bytes

    @property
    def bytes(self):
        return math.prod(self.shape) * BYTES[self.dtype]

    def like(self, *shape, dtype=None):
        return Tensor(self.gpu, shape, dtype or self.dtype)

    def transpose(self, first, second):
        shape = list(self.shape)
        shape[first], shape[second] = shape[second], shape[first]
        found = Tensor(self.gpu, shape, self.dtype, not self.swapped, view=True)
        found.base = self
        return found

    def t(self):
        return self.transpose(0, 1)

    def to(self, dtype):
        if dtype == self.dtype:
            return self
        self.gpu.run(2 * self.bytes / self.gpu.bandwidth)
        return self.like(*self.shape, dtype=dtype)

    def cumsum(self, dim):
        assert dim == 0
        return self.like(*self.shape, dtype="int64")

    def __mod__(self, _):
        return self

    __floordiv__ = __mod__

    def __getitem__(self, index):
        assert index.dtype == "int64"
        self.gpu.run(0.0)
        return self.like(index.shape[0], *self.shape[1:])

    def chunk(self, parts, dim):
        assert dim == -1
        return [Tensor(self.gpu, (*self.shape[:-1], self.shape[-1] // parts), self.dtype, view=True)] * parts

    def __mul__(self, other):
        assert other.shape in (self.shape, (self.shape[0], 1))
        self.gpu.run(3 * self.bytes / self.gpu.bandwidth)
        return self.like(*self.shape)

    def index_add_(self, dim, index, rows):
        assert (dim, rows.shape, rows.dtype) == (0, (index.shape[0], *self.shape[1:]), self.dtype)
        self.gpu.run(3 * rows.bytes / self.gpu.bandwidth)
        return self


class Event:
    """A moment of the GPU's clock."""

    def __init__(self, gpu, enable_timing=False):
        assert enable_timing
        self.gpu = gpu

    def record(self):
        self.at = self.gpu.clock

    def synchronize(self):
        self.gpu.wait("event")

    def elapsed_time(self, other):
        return (other.at - self.at) * 1e3


def product(gpu, a, b):
    """Seconds of a matrix product and its result."""
    if a.shape[-1] != b.shape[-2]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({a.shape} and {b.shape})")
    m, k, n = a.shape[0], a.shape[-1], b.shape[-1]
    rate = gpu.rate * (2 if a.dtype.startswith("float8") else 1)
    gpu.run(max(2 * m * n * k / rate, (a.bytes + b.bytes + m * n * 2) / gpu.bandwidth))
    return Tensor(gpu, (m, n))


def build(gpu):  # noqa: PLR0915 - a module is a list of names
    """The modules of a version of PyTorch, by their names."""
    torch, nn, functional = ModuleType("torch"), ModuleType("torch.nn"), ModuleType("torch.nn.functional")
    scope = SimpleNamespace(flash=False)

    def randn(*shape, dtype, device):
        assert device == "cuda"
        if dtype.startswith("float8"):
            raise RuntimeError('"normal_kernel_cuda" not implemented for Float8')
        found = Tensor(gpu, shape, dtype)
        gpu.run(found.bytes / gpu.bandwidth)
        return found

    def linear(x, w):
        assert x.dtype == w.dtype == "bfloat16"
        return product(gpu, x, w.t())

    def scaled_mm(a, b, *, scale_a, scale_b, out_dtype, **more):
        known = {"use_fast_accum"} if gpu.release >= (2, 2) else set()
        if more.keys() - known:
            raise TypeError(f"_scaled_mm() got an unexpected keyword argument {more}")
        if not (a.dtype == b.dtype and a.dtype.startswith("float8") and b.swapped and not a.swapped):
            raise RuntimeError("mat1 must be row-major, mat2 column-major, both of float8")
        if a.shape[1] % 16 or b.shape[1] % 16 or scale_a.shape != () or out_dtype != "bfloat16":
            raise RuntimeError("trailing dimensions must be divisible by 16")
        return product(gpu, a, b)

    def attention(q, k, v, is_causal=False, **more):
        if more and gpu.release < (2, 5):
            raise TypeError("scaled_dot_product_attention() got an unexpected keyword argument 'enable_gqa'")
        if not (scope.flash and gpu.flash):
            raise RuntimeError("No available kernel. Aborting execution.")
        if k.shape != v.shape or (q.shape[1] != k.shape[1] and not more.get("enable_gqa")):
            raise RuntimeError("heads of query and key must be as many")
        batch, heads, length, head = q.shape
        flops = 4 * batch * heads * length * k.shape[2] * head * (0.5 if is_causal else 1.0)
        gpu.run(max(flops / gpu.rate, (2 * q.bytes + 2 * k.bytes) / gpu.bandwidth))
        return q.like(*q.shape)

    def grouped(x, w, offs):
        if offs.dtype != "int32" or x.shape[1] != w.shape[1] or x.dtype != "bfloat16":
            raise RuntimeError("grouped_mm: offsets or shapes do not match")
        if gpu.capability[0] < 9 and not gpu.arch:
            gpu.wait("offsets")
        gpu.run(max(2 * x.shape[0] * w.shape[1] * w.shape[2] / gpu.rate, w.bytes / gpu.bandwidth))
        return x.like(x.shape[0], w.shape[2])

    def silu(x):
        gpu.run(2 * x.bytes / gpu.bandwidth)
        return x.like(*x.shape)

    @contextlib.contextmanager
    def sdpa(*backends, **settings):
        scope.flash = True
        yield
        scope.flash = False

    @contextlib.contextmanager
    def graph(into):
        gpu.wait("capture")
        gpu.clock += gpu.host
        gpu.capture = into.kernels
        try:
            yield
        finally:
            gpu.capture = None

    class CUDAGraph:
        def __init__(self):
            self.kernels = []

        def replay(self):
            gpu.clock += max(sum(self.kernels), 6e-6)

    functional.linear, functional.scaled_dot_product_attention, functional.silu = linear, attention, silu
    if gpu.release >= (2, 9):
        functional.grouped_mm = grouped
    elif gpu.release >= (2, 8):
        torch._grouped_mm = grouped
    torch.cuda = SimpleNamespace(
        is_available=lambda: bool(gpu.name),
        get_device_name=lambda: gpu.name,
        get_device_capability=lambda: gpu.capability,
        get_device_properties=lambda index: SimpleNamespace(**({"gcnArchName": gpu.arch} if gpu.arch else {})),
        synchronize=lambda: gpu.wait("synchronize"),
        empty_cache=lambda: None,
        mem_get_info=lambda: (gpu.memory - gpu.live, gpu.memory),
        set_sync_debug_mode=lambda mode: setattr(gpu, "strict", mode == "error"),
        set_stream=lambda stream: None,
        default_stream=lambda: None,
        Event=lambda **settings: Event(gpu, **settings),
        CUDAGraph=CUDAGraph,
        graph=graph,
    )
    torch.version = SimpleNamespace(hip="6.4" if gpu.arch else None, cuda=None if gpu.arch else "12.8")
    if not gpu.name:
        torch.version.cuda = None
    torch.__version__ = gpu.version
    torch.randn, torch._scaled_mm = randn, scaled_mm
    torch.ones = lambda shape, device: Tensor(gpu, shape, "float32")
    torch.arange = lambda count, device: Tensor(gpu, (count,), "int64")
    torch.bincount = lambda x, minlength: Tensor(gpu, (minlength,), "int64")
    torch.argsort = lambda x, stable: x
    torch.zeros_like = lambda x: x.like(*x.shape)
    for name in ("bfloat16", "int32", "float8_e4m3fn", "float8_e4m3fnuz"):
        setattr(torch, name, name)
    modules = {"torch": torch, "torch.nn": nn, "torch.nn.functional": functional}
    if gpu.release >= (2, 3):
        own = ModuleType("torch.nn.attention")
        own.SDPBackend, own.sdpa_kernel = SimpleNamespace(FLASH_ATTENTION="flash"), sdpa
        modules["torch.nn.attention"] = own
    torch.backends = SimpleNamespace(cuda=SimpleNamespace(sdp_kernel=sdpa))
    torch.nn, nn.functional = nn, functional
    return modules
