"""The nouns of a workload."""

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from rapid_llm.nouns import STRICT
from rapid_llm.units import Count


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Recompute:
    """Which activations are thrown away in the forward pass and computed again in the backward pass.

    ``mode`` selective drops the attention core (Korthikanti et al. 2022, section 5), full keeps only each layer's
    input; ``every`` applies it to one layer in so many.
    """

    mode: Literal["none", "selective", "full"] = "none"
    every: Count = 1


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Training:
    """One optimizer step over ``global_batch_size`` sequences of ``sequence_length`` tokens."""

    kind: Literal["training"] = "training"
    global_batch_size: Count
    micro_batch_size: Count = 1
    sequence_length: Count
    recompute: Recompute | None = None


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Inference:
    """``batch_size`` requests in flight in the whole job, each ``prompt_tokens`` in and ``output_tokens`` out."""

    kind: Literal["inference"] = "inference"
    batch_size: Count
    prompt_tokens: Count
    output_tokens: Count


Workload = Annotated[Training | Inference, Field(discriminator="kind")]
