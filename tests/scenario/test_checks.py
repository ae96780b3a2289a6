import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rapid_llm.documents import parse_yaml
from rapid_llm.errors import InputError
from rapid_llm.scenario import CHECKS, check, columns, from_mapping, require, violated

TRAINING = """
model: llama-3.1-8b
system: dgx-h100
workload: {kind: training, global_batch_size: 128, sequence_length: 8192}
"""
INFERENCE = """
model: llama-3.1-8b
system: dgx-h100
workload: {kind: inference, batch_size: 4, prompt_tokens: 128, output_tokens: 128}
"""


def read(*overrides, text=TRAINING, checked=True):
    return from_mapping(parse_yaml(text).data, overrides=overrides, checked=checked)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ("tp=3", "parallelism.tp must divide num_attention_heads: 32 heads / tp 3 leaves 2. Try 1, 2, 4, 8, 16, 32."),
        ("tp=8 pp=3 accelerators=64",
         "tp 8 x pp 3 = 24 must divide accelerators 64: 64 / 24 leaves 16. Try pp 1, 2, 4, 8."),
        ("pp=3 accelerators=64", "pp 3 must divide accelerators 64: 64 / 3 leaves 1. "
         "Try pp 1, 2, 4, 8, 16, 32."),
        ("tp=8 pp=2 dp=3 accelerators=64",
         "tp 8 x pp 2 x dp 3 = 48 must be accelerators 64. Try dp 4, or accelerators 48."),
        ("accelerators=16 global_batch_size=100",
         "workload.global_batch_size 100 must be a multiple of micro_batch_size 1 x dp 16 = 16: remainder 4. "
         "Try 96 or 112."),
        ("accelerators=16 global_batch_size=8",
         "workload.global_batch_size 8 must be a multiple of micro_batch_size 1 x dp 16 = 16: remainder 8. Try 16."),
        ("accelerators=32 system.nodes=2",
         "accelerators 32 is more than system dgx-h100 (changed) has: 2 nodes x 8 = 16. "
         "Try accelerators 16, or --set system.nodes=4."),
        ("accelerators=2 system=h100-sxm",
         "accelerators 2 is more than system h100-sxm has: the name of an accelerator stands for one alone. "
         "Try system: dgx-h100, which has more of them."),
        ("accelerators=2 system=tpu-v5e",
         "accelerators 2 is more than system tpu-v5e has: the name of an accelerator stands for one alone. "
         "Try system: tpu-v5e-pod, which has more of them."),
        ("accelerators=2 system=rtx-3060",
         "accelerators 2 is more than system rtx-3060 has: the name of an accelerator stands for one alone. "
         "Try system: {node: {accelerator: rtx-3060, accelerators: 2}}, which has more of them."),
        ("accelerators=12 global_batch_size=12",
         "accelerators 12 do not fill nodes of 8: 12 / 8 leaves 4. Try 8 or 16."),
        ("accelerators=100 system=gb200-nvl72 global_batch_size=100",
         "accelerators 100 do not fill nodes of 72: 100 / 72 leaves 28. Try 72 or 144."),
        ("pp=64", "parallelism.pp 64 is more than num_hidden_layers 32: a stage needs a layer. "
         "Try 1, 2, 4, 8, 16, 32."),
        ("pp=4 vpp=3", "pp 4 x vpp 3 = 12 must divide num_hidden_layers 32: 32 / 12 leaves 8. Try vpp 1, 2, 4, 8."),
        ("vpp=2", "parallelism.vpp 2 needs pp above 1 (got pp 1). Try vpp 1."),
        ("pp=4 vpp=2 schedule=1f1b", "parallelism.vpp 2 needs schedule: interleaved (got 1f1b). Try vpp 1."),
        ("pp=4 schedule=interleaved",
         "schedule interleaved needs vpp above 1 (got vpp 1). Try vpp 2, or schedule: 1f1b."),
        ("pp=4 vpp=2 global_batch_size=126",
         "schedule interleaved needs a multiple of pp 4 micro-batches: 126 / 4 leaves 2. "
         "Try global_batch_size 124 or 128, or vpp 1."),
        ("ep=2", "parallelism.ep 2 needs a model with experts, and llama-3.1-8b has none. Try ep 1."),
        ("ep=3 model=mixtral-8x7b", "parallelism.ep must divide num_experts: 8 experts / ep 3 leaves 2. "
         "Try 1, 2, 4, 8."),
        ("ep=72 model=kimi-k2", "parallelism.ep must divide num_experts: 384 experts / ep 72 leaves 24. "
         "Try 64 or 96."),
        ("ep=8 tp=4 accelerators=4 model=mixtral-8x7b",
         "etp 1 x ep 8 = 8 must divide tp 4 x cp 1 x dp 1 = 4: 4 / 8 leaves 4. Try ep 1, 2, 4."),
        ("cp=2 sequence_length=8190",
         "workload.sequence_length 8190 must be a multiple of 2 x cp 2 = 4: remainder 2. Try 8188 or 8192."),
        ("tp=4 sp=true sequence_length=8190",
         "workload.sequence_length 8190 must be a multiple of tp 4: remainder 2. Try 8188 or 8192."),
        ("runtime=vllm",
         "runtime vllm runs inference, and workload.kind is training. Try runtime: megatron-core."),
        ("system=dgx-a100 precision=fp8-mixed",
         "precision.compute fp8 needs a matrix rate for fp8, and a100-sxm has bf16, fp16, fp64, int4, int8, tf32. "
         "Try precision: bf16."),
        ("accelerators=8 dp_shard=3", "parallelism.dp_shard must divide dp: 8 / dp_shard 3 leaves 2. Try 1, 2, 4, 8."),
        ("cp=4 ulysses=3", "parallelism.ulysses must divide cp: 4 / ulysses 3 leaves 1. Try 1, 2, 4."),
        ("cp=8 ulysses=8 model=qwen2.5-7b",
         "ulysses 8 x tp 1 = 8 must divide num_key_value_heads 4, as each rank takes whole heads. "
         "Try ulysses 2, 4 with exchange: hybrid, or cp 1, 2, 4."),
        ("pp=4 layers_per_stage=[16,0,16,0]",
         "parallelism.layers_per_stage leaves 1 without a layer: only the first and the last, which hold the "
         "embedding and the head, can do without. Try 8, 8, 8, 8."),
        ("pp=4 layers_per_stage=[9,9,9,6]",
         "parallelism.layers_per_stage must deal 32 layers to 4 stages (got 33 to 4). Try 8, 8, 8, 8."),
        ("pp=4 vpp=2 layers_per_stage=[8,8,8,8]",
         "parallelism.layers_per_stage must deal 32 layers to 8 chunks (pp 4 x vpp 2) (got 32 to 4). "
         "Try 4, 4, 4, 4, 4, 4, 4, 4."),
        ("pp=2 runtime=fsdp", "parallelism.pp 2 is an axis that fsdp does not have. "
         "Try pp 1, or runtime: megatron-core."),
        ("zero_stage=2 runtime=nanotron", "parallelism.zero_stage 2 is more than nanotron shards. "
         "Try zero_stage 1, or runtime: fsdp."),
        ("zero_stage=1 runtime=fsdp", "parallelism.zero_stage 1 is none that fsdp has. "
         "Try 2, 3, or runtime: megatron-core."),
        ("pp=2 vpp=2 runtime=nanotron", "parallelism.schedule interleaved is none that nanotron runs. "
         "Try vpp 1, or runtime: megatron-core."),
        ("pp=4 schedule=zb-h1 zero_stage=1 runtime=deepspeed",
         "parallelism.schedule zb-h1 is none that deepspeed runs. Try schedule: 1f1b, or runtime: megatron-core."),
        ("cp=4 ulysses=2 runtime=deepspeed",
         "parallelism.exchange hybrid (ulysses 2 of cp 4) is none that deepspeed has. "
         "Try exchange: ulysses, or runtime: megatron-core."),
        ("cp=4 ulysses=2 runtime=torchtitan", "parallelism.exchange hybrid (ulysses 2 of cp 4) is none that "
         "torchtitan has. Try exchange: all-gather or ring, or runtime: megatron-core."),
        ("cp=8 exchange=a2a+p2p",
         "parallelism.exchange hybrid needs ulysses between 1 and cp 8 (got ulysses 1). Try ulysses 2, 4."),
        ("cp=2 exchange=hybrid",
         "parallelism.exchange hybrid needs ulysses between 1 and cp 2 (got ulysses 1). Try exchange: ring."),
        ("cp=8 exchange=ulysses ulysses=2",
         "parallelism.exchange ulysses takes all cp 8 ranks (got ulysses 2). Try exchange: hybrid, or ulysses 8."),
        ("cp=8 exchange=all-gather ulysses=8",
         "parallelism.exchange all-gather exchanges no heads (got ulysses 8). Try exchange: ulysses, or ulysses 1."),
        ("cp=4 exchange=ring runtime=deepspeed zero_stage=1",
         "parallelism.exchange ring (ulysses 1 of cp 4) is none that deepspeed has. "
         "Try exchange: ulysses, or runtime: megatron-core."),
        ("cp=4 exchange=p2p model=gpt-oss-20b",
         "parallelism.exchange ring of cp 4 does not go with sliding windows in megatron-core. "
         "Try exchange: all-gather or ulysses, or cp 1."),
        ("cp=4 exchange=a2a model=deepseek-v2-lite",
         "parallelism.exchange ulysses of cp 4 does not go with latent attention in megatron-core. "
         "Try exchange: ring or hybrid, or cp 1."),
        ("ep=2 model=mixtral-8x7b runtime=deepspeed",
         "parallelism.zero_stage 3 does not go with ep 2 in deepspeed, which shards no more than stage 2 does beside "
         "experts. Try zero_stage 2, or ep 1."),
        ("cp=16 ulysses=16 runtime=deepspeed accelerators=16",
         "parallelism.cp 16 x tp 1 = 16 must divide num_key_value_heads 8, as each rank of deepspeed takes whole "
         "heads. Try cp and ulysses 1, 2, 4, 8."),
        ("workload.offload.optimizer=1 runtime=nanotron",
         "workload.offload is nothing that nanotron does. Try to leave it out, or runtime: deepspeed."),
        ("workload.offload.optimizer=1 zero_stage=0 runtime=deepspeed",
         "workload.offload.optimizer needs parallelism.zero_stage 1 or more in deepspeed (got 0). Try zero_stage 1."),
        ("cp=2 runtime=megatron-core@2021", "parallelism.cp 2 is an axis that megatron-core@2021 does not have. "
         "Try cp 1, or runtime: megatron-core."),
        ("tp=2 sp=false model=mixtral-8x7b",
         "parallelism.sp must be true where tp 2 meets experts: megatron-core routes shards of the sequence. "
         "Try sp true."),
        ("pp=4 zero_stage=3 runtime=deepspeed",
         "parallelism.zero_stage 3 does not go with pp 4 in deepspeed, which shards no more than stage 1 does beside a "
         "pipeline. Try zero_stage 1, or pp 1."),
        ("documents=[9000]", "workload.documents holds 9000 tokens, more than sequence_length 8192. "
         "Try sequence_length 9000, or documents cut to it."),
        ("routing.hottest=1.5", "workload.routing needs a model with experts, and llama-3.1-8b has none. "
         "Try to leave it out."),
        ("model=mixtral-8x7b routing.counts=[[1,2,3,4,5,6,7,8],[1,2,3,4,5,6,7,8]]",
         "workload.routing.counts has 2 lists, and mixtral-8x7b has 32 layers with experts. "
         "Try one list for all of them, or one a layer."),
        ("model=mixtral-8x7b routing.placement=greedy routing.skew=1",
         "workload.routing places experts on the ranks of an expert group, and ep 1 has one rank with all of them. "
         "Try ep 8, or to leave placement and redundant_experts out."),
        ("model=mixtral-8x7b ep=4 routing.placement=[[0,1,2,3],[4,5,6,7]]",
         "workload.routing.placement lists 2 ranks, and an expert group has ep 4. Try ep 2, or placement: greedy."),
        ("model=mixtral-8x7b ep=2 routing.placement=[[0,1,2,3],[4,5,6,8]]",
         "workload.routing.placement puts expert 8 on rank 1, and experts are 0 to 7. "
         "Try placement: greedy, which places them by counts."),
        ("model=mixtral-8x7b ep=2 routing.placement=[[0,1,2,3],[4,5,6,6]]",
         "workload.routing.placement puts expert 6 on rank 1 twice. "
         "Try placement: greedy, which places them by counts."),
        ("model=mixtral-8x7b ep=2 routing.placement=[[0,1,2,3,7],[4,5,6]]",
         "workload.routing.placement gives rank 1 3 experts and rank 0 5, which must be as many. "
         "Try placement: greedy, which places them by counts."),
        ("model=mixtral-8x7b ep=2 routing.placement=[[0,1,2,3],[4,5,6,0]]",
         "workload.routing.placement puts expert 7 on no rank. Try placement: greedy, which places them by counts."),
        ("model=mixtral-8x7b ep=2 routing.placement=[[0,1,2,3,7],[4,5,6,7,0]]",
         "workload.routing.placement lists 2 more than once, and workload.kind is training: copies of an expert are "
         "for inference, since megatron-core adds up the gradients of an expert over its data-parallel replicas alone, "
         "and copies inside an expert group would drift apart. Try a placement that lists every expert once, or "
         "placement: greedy, which levels without copies."),
        ("model=mixtral-8x7b ep=2 routing.skew=0.8 routing.redundant_experts=2",
         "workload.routing.redundant_experts is 2, and workload.kind is training: copies of an expert are "
         "for inference, since megatron-core adds up the gradients of an expert over its data-parallel replicas alone, "
         "and copies inside an expert group would drift apart. Try redundant_experts 0, or placement: greedy, which "
         "levels without copies."),
        ("model=mixtral-8x7b routing.counts=[1,2,3]",
         "workload.routing.counts must count each of num_experts 8 (got 3). "
         "Try routing: {hottest: 1.3}, the load of the hottest rank over the mean."),
        ("accelerators=8 dp_shard=2 zero_stage=0", "parallelism.dp_shard 2 of dp 8 shards nothing under zero_stage 0. "
         "Try zero_stage 3, which is hybrid sharding, or 1."),
        ("micro_batch_size=256", "workload.micro_batch_size 256 is above global_batch_size 128. "
         "Try 1, 2, 4, 8, 16, 32, 64, 128."),
    ],
)  # fmt: skip
def test_training_sentences(overrides, sentence):
    with pytest.raises(InputError) as error:
        read(*map(full, overrides.split()))
    assert str(error.value) == sentence


