"""The named checks of a workload: batches, sequences, what is offloaded, drafted, shown and queued."""

from typing import Any

from rapid_llm.scenario import runtime_sentences, work_sentences
from rapid_llm.scenario.columns import Columns
from rapid_llm.scenario.expert_rules import EXPERTS
from rapid_llm.scenario.rules import Check, divides
from rapid_llm.scenario.sentences import divisors, listed

SAME_VOCABULARY = 0.05
"""Sizes of one family's vocabularies differ by what they are padded to."""


def _rounds(c: Columns) -> Any:
    return (c.interleaved == 0) | (c.vpp == 1) | divides(c.pp, _micro_batches(c))


def _enough(c: Columns) -> Any:
    """Whether there are as many micro-batches per stage as the schedule needs, an even number for a schedule of two
    directions.
    """
    count = _micro_batches(c)
    return (c.training == 0) | ((count >= c.fewest) & ((c.two_way == 0) | divides(2, count)))


def _micro_batches(c: Columns) -> Any:
    return c.global_batch_size / (c.micro_batch_size * (c.dp + (c.dp == 0)))


def _decoded(c: Columns) -> Any:
    """Tokens of the model's sequence; with an encoder, of the decoder's."""
    return c.sequence_length + (c.decoder_length > 0) * (c.decoder_length - c.sequence_length)


def _sequence(c: Columns) -> Any:
    ring = c.cp * (1 + (c.cp > 1))
    cut = ring * (1 + (c.sp > 0) * (c.tp - 1))
    return (c.training == 0) | (divides(cut, c.sequence_length) & divides(cut, c.decoder_length))


