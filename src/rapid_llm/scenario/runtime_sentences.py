"""What a failing check says of what a runtime, an accelerator or a host cannot do: one sentence
with what would work.
"""

from collections.abc import Sequence

from rapid_llm.scenario.sentences import Row, divisors, listed


def draft(row: Row) -> str:
    """A draft model is given without speculation that uses it, or the other way round."""
    if row["has_draft"]:
        return (
            f"draft names {row['draft']}, and workload.speculation does not ask for a model that drafts. Try "
            "speculation: {draft: model, acceptance: [0.8, 0.7, 0.6]}."
        )
    return "workload.speculation.draft: model needs a draft. Try draft: llama-3.2-1b, or speculation.draft: ngram."


def draft_tp(row: Row) -> str:
    """The draft model cannot be cut like that, or over more ranks than there are."""
    fits = [d for d in divisors(row["draft_heads"]) if d <= row["tp"]]
    return (
        f"draft.tp {row['draft_tp']} must divide the {row['draft_heads']} heads of {row['draft']} and be at most tp "
        f"{row['tp']}. Try {listed(fits)}."
    )


def zero_stage(row: Row) -> str:
    """A stage of ZeRO that the runtime does not have."""
    stage, stages = row["zero_stage"], row["stages"]
    below = max(known for known in stages if known < stage or known == min(stages))
    if stage > max(stages):
        return (
            f"parallelism.zero_stage {stage} is more than {row['runtime']} shards. "
            f"Try zero_stage {below}, or runtime: fsdp."
        )
    return (
        f"parallelism.zero_stage {stage} is none that {row['runtime']} has. "
        f"Try {listed([known for known in stages if known > stage])}, or runtime: megatron-core."
    )


def other_schedule(row: Row) -> str:
    """A schedule that the runtime does not run."""
    instead = "vpp 1" if row["vpp"] > 1 else f"schedule: {row['schedules'][0]}"
    return (
        f"parallelism.schedule {row['schedule']} is none that {row['runtime']} runs. Try {instead}, or runtime: "
        "megatron-core."
    )


def exchange(row: Row) -> str:
    """The ranks of a sequence exchange it in a way that the runtime does not have."""
    return (
        f"parallelism.exchange {row['way']} (ulysses {row['ulysses']} of cp {row['cp']}) is none that {row['runtime']} "
        f"has. Try exchange: {_ways(row['ways'])}, or runtime: megatron-core."
    )


def model_exchange(row: Row) -> str:
    """The runtime has this exchange, but not for the model's kind of attention."""
    known = row["window_ways" if row["has_windows"] else "latent_ways"]
    what = "sliding windows" if row["has_windows"] else "latent attention"
    return (
        f"parallelism.exchange {row['way']} of cp {row['cp']} does not go with {what} in {row['runtime']}. "
        f"Try exchange: {_ways([way for way in known if way in row['ways']])}, or cp 1."
    )


def _ways(ways: Sequence[str]) -> str:
    return " or ".join(ways)


def sharded_pipeline(row: Row) -> str:
    """The runtime shards gradients or weights, but not together with pipeline stages."""
    most = row["pipeline_zero_stage"]
    return (
        f"parallelism.zero_stage {row['zero_stage']} does not go with pp {row['pp']} in {row['runtime']}, which shards "
        f"no more than stage {most} does beside a pipeline. Try zero_stage {most}, or pp 1."
    )


def runtime(row: Row) -> str:
    """The runtime runs the other kind of workload."""
    runs, asked = ("training", "inference") if row["runtime_training"] else ("inference", "training")
    usual = row["usual_runtime"] or ("megatron-core" if asked == "training" else "vllm")
    return f"runtime {row['runtime']} runs {runs}, and workload.kind is {asked}. Try runtime: {usual}."


def platform(row: Row) -> str:
    """The runtime does not run on accelerators of this vendor."""
    *others, last = row["platforms"]
    places = f"{', '.join(others)} and {last}" if others else last
    instead = f"Try runtime: {row['usual_runtime']}." if row["usual_runtime"] else "Try system: dgx-h100."
    return (
        f"runtime {row['runtime']} runs on accelerators of {places}, and {row['accelerator']} is of {row['vendor']}. "
        f"{instead}"
    )


KINDS = {
    "decoder": "a decoder",
    "encoder": "an encoder",
    "encoder-decoder": "an encoder with a decoder",
    "relative-encoder-decoder": "an encoder with a decoder and learned biases of distances",
    "speech": "an encoder of sound with a decoder",
    "image-cross-attention": "a decoder with cross attention to images",
    "image-encoder": "an encoder of images",
}
"""Kinds of models in words."""


