"""The families of kernels and the columns that describe one: the contract between lowering and pricing.

Every column is a float64 array; rows are independent. A row is one launch (or one fused run) on one accelerator.
"""

from collections.abc import Callable
from operator import itemgetter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rapid_llm.nouns import light

Column = NDArray[np.float64]

COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    # Y[m, n] = X[m, k] W[k, n], `groups` equal ones in one launch; bytes per element of X, W and Y (scales included).
    "gemm": ("m", "n", "k", "groups", "x_bytes", "w_bytes", "y_bytes"),
    # `batch` sequences of `new` query tokens after `past` cached ones. heads and kv_heads are this rank's.
    # window 0 is unlimited; causal 0 or 1; backward 0 or 1; kv_bytes per element of the cache.
    # new == 1 with past > 0 and backward == 0 is decode (split-KV kernels), else context.
    # Absorbed MLA decode is kv_heads 1, head_dim kv_rank + rope, v_head_dim kv_rank, shared_kv 1 (K, V one tensor).
    "attention": (
        "batch", "new", "past", "heads", "kv_heads", "head_dim", "v_head_dim", "window", "causal", "backward",
        "kv_bytes", "shared_kv",
    ),
    # Fused expert MLP: `rows` token-expert pairs of this rank's experts, `hit` of them that get any, `largest` rows of
    # the most loaded one; `pairs` that the kernel scans, those of other ranks' experts too, and their `tokens`;
    # `experts` on this rank, `hidden`, `inter` this rank's expert width, `matrices` 3 gated or 2, bytes per element.
    "moe": (
        "rows", "hit", "largest", "pairs", "tokens", "experts", "hidden", "inter", "matrices", "x_bytes", "w_bytes",
    ),
    # Recurrent mixers: state key_dim x value_dim per value head; `new` == 1 is the decode update.
    "scan": ("batch", "new", "heads", "key_dim", "value_dim", "state_bytes", "backward"),
    # Short causal convolutions: each of `channels` sees `width` tokens, `new` of them in each of `batch` sequences, and
    # keeps the last width - 1 inputs as its state; x_bytes per element. `new` == 1 is the decode update, in place.
    "convolution": ("batch", "new", "channels", "width", "x_bytes", "backward"),
    # Memory-bound kernels: bytes read and written, and `flops` of vector work. The row's kind names the access pattern.
    "pointwise": ("read_bytes", "write_bytes", "flops"),
}  # fmt: skip

VALUES: Final = {family: itemgetter(*names) for family, names in COLUMNS.items()}
"""Family to the function that takes its columns out of a mapping, in the order of ``COLUMNS``."""

MAY_BE_ZERO: Final = frozenset(
    ("past", "window", "causal", "backward", "shared_kv", "read_bytes", "write_bytes", "flops", "hit")
)
"""Columns where zero means something; every other is a size."""

POINTWISE_KINDS: Final = ("stream", "reduce", "gather", "optimizer")
"""stream: residual, activation, cast, dropout; reduce: norm, softmax, loss, sampling; gather: embedding, rotary."""

ATTENTION_KINDS: Final = ("", "sinks")
"""Rows of attention: plain, and with a learned logit per head, for which engines have another kernel on some chips."""

BOUNDS: Final = ("compute", "memory", "launch")


@light
class Prices:
    """What pricing answers, one entry a row.

    seconds: time of the launch on the device (s), launch floor included; flops: arithmetic counted (multiply-add = 2);
    hbm_bytes: traffic to main memory; compute_s and memory_s: the two sides that the time was formed from, beside what
    a launch takes at any size, fixed_s (s).
    """

    seconds: Column
    flops: Column
    hbm_bytes: Column
    compute_s: Column
    memory_s: Column
    fixed_s: Column

    @property
    def bound(self) -> NDArray[np.int8]:
        """Which of the three terms is the largest: an index into BOUNDS."""
        memory_side = self.compute_s < self.memory_s  # as numbers: the first or the second of BOUNDS
        fixed = np.maximum(self.compute_s, self.memory_s) < self.fixed_s
        return np.where(fixed, BOUNDS.index("launch"), memory_side).astype(np.int8)

    @property
    def reads(self) -> NDArray[np.bool_]:
        """Which rows memory binds."""
        found: NDArray[np.bool_] = (self.compute_s < self.memory_s) & (self.memory_s >= self.fixed_s)
        return found

    @property
    def columns(self) -> tuple[NDArray[Any], ...]:
        """All columns, in order."""
        return self.seconds, self.flops, self.hbm_bytes, self.compute_s, self.memory_s, self.fixed_s

    def each(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> "Prices":
        """The same with every column changed in one way."""
        return Prices(*map(change, self.columns))