def full(override):
    """``tp=3`` as ``--set`` takes it."""
    name = override.split("=")[0]
    if name in ("global_batch_size", "micro_batch_size", "sequence_length", "documents") or name.startswith("routing"):
        return f"workload.{override}"
    return (
        override
        if name.split(".")[0] in ("accelerators", "system", "model", "runtime", "precision", "workload")
        else f"parallelism.{override}"
    )


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["workload.speculation={acceptance: [0.8], draft: model}"],
         "workload.speculation.draft: model needs a draft. Try draft: llama-3.2-1b, or speculation.draft: ngram."),
        (["draft=llama-3.2-1b"],
         "draft names llama-3.2-1b, and workload.speculation does not ask for a model that drafts. Try speculation: "
         "{draft: model, acceptance: [0.8, 0.7, 0.6]}."),
        (["workload.speculation={acceptance: [0.8]}", "workload.beams=4"],
         "workload.beams 4 go without speculation. Try beams 1, or to leave speculation out."),
        (["workload.total_requests=9", "pools={prefill: {accelerators: 1}, decode: {accelerators: 1}}"],
         "workload.total_requests 9 is answered for one pool. Try to leave it out: the rates of both pools are those "
         "of a queue that never ends."),
        (["pools={transfer: whole}"],
         "pools needs a pool, of prefill or of decode. Try pools.prefill: {parallelism: {tp: 4}}, or to leave "
         "pools out."),
        (["accelerators=4", "pools={prefill: {accelerators: 1}, decode: {accelerators: 1}}"],
         "accelerators 4 is not the 2 of the pools. Try to leave it out, or pools.decode.accelerators."),
        (["workload.routing.skew=1"],
         "workload.routing needs a model with experts, and llama-3.1-8b has none. Try to leave it out."),
        (["workload.offload={weights: 0.5, to: nvme}"],
         "workload.offload.to nvme needs drives, and a node of dgx-h100 has none. Try system.node.nvme: 25 GB/s, or "
         "to: host."),
        (["accelerators=8"],
         "workload.batch_size 4 is below dp 8: 4 replicas would idle. Try batch_size 8, or dp 4."),
        (["runtime=megatron-core"],
         "runtime megatron-core runs training, and workload.kind is inference. Try runtime: vllm."),
    ],
)  # fmt: skip
def test_inference_sentences(overrides, sentence):
    with pytest.raises(InputError) as error:
        read(*overrides, text=INFERENCE)
    assert str(error.value) == sentence


