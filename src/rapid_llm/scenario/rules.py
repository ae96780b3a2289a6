"""The named checks: what must hold for degrees that must divide and sizes that must fit together, and the sentence that
says so."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from rapid_llm.scenario import sentences
from rapid_llm.scenario.columns import Columns
from rapid_llm.scenario.sentences import Row

Severity = Literal["error", "warning"]
SAME_VOCABULARY = 0.05
"""Sizes of one family's vocabularies differ by what they are padded to."""


@dataclass(frozen=True, slots=True)
class Check:
    """``holds`` answers for one plan from numbers, for many from arrays [P]; ``sentence`` says of a failing row what is
    wrong and what to try."""

    name: str
    field: str
    holds: Callable[[Columns], Any]
    sentence: Callable[[Row], str]
    severity: Severity = "error"


def _divides(degree: Any, size: Any) -> Any:
    """Whether ``degree`` divides ``size``; a size of 0 (no such thing) always passes."""
    return size % (degree + (degree == 0)) == 0


def _fills(c: Columns) -> Any:
    return c.tp * c.pp * c.cp * c.dp == c.accelerators


def _rounds(c: Columns) -> Any:
    return (c.interleaved == 0) | (c.vpp == 1) | _divides(c.pp, _micro_batches(c))


def _enough(c: Columns) -> Any:
    """A schedule that counts on a number of micro-batches per stage has it, and one of two ways halves that."""
    count = _micro_batches(c)
    return (c.training == 0) | ((count >= c.fewest) & ((c.two_way == 0) | _divides(2, count)))


def _micro_batches(c: Columns) -> Any:
    return c.global_batch_size / (c.micro_batch_size * (c.dp + (c.dp == 0)))


def _chunks(c: Columns) -> Any:
    """Chunks hold equally many layers, where the embedding and the LM head may each stand in for one."""
    chunks, layers = c.pp * c.vpp * (1 + c.folded), c.num_hidden_layers
    return (
        (chunks == c.pp)
        | (c.dealt_stages > 0)
        | _divides(chunks, layers)
        | _divides(chunks, layers + 1)
        | _divides(chunks, layers + 2)
    )


def _sequence(c: Columns) -> Any:
    ring = c.cp * (1 + (c.cp > 1))
    cut = ring * (1 + (c.sp > 0) * (c.tp - 1))
    return (c.training == 0) | _divides(cut, c.sequence_length)


