"""What other tools call a thing: Megatron, DeepSpeed, vLLM, TensorRT-LLM, llama.cpp, Hugging Face and plain speech."""

from typing import Final

_WORDS: Final = {
    "accelerators": "gpus devices num-gpus n-gpus world-size gpu-count num-devices cards",
    "accelerator": "gpu device gpu-type gpu-name card chip",
    "switch": "rail leaf spine tor router",
    "nic": "hca card network-card rail-link",
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
    "nvfp4": "fp4 w4a4",
    "mxfp4": "fp4",
    "mxfp6": "fp6",
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
"""Our names, to what they are called elsewhere."""


def folded(name: str) -> str:
    """A name as names are compared: without dashes in front, in one case, with one kind of dash."""
    return name.casefold().lstrip("-").replace("_", "-")


def _turned(words: dict[str, str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for ours, others in words.items():
        for other in others.split():
            found.setdefault(other, []).append(ours)
    return {other: tuple(ours) for other, ours in found.items()}


OURS: Final = _turned(_WORDS)
"""What a thing is called elsewhere, to what it may be called here."""


SETTINGS: Final = {
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
    "disable-overlap-schedule": "runtime.serving.steps_ahead=0",
    "scheduler-recv-interval": "runtime.serving.receive_interval=10",
    "stream-interval": "runtime.serving.first_event=10",
    "batch-wait-timeout-iters": "runtime.serving.batch_wait=20",
    "batch-wait-max-tokens-ratio": "runtime.serving.batch_wait_share=0.9",
    "enforce-eager": "runtime=vllm@eager",
    "disable-cuda-graph": "runtime.host.captured=[]",
    "enable-chunked-prefill": "runtime.serving.mixed_steps=true",
    "max-num-seqs": "runtime.serving.max_sequences=256",
    "max-running-requests": "runtime.serving.max_sequences=256",
    "max-cudagraph-capture-size": "runtime.host.pieces.tokens=2048",
    "cuda-graph-sizes": "runtime.serving.capture_sizes=[1,2,4,8]",
    "cuda-graph-max-bs": "runtime.serving.capture_sizes=[1,8,64,128]",
    "n-cpu-moe": "workload.offload.experts=true",
    "cpu-moe": "workload.offload.experts=true",
    "lora-rank": "workload.lora.rank=16",
    "lora-r": "workload.lora.rank=16",
    "lora": "workload.lora.rank=16",
    "peft": "workload.lora.rank=16",
    "tokens": "workload.tokens=1e9",
    "train-tokens": "workload.tokens=1e9",
    "helix": "parallelism.helix=true",
    "network": "network=flow",
    "fault": "faults=[{nic: node0.nic3, down: true}]",
    "faults": "faults=[{nic: node0.nic3, down: true}]",
    "prefix-tokens": "workload.prefix_tokens=512",
    "batching": "workload.batching=continuous",
}
"""Flags of other tools and fields without a flag, to what ``--set`` takes for them."""


def setting(name: str, given: str = "") -> str | None:
    """What ``--set`` takes for a flag of another tool: ``precision.kv_cache=fp8`` for ``--kv-cache-dtype``; with the
    value that was ``given`` where it is one as well."""
    known = SETTINGS.get(folded(name))
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
