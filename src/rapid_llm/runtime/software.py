"""The parts of a runtime: which kernels it runs, what the host costs, what overlaps, what it keeps in memory."""

from typing import Final, Literal, get_args

from pydantic.dataclasses import dataclass

from rapid_llm.nouns import STRICT, FrozenDict, Map
from rapid_llm.units import Bytes, Count, Fraction, NonNegative, Seconds, Share, Whole

Exchange = Literal["ring", "all-gather", "ulysses", "hybrid"]
EXCHANGES: Final[tuple[Exchange, ...]] = get_args(Exchange)
"""How the ranks of a sequence exchange it round attention."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Kernels:
    """Which kernel implementation (a name in ``operators/data``) runs a family.

    Keys of each mapping: ``dtype@architecture``, ``dtype``, ``@architecture`` or ``default``, the most specific wins.
    """

    gemm: Map[str]
    attention: Map[str]
    moe: Map[str]
    scan: Map[str]
    pointwise: Map[str]
    convolution: Map[str] = FrozenDict({"default": "causal-conv1d"})


@dataclass(frozen=True, kw_only=True, config=STRICT)
class PerPhase:
    """Seconds by phase of a layer pass."""

    forward: Seconds = 0.0
    backward: Seconds = 0.0
    prefill: Seconds = 0.0
    decode: Seconds = 0.0


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Comparing:
    """Seconds per rank in which the hosts of a group compare a collective before they launch it: of groups inside a
    node, and of those that cross nodes."""

    inside: Seconds = 0.0
    across: Seconds = 0.0


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Pieces:
    """Passes up to so many ``tokens`` that run as graphs between their attentions: ``left``, of what launching each
    kernel would cost, the share that replaying these and launching attention still does."""

    tokens: Whole = 0
    left: Fraction = 1.0


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Host:
    """What the CPU adds, in seconds.

    ``per_kernel``: eager launch (interpreter, autograd) of one canonical operator, a floor under each layer pass
    since the queue runs ahead; ``preparing``: what else a layer pass costs there, by phase; ``per_dispatch``: what
    a training pass through experts adds to that floor (router, permutation); ``per_expert``: the
    product of one expert, and the rounding of its operands, where these are launched one by one;
    ``per_layer``: gaps of a layer pass that are always exposed, by phase: the accelerator's own between kernels that
    are launched one by one, whatever its host; ``per_step``: scheduler, input preparation, sampling, detokenising;
    ``per_sequence`` and ``per_kv_block``: batch preparation; ``per_sample``: what the accelerator takes for each
    sequence behind the layers of a decode step, whatever its host (copies of its logits, sampling); ``ingress``:
    arrival to first launch of one request, ``per_prompt_token`` more for each token of its prompt (HTTP, JSON, tokens);
    ``serial``: share of the shorter of launching and running a pass that does not hide
    behind the longer; ``jitter``: how unevenly both run, so that a pass takes their norm of exponent 1 / jitter,
    which is more than the longer where they are alike; ``waits``: as serial, of passes through experts, whose host
    waits for how many tokens each gets; ``broadcast``: a step's inputs sent from the scheduling process to one more
    level of workers, times log2 of the ranks of a replica; ``skew``: standard deviation of when one rank
    comes to a collective, which begins when the last one has; ``per_slice``: of one rank's share of one layer in lists
    of tensors that ZeRO gathers or reduces once a step; ``comparing``: what comparing a collective over the network of
    the CPUs adds before it is launched (PyTorch's TORCH_DISTRIBUTED_DEBUG=DETAIL: a barrier and two all-gathers over
    TCP, while the accelerator runs on);
    ``per_send``: of one message between stages, while the accelerator waits; ``per_stage``: handing an inference
    pass to the next stage; ``per_gib_mapped``: collectives on a stream of their own keep their tensors until the
    host sees them done (PyTorch record_stream): where those of an inference pass exceed what the runtime leaves
    free of memory, the allocator maps new memory instead of reusing it, per GiB of them; in training, forward and
    backward pass alike, per GiB by which they exceed the room. ``captured`` phases run as
    a graph: no per-kernel cost, no skew; ``pieces``: prompts that run as several. Seconds of a host of speed 1
    (``Node.host_speed``), but ``per_layer`` and ``per_sample``.
    """

    per_kernel: Seconds = 0.0
    preparing: PerPhase = PerPhase()
    per_layer: PerPhase = PerPhase()
    per_step: Seconds = 0.0
    per_sequence: Seconds = 0.0
    per_sample: Seconds = 0.0
    per_kv_block: Seconds = 0.0
    per_dispatch: Seconds = 0.0
    per_expert: Seconds = 0.0
    per_cast: Seconds = 0.0
    waits: NonNegative = 0.0
    ingress: Seconds = 0.0
    per_prompt_token: Seconds = 0.0
    serial: NonNegative = 0.0
    jitter: NonNegative = 0.0
    broadcast: Seconds = 0.0
    skew: Seconds = 0.0
    per_slice: Seconds = 0.0
    comparing: Comparing = Comparing()
    per_stage: Seconds = 0.0
    per_gib_mapped: Seconds = 0.0
    per_send: Seconds = 0.0
    captured: tuple[Literal["forward", "backward", "prefill", "decode"], ...] = ()
    pieces: Pieces = Pieces()

    def arrival(self, tokens: float) -> float:
        """Seconds from the arrival of a prompt of so many tokens to its first launch, where nothing runs."""
        return self.ingress + self.per_prompt_token * tokens


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Overlap:
    """Which communication runs beside computation: what the dependency graph lets this runtime hide.

    ``tensor_parallel_gradients``: in the backward pass alone, an input that is gathered again travels beside the
    product of its gradient, and the reduction of that beside the product of the weight's (Megatron-LM,
    tensor_parallel/layers.py).
    What a sharded layer's backward pass gathers and reduces travels while the layer is recomputed, too;
    ``fetched_once``: only then, where its weights are fetched for the recomputation and the next layer's after the
    backward pass. ``waits``: of the messages of tensor parallelism, those that stay on the compute stream all the
    same: an operation, a compute format, or ``again``: gathers repeated for a weight gradient. ``shared_experts``
    alone compute beside dispatch and combine; ``expert_all_to_all`` hides them behind anything. ``shared_beside``: in
    inference passes that run as a graph a shared expert has a stream of its own beside the routed ones, on accelerators
    of NVIDIA alone (vLLM PR 30085: on ROCm it costs time; SGLang and TensorRT-LLM make it under CUDA).
    ``batch_exchange``: the exchange of one request's partial outputs travels beside attention of the next (HOP-B of
    Helix, arXiv 2507.07120, section 2.1.3). ``nano_batches``: into so many an inference pass is dealt, the messages of
    one beside the kernels of the others.
    """

    gradient_reduce: bool = False
    parameter_gather: bool = False
    tensor_parallel: bool = False
    tensor_parallel_gradients: bool = False
    fetched_once: bool = False
    waits: tuple[str, ...] = ()
    expert_all_to_all: bool = False
    shared_experts: bool = False
    shared_beside: bool = False
    context_parallel: bool = False
    pipeline: bool = False
    batch_exchange: bool = False
    nano_batches: Count = 1

    def in_pieces(self, op: str, compute: str, *, again: bool) -> bool:
        """Whether a message of tensor parallelism travels in pieces beside products; ``again``: it repeats a gather."""
        stays = {op, compute, "again" if again else op}
        return self.tensor_parallel and stays.isdisjoint(self.waits)


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Communication:
    """Which collective library (a name in ``network/data/libraries``) carries messages, and small all-reduces.

    ``compute_units`` of the accelerator are busy while a collective kernel runs. ``piece``: seconds in which a gather
    or reduction of a layer's shards copies what it has of one rank, where it works on a list of tensors, one a rank.
    ``nics``: how many network cards of a node its collectives drive; None: all. ``expert``: a library (a name in
    ``network/data/experts``) made for dispatch to experts and combine, in place of all-to-alls; ``gathers_experts``:
    groups whose ranks gather the tokens of all in inference, and scatter sums of results, in place of either: few, of
    no more ranks than a token has experts, or all; ``gathers_by`` one all-gather, and its reverse, or, where it gives
    every rank's share its own size, a group of broadcasts, and of reductions.
    """

    library: str
    small_all_reduce: str | None = None
    expert: str | None = None
    gathers_experts: Literal["none", "few", "all"] = "none"
    gathers_by: Literal["all_gather", "broadcast"] = "all_gather"
    compute_units: Whole = 0
    nics: Count | None = None
    piece: Seconds = 0.0


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Allocator:
    """What a process holds beyond its tensors, and what it may use.

    Bytes: ``context`` of CUDA, ``libraries`` that load with the first
    pass, ``communicator`` buffers per process group; ``graphs`` captured; ``workspace`` of BLAS libraries, inside the
    allocator; ``slack`` in segments that are never full.

    Shares: ``fragmentation`` by which reserved memory exceeds allocated activations, ``pipeline_fragmentation`` the
    same where a pipeline frees them in another order; ``gathered_slack`` and ``pipeline_gathered_slack`` of the
    gathered inputs of the layers in flight that stay reserved behind a side stream, until memory runs short.

    ``utilisation``: the share of memory that a process can use, of what ``of`` says: total (vLLM
    gpu_memory_utilization; context on top, and graphs unless it ``counts_graphs``), free (TensorRT-LLM: for the cache,
    of what is left beside weights and workspace), static (SGLang: for weights and cache, of what is free at the start).
    """

    context: Bytes
    libraries: Bytes = 0
    communicator: Bytes = 0
    workspace: Bytes = 0
    fragmentation: NonNegative = 0.0
    pipeline_fragmentation: NonNegative | None = None
    slack: Bytes = 0
    gathered_slack: NonNegative = 0.0
    pipeline_gathered_slack: NonNegative = 0.0
    graphs: Bytes = 0
    utilisation: Fraction | None = None
    of: Literal["total", "free", "static"] = "total"
    counts_graphs: bool = False


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Defaults:
    """What the runtime's users run when a scenario does not say; ``gradients``: the format that they accumulate in,
    where it is not the one of the preset of precision."""

    precision: str
    sp: bool = False
    zero_stage: Literal[0, 1, 2, 3] = 0
    schedule: Literal["gpipe", "1f1b", "interleaved"] = "1f1b"
    gradients: str | None = None
    recompute: Literal["none", "selective", "full"] = "none"


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Serving:
    """Facts of an inference engine.

    ``kv_block_tokens`` per block of the cache; ``max_batched_tokens`` of one step; ``max_sequences`` that run at once;
    ``capture_sizes``: batches that decode graphs were captured for, others are padded up to the next; ``mixed_steps``:
    prefill and decode share a step, else prefill runs alone; ``deals_batch``: a batch is dealt into micro-batches that
    fill the pipeline stages, else it crosses them whole; ``overlaps_stages``: these run in different stages at once,
    else one after the other through all; ``reserved_output``: the share of a request's output that
    admission sets cache aside for; ``logit_bytes`` that the sampler holds for each logit of each sequence;
    ``bias_apart``: the bias of a row-parallel product is added behind its all-reduce by a kernel of its own;
    ``pads_ranks``: replicas that share experts all run as many tokens a step as the fullest of them;
    ``sized_by``: what picks both limits of a finite job whose batch is left to the engine, the user or its benchmark;
    ``chunks_prompts``: a prompt that the budget of a step does not hold is cut, else it waits for a step that has room;
    ``frees_windows``: layers that attend to a window keep no more than that of a sequence, else all of it;
    ``async_scheduling``: the next step is prepared while this one runs, so that of the host only what exceeds it shows;
    ``shared_as_routed``: shared experts that are as wide as routed ones are further routed experts, which every token
    has, on accelerators where the kernel of experts runs them in the same launch; ``biased_group``: the most experts of
    a group that one kernel scores, biases and chooses from (0: any); PyTorch's kernels do so for wider ones.

    How soon a prompt is read that arrives while others run: behind the running step and ``steps_ahead`` more, which are
    decided already; an engine looks for arrivals every ``receive_interval`` decode steps (SGLang's
    scheduler-recv-interval), and puts prompts off for up to ``batch_wait`` steps unless they fill ``batch_wait_share``
    of the token budget (TensorRT-LLM's batch_wait_timeout_iters and batch_wait_max_tokens_ratio). ``first_event``:
    tokens of the first event that a stream sends (SGLang's stream-interval; 1 where the first token leaves at once).
    ``tokenised_together``: prompts that one call of the tokenizer takes, of those that wait for it.
    """

    kv_block_tokens: Count = 16
    max_batched_tokens: Count = 8192
    max_sequences: Count = 256
    capture_sizes: tuple[int, ...] = ()
    mixed_steps: bool = False
    deals_batch: bool = True
    overlaps_stages: bool = True
    reserved_output: Share = 1.0
    logit_bytes: NonNegative = 8.0
    bias_apart: bool = False
    pads_ranks: bool = False
    sized_by: Literal["user", "trtllm-bench"] = "user"
    chunks_prompts: bool = True
    frees_windows: bool = True
    async_scheduling: bool = False
    steps_ahead: Whole = 0
    receive_interval: Count = 1
    batch_wait: Whole = 0
    batch_wait_share: Share = 0.0
    first_event: Count = 1
    tokenised_together: Count = 1
    shared_as_routed: bool = False
    biased_group: Whole = 0


@dataclass(frozen=True, kw_only=True, config=STRICT)
class HostExperts:
    """How an engine runs routed experts on the CPUs of the host, in whose memory they lie.

    Shares that its kernels reach: ``memory`` of what the CPUs stream, ``matrix`` of their 16-bit matrix rate;
    ``stream`` of the host link, over which a long prompt's experts come to the accelerator instead (0: never).
    ``layers``: as ``memory``, of whole layers that are left to the host and run there (llama.cpp); 0: every pass
    fetches their weights.
    """

    memory: Fraction
    matrix: Fraction
    stream: Share = 0.0
    layers: Share = 0.0