CHECKS: tuple[Check, ...] = (
    Check("runtime runs the workload", "runtime", lambda c: c.training == c.runtime_training, sentences.runtime),
    Check("accelerator computes the precision", "precision.compute", lambda c: c.has_rate > 0, sentences.rate),
    Check(
        "weights can be trained",
        "precision.weights",
        lambda c: (c.training == 0) | (c.weight_only == 0),
        lambda r: (
            f"precision.weights {r['weights']} is a format for inference alone, and workload.kind is training. "
            "Try precision: bf16-mixed."
        ),
    ),
    Check("tp divides heads", "parallelism.tp", lambda c: _divides(c.tp, c.num_attention_heads), sentences.heads),
    Check(
        "tp divides or repeats key-value heads",
        "parallelism.tp",
        lambda c: (
            _divides(c.tp, c.num_key_value_heads)
            | ((c.training == 0) & (c.num_key_value_heads > 0) & _divides(c.num_key_value_heads, c.tp))
        ),
        sentences.kv_heads,
    ),
    Check(
        "tp divides state heads", "parallelism.tp", lambda c: _divides(c.tp, c.num_state_heads), sentences.state_heads
    ),
    Check("tp divides the MLP", "parallelism.tp", lambda c: _divides(c.tp, c.intermediate_size), sentences.width),
    Check(
        "ep divides experts",
        "parallelism.ep",
        lambda c: (c.ep == 1) | ((c.num_experts > 0) & _divides(c.ep, c.num_experts)),
        sentences.experts,
    ),
    Check(
        "etp divides the experts",
        "parallelism.etp",
        lambda c: _divides(c.etp, c.moe_intermediate_size),
        sentences.expert_width,
    ),
    Check(
        "pp has a layer per stage",
        "parallelism.pp",
        lambda c: c.pp <= c.num_hidden_layers,
        lambda r: (
            f"parallelism.pp {r['pp']} is more than num_hidden_layers {r['num_hidden_layers']}: a stage needs a layer. "
            f"Try {sentences.listed(sentences.divisors(r['num_hidden_layers']))}."
        ),
    ),
    Check(
        "vpp needs pp",
        "parallelism.vpp",
        lambda c: (c.vpp == 1) | (c.pp > 1),
        lambda r: f"parallelism.vpp {r['vpp']} needs pp above 1 (got pp {r['pp']}). Try vpp 1.",
    ),
    Check(
        "vpp goes with a schedule of chunks",
        "parallelism.schedule",
        lambda c: (c.looped > 0) == (c.vpp > 1),
        sentences.schedule,
    ),
    Check(
        "a schedule of two parts a stage needs pp",
        "parallelism.schedule",
        lambda c: (c.pp > 1) | ((c.folded == 0) & (c.two_way == 0)),
        lambda r: f"schedule {r['schedule']} needs pp above 1 (got pp {r['pp']}). Try pp 2, or schedule: 1f1b.",
    ),
    Check(
        "two ways need an even pp",
        "parallelism.pp",
        lambda c: (c.two_way == 0) | _divides(2, c.pp),
        lambda r: (
            f"schedule dualpipe needs an even pp, since micro-batches enter at both ends (got pp {r['pp']}). "
            f"Try pp {r['pp'] + 1}, or schedule: dualpipe-v."
        ),
    ),
    Check(
        "pp x vpp divides layers",
        "parallelism.vpp",
        _chunks,
        sentences.chunks,
    ),
    Check(
        "experts stay within tp beside cp",
        "parallelism.cp",
        lambda c: (c.cp == 1) | (c.training > 0) | (c.num_experts == 0) | (c.ep * c.etp <= c.tp),
        lambda r: (
            f"parallelism.cp {r['cp']} in inference goes with experts inside tp: etp {r['etp']} x ep {r['ep']} is "
            f"above tp {r['tp']}. Try cp 1, or ep {r['tp']}."
        ),
    ),
    Check("ulysses divides cp", "parallelism.ulysses", lambda c: _divides(c.ulysses, c.cp), sentences.ulysses),
    Check(
        "ulysses x tp divides key-value heads",
        "parallelism.ulysses",
        lambda c: (c.ulysses == 1) | _divides(c.ulysses * c.tp, c.num_key_value_heads),
        sentences.exchanged_heads,
    ),
    Check(
        "layers are dealt to stages",
        "parallelism.layers_per_stage",
        lambda c: (
            (c.dealt_stages == 0)
            | ((c.dealt_stages == c.pp * c.vpp * (1 + c.folded)) & (c.dealt_layers == c.num_hidden_layers))
        ),
        sentences.dealt,
    ),
    Check("stages have work", "parallelism.layers_per_stage", lambda c: c.idle_stages == 0, sentences.idle),
    Check(
        "runtime has the axis",
        "parallelism",
        lambda c: c.lacks == 0,
        lambda r: (
            f"parallelism.{r['lacked']} {r[r['lacked']]} is an axis that {r['runtime']} does not have. "
            f"Try {r['lacked']} 1, or runtime: megatron-core."
        ),
    ),
    Check(
        "runtime shards that much",
        "parallelism.zero_stage",
        lambda c: c.zero_stages // 2**c.zero_stage % 2 == 1,
        sentences.zero_stage,
    ),
    Check(
        "runtime runs the schedule",
        "parallelism.schedule",
        lambda c: (c.runs_schedule > 0) | (c.pp == 1),
        sentences.other_schedule,
    ),
    Check(
        "runtime exchanges sequences that way",
        "parallelism.ulysses",
        lambda c: ((c.ring_alone == 0) | (c.ulysses == 1)) & ((c.ulysses_alone == 0) | (c.ulysses == c.cp)),
        sentences.exchange,
    ),
    Check(
        "runtime shards beside experts",
        "parallelism.zero_stage",
        lambda c: (c.ep == 1) | (c.zero_stage <= c.experts_zero_stage),
        lambda r: (
            f"parallelism.zero_stage {r['zero_stage']} does not go with ep {r['ep']} in {r['runtime']}, which shards "
            f"no more than stage {r['experts_zero_stage']} does beside experts. "
            f"Try zero_stage {r['experts_zero_stage']}, or ep 1."
        ),
    ),
    Check(
        "experts under tp need sp",
        "parallelism.sp",
        lambda c: (c.experts_need_sp == 0) | (c.num_experts == 0) | (c.tp == 1) | (c.sp > 0),
        lambda r: (
            f"parallelism.sp must be true where tp {r['tp']} meets experts: {r['runtime']} routes shards of "
            "the sequence. Try sp true."
        ),
    ),
    Check(
        "runtime shards beside a pipeline",
        "parallelism.zero_stage",
        lambda c: (c.pp == 1) | (c.zero_stage <= c.pipeline_zero_stage),
        sentences.sharded_pipeline,
    ),
    Check("degrees fill the accelerators", "parallelism", _fills, sentences.degrees),
    Check(
        "system has the accelerators",
        "accelerators",
        lambda c: c.accelerators <= c.system_accelerators,
        sentences.enough,
    ),
    Check(
        "ranks fill nodes",
        "accelerators",
        lambda c: (c.accelerators <= c.node_size) | _divides(c.node_size, c.accelerators),
        sentences.nodes,
    ),
    Check(
        "etp x ep divides tp x cp x dp",
        "parallelism.ep",
        lambda c: _divides(c.etp * c.ep, c.tp * c.cp * c.dp),
        sentences.expert_ranks,
    ),
    Check(
        "dp_shard divides dp",
        "parallelism.dp_shard",
        lambda c: _divides(c.dp_shard, c.dp),
        lambda r: (
            f"parallelism.dp_shard must divide dp: {r['dp']} / dp_shard {r['dp_shard']} "
            f"leaves {r['dp'] % r['dp_shard']}. Try {sentences.listed(sentences.divisors(r['dp']))}."
        ),
    ),
    Check(
        "dp_shard goes with ZeRO",
        "parallelism.dp_shard",
        lambda c: (c.dp_shard == c.dp) | (c.zero_stage > 0),
        lambda r: (
            f"parallelism.dp_shard {r['dp_shard']} of dp {r['dp']} shards nothing under zero_stage 0. "
            "Try zero_stage 3, which is hybrid sharding, or 1."
        ),
    ),
    Check(
        "micro-batch is within the global batch",
        "workload.micro_batch_size",
        lambda c: (c.training == 0) | (c.micro_batch_size <= c.global_batch_size),
        lambda r: (
            f"workload.micro_batch_size {r['micro_batch_size']} is above global_batch_size {r['global_batch_size']}. "
            f"Try {sentences.listed(sentences.divisors(r['global_batch_size']))}."
        ),
    ),
    Check(
        "global batch divides",
        "workload.global_batch_size",
        lambda c: (c.training == 0) | _divides(c.micro_batch_size * c.dp, c.global_batch_size),
        sentences.batch,
    ),
    Check("micro-batches come in rounds of pp", "workload.global_batch_size", _rounds, sentences.rounds),
    Check("micro-batches fill the schedule", "workload.global_batch_size", _enough, sentences.fewest),
    Check(
        "recompute finds layers",
        "workload.recompute.every",
        lambda c: c.recompute_every <= c.num_hidden_layers,
        lambda r: (
            f"workload.recompute.every {r['recompute_every']} is more than num_hidden_layers {r['num_hidden_layers']}: "
            "no layer would be computed again. Try every 1, or recompute: none."
        ),
    ),
    Check("recompute finds modules", "workload.recompute.modules", lambda c: c.lacks_module == 0, sentences.modules),
    Check(
        "documents fit the sequence",
        "workload.documents",
        lambda c: c.longest_document <= c.sequence_length,
        lambda r: (
            f"workload.documents holds {r['longest_document']} tokens, more than sequence_length "
            f"{r['sequence_length']}. Try sequence_length {r['longest_document']}, or documents cut to it."
        ),
    ),
    Check(
        "routing needs experts",
        "workload.routing",
        lambda c: (c.num_experts > 0) | ((c.routed == 0) & (c.expert_adapters == 0)),
        sentences.routing,
    ),
    Check(
        "every expert is counted",
        "workload.routing.counts",
        lambda c: (c.counted_experts == 0) | (c.num_experts == 0) | (c.counted_experts == c.num_experts),
        lambda r: (
            f"workload.routing.counts must count each of num_experts {r['num_experts']} (got {r['counted_experts']}). "
            "Try routing: {hottest: 1.3}, the load of the hottest rank over the mean."
        ),
    ),
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
        "runtime offloads",
        "workload.offload",
        lambda c: (
            (c.offloads > 0) & ((c.optimizer_leaves == 0) | (c.zero_stage >= c.offload_zero_stage))
            | (c.optimizer_leaves + c.gradients_leave + c.weights_leave + c.activations_leave == 0)
        ),
        sentences.offloaded,
    ),
    Check(
        "weights are offloaded in shards",
        "workload.offload.weights",
        lambda c: (c.weights_leave == 0) | (c.zero_stage >= 3),
        sentences.offloaded_weights,
    ),
    Check(
        "runtime offloads beside a pipeline",
        "workload.offload.activations",
        lambda c: (c.activations_leave == 0) | (c.pipeline_offload > 0) | (c.pp == 1),
        sentences.offloaded_activations,
    ),
    Check(
        "a model that drafts is named and asked for",
        "draft",
        lambda c: (c.has_draft > 0) == (c.drafts_by_model > 0),
        sentences.draft,
    ),
    Check(
        "draft fits beside the model",
        "draft.tp",
        lambda c: (c.has_draft == 0) | ((c.draft_tp <= c.tp) & _divides(c.draft_tp, c.draft_heads)),
        sentences.draft_tp,
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
    Check("sequence divides", "workload.sequence_length", _sequence, sentences.sequence),
    Check(
        "an image is a sequence",
        "workload.sequence_length",
        lambda c: (c.image_tokens == 0) | (c.sequence_length == c.image_tokens),
        sentences.image,
    ),
    Check(
        "an encoder is trained",
        "model",
        lambda c: (c.image_tokens == 0) | (c.training > 0),
        lambda r: (
            f"{r['model']} encodes images and writes no tokens, and workload.kind is inference. "
            "Try workload.kind: training."
        ),
    ),
    Check(
        "every replica has a request",
        "workload.batch_size",
        lambda c: (c.training > 0) | (c.batch_size >= c.dp),
        sentences.replicas,
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
        lambda c: (c.training > 0) | (c.batch_size < c.dp) | _divides(c.dp, c.batch_size),
        sentences.even,
        "warning",
    ),
    Check(
        "sequence is within the model's context",
        "workload.sequence_length",
        lambda c: c.sequence_length <= c.max_position_embeddings,
        sentences.context,
        "warning",
    ),
)
"""All checks, in the order in which a user wants to hear of them."""
