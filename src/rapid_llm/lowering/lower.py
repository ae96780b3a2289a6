"""Lower a model under P plans: the one place that knows how a layer is sharded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial, reduce

import numpy as np
from numpy.typing import NDArray

from rapid_llm.lowering import outer
from rapid_llm.lowering.adapters import adapted, adapter_parameters
from rapid_llm.lowering.block import block
from rapid_llm.lowering.cache import below_units, cache_bytes
from rapid_llm.lowering.fusion import fuse
from rapid_llm.lowering.layout import layers_per_part, on_stages
from rapid_llm.lowering.modules import chosen, discarded
from rapid_llm.lowering.operators import Canonical, Collective, Column, Operator, only, total
from rapid_llm.lowering.passes import Rerun, backward_rows, forward_rows, kept_bytes
from rapid_llm.lowering.rounding import in_pieces, rounded
from rapid_llm.lowering.shapes import Shapes
from rapid_llm.lowering.sharding import Held, gradient_sum, shard_rows
from rapid_llm.lowering.table import AGAIN, Builder, Kernels, Messages, gathered_bytes, saved_bytes
from rapid_llm.lowering.weights import ahead_parameters, block_parameters, encoder_parameters, outer_parameters
from rapid_llm.model.architecture import Attention, Block, Model, MoE
from rapid_llm.nouns import light, replaced
from rapid_llm.operators.elementwise import larger
from rapid_llm.runtime import Overlap, Runtime, Serving, Training

Matrix = NDArray[np.float64]
"""Parameters of one rank, outside and inside experts."""
OUTER = 2
ROW_BYTES = 2.0
"""Units that stand around the layers: embedding and head, the last two."""
REMEMBERED_PLANS = 8
"""Plans up to which a lowered table is kept: about 0.1 MB each."""


@light
class Lowered:
    """A step as tables. Units are the block kinds (and 'mtp'), 'embedding' and 'head'; U units, P plans, S stages.

    kernels, messages: what one pass of a unit runs. layers: passes of each unit on each stage [U, P, S]. dense,
    expert: parameters of one rank per unit pass [U, P]; trained: of both, those with gradients [2, U, P]. saved:
    activation bytes kept per pass and micro-batch; working: bytes alive beside them while one pass runs [U, P];
    gathered: bytes by which the inputs that sequence parallelism gathers exceed the shards that are kept [U, P].
    An encoder's units stand behind the decoder's: they run in the passes that start a sequence, and their working bytes
    are told per token of the decoder's, as those of all units are. cache: KV and state bytes per pass [U, P].
    reached_groups: of the groups of neighbouring experts, the share that a token may choose from. uncut: whether every
    token of a sequence sees all, so that no pass reads a part of it.
    """

    units: tuple[str, ...]
    hidden_size: int
    shapes: Shapes
    kernels: tuple[Kernels, ...]
    messages: tuple[Messages, ...]
    layers: NDArray[np.float64]
    dense: Matrix
    expert: Matrix
    trained: Matrix
    saved: Matrix
    working: Matrix
    gathered: Matrix
    cache: Matrix
    logits: Column
    experts_per_token: float
    experts: float
    reached_groups: float
    uncut: bool


def unit_names(model: Model, ahead: int = 0) -> tuple[str, ...]:
    """Names of the units: block kinds by what they are, predictors of further tokens, then embedding and head."""
    names = _stack_names(model.blocks)
    if model.encoder is not None:
        names += [*(f"encoder {name}" for name in _stack_names(model.encoder.blocks)), "encoder input"]
    return (*names, *(["mtp"] if ahead else []), "embedding", "head")


def _stack_names(blocks: tuple[Block, ...]) -> list[str]:
    names = []
    for index, layer in enumerate(blocks):
        mixer: str = layer.mixer.kind if layer.mixer else ""
        if isinstance(layer.mixer, Attention) and layer.mixer.sliding_window:
            mixer = "window-" + mixer
        parts = mixer, "cross-attention" if layer.cross else "", layer.ffn.kind if layer.ffn else ""
        names.append(f"layer {index + 1} ({' + '.join(part for part in parts if part)})")
    if len(names) == 1:
        return ["layer"]
    return names


def lower(model: Model, s: Shapes, runtime: Runtime, *, bytes_only: bool = False) -> Lowered:
    """Lower every unit of ``model`` for the passes that ``s`` describes, under each plan of ``s.plans``.

    ``bytes_only`` leaves out the rows of kernels and messages: what a memory account needs and no more.
    Small tables are remembered: the same plan lowers to the same rows on other hardware, and in any number of
    micro-batches.
    """
    if len(s.plans) > REMEMBERED_PLANS:
        return _lower(model, s, runtime, bytes_only=bytes_only)
    found = _remembered(model, s, runtime, bytes_only=bytes_only)
    same = np.array_equal(found.shapes.plans.micro_batches, s.plans.micro_batches)
    return found if same else replaced(found, shapes=s)


def _lower(model: Model, shapes: Shapes, runtime: Runtime, *, bytes_only: bool) -> Lowered:
    facts, s = runtime.training, shapes.in_numbers
    builder = Builder(s.plans)
    if s.training and facts:
        whole = partial(_travels_whole, runtime.overlap, s.compute) if facts.gather_copies else None
        builder = Builder(s.plans, streams=facts.expert_streams, copied=whole)
    vocab = _vocabulary(model, s, facts)
    sequences = _sequences(model, s, runtime, vocab)
    below = range(len(model.blocks), len(model.blocks) + below_units(model))
    saved, working, gathered = _activations(sequences, s, facts, below)
    held = trained = _parameters(model, s, facts.vocab_multiple if facts else 1)
    if s.lora:
        trained = [adapter_parameters(sequence) for sequence in sequences]
        held = [(a + c, b + d) for (a, b), (c, d) in zip(held, trained, strict=True)]
    if not bytes_only:
        _pass_rows(builder, sequences, s, facts)
    if s.training and not bytes_only:
        _step_rows(builder, model, s, facts, (held, trained))
    kernels, messages = builder.freeze()
    dense, expert = _by_unit(held, shapes)
    mixtures = [layer.ffn for layer, _, _ in model.stacks if isinstance(layer.ffn, MoE)]
    return Lowered(
        units=unit_names(model, s.ahead),
        hidden_size=model.hidden_size,
        shapes=shapes,
        kernels=kernels,
        messages=messages,
        layers=_layers(model, shapes, facts.balance if facts else "layers"),
        dense=dense,
        expert=expert,
        trained=np.stack([dense, expert]) if trained is held else _by_unit(trained, shapes),
        saved=saved,
        working=working,
        gathered=gathered,
        cache=cached(model, shapes, runtime),
        logits=outer.head_rows(model, shapes) * vocab,
        experts_per_token=max([1.0, *(float(ffn.num_experts_per_tok) for ffn in mixtures)]),
        experts=max([1.0, *(float(ffn.num_experts) for ffn in mixtures)]),
        uncut=not model.writes,
        reached_groups=min([1.0, *(ffn.groups_per_token / ffn.expert_groups for ffn in mixtures)]),
    )


def _vocabulary(model: Model, s: Shapes, facts: Training | None) -> Column:
    """Entries of the vocabulary as the framework pads it."""
    return outer.padded_vocabulary(model.vocab_size, facts.vocab_multiple if facts else 1, s.plans.tp)


def _step_rows(
    builder: Builder,
    model: Model,
    s: Shapes,
    facts: Training | None,
    parameters: tuple[list[Held], list[Held]],
) -> None:
    """Rows that run once a step: sharded states, gradients and the optimizer; ``parameters`` of each unit, dense and of
    experts, of all and of those that are trained.
    """
    held, trained = parameters
    vocab = _vocabulary(model, s, facts)
    for unit, ((dense, expert), (updated, tuned)) in enumerate(zip(held, trained, strict=True)):
        element = s.weight if _short(s, facts) and unit < len(held) - OUTER else s.act
        shard_rows(builder, unit, (dense, updated), (expert, tuned), s, element=element)
        if facts and facts.adds_gradients:
            gradient_sum(builder, unit, updated + tuned, s)
        outer.optimizer_rows(builder, unit, updated, tuned, s)
    if model.tie_word_embeddings and not s.lora:
        outer.tied_row(builder, len(held) - 1, vocab * model.hidden_size, s)


def _sequences(model: Model, s: Shapes, runtime: Runtime, vocab: Column) -> list[list[Canonical]]:
    """The forward pass of each unit, as the runtime fuses it."""
    facts = runtime.training
    sequences: list[list[Canonical]] = [block(layer, model.hidden_size, s, runtime) for layer in model.blocks]
    if model.encoder is not None:
        below, wide = s.of_source, model.encoder.hidden_size
        sequences += [block(layer, wide, below, runtime) for layer in model.encoder.blocks]
        sequences.append(outer.encoder_input(model.encoder, below))
        sequences[len(model.blocks) :] = [only(one, s.starts) for one in sequences[len(model.blocks) :]]
    if not s.training:
        sequences = [_rotated(sequence) for sequence in sequences]
    if s.ahead:
        last = block(model.blocks[model.pattern[-1]], model.hidden_size, s, runtime)
        sequences.append(outer.predict_ahead(model, s, vocab, last))
    dropout = bool(s.training and facts and facts.dropout)
    sequences.append(outer.embedding(model, s, dropout=dropout))
    samples = not s.training and model.writes
    sequences.append(outer.head(model, s, vocab) + (outer.sampling(s, model.vocab_size) if samples else []))
    if s.lora:
        sequences = [adapted(sequence, s.lora, s) for sequence in sequences]
    if s.cast:
        keeps = bool(facts and facts.saves_rounded)
        sequences = [rounded(sequence, s, gathers=_short(s, facts), keeps=keeps) for sequence in sequences]
    if runtime.overlap.tensor_parallel and s.training and s.tensor_parallel:
        sequences = [*(in_pieces(sequence, s) for sequence in sequences[:-OUTER]), *sequences[-OUTER:]]
    fused = [fuse(sequence, runtime.fusions) for sequence in sequences]
    return [_decomposed(sequence, facts.decomposed) for sequence in fused] if facts and facts.decomposed else fused


def _travels_whole(overlap: Overlap, compute: str, name: str, op: str) -> bool:
    return not overlap.in_pieces(op, compute, again=name.endswith(AGAIN))


def _decomposed(sequence: list[Canonical], passes: Mapping[str, float]) -> list[Canonical]:
    """The same operators; those named in ``passes`` move a multiple of the bytes of one fused kernel."""
    for op in sequence:
        if isinstance(op, Operator) and op.name in passes:
            op.passes = passes[op.name]
    return sequence


def _short(s: Shapes, facts: Training | None) -> bool:
    """Whether the runtime gathers what it has rounded to the compute format."""
    return facts is not None and s.compute in facts.short_gathers


def _per_token(s: Shapes) -> Column:
    """Tokens of the decoder for each token of the encoder [P]: the width of a pass counts both."""
    return s.tokens / larger(s.of_source.tokens, 1.0)


def _activations(
    sequences: list[list[Canonical]], s: Shapes, facts: Training | None, encoder: range
) -> tuple[Matrix, Matrix, Matrix]:
    """Bytes that a pass of each unit saves, works on beside, and gathers beyond its shards [U, P]."""
    saved, working, gathered = (np.zeros((len(sequences), len(s.plans))) for _ in range(3))
    again = chosen(s.modules, facts).operators, discarded(s.modules)
    keeps = facts.selective_keeps.get(s.compute) if facts and not s.modules else None
    for unit, sequence in enumerate(sequences):
        if not s.training:
            working[unit] = _widest(sequence) * (_per_token(s) if unit in encoder else 1.0)
        elif unit < len(sequences) - OUTER:
            saved[unit], working[unit] = kept_bytes(sequence, s.plans, again, keeps)
            working[unit] += _largest(_exchanges(sequence))
        else:
            saved[unit] = _outer_saved(sequence)
        gathered[unit] = gathered_bytes(sequence)
    return saved, working, gathered


def _pass_rows(builder: Builder, sequences: list[list[Canonical]], s: Shapes, facts: Training | None) -> None:
    """Rows of the forward and backward passes of each unit; of a frozen embedding there is none backward."""
    layers = len(sequences) - OUTER
    rerun = None
    if s.training and facts:
        partly = {} if s.modules else facts.selective_share.get(s.compute, {})
        rerun = Rerun.of(s.plans, chosen(s.modules, facts), partly, stops=facts.recompute_stops)
    for unit, sequence in enumerate(sequences):
        forward_rows(builder, unit, sequence, s, rerun if unit < layers else None)
        if s.training and not (s.lora and unit == layers):
            backward_rows(builder, unit, sequence, s)


@lru_cache(maxsize=128)
def _remembered(model: Model, s: Shapes, runtime: Runtime, *, bytes_only: bool) -> Lowered:
    return _lower(model, s, runtime, bytes_only=bytes_only)


def _outer_saved(sequence: list[Canonical]) -> Column | float:
    """Saved bytes of embedding or head; logits are counted apart by the runtime's loss copies."""
    return sum((b for n, b in saved_bytes(sequence).items() if n not in ("logits", "logits32", "probs")), 0.0)


