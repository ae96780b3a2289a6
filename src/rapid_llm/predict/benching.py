"""How a benchmark sizes an engine that nobody sizes: trtllm-bench picks the batch and the tokens of a step from what it
believes that the cache holds, before the engine has measured it (TensorRT-LLM, bench/build/tuning.py)."""

from __future__ import annotations

from functools import lru_cache
from math import ceil

from rapid_llm.dtypes import Precision
from rapid_llm.hardware import Accelerator
from rapid_llm.model import Attention, LatentAttention, Model, parameters
from rapid_llm.model.weights import outer_weights
from rapid_llm.nouns import replaced
from rapid_llm.parallelism import Plans
from rapid_llm.runtime import Runtime
from rapid_llm.workload import Inference

WIDTH = {"fp8": 1.0, "fp8_block": 1.0, "nvfp4": 0.5}
"""Bytes that it counts for a number of a checkpoint; others are 16 bit wide."""
STORED = {"nvfp4": 0.5 + 1.0 / 16.0}
"""Numbers that a file of a checkpoint shows for a weight: two of 4 bits are one byte, and blocks of 16 have a scale."""
MOST, LEAST_TOKENS, MOST_TOKENS = 4096.0, 2048, 32768.0


def sized(  # noqa: PLR0917
    runtime: Runtime, model: Model, precision: Precision, plans: Plans, work: Inference, accelerator: Accelerator
) -> Runtime:
    """The runtime with the batch and the token budget that its benchmark picks for a finite job that writes; else as
    it is.

    It knows checkpoints of one format alone: of experts in a format of their own it keeps the engine's defaults, as it
    does where states of recurrent layers stand beside the cache.
    """
    engine = runtime.serving
    if engine is None or engine.sized_by != "trtllm-bench" or work.batch_size != "auto":
        return runtime
    if not work.total_requests or not work.output_tokens:
        return runtime
    mixers = [block.mixer for block in model.blocks]
    if precision.experts is not None or not all(isinstance(m, Attention | LatentAttention) for m in mixers):
        return runtime
    ranks = max(float(plans.tp[0] * plans.cp[0]), float(plans.ep[0] * plans.etp[0]))
    lengths = work.prompt_tokens, work.output_tokens
    return _sized(runtime, model, precision, (ranks, float(plans.pp[0])), lengths, accelerator)


@lru_cache(maxsize=256)
def _sized(  # noqa: PLR0917
    runtime: Runtime,
    model: Model,
    precision: Precision,
    ranks: tuple[float, float],
    lengths: tuple[int, int],
    accelerator: Accelerator,
) -> Runtime:
    engine = runtime.serving
    assert engine is not None
    shared, stages = ranks
    outer = sum(weight.size for weight in outer_weights(model))
    stored = STORED.get(precision.weights, 1.0) * (parameters(model) - outer) + outer
    held = accelerator.memory.reported_capacity * shared * stages - WIDTH.get(precision.weights, 2.0) * stored
    each = _token_bytes(model, precision, shared) * sum(lengths)
    requests = min(max(held, 0.0) * (runtime.allocator.utilisation or 0.9) / each, MOST) / stages
    sequences, tokens = _rounded(requests), _tokens(min(requests * (1.0 + lengths[0] / lengths[1]), MOST_TOKENS))
    return replaced(runtime, serving=replaced(engine, max_sequences=sequences, max_batched_tokens=tokens))


def _token_bytes(model: Model, precision: Precision, shared: float) -> float:
    """Bytes of a token's keys and values on all ranks that share a model, by its heads: a latent counts as if it had a
    key and a value for each."""
    kv = WIDTH.get(precision.kv_cache, 2.0)
    total = 0.0
    for kind in model.pattern:
        mixer = model.blocks[kind].mixer
        if isinstance(mixer, LatentAttention):
            heads, width = mixer.num_attention_heads, model.hidden_size // mixer.num_attention_heads
        else:
            assert isinstance(mixer, Attention)
            heads, width = mixer.num_key_value_heads, mixer.head_dim
        total += 2.0 * max(shared, heads) * width * kv
    return total


def _rounded(requests: float) -> int:
    """The batch: up to the next of its steps, no less than 64."""
    step = 32 if requests < 256 else 128 if requests < 1024 else 256
    return max(64, step * ceil(requests / step))


def _tokens(tokens: float) -> int:
    """The budget of a step that keeps so many requests of a job in even flow: up, and no less than 2,048."""
    step = 256 if tokens < 4096 else 512 if tokens < 8192 else 1024
    return max(LEAST_TOKENS, step * ceil(tokens / step))