def test_warnings_do_not_raise():
    found = check(read("workload.sequence_length=262144"))
    assert [one.message for one in found if not one.passed] == [
        "workload.sequence_length 262144 is beyond max_position_embeddings 131072 of llama-3.1-8b, "
        "and taken as if it were made for that."
    ]
    uneven = check(read("accelerators=4", "workload.batch_size=6", text=INFERENCE))
    assert [one.message for one in uneven if not one.passed] == [
        "workload.batch_size 6 is not a multiple of dp 4: the fullest replica takes 2 requests."
    ]


def test_key_value_heads():
    """8 key-value heads: an engine keeps copies of them on further ranks, a training framework does not."""
    wide = ["model=llama-3.1-70b", "parallelism.tp=16", "accelerators=16"]
    assert read(*wide, text=INFERENCE).parallelism.tp == 16
    with pytest.raises(InputError) as error:
        read("parallelism.tp=16")
    assert str(error.value) == (
        "parallelism.tp 16 must divide num_key_value_heads 8: megatron-core keeps no copies of them. Try 1, 2, 4, 8."
    )
    with pytest.raises(InputError) as error:
        read(
            *wide,
            "parallelism.tp=12",
            "accelerators=12",
            "model.num_attention_heads=48",
            "model.head_dim=128",
            text=INFERENCE,
        )
    assert str(error.value) == (
        "parallelism.tp 12 must divide num_key_value_heads 8, or be a multiple of it so that each rank keeps a copy. "
        "Try 1, 2, 4, 8, 16, 24, 48."
    )


