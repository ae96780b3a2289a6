"""The words of published tables as parts of a scenario; the rules are data (``data/translation.yaml``)."""

import re
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from typing import Any

from rapid_llm import hardware, runtime
from rapid_llm.documents import parse_yaml
from rapid_llm.dtypes import PRESETS, dtype
from rapid_llm.errors import InputError
from rapid_llm.model.catalogue import CATALOGUE as MODELS
from rapid_llm.validation.cases import Skip
from rapid_llm.validation.tables import Row, count, integer, matches

Rule = Mapping[str, Any]

SERVER = 8
"""Accelerators that one server holds where a row does not say."""


@lru_cache(maxsize=1)
def _rules() -> Mapping[str, Any]:
    file = resources.files(__package__).joinpath("data", "translation.yaml")
    return parse_yaml(file.read_text("utf-8"), "translation.yaml").data


def first(section: str, row: Row) -> Rule | None:
    """The first rule of a section whose cells match the row."""
    return next((rule for rule in _rules()[section] if matches(row, rule["where"])), None)


def completed(row: Row) -> Row:
    """The row with the cells filled in that its source leaves blank and that only one value makes sense of."""
    filled = dict(row)
    for rule in _rules()["assumptions"]:
        if matches(filled, rule["where"]):
            filled.update(rule["set"])
    return filled


def check(row: Row) -> None:
    """Skip rows that the rules set aside."""
    if rule := first("skips", row):
        raise Skip(rule["reason"])


@lru_cache(maxsize=256)
def _accelerator(words: tuple[str, ...]) -> hardware.Accelerator | None:
    for text in words:
        try:
            return hardware.accelerator(text)
        except InputError:
            continue
    return None


def accelerator_of(row: Row) -> hardware.Accelerator:
    """The accelerator that the ``gpu`` or ``gpu_key`` cell names, by its aliases; Skip where none does."""
    words = tuple(text for text in (row.get("gpu", ""), row.get("gpu_key", "")) if text)
    found = _accelerator(words)
    if found is None:
        raise Skip(f"no accelerator '{words[0] if words else ''}' in the catalogue")
    return found


def gpu_name(row: Row) -> str:
    """Catalogue name of the row's accelerator; the row's own words where the catalogue has none."""
    try:
        return accelerator_of(row).name
    except Skip:
        return row.get("gpu_key") or row.get("gpu", "")


@lru_cache(maxsize=64)
def _systems_with(accelerator: str) -> tuple[str, ...]:
    def of(name: str) -> bool:
        return hardware.system(name).groups[0].node.accelerator.name == accelerator

    names = hardware.system_names()
    preferred = [name for name in _rules()["prefer"] if name in names]
    return tuple(name for name in dict.fromkeys([*preferred, *names]) if of(name))


def _known_system(written: str | Mapping[str, Any]) -> str | Mapping[str, Any]:
    name = written.get("base") if isinstance(written, Mapping) else written
    if name is not None and name not in (*hardware.system_names(), *hardware.accelerator_names()):
        raise Skip(f"no system '{name}' in the catalogue")
    return written


def system_of(row: Row) -> str | Mapping[str, Any]:
    """System of a row: the source's own, else the catalogue's first with its accelerator, else one plain server.

    Skip where the accelerators are more than one server of the row holds.
    """
    chip = accelerator_of(row)
    accelerator: str = chip.name
    ranks = count(row, "n_gpus")
    if rule := first("systems", row):
        return _known_system(rule["system"])
    for name in _systems_with(accelerator):
        if hardware.system(name).accelerators >= ranks:
            return name
    if ranks == 1:
        return accelerator
    if ranks <= (integer(row, "gpus_per_node") or SERVER):
        scale_up = {"topology": "switch", "link": chip.scale_up.link} if chip.scale_up else {"topology": "none"}
        return {"node": {"accelerator": accelerator, "accelerators": ranks, "scale_up": scale_up}, "nodes": 1}
    raise Skip(f"no system of {ranks} x {accelerator} in the catalogue")


@lru_cache(maxsize=64)
def _has_runtime(name: str) -> bool:
    try:
        runtime.load(name)
    except InputError:
        return False
    return True


