"""How sources count floating point operations, and how their rates become the time of a step.

Sources quote TFLOP/s or MFU under conventions that differ by 3 to 47 %; each is turned into seconds with its own.
"""

from dataclasses import dataclass

from rapid_llm.validation.tables import Row, count, integer, number

TRAINING_PASSES = 3.0
"""A backward pass costs twice its forward pass: training is three forward passes."""
RECOMPUTED_PASSES = 4.0
"""Full recompute runs the forward pass of the blocks once more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The sizes of a transformer that its operation count needs; ``active_ffn`` is the width one token passes.

    ``ffn_matrices`` is 3 for a gated feed-forward part, 2 for a plain one; ``router`` the experts it chooses among.
    """

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    active_ffn: float
    ffn_matrices: int
    vocab: int
    router: int = 0


def shape_of(row: Row) -> Shape:
    """The shape in a row's columns; head size and kv heads default as in multi-head attention, FFN to 4 x hidden."""
    hidden, heads = count(row, "hidden"), count(row, "heads")
    experts = integer(row, "moe_experts") or 0
    ffn: float = integer(row, "ffn_hidden") or 4 * hidden
    if experts:
        ffn = count(row, "moe_topk") * count(row, "moe_ffn") + (number(row, "moe_shared_ffn") or 0.0)
    return Shape(
        hidden=hidden,
        layers=count(row, "layers"),
        heads=heads,
        kv_heads=integer(row, "kv_heads") or heads,
        head_dim=integer(row, "head_dim") or hidden // heads,
        active_ffn=ffn,
        ffn_matrices=3 if experts or row.get("gated_mlp") == "1" else 2,
        vocab=count(row, "vocab"),
        router=experts,
    )


def block_flops(shape: Shape, sequence_length: int, *, visible: float = 1.0) -> float:
    """Forward FLOPs of one token in one block.

    2(2 h H d + 2 h Hkv d + g h f + h E) + 4 s H d x visible, with ``visible`` 1 for full attention and 1/2 where the
    source halves it for the causal mask.
    """
    h, attention = shape.hidden, shape.heads * shape.head_dim
    matrices: float = 2 * h * attention + 2 * h * shape.kv_heads * shape.head_dim
    matrices += h * (shape.ffn_matrices * shape.active_ffn + shape.router)
    return 2.0 * matrices + 4.0 * sequence_length * attention * visible


def head_flops(shape: Shape) -> float:
    """Forward FLOPs of one token in the LM head: 2 h V."""
    return 2.0 * shape.hidden * shape.vocab


def model_flops(shape: Shape, tokens: float, sequence_length: int, *, visible: float = 1.0) -> float:
    """FLOPs of a training step without recompute: three forward passes of the blocks and the head.

    With full attention and a plain GPT this is 72 B L s h^2 (1 + s/6h + V/12hL) (Korthikanti et al. 2022, eq. 7).
    """
    forward = shape.layers * block_flops(shape, sequence_length, visible=visible) + head_flops(shape)
    return TRAINING_PASSES * tokens * forward


def recomputed_flops(shape: Shape, tokens: float, sequence_length: int) -> float:
    """FLOPs with full recompute, which runs the blocks' forward pass again and the head's not.

    For a plain GPT 96 B s l h^2 (1 + s/6h + V/16lh) (Narayanan et al. 2021, eq. 3).
    """
    blocks = RECOMPUTED_PASSES * shape.layers * block_flops(shape, sequence_length)
    return tokens * (blocks + TRAINING_PASSES * head_flops(shape))


def palm_flops(shape: Shape, tokens: float, sequence_length: int) -> float:
    """6 N + 12 L H Q T a token (Chowdhery et al. 2022, appendix B): N counts the embedding, untied, beside the head."""
    embedding = TRAINING_PASSES * tokens * head_flops(shape)
    return model_flops(shape, tokens, sequence_length) + embedding


def convention(text: str) -> str:
    """The convention that a ``flop_convention`` cell describes: recomputed, causal, palm or full.

    Cells name the formula in words; ValueError where none is recognised.
    """
    folded = text.lower()
    if folded.startswith("n/a") or not folded:
        raise ValueError("no FLOP convention")
    if "including full-layer recompute" in folded or folded.startswith("96b"):
        return "recomputed"
    if "causal-halved" in folded:
        return "causal"
    if "6n + 12lhqt" in folded or "6n+12lhqt" in folded:
        return "palm"
    if "full" in folded:
        return "full"
    raise ValueError(f"the FLOP convention '{text}' is unknown")


def step_flops(row: Row) -> float:
    """FLOPs of one step of a row as its source counts them."""
    shape, s = shape_of(row), count(row, "seq_len")
    tokens = float(count(row, "global_batch") * s)
    match convention(row.get("flop_convention", "")):
        case "recomputed":
            return recomputed_flops(shape, tokens, s)
        case "causal":
            return model_flops(shape, tokens, s, visible=0.5)
        case "palm":
            return palm_flops(shape, tokens, s)
        case _:
            return model_flops(shape, tokens, s)


def work_flops(row: Row) -> float:
    """FLOPs that a device executes for one step: full attention and the head, with full recompute where the row has it.

    The one-constant baseline divides this by its constant.
    """
    shape, s = shape_of(row), count(row, "seq_len")
    tokens = float(count(row, "global_batch") * s)
    if row.get("recompute") == "full":
        return recomputed_flops(shape, tokens, s)
    return model_flops(shape, tokens, s)


def step_time(row: Row, peak_flops: float) -> float:
    """Seconds of one optimizer step from the row's metric.

    ``step_time_s`` is taken as it is, ``tokens_per_s_per_gpu`` and ``tflops_per_gpu`` are rates of the whole step, and
    ``mfu`` (percent) is of ``peak_flops``, the dense peak of one accelerator in FLOP/s. ValueError for anything else.
    """
    value = number(row, "value")
    if not value or value < 0:
        raise ValueError("the value is blank or not positive")
    accelerators = count(row, "n_gpus")
    match row["metric"]:
        case "step_time_s":
            return value
        case "tokens_per_s_per_gpu":
            return count(row, "global_batch") * count(row, "seq_len") / (value * accelerators)
        case "tflops_per_gpu":
            return step_flops(row) / (value * 1e12 * accelerators)
        case "mfu":
            return step_flops(row) / (value / 100.0 * peak_flops * accelerators)
        case other:
            raise ValueError(f"metric {other} is not of a step")
