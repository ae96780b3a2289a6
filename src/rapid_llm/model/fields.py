"""The fields of one configuration, as the configuration class of Hugging Face transformers would hold them.

A field has several spellings (``ALIASES``) and, where the file leaves it out, the default of its class. The sizes that
make a model what it is (``CORE``) must stand in the file itself; only the nested ``text_config`` of a multimodal model
may leave them to the class, because published files do.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from rapid_llm.documents import Document
from rapid_llm.errors import InputError
from rapid_llm.units import MAX_COUNT

ALIASES: dict[str, tuple[str, ...]] = {
    "hidden_size": ("n_embd", "d_model", "n_embed", "dim"),
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads"),
    "num_key_value_heads": ("num_kv_heads", "n_head_kv", "num_attention_groups", "num_query_groups"),
    "max_position_embeddings": ("n_positions", "max_seq_len", "max_sequence_length", "model_max_length", "seq_length"),
    "intermediate_size": ("ffn_dim", "n_inner", "ffn_hidden_size"),
    "num_experts": ("num_local_experts", "n_routed_experts", "moe_num_experts"),
    "num_experts_per_tok": ("num_experts_per_token", "moe_topk", "moe_k", "moe_top_k", "top_k_experts"),
    "n_shared_experts": ("num_shared_experts", "num_shared_expert", "moe_num_shared_experts"),
    "moe_intermediate_size": ("expert_ffn_hidden_size",),
    "layers_block_type": ("layer_types",),
    "dtype": ("torch_dtype",),
}
"""Canonical name to the spellings of other configuration classes."""

CORE = frozenset({"hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "intermediate_size"})

MAX_LAYERS = 10_000
"""Far above any model; what is larger is a slip that would fill the memory."""

_SPELT_ALIKE = 0.8
"""Of hidden_sise and hidden_size; hidden_act, a field of its own, is further away."""
_MISSING = object()


@dataclass(frozen=True)
class Fields:
    """One mapping of a document. ``nested`` allows class defaults for CORE fields; ``prefix`` is its dotted path."""

    data: Mapping[str, Any]
    document: Document
    prefix: str = ""
    nested: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def with_defaults(self, defaults: Mapping[str, Any]) -> "Fields":
        """The same fields with the defaults of a configuration class."""
        return Fields(self.data, self.document, self.prefix, self.nested, defaults)

    def path(self, name: str) -> str:
        """Dotted path of a field in its document."""
        return f"{self.prefix}.{name}" if self.prefix else name

    def error(self, message: str, name: str = "") -> InputError:
        """An InputError at the line of a field."""
        return self.document.error(message, self.path(name) if name else self.prefix)

    def _given(self, name: str) -> Any:
        for spelling in (name, *ALIASES.get(name, ())):
            if spelling in self.data:
                return self.data[spelling]
        return _MISSING

    def has(self, name: str) -> bool:
        """Whether the file itself gives the field (under any spelling) and it is not null."""
        given = self._given(name)
        return given is not _MISSING and given is not None

    def get(self, name: str, default: Any = _MISSING) -> Any:
        """The value as written, else the class default, else ``default``; InputError when there is none.

        An explicit null is a value, as in transformers.
        """
        given = self._given(name)
        if given is not _MISSING:
            return given
        if name in self.defaults and (self.nested or name not in CORE):
            return self.defaults[name]
        if default is not _MISSING:
            return default
        raise self.missing(name)

    def missing(self, name: str) -> InputError:
        """The error for a field that the file must give."""
        close = get_close_matches(name, map(str, self.data), n=1, cutoff=_SPELT_ALIKE)
        meant = f" Is '{close[0]}' meant to be it?" if close else ""
        return self.error(f"{self.path(name)} is missing; this architecture needs it.{meant}", name)

    def integer(self, name: str, default: Any = _MISSING) -> int | None:
        """A whole number of at least 0, or null."""
        value = self.get(name, default)
        return None if value is None else self._whole(name, value)

    def _whole(self, name: str, value: Any) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.error(f"{self.path(name)} must be a whole number of at least 0 (got {value!r}).", name)
        if value > MAX_COUNT:
            raise self.error(f"{self.path(name)} must be at most {MAX_COUNT:,} (got {value:.3g}).", name)
        return value

    def whole_numbers(self, name: str, default: list[int] | None = None) -> list[int] | None:
        """A list of whole numbers of at least 0, or null."""
        found = self.items(name, default)
        return None if found is None else [self._whole(name, value) for value in found]

    def number(self, name: str, default: Any = _MISSING) -> float:
        """A number above 0."""
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= MAX_COUNT:
            raise self.error(f"{self.path(name)} must be a number above 0 (got {value!r}).", name)
        return float(value)

    def size(self, name: str, default: Any = _MISSING) -> int:
        """A whole number of at least 1; null counts as missing."""
        value = self.integer(name, default)
        if value is None and default is not _MISSING and default is not None:
            value = default
        if value is None:
            raise self.missing(name)
        if value < 1:
            raise self.error(f"{self.path(name)} must be a whole number of at least 1 (got {value}).", name)
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false; null is false."""
        value = self.get(name, default)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise self.error(f"{self.path(name)} must be true or false (got {value!r}).", name)
        return value

    def items(self, name: str, default: Any = None) -> list[Any] | None:
        """A list, or null."""
        value = self.get(name, default)
        if value is not None and not isinstance(value, list):
            raise self.error(f"{self.path(name)} must be a list (got {value!r}).", name)
        return value

    def per_layer(self, name: str, layers: int) -> list[Any] | None:
        """A list with an item for each layer (items for prediction heads behind them are cut off), or null."""
        found = self.items(name)
        if found is None:
            return None
        if len(found) < layers:
            raise self.error(
                f"{self.path(name)} has {len(found)} items for {layers} layers; it needs one for each.", name
            )
        return found[:layers]

    def section(self, name: str) -> "Fields | None":
        """A nested mapping, or None when absent or null."""
        value = self.get(name, None)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.error(f"{self.path(name)} must be a mapping of fields (got {value!r}).", name)
        return Fields(value, self.document, self.path(name), nested=True)

    @property
    def layers(self) -> int:
        """``num_hidden_layers``."""
        layers = self.size("num_hidden_layers")
        if layers > MAX_LAYERS:
            raise self.error(
                f"{self.path('num_hidden_layers')} must be at most {MAX_LAYERS} (got {layers}).", "num_hidden_layers"
            )
        return layers
