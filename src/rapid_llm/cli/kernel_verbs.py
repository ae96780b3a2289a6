"""The verbs of ``kernel``, one a family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from cyclopts import App, Parameter, Token

from rapid_llm.errors import InputError
from rapid_llm.units import MAX_COUNT, parse

kernel = App(name="kernel", help="One kernel on one accelerator: time, tiles, traffic, bound.", help_format="plaintext")


def whole(_: object, tokens: Sequence[Token]) -> int:
    """A whole number; a fraction is not rounded in silence."""
    text = tokens[0].value
    try:
        found = int(text)
    except ValueError:
        raise InputError(f"{tokens[0].keyword} must be a whole number (got {text[:40]}).") from None
    if found > MAX_COUNT:
        raise InputError(f"{tokens[0].keyword} must be an integer of at most {MAX_COUNT:,} (got {text[:40]}).")
    return found


def size(_: object, tokens: Sequence[Token]) -> float:
    """Bytes, with a unit or without."""
    text = tokens[0].value
    try:
        return float(text)
    except ValueError:
        pass  # it has a unit
    try:
        return parse(text, "bytes")
    except ValueError as error:
        raise InputError(f"{tokens[0].keyword} {error}") from None


def cached(_: object, tokens: Sequence[Token]) -> float:
    """Bytes of a cached element, as caches have them."""
    text, known = tokens[0].value, (0.5, 0.5625, 1.0, 2.0, 4.0)
    if text not in {f"{one:g}" for one in known} | {f"{one:.1f}" for one in known}:
        raise InputError(
            f"{tokens[0].keyword} must be one of {', '.join(f'{one:g}' for one in known)} (got {text[:40]})."
        )
    return float(text)


Whole = Annotated[int, Parameter(converter=whole)]
KvBytes = Annotated[float, Parameter(converter=cached, help="Of an element of the cache: 2 is bf16, 1 fp8.")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Asked:
    """What every kernel is asked with: where it runs, whose kernel it is, or which."""

    accelerator: Annotated[str, Parameter(help="Catalogue name or file.")]
    runtime: Annotated[str, Parameter(help="Whose choice of kernel.")] = "vllm"
    kernel: Annotated[str | None, Parameter(help="Implementation (list kernels); default: the runtime's.")] = None
    json: Annotated[bool, Parameter(negative=(), help="One JSON object.", show_default=False)] = False


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class AskedIn(Asked):
    """The same, and the format in which it multiplies."""

    dtype: Annotated[str, Parameter(help="Compute dtype: bf16, fp8, nvfp4, int8 ...")] = "bf16"


@kernel.command(name="gemm")
def kernel_gemm(
    *,
    m: Whole,
    n: Whole,
    k: Whole,
    groups: Whole = 1,
    asked: AskedIn,
) -> int:
    """Y[m, n] = X[m, k] W[k, n], --groups equal ones in one launch."""
    from rapid_llm.cli.kernels import answer, sizes

    x, w = sizes(asked.dtype)
    columns = {"m": m, "n": n, "k": k, "groups": groups, "x_bytes": x, "w_bytes": w, "y_bytes": 2.0}
    return answer("gemm", columns, asked, dtype=asked.dtype)


@kernel.command(name="attention")
def kernel_attention(
    *,
    heads: Whole,
    batch: Whole = 1,
    new: Annotated[int, Parameter(converter=whole, help="Query tokens of a sequence; 1 is decode.")] = 1,
    past: Annotated[int, Parameter(converter=whole, help="Cached tokens of a sequence.")] = 0,
    kv_heads: Annotated[int | None, Parameter(converter=whole)] = None,
    head_dim: Whole = 128,
    window: Whole = 0,
    kv_bytes: KvBytes = 2.0,
    asked: AskedIn,
) -> int:
    """Causal attention of a batch of equal sequences."""
    from rapid_llm.cli.kernels import answer

    kv = heads if kv_heads is None else kv_heads
    columns = {
        "batch": batch, "new": new, "past": past, "heads": heads, "kv_heads": kv, "head_dim": head_dim,
        "v_head_dim": head_dim, "window": window, "causal": 1, "backward": 0, "kv_bytes": kv_bytes, "shared_kv": 0,
    }  # fmt: skip
    return answer("attention", columns, asked, dtype=asked.dtype)


@kernel.command(name="mla")
def kernel_mla(
    *,
    heads: Whole,
    batch: Whole = 1,
    new: Annotated[int, Parameter(converter=whole, help="Query tokens of a sequence; 1 is decode, absorbed.")] = 1,
    past: Annotated[int, Parameter(converter=whole, help="Cached tokens of a sequence.")] = 0,
    kv_lora_rank: Annotated[int, Parameter(converter=whole, help="Width of the latent.")] = 512,
    qk_nope_head_dim: Whole = 128,
    qk_rope_head_dim: Whole = 64,
    v_head_dim: Whole = 128,
    kv_bytes: KvBytes = 2.0,
    asked: AskedIn,
) -> int:
    """Core of latent attention (DeepSeek): over raised keys and values, or absorbed where --new is 1."""
    from rapid_llm.cli.kernels import answer

    if new == 1 and past > 0:
        widths = {"kv_heads": 1, "head_dim": kv_lora_rank + qk_rope_head_dim, "v_head_dim": kv_lora_rank}
    else:
        widths = {"kv_heads": heads, "head_dim": qk_nope_head_dim + qk_rope_head_dim, "v_head_dim": v_head_dim}
    columns = {
        "batch": batch, "new": new, "past": past, "heads": heads, **widths, "window": 0, "causal": 1, "backward": 0,
        "kv_bytes": kv_bytes, "shared_kv": int(new == 1 and past > 0),
    }  # fmt: skip
    return answer("attention", columns, asked, dtype=asked.dtype)


@kernel.command(name="moe")
def kernel_moe(
    *,
    tokens: Whole,
    experts: Whole,
    experts_per_token: Whole,
    hidden: Whole,
    inter: Whole,
    asked: AskedIn,
) -> int:
    """Gated experts of one layer on one accelerator, tokens routed uniformly."""
    from rapid_llm.cli.kernels import answer, hit, sizes
    from rapid_llm.operators import most_loaded

    x, w = sizes(asked.dtype)
    pairs, touched = tokens * experts_per_token, hit(tokens, experts, experts_per_token)
    columns = {
        "rows": pairs, "hit": touched, "largest": float(most_loaded(pairs, touched)), "pairs": pairs, "tokens": tokens,
        "experts": experts, "hidden": hidden, "inter": inter, "matrices": 3, "x_bytes": x, "w_bytes": w,
    }  # fmt: skip
    return answer("moe", columns, asked, dtype=asked.dtype)


@kernel.command(name="scan")
def kernel_scan(
    *,
    new: Whole,
    heads: Whole,
    batch: Whole = 1,
    key_dim: Whole = 128,
    value_dim: Whole = 128,
    asked: Asked,
) -> int:
    """Gated delta rule: --new tokens a sequence (1 is the decode update), fp32 state."""
    from rapid_llm.cli.kernels import answer

    columns = {
        "batch": batch, "new": new, "heads": heads, "key_dim": key_dim, "value_dim": value_dim, "state_bytes": 4,
        "backward": 0,
    }  # fmt: skip
    return answer("scan", columns, asked)


@kernel.command(name="convolution")
def kernel_convolution(
    *,
    new: Whole,
    channels: Whole,
    batch: Whole = 1,
    width: Whole = 4,
    asked: Asked,
) -> int:
    """Short causal convolution of recurrent mixers: --new tokens a sequence (1 is the decode update), 16 bit."""
    from rapid_llm.cli.kernels import answer

    columns = {"batch": batch, "new": new, "channels": channels, "width": width, "x_bytes": 2, "backward": 0}
    return answer("convolution", columns, asked)


@kernel.command(name="pointwise")
def kernel_pointwise(
    *,
    read_bytes: Annotated[float, Parameter(converter=size, help="As 1GB or 512 MiB; a plain number is bytes.")],
    write_bytes: Annotated[float, Parameter(converter=size, help="Likewise.")],
    kind: Annotated[str, Parameter(help="stream, reduce, gather or optimizer.")] = "stream",
    flops: float = 0.0,
    asked: Asked,
) -> int:
    """A memory-bound kernel: so many bytes read and written."""
    from rapid_llm.cli.kernels import answer

    columns = {"read_bytes": read_bytes, "write_bytes": write_bytes, "flops": flops}
    return answer("pointwise", columns, asked, kind=kind)