@lru_cache(maxsize=256)
def _runtime_in(words: str, workload: str) -> str | None:
    """The first runtime of a workload that some of the words name: ``PyTorch FSDP2 (torchtune 0.5)`` is torchtune's."""
    pieces = [piece.split() for piece in re.split(r"[/,;+()]", words)]
    spans = [piece[i:j] for piece in pieces for i in range(len(piece)) for j in range(len(piece), i, -1)]
    for span in sorted(spans, key=len, reverse=True):
        name = "-".join(span)
        if _has_runtime(name) and runtime.load(name, workload=workload).workload == workload:
            return runtime.written(name, workload)
    return None


def runtime_of(row: Row) -> str | Mapping[str, Any]:
    """Runtime that the ``framework`` or ``engine`` cell names, or a change of one: by a rule, else by the names and
    aliases of the catalogue; Skip where neither does."""
    rule = first("runtimes", row)
    words = row.get("framework") or row.get("engine", "")
    if rule is None:
        named = _runtime_in(words, "training" if row.get("framework") else "inference")
        if named is None:
            raise Skip(f"no rule for the software '{words}'")
        return named
    found: str | Mapping[str, Any] = rule["runtime"]
    name = found["base"] if isinstance(found, Mapping) else found
    if not _has_runtime(name):
        raise Skip(f"no runtime '{name}' in the catalogue")
    return found


@lru_cache(maxsize=256)
def _catalogue_name(words: str) -> str | None:
    """The catalogue's name for a model as papers write it: without its owner, and without endings of no weight."""
    name = words.rpartition("/")[2].lower().replace("_", "-").replace(" ", "-").removeprefix("meta-")
    tried: list[str] = []
    while name not in tried:
        tried.append(name)
        for ending in _rules()["drop"]:
            name = name.removesuffix(ending)
    for candidate in (words, *tried):
        try:
            return MODELS.resolve(candidate)
        except InputError:
            continue
    return None


def catalogue_model(row: Row) -> Any:
    """The catalogue model that the ``model`` cell names, or a change of one; Skip where the catalogue has none."""
    rule, words = first("models", row), row.get("model", "")
    change: Any = rule["model"] if rule else words
    name = change["base"] if isinstance(change, Mapping) else change
    found = _catalogue_name(str(name))
    if found is None:
        raise Skip(f"no model '{name}' in the catalogue")
    return {**change, "base": found} if isinstance(change, Mapping) else found


def inline_model(row: Row) -> Mapping[str, Any]:
    """A dense model from a row's shape columns, as a Hugging Face config; Skip where the shape is not stated."""
    if not row.get("hidden") or not row.get("layers") or not row.get("heads") or not row.get("vocab"):
        raise Skip("the shape of the model is not stated")
    hidden, heads = count(row, "hidden"), count(row, "heads")
    ffn, length = integer(row, "ffn_hidden") or 4 * hidden, count(row, "seq_len")
    if row.get("gated_mlp") != "1":
        shape = {"n_embd": hidden, "n_layer": count(row, "layers"), "n_head": heads, "n_inner": ffn}
        return {"model_type": "gpt2", **shape, "n_positions": length, "vocab_size": count(row, "vocab")}
    size = integer(row, "head_dim")
    apart = {"head_dim": size} if size else {}
    return {
        "model_type": "llama",
        **apart,
        "hidden_size": hidden,
        "num_hidden_layers": count(row, "layers"),
        "num_attention_heads": heads,
        "num_key_value_heads": integer(row, "kv_heads") or heads,
        "intermediate_size": ffn,
        "vocab_size": count(row, "vocab"),
        "max_position_embeddings": length,
        "tie_word_embeddings": row.get("tie_word_embeddings") == "True",
    }


def precision_of(row: Row) -> str | Mapping[str, str] | None:
    """Precision of a row: a preset, or one with the stated KV cache; None takes the runtime's own.

    Skip where no rule knows the words.
    """
    rule = first("precisions", row)
    if rule is None:
        raise Skip(f"no precision '{row.get('precision') or row.get('dtype_weights', '')}'")
    cache = row.get("dtype_kv")
    if rule["precision"] == "runtime":
        return {"kv_cache": dtype(cache).name} if cache else None
    preset = str(rule["precision"])
    if not cache or PRESETS[preset]["kv_cache"] == dtype(cache).name:
        return preset
    return {"base": preset, "kv_cache": dtype(cache).name}
