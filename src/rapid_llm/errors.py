"""The one exception tree.

::

    RapidError                 every error that is meant for a user; one sentence
    ├── InputError        (2)  no hardware could answer it: unknown name, contradiction, does not divide
    ├── InfeasibleError   (3)  this hardware cannot: memory, routes, nothing meets the objective
    └── InternalError     (4)  a fault of ours

The numbers are the exit codes of the command line.
"""

import re
from collections.abc import Iterable, Sequence
from typing import ClassVar

QUOTED, QUOTED_PATH = 80, 400
"""Characters of a given value, and of a path, that a sentence repeats."""
_LONG = re.compile(rf"(?<![^\s(])'[^']{{{QUOTED + 1},}}'|\S{{{QUOTED + 1},}}")
"""A quoted value or a word that may be too long to repeat."""


def _cut(found: re.Match[str]) -> str:
    """The start of a long value, and what closes it."""
    text = found[0]
    most = QUOTED_PATH if "/" in text else QUOTED
    end = text[-3:][len(text[-3:].rstrip("').:,;")) :]
    return text if len(text) - len(end) <= most else f"{text[: most - 3]}...{end}"


class RapidError(Exception):
    """One sentence: what, where, what was given (no more than QUOTED of it), why it is wrong, what to try.

    ``str(error)`` is ``file:line: message``; ``field`` is the dotted path of the input at fault.
    """

    exit_code: ClassVar[int] = 4

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        file: str | None = None,
        line: int | None = None,
        suggestions: Sequence[str] = (),
    ) -> None:
        message = _LONG.sub(_cut, message)
        super().__init__(message)
        self.message = message
        self.field = field
        self.file = file
        self.line = line
        self.suggestions = tuple(suggestions)

    def __str__(self) -> str:
        if self.file is None:
            return self.message
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.message}"


class InputError(RapidError):
    """No hardware could answer this input."""

    exit_code = 2


class InfeasibleError(RapidError):
    """This hardware cannot do what was asked."""

    exit_code = 3


class InternalError(RapidError):
    """A fault of RAPID-LLM."""

    exit_code = 4