def test_check_lists_all():
    unchecked = read("parallelism.tp=3", checked=False)
    found = check(unchecked)
    assert [one.name for one in found] == [one.name for one in CHECKS]
    assert len({one.name for one in found}) == len(CHECKS)
    assert [one.name for one in found if not one.passed][:1] == ["tp divides heads"]
    with pytest.raises(InputError) as error:
        require(unchecked)
    assert error.value.field == "parallelism.tp"


def test_planners_mask_with_the_same_checks():
    scenario = read()
    degrees = np.array([1, 2, 3, 4, 8, 64])
    masks = violated(columns(scenario, {"tp": degrees, "dp": np.ones(6), "accelerators": degrees}))
    assert masks.shape == (sum(one.severity == "error" for one in CHECKS), 6)
    assert masks.any(axis=0).tolist() == [False, False, True, False, False, True]


@settings(max_examples=40, deadline=None)
@given(
    tp=st.sampled_from([1, 2, 3, 4, 8, 16]),
    pp=st.sampled_from([1, 2, 3, 4, 40]),
    vpp=st.sampled_from([1, 2, 3]),
    batch=st.integers(1, 64),
    accelerators=st.sampled_from([1, 4, 8, 12, 64]),
)
def test_mask_agrees_with_the_door(tp, pp, vpp, batch, accelerators):
    overrides = [f"parallelism.{k}={v}" for k, v in {"tp": tp, "pp": pp, "vpp": vpp}.items()]
    scenario = read(*overrides, f"workload.global_batch_size={batch}", f"accelerators={accelerators}", checked=False)
    bad = bool(violated(columns(scenario)).any())
    failed = [one for one in check(scenario) if not one.passed and one.severity == "error"]
    assert bad == bool(failed)
    for one in failed:
        assert one.message.endswith(".") and "Try " in one.message


