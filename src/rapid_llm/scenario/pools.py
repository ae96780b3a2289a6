"""Prefill and decode on accelerators of their own: each pool is a scenario over the common fields."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rapid_llm.documents import Document, build, show
from rapid_llm.network.technologies import link
from rapid_llm.nouns import replaced
from rapid_llm.scenario.named import layer, located
from rapid_llm.scenario.resolving import PoolInput, PoolsInput, resolve
from rapid_llm.scenario.scenario import POOLED, Pool, Pools, Scenario
from rapid_llm.workload import Inference

PHASES = ("prefill", "decode")


def resolve_whole(document: Document) -> Scenario:
    """The scenario of a document, with its pools where it has any: the decode pool's, and the prefill pool beside."""
    value = document.data.get("pools")
    if value is None:
        return resolve(document)
    if not isinstance(value, Mapping):
        raise document.error(
            f"pools must be a mapping of prefill and decode (got {show(value)}). Try pools: {{prefill: {{parallelism: "
            "{tp: 4}}, decode: {parallelism: {tp: 8}}}.",
            "pools",
        )
    given: PoolsInput = build(PoolsInput, {"prefill": {}, "decode": {}, **value}, document, "pools")
    prefill, decode = (resolve(_alone(document, phase)) for phase in PHASES)
    if not isinstance(decode.workload, Inference):
        raise document.error("pools are for inference, and workload.kind is training. Try to leave pools out.", "pools")
    if given.link is not None:
        located(document, "pools.link", link, given.link)
    pools = Pools(prefill=_pool(prefill), decode=_pool(decode), transfer=given.transfer, link=given.link)
    defaults = (*decode.defaults, *(f"prefill: {text}" for text in prefill.defaults if text not in decode.defaults))
    return replaced(decode, pools=pools, defaults=defaults)


def _alone(document: Document, phase: str) -> Document:
    """A pool's own document: its fields over the common ones, of which a count of accelerators is nobody's."""
    own: dict[str, Any] = dict(document.data["pools"].get(phase) or {})
    build(PoolInput, own, document, f"pools.{phase}")
    common = {key: value for key, value in document.data.items() if key not in ("pools", "accelerators")}
    start = f"pools.{phase}."
    lines = {**document.lines, **{k.removeprefix(start): v for k, v in document.lines.items() if k.startswith(start)}}
    return replace(document, data=layer(common, own), lines=lines)


def _pool(scenario: Scenario) -> Pool:
    return Pool(**{name: getattr(scenario, name) for name in POOLED})
