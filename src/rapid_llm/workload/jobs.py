"""The nouns of a workload."""

from itertools import accumulate
from operator import mul
from typing import Annotated, Final, Literal, get_args

from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass

from rapid_llm.nouns import STRICT
from rapid_llm.units import Count, Positive, Share, Whole
from rapid_llm.workload.lengths import written
from rapid_llm.workload.routing import Routing

Spread = Annotated[float, Field(ge=0, le=10)]
LONGEST_OUTPUT = 100_000_000
"""Tokens of one request that are followed: decode steps are told apart by the tiles of cache that they read."""


def _share(value: object) -> object:
    return float(value) if isinstance(value, bool) else value


WholeOrShare = Annotated[Share, BeforeValidator(_share, json_schema_input_type=bool | Share)]
"""True is all of it, false none."""


Module = Literal["core_attn", "layernorm", "mla_up_proj", "moe_act", "mlp", "moe", "shared_experts"]
RECOMPUTED: Final[tuple[Module, ...]] = get_args(Module)
"""Parts of a layer that selective recomputation can name."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Recompute:
    """Which activations are thrown away in the forward pass and computed again in the backward pass.

    ``mode`` selective drops the attention core (Korthikanti et al. 2022, section 5), or the ``modules`` of a layer by
    their name in Megatron-Core; full keeps only each layer's input; ``every`` applies it to one layer in so many.
    """

    mode: Literal["none", "selective", "full"] = "none"
    every: Count = 1
    modules: tuple[Module, ...] = ()


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Lora:
    """Low-rank adapters of ``rank`` beside the products of the parts that ``targets`` names; all else is frozen
    (Hu et al. 2021, arXiv 2106.09685)."""

    rank: Count
    targets: tuple[Literal["attention", "mlp", "experts"], ...] = Field(("attention", "mlp"), min_length=1)


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Offload:
    """Shares of a rank's states and activations that live in the memory of the host, or on its NVMe drives.

    ``optimizer``: masters and moments, which the CPUs then update (true: all of them; ZeRO-Offload, arXiv 2101.06840);
    ``gradients`` are added up there; ``weights`` are fetched for every pass (ZeRO-Infinity, arXiv 2104.07857);
    ``activations`` leave behind their forward pass and return before their backward pass.
    """

    optimizer: WholeOrShare = 0.0
    gradients: Share = 0.0
    weights: Share = 0.0
    activations: Share = 0.0
    to: Literal["host", "nvme"] = "host"

    @property
    def any(self) -> bool:
        """Whether anything leaves the accelerator."""
        return self.optimizer + self.gradients + self.weights + self.activations > 0


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Training:
    """One optimizer step over ``global_batch_size`` sequences of ``sequence_length`` tokens.

    ``documents``: lengths, a sample of those that are packed into sequences and do not see each other; none: a
    sequence is one. ``tokens`` of the whole run: its time and accelerator hours are reported. ``lora``: adapters
    alone are trained. ``mtp_layers``: predictors of further tokens, each a layer and the LM head on the last stage.
    ``routing`` of tokens to experts, even unless it says otherwise. ``offload``: what lives outside the accelerator.
    ``decoder_sequence_length``: tokens that a decoder writes of each sequence that its encoder reads. ``predictions``:
    masked tokens of each sequence, which alone meet the vocabulary (BERT's max_predictions_per_seq); none: every token
    does.
    """

    kind: Literal["training"] = "training"
    global_batch_size: Count
    micro_batch_size: Count = 1
    sequence_length: Count
    recompute: Recompute | None = None
    documents: tuple[Count, ...] = ()
    tokens: Positive | None = None
    lora: Lora | None = None
    mtp_layers: Whole = 0
    routing: Routing = Routing()
    offload: Offload = Offload()
    decoder_sequence_length: Count | None = None
    predictions: Count | None = None

    @property
    def plain(self) -> bool:
        """Whether a pass has the bytes of the model alone: whole sequences of one kind, all weights, evenly loaded
        experts."""
        changed = self.documents or self.lora or self.mtp_layers or self.routing != Routing()
        other = changed or self.decoder_sequence_length or self.predictions
        return not other and not self.offload.any

    @property
    def tokens_per_sequence(self) -> int:
        """Tokens of a sequence, those of encoder and decoder together."""
        return self.sequence_length + (self.decoder_sequence_length or 0)

    @property
    def document(self) -> float | None:
        """Length of equal documents with as many pairs of tokens that see each other: mean square over mean."""
        return sum(length**2 for length in self.documents) / sum(self.documents) if self.documents else None


def _one_draft(acceptance: object) -> object:
    """A rate alone is that of a single draft."""
    return (acceptance,) if isinstance(acceptance, (int, float)) else acceptance


ONE_LAYER_DRAFTS = frozenset(("mtp", "eagle", "eagle3", "nextn"))
"""Names that papers and engines have for drafts of one layer that reads the last hidden state, and a head."""


def _a_layer(draft: object) -> object:
    """The one name of what they all run."""
    return "mtp" if isinstance(draft, str) and draft.lower() in ONE_LAYER_DRAFTS else draft


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Speculation:
    """Tokens drafted ahead and verified together (Leviathan et al. 2023, arXiv 2211.17192).

    ``acceptance``: the chance that draft i is accepted when all before it were, one number a draft, as measured
    (a number alone: of a single draft);
    it falls with the position. ``draft`` mtp runs one layer and the LM head a draft (DeepSeek-V3, section 2.2; EAGLE,
    arXiv 2401.15077, and NextN are other names of it), ngram looks drafts up in the text and costs nothing, model runs
    the scenario's ``draft`` model.
    """

    acceptance: Annotated[tuple[Share, ...], BeforeValidator(_one_draft)] = Field(min_length=1)
    draft: Annotated[Literal["mtp", "ngram", "model"], BeforeValidator(_a_layer)] = "mtp"

    @property
    def drafts(self) -> int:
        """Tokens drafted a step."""
        return len(self.acceptance)

    @property
    def tokens_per_step(self) -> float:
        """Mean tokens of one step: the verified one and every draft whose predecessors were accepted as well."""
        return 1.0 + float(sum(accumulate(self.acceptance, mul)))


@dataclass(frozen=True, kw_only=True, config=STRICT)
class HostShare:
    """Shares of weights and of the KV cache that live in the memory of the host, or on its NVMe drives.

    Every pass fetches what it reads of them, layer by layer beside the layers before (FlexGen, arXiv 2303.06865); where
    the engine runs layers on the CPUs (llama.cpp), ``weights`` are those of so many layers.
    ``experts`` (true: all of them): routed experts that the CPUs of the host run where they lie (KTransformers, Chen et
    al. 2025, SOSP).
    """

    weights: Share = 0.0
    kv_cache: Share = 0.0
    experts: WholeOrShare = 0.0
    to: Literal["host", "nvme"] = "host"

    def __post_init__(self) -> None:
        """Refuse experts in two places at once."""
        if self.experts and self.weights:
            raise ValueError("takes weights, which every pass fetches, or experts, which the CPUs run, not both")
        if self.experts and self.to == "nvme":
            raise ValueError("has experts and to nvme: CPUs run experts from the memory of the host. Try to: host")

    def away(self, *, with_layers: bool) -> float:
        """Share of the cache that lives on the host; ``with_layers``: that of layers which run there as well."""
        return max(self.kv_cache, self.weights if with_layers else 0.0)

    @property
    def any(self) -> bool:
        """Whether anything lives outside the accelerator."""
        return self.weights + self.kv_cache + self.experts > 0


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Images:
    """Images of every prompt, ``width`` x ``height`` pixels as the model's vision tower sees them; the tokens that they
    become are among the prompt's."""

    count: Count = 1
    width: Count
    height: Count


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Inference:
    """``batch_size`` requests in flight in the whole job, each ``prompt_tokens`` in and ``output_tokens`` out.

    ``batch_size`` auto is as many as the engine runs at once: its cache holds no more. ``prefix_tokens`` of each prompt
    are cached already (at least its last token is computed). ``batching`` static prefills the batch together and
    decodes until all are done; continuous replaces each request that finishes by a new one at once.
    ``total_requests`` of a job that all wait at its start, or ``closed_loop``: ``batch_size`` users send them, each the
    next one as soon as one is done; None: there are always more. ``beams``: of beam search,
    which share the cache of their prompt. ``routing`` of tokens to experts, even unless it says otherwise. ``offload``:
    what lives outside the accelerator. ``images``: of every prompt. ``prompt_spread`` and ``output_spread`` of lengths
    that vary: standard deviation over mean; 0: all are equal. Where a model has an encoder, it reads the prompt,
    and its decoder starts from ``decoder_prompt_tokens``; an encoder alone writes no output (``output_tokens`` 0), and
    a decoder may be asked to read alone.
    """

    kind: Literal["inference"] = "inference"
    batch_size: Count | Literal["auto"]
    total_requests: Count | None = None
    closed_loop: bool = False
    prompt_tokens: Count
    output_tokens: Annotated[Whole, Field(le=LONGEST_OUTPUT)] = 0
    decoder_prompt_tokens: Count = 1
    prefix_tokens: Whole = 0
    batching: Literal["static", "continuous"] = "static"
    speculation: Speculation | None = None
    beams: Count = 1
    routing: Routing = Routing()
    offload: HostShare = HostShare()
    images: Images | None = None
    prompt_spread: Spread = 0.0
    output_spread: Spread = 0.0

    def __post_init__(self) -> None:
        """Refuse users of whom nothing more is said."""
        if self.closed_loop and (self.total_requests is None or self.batch_size == "auto"):
            raise ValueError(
                "has closed_loop, of so many users (batch_size) and total_requests. Try total_requests: 640"
            )
        if self.closed_loop and self.batching == "static":
            raise ValueError("has closed_loop and batching static, which replaces none. Try batching: continuous")

    @property
    def varied(self) -> bool:
        """Whether requests differ in length."""
        return self.prompt_spread > 0.0 or self.output_spread > 0.0

    @property
    def middle(self) -> float:
        """Cached tokens of a running request where any moment of its output is as likely, on average."""
        return self.prompt_tokens + written(self.output_tokens, self.output_spread)[0] - 0.5

    @property
    def new_tokens(self) -> int:
        """Prompt tokens that prefill computes: all but the cached prefix, and at least one."""
        return max(1, self.prompt_tokens - self.prefix_tokens)

    @property
    def requests(self) -> int:
        """Requests in flight in the whole job; 1 until the engine has chosen."""
        return 1 if self.batch_size == "auto" else self.batch_size


Workload = Annotated[Training | Inference, Field(discriminator="kind")]