def _rotated(sequence: list[Canonical]) -> list[Canonical]:
    """A layer's first norm behind its last residual, where the next layer's stands: a runtime may fuse the two."""
    first, last = sequence[0], sequence[-1]
    if not (
        isinstance(first, Operator) and isinstance(last, Operator) and first.name == "norm" and last.name == "residual"
    ):
        return sequence
    return [*sequence[1:-1], replace(last, writes=dict(first.reads)), first]


def _widest(sequence: list[Canonical]) -> Column | float:
    """Bytes of the largest pair of tensors alive at once in a forward pass."""
    sizes = [total(op.reads) + total(op.writes) + _inside(op) for op in sequence if isinstance(op, Operator)]
    return _largest([*sizes, *_exchanges(sequence)])


def _exchanges(sequence: list[Canonical]) -> list[Column | float]:
    """Input and output of each all-to-all: none runs in place, so both are alive at once. The backward pass exchanges
    gradients, of which neither is a kept activation."""
    return [2.0 * op.size * op.when for op in sequence if isinstance(op, Collective) and op.op == "all_to_all"]


def _largest(sizes: list[Column | float]) -> Column | float:
    return reduce(larger, sizes) if sizes else 0.0


def _inside(op: Operator) -> Column | float:
    """What a fused expert kernel holds between its products: both halves of the up projection, routed outputs."""
    if op.family != "moe":
        return 0.0
    c = op.columns
    into, out = np.maximum(c["hidden"], c["inter"]), np.maximum((c["matrices"] - 1.0) * c["inter"], c["hidden"])
    return c["pairs"] * (into * c["x_bytes"] + out * ROW_BYTES)