WORK: tuple[Check, ...] = (
    Check(
        "micro-batch is within the global batch",
        "workload.micro_batch_size",
        lambda c: (c.training == 0) | (c.micro_batch_size <= c.global_batch_size),
        lambda r: (
            f"workload.micro_batch_size {r['micro_batch_size']} is above global_batch_size {r['global_batch_size']}. "
            f"Try {listed(divisors(r['global_batch_size']))}."
        ),
    ),
    Check(
        "global batch divides",
        "workload.global_batch_size",
        lambda c: (c.training == 0) | divides(c.micro_batch_size * c.dp, c.global_batch_size),
        work_sentences.batch,
    ),
    Check("micro-batches come in rounds of pp", "workload.global_batch_size", _rounds, work_sentences.rounds),
    Check("micro-batches fill the schedule", "workload.global_batch_size", _enough, work_sentences.fewest),
    Check(
        "recompute finds layers",
        "workload.recompute.every",
        lambda c: c.recompute_every <= c.num_hidden_layers,
        lambda r: (
            f"workload.recompute.every {r['recompute_every']} is more than num_hidden_layers {r['num_hidden_layers']}: "
            "no layer would be computed again. Try every 1, or recompute: none."
        ),
    ),
    Check(
        "recompute finds modules", "workload.recompute.modules", lambda c: c.lacks_module == 0, work_sentences.modules
    ),
    Check(
        "documents fit the sequence",
        "workload.documents",
        lambda c: c.longest_document <= c.sequence_length,
        lambda r: (
            f"workload.documents holds {r['longest_document']} tokens, more than sequence_length "
            f"{r['sequence_length']}. Try sequence_length {r['longest_document']}, or documents cut to it."
        ),
    ),
    *EXPERTS,
    Check(
        "offload to drives needs them",
        "workload.offload.to",
        lambda c: (c.to_drives == 0) | (c.has_drives > 0),
        lambda r: (
            f"workload.offload.to nvme needs drives, and a node of {r['system']} has none. "
            "Try system.node.nvme: 25 GB/s, or to: host."
        ),
    ),
    Check(
        "offload needs a memory to go to",
        "workload.offload.to",
        lambda c: (c.to_host == 0) | (c.unified == 0),
        lambda r: (
            f"workload.offload moves nothing on {r['system']}: its accelerators and their host share one memory. "
            "Try to leave it out, or to: nvme."
        ),
    ),
    Check(
        "runtime offloads",
        "workload.offload",
        lambda c: (
            (c.offloads > 0) & ((c.optimizer_leaves == 0) | (c.zero_stage >= c.offload_zero_stage))
            | (c.optimizer_leaves + c.gradients_leave + c.weights_leave + c.activations_leave == 0)
        ),
        runtime_sentences.offloaded,
    ),
    Check(
        "experts run where they lie",
        "workload.offload.experts",
        lambda c: (c.experts_leave == 0) | ((c.num_experts > 0) & (c.runs_host_experts > 0)),
        runtime_sentences.host_experts,
    ),
    Check(
        "weights are offloaded in shards",
        "workload.offload.weights",
        lambda c: (c.weights_leave == 0) | (c.zero_stage >= 3),
        runtime_sentences.offloaded_weights,
    ),
    Check(
        "runtime offloads beside a pipeline",
        "workload.offload.activations",
        lambda c: (c.activations_leave == 0) | (c.pipeline_offload > 0) | (c.pp == 1),
        runtime_sentences.offloaded_activations,
    ),
    Check(
        "a model that drafts is named and asked for",
        "draft",
        lambda c: (c.has_draft > 0) == (c.drafts_by_model > 0),
        runtime_sentences.draft,
    ),
    Check(
        "draft fits beside the model",
        "draft.tp",
        lambda c: (c.has_draft == 0) | ((c.draft_tp <= c.tp) & divides(c.draft_tp, c.draft_heads)),
        runtime_sentences.draft_tp,
    ),
    Check(
        "draft is a decoder",
        "draft.model",
        lambda c: c.draft_decodes > 0,
        lambda r: f"draft {r['draft']} must be a decoder, which has no encoder beside it. Try draft: llama-3.2-1b.",
    ),
    Check(
        "draft shares the vocabulary",
        "draft.model",
        lambda c: (c.has_draft == 0) | (abs(c.draft_vocab - c.vocab_size) <= c.vocab_size * SAME_VOCABULARY),
        lambda r: (
            f"draft {r['draft']} has {r['draft_vocab']} tokens and {r['model']} {r['vocab_size']}: a draft must have "
            "the vocabulary of the model that verifies it. Try a smaller model of the same family."
        ),
    ),
    Check(
        "beams go without speculation",
        "workload.beams",
        lambda c: (c.beams == 1) | (c.speculates == 0),
        lambda r: f"workload.beams {r['beams']} go without speculation. Try beams 1, or to leave speculation out.",
    ),
    Check(
        "pools are priced in closed form",
        "network",
        lambda c: (c.pooled == 0) | (c.flow == 0),
        lambda r: "network: flow prices one pool alone. Try network: closed-form, or each pool as a scenario.",
    ),
    Check(
        "pools run for ever",
        "workload.total_requests",
        lambda c: (c.pooled == 0) | (c.total_requests == 0),
        lambda r: (
            f"workload.total_requests {r['total_requests']} is answered for one pool. Try to leave it out: the rates "
            "of both pools are those of a queue that never ends."
        ),
    ),
    Check("sequence divides", "workload.sequence_length", _sequence, work_sentences.sequence),
    Check(
        "an image is a sequence",
        "workload.sequence_length",
        lambda c: (c.image_tokens == 0) | (c.read_tokens == c.image_tokens),
        work_sentences.image,
    ),
    Check(
        "images are for models that see",
        "workload.images",
        lambda c: (c.sees_images == 0) | (c.has_tower > 0),
        lambda r: f"workload.images needs a vision tower, and {r['model']} has none. Try qwen2.5-vl-7b, or no images.",
    ),
    Check(
        "ZeRO is of training",
        "parallelism.zero_stage",
        lambda c: (c.training > 0) | (c.zero_stage == 0),
        lambda r: (
            f"parallelism.zero_stage {r['zero_stage']} shards what is trained, and workload.kind is inference. "
            "Leave it out, or try tp."
        ),
    ),
    Check(
        "encoders write nothing",
        "workload.output_tokens",
        lambda c: (
            (c.training > 0)
            | ((c.output_tokens == 0) & (c.reads_apart == 0))
            | ((c.output_tokens > 0) & (c.writes > 0))
        ),
        runtime_sentences.words,
    ),
    Check(
        "sound comes in windows",
        "workload.prompt_tokens",
        lambda c: (c.window == 0) | (c.read_tokens == c.window),
        runtime_sentences.sound,
    ),
    Check(
        "an encoder stands beside the decoder",
        "workload.decoder_sequence_length",
        lambda c: (c.reads_apart > 0) | ((c.decoder_length == 0) & (c.starts_decoder == 0)),
        runtime_sentences.decoder_field,
    ),
    Check(
        "masked words are predicted",
        "workload.predictions",
        lambda c: (c.predictions == 0) | ((c.masked > 0) & (c.predictions <= c.read_tokens)),
        runtime_sentences.predictions,
    ),
    Check(
        "encoders are modelled that far",
        "model",
        lambda c: (c.sees_both_ways == 0) | (c.beyond == 0),
        runtime_sentences.both_ways,
    ),
    Check(
        "what decodes has tokens to write",
        "workload.output_tokens",
        lambda c: (c.training > 0) | (c.output_tokens > 0) | ((c.beams == 1) & (c.speculates == 0)),
        runtime_sentences.output,
    ),
    Check(
        "a prompt holds its images",
        "workload.prompt_tokens",
        lambda c: c.shown_tokens <= c.read_tokens,
        lambda r: (
            f"workload.prompt_tokens {r['read_tokens']} is less than the {r['shown_tokens']} tokens that the images of "
            f"a prompt become in {r['model']}."
        ),
        "warning",
    ),
    Check(
        "every replica has a request",
        "workload.batch_size",
        lambda c: (c.training > 0) | (c.batch_size >= c.dp),
        work_sentences.replicas,
    ),
    Check(
        "faults of links need a network of links",
        "faults",
        lambda c: (c.link_faults == 0) | (c.flow > 0),
        lambda r: (
            f"faults of links, cards and switches need network: flow (got {r['broken']} and network: closed-form). "
            "Try network: flow."
        ),
    ),
    Check("faults are within the job", "faults", lambda c: c.misplaced == 0, lambda r: str(r["why_misplaced"])),
    Check(
        "replicas are even",
        "workload.batch_size",
        lambda c: (c.training > 0) | (c.batch_size < c.dp) | divides(c.dp, c.batch_size),
        work_sentences.even,
        "warning",
    ),
    Check(
        "sequence is within the model's context",
        "workload.sequence_length",
        lambda c: _decoded(c) <= c.max_position_embeddings,
        work_sentences.context,
        "warning",
    ),
    Check(
        "an encoder reads within its positions",
        "workload.prompt_tokens",
        lambda c: (c.encoder_positions == 0) | (c.read_tokens <= c.encoder_positions),
        work_sentences.encoder_context,
        "warning",
    ),
)
"""What must hold of a workload beside its plan, in the order in which a user wants to hear of it."""