@pytest.mark.parametrize(
    ("system", "sentence"),
    [
        ("apple-m3-max", "runtime tensorrt-llm runs on accelerators of NVIDIA, and apple-m3-max is of Apple. "
         "Try runtime: llama.cpp."),
        ("mi300x", "runtime tensorrt-llm runs on accelerators of NVIDIA, and mi300x is of AMD. Try runtime: vllm."),
    ],
)  # fmt: skip
def test_a_runtime_is_refused_where_it_does_not_run(system, sentence):
    with pytest.raises(InputError) as caught:
        read(f"system={system}", "runtime=tensorrt-llm", text=INFERENCE)
    assert caught.value.message == sentence


def test_accelerators_of_a_vendor_of_their_own_run_anything():
    own = ("system.node.accelerator.vendor=Mine", "runtime=tensorrt-llm")
    assert read(*own, text=INFERENCE).runtime.name == "tensorrt-llm"


@pytest.mark.parametrize(
    ("system", "text", "name"),
    [
        ("apple-m3-max", INFERENCE, "llama.cpp"),
        ("tpu-v5e", INFERENCE, "vllm"),
        ("gaudi3", INFERENCE, "vllm"),
        ("tpu-v5p-pod", TRAINING, "maxtext"),
        ("mi300x-8", TRAINING, "megatron-core"),
        ("dgx-h100", TRAINING, "megatron-core"),
    ],
)
def test_the_default_runtime_runs_on_the_accelerator(system, text, name):
    assert read(f"system={system}", "accelerators=1", text=text, checked=False).runtime.name == name


@pytest.mark.parametrize(("length", "said"), [(448, False), (449, True)])
def test_positions_of_a_model_that_hears_are_those_of_its_text(length, said):
    work = {"kind": "training", "global_batch_size": 8, "decoder_sequence_length": length}
    found = check(from_mapping({"model": "whisper-small", "system": "dgx-h100", "workload": work}))
    notes = [one.message for one in found if one.message and "max_position_embeddings" in one.message]
    assert bool(notes) == said
    assert all(note.startswith("workload.decoder_sequence_length 449 is beyond") for note in notes)
