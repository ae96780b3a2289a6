"""Plain words for the names of kernels and messages, as the terminal answer and ``explain`` print them.

Results keep the short names (``up``, ``mlp n2 gather``): they are stable keys.
"""

from __future__ import annotations

from rapid_llm import charts
from rapid_llm.cli import text
from rapid_llm.predict.report import Cost

_KERNELS = {
    "up": "MLP up projection",
    "down": "MLP down projection",
    "activation": "MLP activation",
    "activation+mul": "MLP activation and gate",
    "mul": "MLP gate",
    "qkv": "attention QKV projection",
    "out": "attention output projection",
    "attention": "attention core",
    "cross_q": "cross attention query projection",
    "cross_kv": "cross attention KV projection",
    "cross_attention": "cross attention core",
    "cross_scores": "cross attention scores",
    "cross_softmax": "cross attention softmax",
    "cross_context": "cross attention values",
    "cross_out": "cross attention output projection",
    "sound": "convolution of sound",
    "steps": "convolution in steps of two",
    "head_dense": "dense layer before the vocabulary",
    "pooler": "pooler",
    "classifier": "classifier",
    "scores": "attention scores",
    "context": "attention values",
    "softmax": "attention softmax",
    "attention_dropout": "attention dropout",
    "rotary": "rotary positions",
    "position": "position embedding",
    "q": "query projection",
    "q_down": "query down projection",
    "q_up": "query up projection",
    "kv_down": "KV down projection",
    "kv_up": "KV up projection",
    "absorb_q": "KV up projection, absorbed by queries",
    "absorb_v": "KV up projection, absorbed by values",
    "o": "output projection",
    "o_down": "output down projection",
    "qk_norm": "query and key norm",
    "qk_squares": "sums of query and key squares",
    "q_norm": "query norm",
    "kv_norm": "KV norm",
    "compress_kv": "KV compression",
    "compress_gate": "KV compression gate",
    "index_q": "indexer query projection",
    "index_k": "indexer key projection",
    "index_weights": "indexer weights",
    "index_scores": "indexer scores",
    "index_topk": "indexer top-k",
    "index_compress_kv": "indexer KV compression",
    "index_compress_gate": "indexer compression gate",
    "router": "MoE router",
    "router_cast": "MoE router input",
    "topk": "MoE top-k",
    "balance_loss": "MoE balance loss",
    "permute": "MoE permute",
    "unpermute": "MoE unpermute",
    "experts": "MoE experts",
    "expert_up": "expert up projection",
    "expert_down": "expert down projection",
    "expert_activation": "expert activation",
    "shared_up": "shared expert up projection",
    "shared_down": "shared expert down projection",
    "shared_activation": "shared expert activation",
    "shared_mul": "shared expert gate",
    "join_shared": "sum of shared and routed experts",
    "latent_up": "latent up projection",
    "latent_down": "latent down projection",
    "recurrence": "state recurrence",
    "convolution": "state convolution",
    "in": "state input projection",
    "x": "state input projection",
    "dt": "state time step",
    "gated_norm": "gated norm",
    "lm_head": "LM head",
    "logits_cast": "logits cast",
    "logits_cast+loss": "loss",
    "gradient_norm": "gradient norm",
}
_DIRECTIONS = {
    "dgrad": "input gradient",
    "wgrad": "weight gradient",
    "grad": "gradient",
    "again": "again for the backward pass",
}
_TENSORS = {"n1": "input", "n2": "input", "nf": "input", "o": "output", "d": "output", "mlp": "MLP", "moe": "MoE"}


_ADAPTERS = {"_lora_in": "LoRA A", "_lora_out": "LoRA B", "_lora_add": "LoRA sum"}
"""What stands beside a frozen product X W: (X A) B, and its sum with it."""


def kernel(name: str) -> str:
    """A kernel or message in words: ``mlp n2 gather grad`` is ``MLP input gather, gradient``."""
    if name in _KERNELS:
        return _KERNELS[name]
    for end, word in _ADAPTERS.items():
        if name.endswith(end):
            return f"{kernel(name.removesuffix(end))}, {word}"
    *parts, last = name.split(" ")
    if last in _DIRECTIONS and parts:
        return f"{kernel(' '.join(parts))}, {_DIRECTIONS[last]}"
    words = [_TENSORS.get(part, part) for part in name.split(" ")] if parts else [name]
    return " ".join(words).replace("_", " ").replace("+", " and ")


KERNELS = ("compute", "memory-bound kernels", "launch-bound kernels")
"""Groups of a breakdown that say what bounds a kernel, and nothing of what it is."""


def cost(path: tuple[str, ...]) -> str:
    """A leaf of the breakdown: ``decode / compute / up`` is ``decode / MLP up projection``; its bound stands beside."""
    *above, group, leaf = ("", *path)
    if group == "exposed communication":
        return " / ".join([*filter(None, above), f"{leaf} communication"])
    if group == "host":
        return " / ".join([*filter(None, above), f"host {leaf}"])
    shown = [*above] if group in KERNELS else [*above, group]
    return " / ".join([*filter(None, shown), kernel(leaf)])


def branch(tree: Cost) -> charts.Branch:
    """A breakdown to draw: children sum to their parent, bounds and what is hidden are remarks."""
    hidden = f"{text.seconds(tree.hidden_seconds)} more hidden" if tree.hidden_seconds else ""
    bound = f"bound by {tree.bound}" if tree.bound else ""
    remark = ", ".join(filter(None, (bound, hidden)))
    return charts.Branch(kernel(tree.name), max(tree.seconds, 0.0), tuple(map(branch, tree.children)), remark)