def _parameters(model: Model, s: Shapes, vocab_multiple: int) -> list[Held]:
    """Parameters of one rank of each unit, outside and inside experts."""
    pairs: list[Held] = [block_parameters(layer, hidden, s.plans, s.routing) for layer, hidden, _ in model.stacks]
    if model.encoder is not None:
        pairs.append(encoder_parameters(model, s.plans))
    first, last = outer_parameters(model, s.plans, vocab_multiple)
    if s.ahead:
        dense, expert = pairs[model.pattern[-1]]
        pairs.append((dense + ahead_parameters(model, s.plans, vocab_multiple), expert))
    return [*pairs, (first, 0.0), (last, 0.0)]


def _by_unit(pairs: list[Held], s: Shapes) -> NDArray[np.float64]:
    """Parameters of each unit, outside and inside experts, as one table [2, U, P]."""
    table = np.empty((2, len(pairs), len(s.plans)))
    for unit, (dense, expert) in enumerate(pairs):
        table[0, unit], table[1, unit] = dense, expert
    return table


def _layers(model: Model, s: Shapes, balance: str) -> NDArray[np.float64]:
    layers = layers_per_part(model, s.plans, balance)
    _, width, parts = layers.shape
    ends = np.zeros((2, width, parts))
    ends[0, :, 0] = 1.0
    ends[1, np.arange(width), s.plans.parts.astype(np.int64) - 1] = 1.0
    further = [s.ahead * ends[1:]] if s.ahead else []
    counts = [*(count for _, _, count in model.stacks[len(model.blocks) :]), *([1] if model.encoder else [])]
    below = [count * ends[:1] for count in counts]
    return on_stages(np.concatenate([layers, *below, *further, ends]), s.plans)


def cached(model: Model, s: Shapes, runtime: Runtime) -> Matrix:
    """KV-cache and state bytes that one layer pass keeps for its sequences on one rank [U, P]."""
    if s.training:
        return np.zeros((len(model.blocks) + below_units(model) + bool(s.ahead) + OUTER, len(s.plans)))
    engine, lengths = runtime.serving or Serving(kv_block_tokens=1), s.past + s.new
    common = s.kv, engine.kv_block_tokens
    held = cache_bytes(
        model, s.plans.tp, lengths, *common, source=s.source, kvp=s.plans.kvp, windows=engine.frees_windows
    )
    return held * s.batch / s.plans.cp
