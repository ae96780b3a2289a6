"""JSON Schema of what a user writes: editors complete and check scenario files with it."""

import warnings
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import PydanticJsonSchemaWarning

from rapid_llm import hardware, model, runtime
from rapid_llm.dtypes import PRESETS, Precision
from rapid_llm.hardware.system import SystemDescription
from rapid_llm.parallelism import RECOMPUTE_MODES
from rapid_llm.runtime import Runtime
from rapid_llm.scenario.inputs import Input


def schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a scenario file.

    A noun is a name of the catalogue, a path, or a mapping of any of its fields with ``base``.
    """
    with warnings.catch_warnings(category=PydanticJsonSchemaWarning, action="ignore"):  # defaults that are nouns
        return _schema()


def _schema() -> dict[str, Any]:
    whole: dict[str, Any] = TypeAdapter(Input).json_schema()
    definitions = whole.setdefault("$defs", {})
    nouns = {
        "system": (SystemDescription, [*hardware.system_names(), *hardware.accelerator_names()]),
        "runtime": (Runtime, runtime.names()),
        "precision": (Precision, list(PRESETS)),
    }
    for name, (noun, known) in nouns.items():
        found = TypeAdapter(noun).json_schema(ref_template=f"#/$defs/{name}.{{model}}")
        definitions.update({f"{name}.{key}": part for key, part in found.pop("$defs", {}).items()})
        definitions[name] = _partial(found)
        optional = name not in whole["required"]
        whole["properties"][name] = _noun(name, known, {"$ref": f"#/$defs/{name}"}, optional=optional)
    anything = {"type": "object", "description": "Fields of a Hugging Face config.json, or of a catalogue file."}
    whole["properties"]["model"] = _noun("model", model.names(), anything)
    chip = {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/accelerator"}]}
    definitions["accelerator"] = _partial(definitions.pop("system.Accelerator"))
    definitions["system.Node"] = _partial(definitions["system.Node"])
    for place in ("system", "system.Node"):
        definitions[place]["properties"]["accelerator"] = chip
    recompute = definitions["Training"]["properties"]["recompute"]
    recompute["anyOf"] = [{"enum": list(RECOMPUTE_MODES)}, *recompute["anyOf"]]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **whole, "title": "RAPID-LLM scenario"}


def _partial(noun: dict[str, Any]) -> dict[str, Any]:
    """A noun of which any field may be left to its ``base``."""
    properties = {"base": {"type": "string", "description": "The name or file to inherit from."}, **noun["properties"]}
    return {**{key: value for key, value in noun.items() if key != "required"}, "properties": properties}


def _noun(what: str, known: list[str], fields: dict[str, Any], *, optional: bool = False) -> dict[str, Any]:
    named = {"type": "string", "description": f"A catalogue name or a path. See: rapid-llm list {what}s"}
    options = {"anyOf": [{"enum": known}, named, fields]}
    return {**options, "default": None} if optional else options