def model(row: Row) -> str:
    """The runtime has no implementation of this kind of model."""
    instead = row["usual_runtime"]
    tried = f"Try runtime: {instead}." if instead else "Try runtime: hf-transformers, or fsdp to train it."
    return f"runtime {row['runtime']} does not run {KINDS[row['model_kind']]}, which {row['model']} is. {tried}"


def both_ways(row: Row) -> str:
    """A field is given that works with decoders alone, or with a single sequence."""
    field = row["beyond_field"]
    kind = KINDS[row["model_kind"]]
    instead = f"{field} 1" if field in ("parallelism.cp", "parallelism.pp", "workload.beams") else "to leave it out"
    return f"{field} is not modelled for {kind}, which {row['model']} is. Try {instead}."


def words(row: Row) -> str:
    """An encoder is asked for output, or the decoder of an encoder-decoder for none."""
    if row["writes"]:
        return (
            f"workload.output_tokens must be at least 1 (got {row['output_tokens']}): the decoder of {row['model']} "
            "writes. Try output_tokens 64."
        )
    return (
        f"workload.output_tokens must be 0 (got {row['output_tokens']}): {row['model']} is "
        f"{KINDS[row['model_kind']]}, done with one pass over its prompt. Try to leave it out."
    )


def output(row: Row) -> str:
    """Beams or speculation are asked for where no token is written."""
    asked = f"beams {row['beams']}" if row["beams"] > 1 else "speculation"
    return (
        f"workload.output_tokens 0 leaves nothing to write, and {asked} is asked for. Try output_tokens 64, or to "
        f"leave {asked} out."
    )


def sound(row: Row) -> str:
    """A window of sound has another length than the model's."""
    field = "workload.sequence_length" if row["training"] else "workload.prompt_tokens"
    return (
        f"{field} must be {row['window']}, the frames of a window of 30 s that {row['model']} pads sound to (got "
        f"{row['read_tokens']}). Try {row['window']}, and a request for each window."
    )


def decoder_field(row: Row) -> str:
    """The length of a decoder is given for a model without an encoder beside it."""
    field = "decoder_sequence_length" if row["training"] else "decoder_prompt_tokens"
    return f"workload.{field} is of an encoder with a decoder, and {row['model']} is none. Try to leave it out."


def predictions(row: Row) -> str:
    """Masked tokens are given for a model that predicts none, or more of them than there are tokens."""
    if not row["masked"]:
        return f"workload.predictions are of a head for masked words, and {row['model']} has none. Try to leave it out."
    return (
        f"workload.predictions {row['predictions']} is more than sequence_length {row['read_tokens']}. "
        f"Try {max(1, 15 * row['read_tokens'] // 100)}, the usual 15 %."
    )


def rate(row: Row) -> str:
    """The accelerator has no matrix rate for the compute format."""
    return (
        f"precision.{row['multiplied']} {row['format']} needs a matrix rate for {row['rate']}, and "
        f"{row['accelerator']} has {row['rates'] or 'none at all'}. Try precision: {row['sixteen_bit']}."
    )


def offloaded_weights(r: Row) -> str:
    """Offloaded weights need ZeRO-3: they are fetched a shard at a time, where it gathers them for a pass."""
    return (
        f"workload.offload.weights needs parallelism.zero_stage 3 (got {r['zero_stage']}): below it every rank "
        "computes with whole weights that stay on the accelerator. Try zero_stage 3, or offload.optimizer."
    )


def offloaded(r: Row) -> str:
    """The framework does not offload, or does not offload states that it does not shard."""
    if not r["offloads"]:
        return f"workload.offload is nothing that {r['runtime']} does. Try to leave it out, or runtime: deepspeed."
    return (
        f"workload.offload.optimizer needs parallelism.zero_stage {r['offload_zero_stage']} or more in {r['runtime']} "
        f"(got {r['zero_stage']}). Try zero_stage {r['offload_zero_stage']}."
    )


def offloaded_activations(r: Row) -> str:
    """The framework cannot offload the activations of several micro-batches at a time."""
    return (
        f"workload.offload.activations goes with parallelism.pp 1 in {r['runtime']} (got pp {r['pp']}): it keeps track "
        "of one micro-batch. Try pp 1, or recompute: full."
    )


def host_experts(r: Row) -> str:
    """The model has no experts, or the runtime runs none on CPUs."""
    if not r["num_experts"]:
        return f"workload.offload.experts needs experts, and {r['model']} has none. Try offload.weights."
    return (
        f"workload.offload.experts needs a runtime that runs them on the CPUs of the host, and {r['runtime']} does "
        "not. Try runtime: ktransformers, or llama.cpp."
    )
