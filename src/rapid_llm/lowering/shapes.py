"""What one pass works on: sequences, new tokens and cached tokens, cut by a plan to one rank's share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rapid_llm.dtypes import Precision, dtype
from rapid_llm.nouns import light, replaced
from rapid_llm.operators.elementwise import filled, where
from rapid_llm.parallelism import Plans
from rapid_llm.runtime import Runtime
from rapid_llm.workload import Lora, Offload, Routing, Training

Column = NDArray[np.float64]
EVEN, AT_HOME = Routing(), Offload()
"""What a pass has that loads experts evenly, and of which nothing lives on the host."""


class _Own(NamedTuple):
    """The parts of a training job that its passes depend on, however many passes there are."""

    routing: Routing
    lora: Lora | None = None
    ahead: int = 0
    offload: Offload = AT_HOME
    modules: tuple[str, ...] = ()
    predictions: int | None = None

    @classmethod
    def of(cls, work: Training) -> _Own:
        modules = work.recompute.modules if work.recompute else ()
        return cls(work.routing, work.lora, work.mtp_layers, work.offload, modules, work.predictions)

    @property
    def of_passes(self) -> dict[str, Any]:
        """The fields of shapes that it gives, by name."""
        return {name: value for name, value in self._asdict().items() if name != "predictions"}


def _split(plans: Plans) -> dict[str, Any]:
    """Whether any plan splits products, sequences or the tokens of a cache."""
    axes = {"tensor_parallel": plans.tp, "context_parallel": plans.cp, "cache_dealt": plans.kvp}
    return {name: bool(np.count_nonzero(ranks > 1)) for name, ranks in axes.items()}


@light
class Shapes:
    """One rank's share of a pass, arrays [P] over plans (or points of one plan); hashable by what it was made ``of``,
    but for the number of micro-batches, which no pass knows.

    batch: sequences of a micro-batch; new: query tokens of each; past: cached tokens of each; training: keeps
    tensors for a backward pass. tokens: query tokens on this rank (context parallelism divides them); shard: of
    those, what norms and residuals touch (sequence parallelism divides by tp); rows: rows of the LM head.
    documents: how many of ``length`` query tokens fill the batch, apart from each other where sequences are packed.
    decode: passes that generate; their tokens are on every rank of a cp group, each with its share of the cache.
    routing: of tokens to experts. ahead: predictors of further tokens. offload: what lives on the host. cast, found,
    turned: bytes that rounding an element to the compute format moves, found where its scale is, 0 where nothing is
    rounded apart (``dtypes``); packed: those of a frozen weight that training widens ahead of its products, or 0.
    modules: parts of a layer that selective recomputation names. tensor_parallel, context_parallel: whether any plan
    is; cache_dealt: whether tp ranks of any share the tokens of a cache. head: bytes of a weight of the LM head, and
    its dtype. evenness: mean tokens of the ranks of an expert group over those of this one. source: tokens of each
    sequence that cross attention reads and an encoder writes; starts: passes that begin their sequences, in which the
    encoder runs.
    """

    plans: Plans
    batch: Column
    new: Column
    past: Column
    tokens: Column
    shard: Column
    rows: Column
    documents: Column
    length: Column
    decode: Column
    prefill: Column
    training: bool
    act: float
    input: float
    weight: float
    kv: float
    gradient: float
    reduce: float
    ring_gradient: float
    compute: str
    activation_dtype: str
    attention_dtype: str
    routing: Routing
    cast: float
    found: float
    turned: float
    packed: float
    lora: Lora | None
    ahead: int
    offload: Offload
    modules: tuple[str, ...]
    tensor_parallel: bool
    context_parallel: bool
    cache_dealt: bool
    gathers_experts: str
    shared_as_routed: bool
    biased_group: int
    gathers_by: str
    head: tuple[float, str]
    evenness: Column
    source: Column
    starts: Column
    made_of: tuple[Any, ...]

    @cached_property
    def key(self) -> tuple[object, ...]:
        """A hashable value that differs between different shapes."""
        lengths = self.new.tobytes(), self.past.tobytes(), self.source.tobytes()
        return (self.plans.key, *lengths, self.training, *self.made_of)

    @cached_property
    def of_source(self) -> Shapes:
        """The pass of the encoder that runs in this one, over the tokens that cross attention reads."""
        tokens = self.batch * self.source
        shard = where(self.plans.sp > 0, tokens / self.plans.tp, tokens)
        none, one = filled(tokens, 0.0), filled(tokens, 1.0)
        return replace(
            self,
            new=self.source,
            past=none,
            length=self.source,
            documents=self.batch,
            tokens=tokens,
            shard=shard,
            rows=tokens,
            decode=none,
            prefill=one,
            source=none,
        )

    @cached_property
    def in_numbers(self) -> Shapes:
        """The same pass in plain numbers if it is of one plan: numpy takes ten times as long for columns of one row."""
        if len(self.plans) != 1:
            return self
        return replaced(self, plans=self.plans.in_numbers, **{name: getattr(self, name)[0] for name in _COLUMNS})

    @property
    def experts(self) -> Shapes:
        """The same pass in the formats of the routed experts."""
        precision = self.made_of[0]
        if precision.experts is None:
            return self
        weight, compute = _products(precision.of_experts, training=self.training)
        return replace(self, weight=weight, compute=compute)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shapes) and self.key == other.key

    @classmethod
    def of(
        cls,
        plans: Plans,
        *,
        new: Column,
        past: Column,
        training: bool,
        precision: Precision,
        runtime: Runtime,
        work: Training | None = None,
        routing: Routing = EVEN,
        verified: NDArray[np.bool_] | None = None,
        source: Column | float = 0.0,
        padding: Column | float = 1.0,
        evenness: Column | float = 1.0,
    ) -> Shapes:
        """Shapes of a pass of ``plans.micro_batch`` sequences of ``new`` tokens after ``past``, which read ``source``
        tokens of an encoder.

        ``work``: the training job, where it packs documents, trains adapters alone, or loads experts unevenly;
        ``routing`` of an inference batch; ``verified`` [P]: decode steps of several tokens, each with a row of logits;
        ``padding`` [P]: by how many times as many tokens a captured graph runs; ``evenness`` [P] of an
        expert group.
        """
        document, own = work.document if work else None, _Own(routing) if work is None else _Own.of(work)
        split = _split(plans)
        ring = bool(split["context_parallel"])
        return cls(
            plans=plans,
            new=new,
            past=past,
            training=training,
            evenness=np.full_like(new, evenness),
            source=np.full_like(new, source),
            made_of=(
                *(precision, runtime, *own, document),
                *(verified is None or verified.tobytes(), _bytes(padding), _bytes(evenness)),
            ),
            **_counted(plans, new, past, ring=ring, work=work, training=training, verified=verified, padding=padding),
            **own.of_passes,
            **split,
            **_engine(runtime, training=training),
            **_formats(precision, runtime, training=training),
        )


def _counted(
    plans: Plans,
    new: Column,
    past: Column,
    *,
    ring: bool,
    work: Training | None,
    training: bool,
    verified: NDArray[np.bool_] | None,
    padding: Column | float,
) -> dict[str, Any]:
    """The columns of a pass that count sequences, tokens and rows of logits; ``ring``: cp ranks divide its tokens."""
    batch, document = plans.micro_batch, work.document if work else None
    decoding = (new <= 1) & (past > 0)
    decode = (decoding if verified is None else decoding | verified).astype(float)
    tokens = batch * new
    if ring:
        tokens = tokens / np.where(decode > 0, 1.0, plans.cp)
    rows = batch if verified is None else np.where(verified, batch * new, batch)
    if training:
        rows = batch * work.predictions if work and work.predictions else tokens
    return {
        "batch": batch,
        "tokens": tokens * padding,
        "shard": np.where(plans.sp > 0, tokens / plans.tp, tokens) * padding,
        "rows": rows,
        "documents": batch if document is None else batch * new / document,
        "length": new if document is None else np.full_like(new, document),
        "decode": decode,
        "prefill": 1.0 - decode,
        "starts": np.where(past > 0, 0.0, 1.0) * (1.0 - decode),
    }


_COLUMNS = (
    "batch",
    "new",
    "past",
    "tokens",
    "shard",
    "rows",
    "documents",
    "length",
    "decode",
    "prefill",
    "source",
    "evenness",
    "starts",
)
"""The fields of Shapes that are columns."""


def _bytes(padding: Column | float) -> bytes | float:
    return padding.tobytes() if isinstance(padding, np.ndarray) else padding


@lru_cache(maxsize=256)
def _engine(runtime: Runtime, *, training: bool) -> Mapping[str, Any]:
    """What shapes say of how an engine runs experts."""
    serving = None if training else runtime.serving
    return {
        "gathers_experts": "none" if training else runtime.communication.gathers_experts,
        "gathers_by": runtime.communication.gathers_by,
        "shared_as_routed": serving is not None and serving.shared_as_routed,
        "biased_group": 0 if serving is None else serving.biased_group,
    }


@lru_cache(maxsize=256)
def _formats(precision: Precision, runtime: Runtime, *, training: bool) -> Mapping[str, Any]:
    """What shapes say of number formats: bytes of an element by use, and in which format kernels compute."""
    weight, compute = _products(precision, training=training)
    head = precision.head or precision.activations
    activations, computed = dtype(precision.activations), dtype(precision.compute)
    return {
        "act": activations.bytes,
        "input": min(computed.bytes, activations.bytes),
        "weight": weight,
        "kv": dtype(precision.kv_cache).bytes,
        "gradient": dtype(precision.gradients).bytes,
        "reduce": dtype(_reduce_dtype(precision, runtime.training.reduce_dtype)).bytes if runtime.training else 0.0,
        "ring_gradient": dtype(_ring_dtype(precision, runtime)).bytes,
        "compute": compute,
        "activation_dtype": precision.activations,
        "attention_dtype": _attention_dtype(precision),
        "cast": computed.cast if training else 0.0,
        "found": computed.cast - computed.searched,
        "turned": computed.turned,
        "packed": dtype(precision.weights).bytes if training and dtype(precision.weights).weight_only else 0.0,
        "head": (dtype(head).bytes, head),
    }


def _products(precision: Precision, *, training: bool) -> tuple[float, str]:
    """Bytes of a weight as a matrix product reads it, and the format in which the product runs."""
    kept = dtype(precision.weights)
    read = dtype(precision.compute) if training else kept
    if kept.weight_only and not training:
        return read.bytes, kept.kin or kept.name
    return read.bytes, precision.compute


def _reduce_dtype(precision: Precision, own: str) -> str:
    """The dtype that carries gradients: of frameworks that reduce those of fp16 models as they are, fp32 for bf16 ones
    (Megatron-LM, arguments.py: bf16 sets accumulate_allreduce_grads_in_fp32)."""
    return "fp32" if own == "fp16" and precision.activations == "bf16" else own


def _ring_dtype(precision: Precision, runtime: Runtime) -> str:
    """The dtype of the gradients of keys and values that travel around a ring: that of activations, unless the
    framework sets one.
    """
    return runtime.training.ring_gradients or precision.activations if runtime.training else precision.activations


def _attention_dtype(precision: Precision) -> str:
    """Attention multiplies in fp8 where the cache is fp8, as engines quantise the queries as well; else in 16 bit."""
    return precision.kv_cache if dtype(precision.kv_cache).rate == "fp8" else precision.activations
