"""Which family reads a Hugging Face ``config.json``, or the same fields in YAML."""

from collections.abc import Callable

from rapid_llm.documents import Document
from rapid_llm.model.architecture import Model
from rapid_llm.model.defaults import DEFAULTS
from rapid_llm.model.families import classic, deepseek, llama
from rapid_llm.model.fields import Fields

Reader = Callable[[Fields], Model]

READERS: dict[str, Reader] = {
    "gpt2": classic.gpt2,
    "llama": llama.llama,
    "mistral": llama.mistral,
    "mixtral": llama.mixtral,
    "deepseek_v2": deepseek.deepseek,
    "deepseek_v3": deepseek.deepseek,
}
"""``model_type`` to its reader."""

ARCHITECTURES: dict[str, str] = {
    "GPT2LMHeadModel": "gpt2",
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "MixtralForCausalLM": "mixtral",
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "DeepseekV3ForCausalLM": "deepseek_v3",
}
"""Class name in ``architectures`` to ``model_type``."""

_NEEDED = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
    "rms_norm_eps",
)
"""Fields of a Llama-like decoder; with all of them an unknown architecture is read as one."""

_NOT_LLAMA = (
    "expert",
    "moe",
    "lora",
    "mamba",
    "ssm",
    "linear_",
    "conv_",
    "vision",
    "audio",
    "cross",
    "alibi",
    "encoder",
)
"""Words in the name of a field that tell of another kind of model."""


def model_type(fields: Fields) -> str | None:
    """The family of a configuration: its ``model_type`` if known, else that of its first known architecture."""
    given = fields.data.get("model_type")
    if given in READERS:
        return str(given)
    return next((ARCHITECTURES[a] for a in _architectures(fields) if a in ARCHITECTURES), None)


def _architectures(fields: Fields) -> list[str]:
    given = fields.data.get("architectures") or fields.data.get("architecture") or []
    return [given] if isinstance(given, str) else [str(a) for a in given]


def read(fields: Fields) -> Model:
    """Read one configuration; InputError if its architecture is unknown or a field is missing or wrong."""
    family = model_type(fields)
    if family is None:
        return _unknown(fields)
    return READERS[family](fields.with_defaults(DEFAULTS.get(family, {})))


def _unknown(fields: Fields) -> Model:
    """Read an unknown architecture as a Llama where it says all that a Llama says and nothing else."""
    name = (_architectures(fields) or [str(fields.data.get("model_type") or "(none)")])[0]
    missing = [needed for needed in _NEEDED if not fields.has(needed)]
    if missing:
        what = f"{missing[0]} is missing"
        raise fields.error(f"architecture '{name}' is unknown and {what}. Try a model YAML with both.", "architectures")
    foreign = next((f for f, v in fields.data.items() if v and any(w in f for w in _NOT_LLAMA)), None)
    if foreign is not None:
        raise fields.error(
            f"architecture '{name}' is unknown and {foreign} says that it is not a plain decoder. "
            "Try a model YAML with a known architecture.",
            "architectures",
        )
    return llama.llama(fields)


def read_document(document: Document) -> Model:
    """The model of a ``config.json`` or of a catalogue file."""
    return read(Fields(document.data, document))
