"""Parameters of one rank by unit: which axis shards each weight."""

from __future__ import annotations

from functools import lru_cache

from rapid_llm.lowering.attention import local_heads
from rapid_llm.lowering.operators import Column
from rapid_llm.lowering.outer import padded_vocabulary
from rapid_llm.model import Model
from rapid_llm.model.architecture import Attention, Block, MoE
from rapid_llm.model.weights import Weight, block_weights, outer_weights
from rapid_llm.operators.elementwise import filled, where
from rapid_llm.parallelism import Plans
from rapid_llm.workload import Routing

# role prefix -> share of a weight that one rank holds; the longest matching prefix wins
TENSOR = "tensor"
_QUERY = "query"
_KEY_VALUE = "key-value"
_EXPERT = "expert"
_REPLICATED = "replicated"
_RULES = {
    "attention.q": _QUERY,
    "attention.gate": _QUERY,
    "attention.k": _KEY_VALUE,
    "attention.v": _KEY_VALUE,
    "attention.o": TENSOR,
    "attention.sinks": _QUERY,
    "attention.q_norm": _REPLICATED,
    "attention.k_norm": _REPLICATED,
    "attention.o.bias": _REPLICATED,
    "cross.q": TENSOR,
    "cross.k": _KEY_VALUE,
    "cross.v": _KEY_VALUE,
    "cross.o": TENSOR,
    "cross.q_norm": _REPLICATED,
    "cross.k_norm": _REPLICATED,
    "cross.o.bias": _REPLICATED,
    "mla.q": _QUERY,
    "mla.q_down": _REPLICATED,
    "mla.q_norm": _REPLICATED,
    "mla.q_up": _QUERY,
    "mla.kv_up": _QUERY,
    "mla.gate": TENSOR,
    "mla.o": TENSOR,
    "mla.o.bias": _REPLICATED,
    "mla.o_down": TENSOR,
    "mla.sinks": _QUERY,
    "ssm": TENSOR,
    "mlp": TENSOR,
    "mlp.down.bias": _REPLICATED,
    "moe.expert": _EXPERT,
    "moe.shared": TENSOR,
    "moe.shared_gate": _REPLICATED,
}


_ENCODER = "encoder."
_BEHIND = ("final_norm", "head.", "pooler", "classifier")
"""How roles begin that stand behind the layers."""


@lru_cache(maxsize=4096)
def rule(role: str) -> str:
    """Which axis shards the weight of a role."""
    parts = role.split(".")
    for length in range(len(parts), 0, -1):
        found = _RULES.get(".".join(parts[:length]))
        if found:
            return found
    return _REPLICATED


def _sizes(weights: tuple[Weight, ...]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for weight in weights:
        axis = rule(weight.role)
        sums[axis] = sums.get(axis, 0.0) + weight.size
    return sums


@lru_cache(maxsize=512)
def _block_sizes(layer: Block, hidden: int) -> dict[str, float]:
    return _sizes(block_weights(layer, hidden))


def block_parameters(layer: Block, hidden: int, plans: Plans, routing: Routing) -> tuple[Column, Column]:
    """Dense and expert parameters of one layer on one rank, with the copies that ``routing`` puts there ([P], [P])."""
    sums = _block_sizes(layer, hidden)
    attends = layer.mixer or layer.cross
    kv_heads = attends.num_key_value_heads if isinstance(attends, Attention) else 1
    dense = (
        sums.get(TENSOR, 0.0) / plans.tp
        + sums.get(_QUERY, 0.0) / plans.tpa
        + sums.get(_KEY_VALUE, 0.0) * local_heads(kv_heads, plans.tpa) / kv_heads
        + sums.get(_REPLICATED, 0.0)
    )
    copied = routing.held(layer.ffn.num_experts) / layer.ffn.num_experts if isinstance(layer.ffn, MoE) else 1.0
    return dense, sums.get(_EXPERT, 0.0) * copied / (plans.ep * plans.etp)


def ahead_parameters(model: Model, plans: Plans, vocab_multiple: int) -> Column:
    """Parameters of one rank that a predictor of a further token has beside its layer [P]: two norms, the projection of
    state and embedding, and on a last stage of its own a copy of the embedding (DeepSeek-V3, section 2.2)."""
    hidden = model.hidden_size
    table = padded_vocabulary(model.vocab_size, vocab_multiple, plans.tp) * hidden
    return 2.0 * hidden + 2.0 * hidden * hidden / plans.tp + where(plans.pp > 1, table, 0.0)


def encoder_parameters(model: Model, plans: Plans) -> tuple[Column, Column]:
    """Parameters of one rank that an encoder has beside its layers ([P], and [P] of experts: none). What it embeds with
    is divided by tp."""
    own = {w.role: float(w.size) for w in outer_weights(model) if w.role.startswith(_ENCODER)}
    divided = own.pop("encoder.embedding", 0.0) / plans.tp
    return divided + sum(own.values()), filled(plans.tp, 0.0)


def outer_parameters(model: Model, plans: Plans, vocab_multiple: int) -> tuple[Column, Column]:
    """Parameters of the embedding side (first stage) and of the head side (last stage) on one rank ([P], [P]).

    Tied embeddings live once where first and last stage are the same rank, twice otherwise.
    """
    rows = padded_vocabulary(model.vocab_size, vocab_multiple, plans.tp)
    table = rows * (model.embedding_size or model.hidden_size)
    outer: dict[str, float] = {}
    for w in outer_weights(model):
        if w.role not in ("embedding", "head") and not w.role.startswith(_ENCODER):
            outer[w.role] = outer.get(w.role, 0.0) + float(w.size)
    last: Column | float = outer.pop("head.bias", 0.0) / plans.tp
    last = last + sum(outer.pop(role) for role in [*outer] if role.startswith(_BEHIND))
    if model.patch_values:
        return filled(table, sum(outer.values())), last + table
    own_head = where(plans.pp > 1, 1.0, 0.0) if model.tie_word_embeddings else 1.0
    if model.head == "none":
        own_head = 0.0
    return table + sum(outer.values()), last + own_head * table
