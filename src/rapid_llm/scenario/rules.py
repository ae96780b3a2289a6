"""The named checks of a plan: what must hold of degrees, ranks and what runs them, and the sentence that says so."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rapid_llm.hardware.system import MAX_ACCELERATORS
from rapid_llm.runtime import EXCHANGES
from rapid_llm.scenario import plan_sentences, runtime_sentences
from rapid_llm.scenario.columns import Columns
from rapid_llm.scenario.sentences import Row, divisors, listed

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Check:
    """``holds`` answers for one plan from numbers, for many from arrays [P]; ``sentence`` says of a failing row what is
    wrong and what to try."""

    name: str
    field: str
    holds: Callable[[Columns], Any]
    sentence: Callable[[Row], str]
    severity: Severity = "error"


def divides(degree: Any, size: Any) -> Any:
    """Whether ``degree`` divides ``size``; a size of 0 (no such thing) always passes."""
    return size % (degree + (degree == 0)) == 0


def _fills(c: Columns) -> Any:
    return c.tp * c.pp * c.cp * c.dp == c.accelerators


def _bit(allowed: Any, way: Any) -> Any:
    return allowed // 2**way % 2 == 1


def _exchanges(c: Columns) -> Any:
    """Ulysses groups are single ranks, all of cp, or something between."""
    alone, whole = c.ulysses == 1, c.ulysses == c.cp
    named = (c.exchange < EXCHANGES.index("ulysses")) & alone
    return (c.cp == 1) | named | ((c.exchange == 2) & whole) | ((c.exchange == 3) & ~alone & ~whole)


def _chunks(c: Columns) -> Any:
    """Chunks hold equally many layers, where the embedding and the LM head may each stand in for one."""
    chunks, layers = c.pp * c.vpp * (1 + c.folded), c.num_hidden_layers
    return (
        (chunks == c.pp)
        | (c.dealt_stages > 0)
        | divides(chunks, layers)
        | divides(chunks, layers + 1)
        | divides(chunks, layers + 2)
    )


def _regroups(c: Columns) -> Any:
    """All but attention is cut over tp x cp ranks."""
    ranks = c.tp * c.cp
    sizes = (c.num_attention_heads, c.intermediate_size, c.num_state_heads)
    return (c.helix == 0) | np.logical_and.reduce([divides(ranks, size) for size in sizes])


PLAN: tuple[Check, ...] = (
    Check(
        "runtime runs the workload", "runtime", lambda c: c.training == c.runtime_training, runtime_sentences.runtime
    ),
    Check("runtime runs on the accelerator", "runtime", lambda c: c.has_platform > 0, runtime_sentences.platform),
    Check("runtime runs the model", "runtime", lambda c: c.runs_model > 0, runtime_sentences.model),
    Check("accelerator computes the precision", "precision.compute", lambda c: c.has_rate > 0, runtime_sentences.rate),
    Check(
        "weights can be trained",
        "precision.weights",
        lambda c: (c.training == 0) | (c.weight_only == 0) | (c.adapts * c.packed > 0),
        lambda r: (
            f"precision.weights {r['weights']} is a format of weights that nobody trains, and workload.kind is "
            "training. Try precision: bf16-mixed, or precision: nf4 with --set workload.lora.rank=16."
        ),
    ),
    Check(
        "replicas that share a shard are of training",
        "parallelism.dp_shard",
        lambda c: (c.training > 0) | (c.dp_shard == c.dp),
        lambda r: (
            f"parallelism.dp_shard {r['dp_shard']} shards what is trained, and workload.kind is inference. "
            "Leave it out, or try tp."
        ),
    ),
    Check(
        "a schedule of micro-batches is of training",
        "parallelism.schedule",
        lambda c: (c.training > 0) | (c.scheduled == 0),
        lambda r: (
            f"parallelism.schedule {r['schedule']} orders forward and backward passes, and workload.kind is inference, "
            "which has no backward pass. Leave it out."
        ),
    ),
    Check(
        "model chunks are of training",
        "parallelism.vpp",
        lambda c: (c.training > 0) | (c.vpp == 1),
        lambda r: (
            f"parallelism.vpp {r['vpp']} deals chunks of layers for an interleaved schedule of training, and "
            "workload.kind is inference. Leave it out."
        ),
    ),
    Check("tp divides heads", "parallelism.tp", lambda c: divides(c.tp, c.num_attention_heads), plan_sentences.heads),
    Check(
        "tp divides or repeats key-value heads",
        "parallelism.tp",
        lambda c: (
            divides(c.tp, c.num_key_value_heads)
            | ((c.repeats_kv_heads > 0) & (c.num_key_value_heads > 0) & divides(c.num_key_value_heads, c.tp))
        ),
        plan_sentences.kv_heads,
    ),
    Check(
        "tp divides state heads",
        "parallelism.tp",
        lambda c: divides(c.tp, c.num_state_heads),
        plan_sentences.state_heads,
    ),
    Check("tp divides the MLP", "parallelism.tp", lambda c: divides(c.tp, c.intermediate_size), plan_sentences.width),
    Check(
        "ep divides experts",
        "parallelism.ep",
        lambda c: (c.ep == 1) | ((c.num_experts > 0) & divides(c.ep, c.num_experts)),
        plan_sentences.experts,
    ),
    Check(
        "etp divides the experts",
        "parallelism.etp",
        lambda c: divides(c.etp, c.moe_intermediate_size),
        plan_sentences.expert_width,
    ),
    Check(
        "pp has a layer per stage",
        "parallelism.pp",
        lambda c: c.pp <= c.num_hidden_layers,
        lambda r: (
            f"parallelism.pp {r['pp']} is more than num_hidden_layers {r['num_hidden_layers']}: a stage needs a layer. "
            f"Try {listed(divisors(r['num_hidden_layers']))}."
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
        plan_sentences.schedule,
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
        lambda c: (c.two_way == 0) | divides(2, c.pp),
        lambda r: (
            f"schedule dualpipe needs an even pp, since micro-batches enter at both ends (got pp {r['pp']}). "
            f"Try pp {r['pp'] + 1}, or schedule: dualpipe-v."
        ),
    ),
    Check(
        "pp x vpp divides layers",
        "parallelism.vpp",
        _chunks,
        plan_sentences.chunks,
    ),
    Check(
        "experts stay within tp beside cp",
        "parallelism.cp",
        lambda c: (c.cp == 1) | (c.training > 0) | (c.helix > 0) | (c.num_experts == 0) | (c.ep * c.etp <= c.tp),
        lambda r: (
            f"parallelism.cp {r['cp']} in inference goes with experts inside tp: etp {r['etp']} x ep {r['ep']} is "
            f"above tp {r['tp']}. Try cp 1, or ep {r['tp']}."
        ),
    ),
    Check("ulysses divides cp", "parallelism.ulysses", lambda c: divides(c.ulysses, c.cp), plan_sentences.ulysses),
    Check("exchange and ulysses agree", "parallelism.exchange", _exchanges, plan_sentences.exchange),
    Check(
        "shift switches ulysses to tp",
        "parallelism.shift",
        lambda c: (c.shifts == 0) | ((c.training == 0) & (c.cp > 1) & (c.ulysses == c.cp) & (c.pp == 1)),
        plan_sentences.shift,
    ),
    Check(
        "helix deals a cache",
        "parallelism.helix",
        lambda c: (c.helix == 0) | ((c.training == 0) & (c.cp > 1) & (c.ulysses == 1) & (c.shifts == 0)),
        plan_sentences.helix,
    ),
    Check(
        "helix finds a cache that it can deal",
        "parallelism.helix",
        lambda c: (c.helix == 0) | ((c.deals_cache > 0) & (c.num_attention_heads > 0)),
        lambda r: (
            f"parallelism.helix deals the tokens of a cache of which queries meet all, and {r['model']} has another. "
            "Try helix false, or a model with softmax or latent attention."
        ),
    ),
    Check("helix divides heads and MLP", "parallelism.cp", _regroups, plan_sentences.regrouped),
    Check(
        "helix has tp beside cp",
        "placement.order",
        lambda c: (c.helix == 0) | (c.divided == 0),
        lambda r: (
            "parallelism.helix regroups tp and cp ranks, which placement.order separates. Try [tp, cp, ep, dp, pp]."
        ),
    ),
    Check(
        "helix repeats no heads",
        "parallelism.tp",
        lambda c: (c.helix == 0) | (c.num_key_value_heads == 0) | (c.tp <= c.num_key_value_heads),
        plan_sentences.repeated_heads,
        severity="warning",
    ),
    Check(
        "ulysses x tp divides key-value heads",
        "parallelism.ulysses",
        lambda c: (c.ulysses == 1) | divides(c.ulysses * c.tp, c.num_key_value_heads),
        plan_sentences.exchanged_heads,
    ),
    Check(
        "layers are dealt to stages",
        "parallelism.layers_per_stage",
        lambda c: (
            (c.dealt_stages == 0)
            | ((c.dealt_stages == c.pp * c.vpp * (1 + c.folded)) & (c.dealt_layers == c.num_hidden_layers))
        ),
        plan_sentences.dealt,
    ),
    Check("stages have work", "parallelism.layers_per_stage", lambda c: c.idle_stages == 0, plan_sentences.idle),
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
        runtime_sentences.zero_stage,
    ),
    Check(
        "runtime runs the schedule",
        "parallelism.schedule",
        lambda c: (c.runs_schedule > 0) | (c.pp == 1),
        runtime_sentences.other_schedule,
    ),
    Check(
        "runtime exchanges sequences that way",
        "parallelism.exchange",
        lambda c: (c.cp == 1) | _bit(c.exchanges, c.exchange),
        runtime_sentences.exchange,
    ),
    Check(
        "runtime exchanges the model's sequences that way",
        "parallelism.exchange",
        lambda c: (
            (c.cp == 1)
            | ((c.has_windows == 0) | _bit(c.window_exchanges, c.exchange))
            & ((c.has_latents == 0) | _bit(c.latent_exchanges, c.exchange))
        ),
        runtime_sentences.model_exchange,
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
        runtime_sentences.sharded_pipeline,
    ),
    Check("degrees fill the accelerators", "parallelism", _fills, plan_sentences.degrees),
    Check(
        "system has the accelerators",
        "accelerators",
        lambda c: c.accelerators <= c.system_accelerators,
        plan_sentences.enough,
    ),
    Check(
        "a job has ranks that can be placed one by one",
        "accelerators",
        lambda c: c.accelerators <= MAX_ACCELERATORS,
        plan_sentences.too_many,
    ),
    Check(
        "ranks fill nodes",
        "accelerators",
        lambda c: (c.accelerators - c.before <= c.node_size) | divides(c.node_size, c.accelerators - c.before),
        plan_sentences.nodes,
    ),
    Check(
        "etp x ep divides tp x cp x dp",
        "parallelism.ep",
        lambda c: divides(c.etp * c.ep, c.tp * c.cp * c.dp),
        plan_sentences.expert_ranks,
    ),
    Check(
        "dp_shard divides dp",
        "parallelism.dp_shard",
        lambda c: divides(c.dp_shard, c.dp),
        lambda r: (
            f"parallelism.dp_shard must divide dp: {r['dp']} / dp_shard {r['dp_shard']} "
            f"leaves {r['dp'] % r['dp_shard']}. Try {listed(divisors(r['dp']))}."
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
)
"""What must hold of degrees, ranks and what runs them, in the order in which a user wants to hear of it."""
