"""What a failing check of a workload says: one sentence with the arithmetic and the values that would do."""

from rapid_llm.scenario.sentences import Row, beside


def modules(row: Row) -> str:
    """Recomputation names a module that no layer has."""
    return f"workload.recompute.modules: no layer of {row['model']} has {row['lacked_module']}. Try {row['modules']}."


def image(row: Row) -> str:
    """The sequence of an image encoder is not its patches and the class token."""
    tokens, field = row["image_tokens"], "sequence_length" if row["training"] else "prompt_tokens"
    return (
        f"workload.{field} must be {tokens}, the patches of an image of {row['model']} and its class "
        f"(got {row['read_tokens']}). Try {tokens}."
    )


def batch(row: Row) -> str:
    """The global batch does not divide over replicas and micro-batches."""
    micro, dp, batch = row["micro_batch_size"], row["dp"], row["global_batch_size"]
    step = micro * dp
    return (
        f"workload.global_batch_size {batch} must be a multiple of micro_batch_size {micro} x dp {dp} = {step}: "
        f"remainder {batch % step}. Try {beside(batch, step)}."
    )


def rounds(row: Row) -> str:
    """The interleaved schedule runs rounds of pp micro-batches."""
    pp, step = row["pp"], row["micro_batch_size"] * row["dp"]
    count, whole = row["global_batch_size"] // step, step * pp
    return (
        f"schedule interleaved needs a multiple of pp {pp} micro-batches: {count} / {pp} leaves {count % pp}. "
        f"Try global_batch_size {beside(row['global_batch_size'], whole)}, or vpp 1."
    )


def fewest(row: Row) -> str:
    """There are too few micro-batches for the schedule, or an odd number where half of them go each way."""
    batch, step, name = row["global_batch_size"], row["micro_batch_size"] * row["dp"], row["schedule"]
    count, need = batch // step, row["fewest"]
    if count >= need:
        return (
            f"schedule {name} needs an even number of micro-batches, half of them for each way (got {count}). "
            f"Try global_batch_size {beside(batch, 2 * step)}."
        )
    return (
        f"schedule {name} needs {need} micro-batches for pp {row['pp']}, else its stages wait (got {count}). "
        f"Try global_batch_size {need * step}, or schedule: 1f1b."
    )


def _cut(row: Row) -> tuple[int, str]:
    """The number that a sequence length must be a multiple of, and its factors in words."""
    parts = [f"2 x cp {row['cp']}"] if row["cp"] > 1 else []
    whole = 2 * row["cp"] if row["cp"] > 1 else 1
    if row["sp"] and row["tp"] > 1:
        parts, whole = [*parts, f"tp {row['tp']}"], whole * row["tp"]
    return whole, " x ".join(parts)


def sequence(row: Row) -> str:
    """The sequence does not divide over cp (two pieces a rank) and, under sp, tp."""
    length, (step, shown) = row["sequence_length"], _cut(row)
    whole = f"{shown} = {step}" if " x " in shown else shown
    field = "sequence_length"
    if length % step == 0:
        field, length = "decoder_sequence_length", row["decoder_length"]
    return (
        f"workload.{field} {length} must be a multiple of {whole}: remainder {length % step}. "
        f"Try {beside(length, step)}."
    )


def context(row: Row) -> str:
    """The context is longer than the model was made for."""
    length = row["decoder_length"] or row["sequence_length"]
    prompt = "decoder_prompt_tokens" if row["reads_apart"] else "prompt_tokens"
    trained = "decoder_sequence_length" if row["decoder_length"] else "sequence_length"
    field = f"workload.{trained}" if row["training"] else f"{prompt} + output_tokens ="
    limit = f"max_position_embeddings {row['max_position_embeddings']} of {row['model']}"
    return f"{field} {length} is beyond {limit}, and taken as if it were made for that."


def encoder_context(row: Row) -> str:
    """The input has more tokens than the encoder has positions."""
    field = "sequence_length" if row["training"] else "prompt_tokens"
    limit = f"the {row['encoder_positions']} positions of the encoder of {row['model']}"
    return f"workload.{field} {row['read_tokens']} is beyond {limit}, and taken as if it were made for that."


def replicas(row: Row) -> str:
    """Fewer requests than replicas."""
    batch, dp = row["batch_size"], row["dp"]
    idle = "1 replica would idle" if dp - batch == 1 else f"{dp - batch} replicas would idle"
    return f"workload.batch_size {batch} is below dp {dp}: {idle}. Try batch_size {dp}, or dp {batch}."


def even(row: Row) -> str:
    """Replicas with unequal numbers of requests."""
    batch, dp = row["batch_size"], row["dp"]
    fullest = f"the fullest replica takes {-(-batch // dp)} requests"
    return f"workload.batch_size {batch} is not a multiple of dp {dp}: {fullest}."
