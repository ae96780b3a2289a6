"""A workload as a user writes it: its short forms, the lengths that a model fixes, and its defaults."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rapid_llm.documents import Document, show
from rapid_llm.model import Model
from rapid_llm.runtime import Runtime
from rapid_llm.scenario.named import counted
from rapid_llm.workload import RECOMPUTED, Inference, Recompute, Training


def written_workload(document: Document, model: Model, defaults: list[str], value: Any) -> Any:
    """A workload with its short forms written out: ``recompute: full`` is ``recompute: {mode: full}``, a list is its
    modules. Lengths that the model determines are filled in.
    """
    value = counted(document, _lengths(model, defaults, value)) if isinstance(value, Mapping) else value
    recompute = value.get("recompute") if isinstance(value, Mapping) else None
    if recompute is None or isinstance(recompute, Recompute):
        return value
    if isinstance(recompute, list | tuple):
        recompute = {"modules": recompute}
    fields = _recompute_fields(document, recompute) if isinstance(recompute, Mapping) else {"mode": recompute}
    return {**value, "recompute": fields}


def _lengths(model: Model, defaults: list[str], value: Mapping[str, Any]) -> Mapping[str, Any]:
    """The workload with the lengths that the model determines, and those of a decoder beside its encoder."""
    training, encoder = value.get("kind") == "training", model.encoder
    read = "sequence_length" if training else "prompt_tokens"
    found = dict(value)
    if encoder is not None and encoder.window and found.get(read) is None:
        found[read] = encoder.window
        defaults.append(f"workload.{read}: {encoder.window} (a window of sound)")
    if model.patch_values and found.get(read) is None:
        found[read] = model.max_position_embeddings
        defaults.append(f"workload.{read}: {found[read]} (the patches of an image and its class)")
    if encoder is not None and training and found.get("decoder_sequence_length") is None:
        written = model.max_position_embeddings if encoder.window else found.get(read)
        found["decoder_sequence_length"] = written
        defaults.append(f"workload.decoder_sequence_length: {written} ({'its most' if encoder.window else 'as read'})")
    return found


def _recompute_fields(document: Document, fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Fields of ``recompute``: ``modules`` imply the selective mode, and ``[core_attn]`` is just that mode; ``every``
    needs a mode.
    """
    if modules := fields.get("modules"):
        named = {key: value for key, value in fields.items() if key != "modules"}
        if fields.get("mode", "selective") != "selective":
            raise document.error(
                "workload.recompute takes mode or modules, not both. Try mode alone.", "workload.recompute.modules"
            )
        wrong = next((name for name in modules if name not in RECOMPUTED), None) if _listed(modules) else modules
        if wrong is not None:
            raise document.error(
                f"workload.recompute.modules is a list of {', '.join(RECOMPUTED)} (got {show(wrong)}). "
                "Try [core_attn].",
                "workload.recompute.modules",
            )
        return {**named, "mode": "selective", "modules": () if tuple(modules) == ("core_attn",) else tuple(modules)}
    if "every" in fields and "mode" not in fields:
        raise document.error(
            "workload.recompute.every needs a mode, such as {mode: full, every: 2}.", "workload.recompute.every"
        )
    return fields


def _listed(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def need_output(document: Document, model: Model, workload: Training | Inference) -> None:
    """InputError where ``output_tokens`` is missing and the model writes output."""
    written = document.data.get("workload")
    said = isinstance(written, Mapping) and written.get("output_tokens") is None
    if isinstance(workload, Inference) and model.writes and said:
        raise document.error(
            "the field 'workload.output_tokens' is missing. Try output_tokens: 256.", "workload.output_tokens"
        )


def with_defaults(
    document: Document, workload: Training | Inference, engine: Runtime, defaults: list[str]
) -> Training | Inference:
    """A training job with its default recomputation; default micro-batch and recomputation are listed among the
    defaults.
    """
    if isinstance(workload, Inference):
        return workload
    written = document.data["workload"]
    if isinstance(written, Mapping) and written.get("micro_batch_size") is None:
        defaults.append("workload.micro_batch_size: 1 (default)")
    if workload.recompute is not None:
        return workload
    defaults.append(f"workload.recompute: {engine.defaults.recompute} (default of {engine.name})")
    return replace(workload, recompute=Recompute(mode=engine.defaults.recompute))
