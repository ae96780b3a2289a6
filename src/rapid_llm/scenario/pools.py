"""Prefill and decode on accelerators of their own: each pool is a scenario over the common fields."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rapid_llm.documents import Document, build, show
from rapid_llm.errors import InputError
from rapid_llm.model.halves import has_halves
from rapid_llm.network.technologies import link
from rapid_llm.nouns import replaced
from rapid_llm.provenance import located
from rapid_llm.scenario.inputs import PoolInput, PoolsInput
from rapid_llm.scenario.named import layer
from rapid_llm.scenario.resolving import resolve
from rapid_llm.scenario.scenario import POOLED, Pool, Pools, Scenario
from rapid_llm.workload import Inference

PHASES = ("prefill", "decode", "ffn")


def resolve_whole(document: Document) -> Scenario:
    """The scenario of a document, with its pools where it has any: the decode pool's, and the other pools beside."""
    value = document.data.get("pools")
    if value is None:
        return resolve(document)
    given = _given(document, value)
    phases = [phase for phase in PHASES if getattr(given, phase) is not None]
    found = {phase: _resolved(document, phase) for phase in phases}
    decode = found["decode"]
    _require_output(document, decode)
    if given.link is not None:
        located(document, "pools.link", link, given.link)
    pools = Pools(
        **{phase: _pool(one) for phase, one in found.items()},
        transfer=given.transfer,
        link=given.link,
        micro_batches=given.micro_batches,
    )
    _require_halves(document, decode, pools)
    _require_sum(document, decode, pools)
    defaults = [
        f"pools.{phase}: {found[phase].accelerators} accelerators, tp {plan.tp} dp {plan.dp} (like the job itself)"
        for phase in phases
        if value.get(phase) is None
        for plan in [found[phase].parallelism]
    ]
    defaults += decode.defaults
    for phase in phases:
        defaults += [f"{phase}: {text}" for text in found[phase].defaults if text not in decode.defaults]
    return replaced(decode, pools=pools, defaults=tuple(defaults))


def _given(document: Document, value: Any) -> PoolsInput:
    """Pools as written; prefill and decode are like the job itself where only the other is."""
    if not isinstance(value, Mapping):
        raise document.error(
            f"pools must be a mapping of prefill and decode (got {show(value)}). Try pools: {{prefill: {{parallelism: "
            "{tp: 4}}, decode: {parallelism: {tp: 8}}}.",
            "pools",
        )
    if not {*PHASES} & value.keys():
        raise document.error(
            "pools needs a pool, of prefill or of decode. Try pools.prefill: {parallelism: {tp: 4}}, or to leave pools "
            "out.",
            "pools",
        )
    given: PoolsInput = build(PoolsInput, {"prefill": {}, "decode": {}, **value}, document, "pools")
    return given


def _require_output(document: Document, decode: Scenario) -> None:
    """Only inference that writes tokens has two phases."""
    if not isinstance(decode.workload, Inference):
        raise document.error("pools are for inference, and workload.kind is training. Try to leave pools out.", "pools")
    if not decode.workload.output_tokens:
        raise document.error(
            "pools need output tokens, and workload.output_tokens is 0. Try to leave pools out.", "pools"
        )


def _require_sum(document: Document, decode: Scenario, pools: Pools) -> None:
    """``accelerators`` of the job, where given, are those of its pools together, or of the decode pool."""
    asked = document.data.get("accelerators")
    if asked not in (None, pools.accelerators, decode.accelerators):
        raise document.error(
            f"accelerators {asked} is not the {pools.accelerators} of the pools. Try to leave it out, or "
            "pools.decode.accelerators.",
            "accelerators",
        )


def _require_halves(document: Document, decode: Scenario, pools: Pools) -> None:
    """InputError where the model, the plans or the batch do not allow a pool for feed-forward parts."""
    work = decode.workload
    if pools.ffn is None:
        if pools.micro_batches is not None:
            raise document.error(
                "pools.micro_batches alternate between pools.decode and pools.ffn, and pools.ffn is missing. "
                "Try pools.ffn: {parallelism: {tp: 8}}.",
                "pools.micro_batches",
            )
        return
    if not has_halves(decode.model):
        raise document.error(
            f"pools.ffn needs layers of attention and a feed-forward part, one behind the other, and "
            f"{decode.model.name} has others. Try to leave pools.ffn out.",
            "pools.ffn",
        )
    for phase, pool in (("decode", pools.decode), ("ffn", pools.ffn)):
        if pool.parallelism.pp > 1:
            raise document.error(
                f"pools.{phase}.parallelism.pp must be 1 beside pools.ffn: micro-batches alternate between the pools "
                f"at every layer (got {pool.parallelism.pp}). Try pp: 1.",
                f"pools.{phase}.parallelism.pp",
            )
    assert isinstance(work, Inference)
    for name, said in (("speculation", work.speculation is not None), ("offload", work.offload.any)):
        if said:
            raise document.error(f"workload.{name} does not go with pools.ffn. Try to leave one out.", "pools.ffn")


def _resolved(document: Document, phase: str) -> Scenario:
    """A pool's own scenario; an error in one of its own fields names that field."""
    own: Mapping[str, Any] = document.data["pools"].get(phase) or {}
    try:
        return resolve(_alone(document, phase))
    except InputError as error:
        top = (error.field or "").partition(".")[0]
        if top not in own or not error.message.startswith(error.field or " "):
            raise
        raise document.error(
            f"pools.{phase}.{error.message}", f"pools.{phase}.{error.field}", error.suggestions
        ) from None


def _alone(document: Document, phase: str) -> Document:
    """A pool's own document: its fields laid over the common ones, except the common number of accelerators."""
    own: dict[str, Any] = dict(document.data["pools"].get(phase) or {})
    build(PoolInput, own, document, f"pools.{phase}")
    common = {key: value for key, value in document.data.items() if key not in ("pools", "accelerators")}
    start = f"pools.{phase}."
    lines = {**document.lines, **{k.removeprefix(start): v for k, v in document.lines.items() if k.startswith(start)}}
    return replace(document, data=layer(common, own), lines=lines)


def _pool(scenario: Scenario) -> Pool:
    return Pool(**{name: getattr(scenario, name) for name in POOLED})