def nearest(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """The known names that a person may have meant by ``name``, best first; may be empty.

    What other tools call a thing comes before what is spelt alike.
    """
    from difflib import get_close_matches

    by_folded: dict[str, str] = {}
    for candidate in known:
        by_folded.setdefault(_folded(candidate), candidate)
    folded = _folded(name)
    called = [ours for ours in ELSEWHERE.get(folded, ()) if ours in by_folded]
    close = get_close_matches(folded, by_folded, n=limit, cutoff=0.6)
    prefixed = sorted((c for c in by_folded if folded and (c.startswith(folded) or folded.startswith(c))), key=len)
    return [by_folded[c] for c in dict.fromkeys([*called, *close, *prefixed])][:limit]


def _folded(name: str) -> str:
    return name.casefold().lstrip("-").replace("_", "-")


def _elsewhere() -> dict[str, tuple[str, ...]]:
    """Our names for the words of Megatron, DeepSpeed, vLLM, TensorRT-LLM, llama.cpp, Hugging Face and plain speech."""
    words = {
        "accelerators": "gpus devices num-gpus n-gpus world-size gpu-count num-devices cards",
        "accelerator": "gpu device gpu-type gpu-name card chip",
        "system": "cluster machine hardware gpu device topology",
        "runtime": "framework engine backend software library",
        "precision": "dtype quantization quant data-type torch-dtype",
        "parallelism": "plan parallel strategy",
        "workload": "job task batch training inference",
        "global-batch-size": "batch batch-size bs gbs global-batch train-batch-size gradient-accumulation-steps",
        "micro-batch-size": (
            "mbs micro-batch microbatch per-device-train-batch-size train-micro-batch-size-per-gpu local-batch-size"
        ),
        "batch-size": "request users batch bs concurrency requests max-num-seqs max-batch-size num-requests",
        "sequence-length": "max-model-len seq seq-len seqlen seq-length max-seq-len context context-length block-size",
        "prompt-tokens": (
            "max-model-len max-input-len input-len isl input-tokens prompt-len input-length "
            "prompt seq-len sequence-length context"
        ),
        "output-tokens": "output-len osl output-length max-tokens max-new-tokens gen-len response",
        "requests": "request batch batch-size concurrency users max-num-seqs max-batch-size",
        "micro-batch": "batch mbs micro-batch-size microbatch",
        "sequence": "sequence-length prompt prompt-tokens context context-length tokens max-model-len max-seq-len",
        "head-dim": "head-size head-dimension",
        "layers": "layer num-layers num-hidden-layers depth",
        "tp": "tensor-parallel-size tensor-model-parallel-size tensor-parallel tensor-parallelism",
        "pp": "pipeline-parallel-size pipeline-model-parallel-size pipeline-parallel stages",
        "dp": "data-parallel-size data-parallel replicas",
        "cp": "context-parallel-size context-parallel kvp kv-parallel decode-context-parallel-size dcp",
        "helix": "cp-type kvp tpa tpf decode-context-parallel-size dcp",
        "ep": "expert-parallel-size expert-model-parallel-size expert-parallel enable-expert-parallel",
        "vpp": "virtual-pipeline interleave num-virtual-stages-per-pipeline-rank",
        "int4-wo": "awq gptq w4a16 int4 4bit awq-marlin gptq-marlin",
        "int8-wo": "w8a16 8bit",
        "int8": "w8a8 smoothquant",
        "q4-k": "q4-k-m q4-k-s gguf ggml q4",
        "q5-k": "q5-k-m q5-k-s q5",
        "q3-k": "q3-k-m q3-k-s q3-k-l q3",
        "iq4-xs": "iq4-nl iq4",
        "q8-0": "q8",
        "llama.cpp": "ollama gguf ggml lmstudio llama-server koboldcpp",
        "sp": "sequence-parallel sequence-parallelism",
        "zero-stage": "use-distributed-optimizer distributed-optimizer zero stage fsdp shard sharding",
        "recompute": "activation-checkpointing gradient-checkpointing recompute-granularity ac checkpointing",
        "json": "output-json as-json format",
        "run": "predict simulate sim estimate evaluate",
        "fit": "memory mem vram oom",
        "infer": "inference serve serving generate generation bench benchmark decode",
        "train": "training pretrain finetune fine-tune",
        "list": "ls models systems accelerators catalogue",
        "show": "info describe cat print",
        "diff": "compare",
        "explain": "why roofline profile breakdown",
        "validate": "test accuracy score scorecard",
        "network": "collective comm communication nccl topology",
        "kernel": "gemm matmul attention op operator",
        "check": "lint verify",
    }
    found: dict[str, list[str]] = {}
    for ours, others in words.items():
        for other in others.split():
            found.setdefault(other, []).append(ours)
    return {other: tuple(ours) for other, ours in found.items()}


ELSEWHERE = _elsewhere()
"""What a thing is called elsewhere, to what it may be called here."""


SETTINGS = {
    "gpu-memory-utilization": "runtime.allocator.utilisation=0.9",
    "mem-fraction-static": "runtime.allocator.utilisation=0.9",
    "kv-cache-free-gpu-memory-fraction": "runtime.allocator.utilisation=0.9",
    "free-gpu-memory-fraction": "runtime.allocator.utilisation=0.9",
    "kv-cache-dtype": "precision.kv_cache=fp8",
    "kv-cache-quantization": "precision.kv_cache=fp8",
    "max-num-batched-tokens": "runtime.serving.max_batched_tokens=8192",
    "chunked-prefill-size": "runtime.serving.max_batched_tokens=8192",
    "block-size": "runtime.serving.kv_block_tokens=16",
    "page-size": "runtime.serving.kv_block_tokens=16",
    "cpu-offload": "workload.offload.optimizer=true",
    "optimizer-cpu-offload": "workload.offload.optimizer=true",
    "enable-two-batch-overlap": "runtime.overlap.nano_batches=2",
    "enable-dbo": "runtime.overlap.nano_batches=2",
    "nano-batches": "runtime.overlap.nano_batches=2",
    "async-scheduling": "runtime.serving.async_scheduling=true",
    "enforce-eager": "runtime.host.captured=[]",
    "disable-cuda-graph": "runtime.host.captured=[]",
    "enable-chunked-prefill": "runtime.serving.mixed_steps=true",
    "max-num-seqs": "runtime.serving.max_sequences=256",
    "max-running-requests": "runtime.serving.max_sequences=256",
    "cuda-graph-sizes": "runtime.serving.capture_sizes=[1,2,4,8]",
    "n-cpu-moe": "workload.offload.experts=true",
    "cpu-moe": "workload.offload.experts=true",
    "lora-rank": "workload.lora.rank=16",
    "prefix-tokens": "workload.prefix_tokens=512",
    "batching": "workload.batching=continuous",
}
"""Flags of other tools and fields without a flag, to what ``--set`` takes for them."""


def setting(name: str, given: str = "") -> str | None:
    """What ``--set`` takes for a flag of another tool: ``precision.kv_cache=fp8`` for ``--kv-cache-dtype``; with the
    value that was ``given`` where it is one as well."""
    known = SETTINGS.get(_folded(name))
    if known is None or not _is_number(given):
        return known
    field, _, example = known.partition("=")
    return f"{field}={given}" if _is_number(example) else known


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``Did you mean 'x'?`` for the nearest known name, or an empty string."""
    close = nearest(name, known, limit=1)
    return f"Did you mean '{close[0]}'?" if close else ""


def shortened(names: Sequence[str], limit: int = 12) -> str:
    """Names for a sentence: ``nccl, rccl, xla-ici and 40 more``."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
    """``precision 'bf61' is unknown. Did you mean 'bf16'? Known: bf16, fp16.``"""
    names = list(known)
    hint = did_you_mean(name, names)
    return " ".join(filter(None, [f"{what} '{name}' is unknown.", hint, f"Known: {', '.join(names)}."]))
