"""The naive model of inference: the datasheet's peak rate or memory bandwidth, whichever is slower."""

from collections.abc import Mapping
from functools import lru_cache

from rapid_llm import hardware, model
from rapid_llm.dtypes import dtype, precision
from rapid_llm.model.architecture import Attention, LatentAttention


@lru_cache(maxsize=256)
def _sizes(name: str) -> tuple[float, float, float, float]:
    """Parameters, active parameters, KV elements a token, and attention FLOPs a pair of query and key."""
    loaded = model.load(name)
    kv = pairs = 0.0
    for index in loaded.pattern:
        mixer = loaded.blocks[index].mixer
        if isinstance(mixer, Attention):
            kv += 2.0 * mixer.num_key_value_heads * mixer.head_dim
            pairs += 4.0 * mixer.num_attention_heads * mixer.head_dim
        elif isinstance(mixer, LatentAttention):
            kv += mixer.kv_lora_rank + mixer.qk_rope_head_dim
            pairs += 4.0 * mixer.num_attention_heads * mixer.v_head_dim
    return float(model.parameters(loaded)), float(model.active_parameters(loaded)), kv, pairs


def inference(
    name: str,
    accelerator: hardware.Accelerator,
    ranks: int,
    formats: str | Mapping[str, str],
    workload: Mapping[str, int],
) -> Mapping[str, float]:
    """Seconds and tokens per second of a static batch on ``ranks`` accelerators that share all work evenly.

    A pass takes max(FLOPs / (n peak), bytes / (n bandwidth)); decode is priced at the mean context. Keys as the
    readings of a report: ttft, tpot, e2e (s), output_rate, total_rate (tokens/s).
    """
    total, active, kv, pairs = _sizes(name)
    preset, cache = (formats, None) if isinstance(formats, str) else (formats["base"], formats["kv_cache"])
    chosen = precision(preset)
    rate = accelerator.peak.get(dtype(chosen.compute).rate) or accelerator.peak["fp16"]
    weights = total * dtype(chosen.weights).bytes
    batch, prompt, output = workload["batch_size"], workload["prompt_tokens"], workload["output_tokens"]

    def seconds(flops: float, moved: float) -> float:
        return max(flops / (ranks * rate), moved / (ranks * accelerator.memory.hbm.bandwidth))

    cached = batch * kv * dtype(cache or chosen.kv_cache).bytes
    context = prompt + output / 2.0
    ttft = seconds(batch * prompt * (2.0 * active + pairs * prompt / 2.0), weights + cached * prompt)
    tpot = seconds(batch * (2.0 * active + pairs * context), weights + cached * context)
    e2e = ttft + (output - 1) * tpot
    return {
        "ttft": ttft,
        "tpot": tpot,
        "e2e": e2e,
        "output_rate": batch * output / e2e,
        "total_rate": batch * (prompt + output) / e2e,
    }
