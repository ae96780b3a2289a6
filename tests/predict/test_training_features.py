"""What a training job may be besides whole sequences on equal stages: packed documents, layers dealt by hand, a run."""

import pytest

import rapid_llm
from rapid_llm import predict
from rapid_llm.cli.answer import answer
from rapid_llm.errors import InputError
from rapid_llm.predict import fit
from rapid_llm.scenario import from_mapping

BASE = {
    "model": "llama-3.1-8b",
    "system": "dgx-h100",
    "accelerators": 8,
    "workload": {"kind": "training", "global_batch_size": 32, "sequence_length": 8192},
}


def report(plan=None, system=None, runtime=None, **work):
    mapping = {**BASE, "parallelism": plan or {}, "workload": {**BASE["workload"], **work}, "runtime": runtime}
    return predict(from_mapping({**mapping, **({"system": system} if system else {})}), allow_infeasible=True)


def test_packed_documents_see_only_themselves():
    whole, packed = report(), report(documents=[1024])
    assert packed.step_time_s < whole.step_time_s
    assert report(documents=[8192]).step_time_s == pytest.approx(whole.step_time_s)
    # Half of the tokens in documents of 1,024, half in one of 7,168.
    assert packed.step_time_s < report(documents=[1024] * 7 + [7168]).step_time_s < whole.step_time_s


def test_packed_documents_need_the_same_memory_in_predict_and_fit():
    mapping = {**BASE, "runtime": "megatron-core@2021", "precision": "bf16-mixed"}
    mapping["workload"] = {**BASE["workload"], "documents": [1024, 2048]}
    scenario = from_mapping(mapping)
    assert fit(scenario).memory.peak_bytes == predict(scenario, allow_infeasible=True).memory.peak_bytes


def test_layers_dealt_by_hand_move_the_pace():
    even, relieved, late = ([8, 8, 8, 8], [9, 9, 8, 6], [6, 6, 6, 14])
    times = [report({"pp": 4, "layers_per_stage": stages}).step_time_s for stages in (even, relieved, late)]
    assert times[0] == pytest.approx(report({"pp": 4}).step_time_s, rel=1e-12)
    assert times[1] < times[0] < times[2]  # the last stage has the LM head of 128,256 words besides


def test_layers_dealt_by_hand_weigh_what_they_hold():
    mapping = {**BASE, "parallelism": {"pp": 4, "layers_per_stage": [14, 6, 6, 6]}}
    scenario = from_mapping(mapping)
    assert fit(scenario).memory.stage == 0
    assert fit(scenario).memory.peak_bytes == predict(scenario, allow_infeasible=True).memory.peak_bytes


def test_time_and_accelerator_hours_of_a_run():
    run = report(tokens=15e12)
    assert run.run_time_s == pytest.approx(15e12 / run.tokens_per_s)
    assert run.accelerator_hours == pytest.approx(run.run_time_s * 8 / 3600)
    assert report().run_time_s is None


def test_ulysses_and_ring_share_the_work_of_attention():
    long = {"sequence_length": 131072, "global_batch_size": 8}
    times = [report({"cp": 8, "ulysses": degree}, **long).step_time_s for degree in (1, 2, 4, 8)]
    assert max(times) < 1.05 * min(times)


def late(slow, **plan):
    """Seconds that one accelerator at half speed adds to a step, and the step without it."""
    mapping = {**BASE, "accelerators": 16, "parallelism": plan}
    healthy, hurt = (
        predict(from_mapping({**mapping, "faults": faults}), allow_infeasible=True)
        for faults in ([], [{"accelerator": slow, "speed": "50 %"}])
    )
    assert sum(leaf.seconds for leaf in hurt.breakdown.leaves()) == pytest.approx(hurt.step_time_s)
    return hurt.step_time_s - healthy.step_time_s, healthy


def test_a_slow_accelerator_delays_all_that_exchange_activations_with_it():
    added, healthy = late(5, tp=4)
    kernels = sum(c.seconds for c in healthy.breakdown.children if c.name in ("compute", "memory-bound kernels"))
    assert added == pytest.approx(kernels, rel=0.02)
    assert late(2, tp=4)[0] == pytest.approx(added)


def test_a_slow_accelerator_of_a_pipeline_paces_its_stage():
    # With pp 4 and 8 micro-batches the steady state runs at the pace of the slow stage; fill and drain do not.
    added, healthy = late(0, pp=4)
    assert 0.25 * healthy.step_time_s < added < 0.75 * healthy.step_time_s
    last, _ = late(15, pp=4)
    assert last > added  # the stage of the LM head was the slowest before


def test_slow_nodes_and_resolved_faults_read_back():
    mapping = {**BASE, "accelerators": 16, "faults": [{"node": 1, "speed": 0.8}]}
    scenario = from_mapping(mapping)
    again = from_mapping(scenario.to_mapping())
    assert again.faults == scenario.faults and again.hash == scenario.hash
    slow = predict(scenario, allow_infeasible=True).step_time_s
    assert slow == predict(again, allow_infeasible=True).step_time_s
    assert slow > predict(from_mapping({**mapping, "faults": []}), allow_infeasible=True).step_time_s


def test_lora_has_no_gradients_and_no_states_of_frozen_weights():
    full, lora = report(), report(lora={"rank": 16})
    assert 0.67 * full.step_time_s < lora.step_time_s < 0.9 * full.step_time_s  # a third less, and the adapters
    # rank (k + n) of qkv, out, gate and up, down in 32 layers; up to 18 bytes of gradient, master and moments each.
    adapters = 16 * 32 * ((4096 + 6144) + (4096 + 4096) + (4096 + 28672) + (14336 + 4096))
    states = lora.memory.by_category["optimizer"] + lora.memory.by_category["gradients"]
    assert states < 18 * adapters
    assert lora.memory.by_category["weights"] == pytest.approx(full.memory.by_category["weights"] + 2 * adapters)
    # Backward of attention is whole: it has no weights. Forward it takes 4 s H d of a token and layer.
    forward, core = 2 * 7_504_658_432 + 32 * 4 * 8192 * 4096, 32 * 4 * 8192 * 4096
    assert lora.mfu * lora.step_time_s == pytest.approx(
        full.mfu * full.step_time_s * (2 * forward + core) / (3 * forward), rel=1e-6
    )


def test_weights_in_four_bits_are_kept_small_and_widened_ahead_of_products():
    """QLoRA: 0.516 bytes a weight of a layer, embedding and head in 16 bits; reading and writing it costs time."""

    def adapted(precision, **work):
        mapping = {**BASE, "precision": precision, "workload": {**BASE["workload"], **work}}
        return predict(from_mapping(mapping), allow_infeasible=True)

    wide, small = (adapted(precision, lora={"rank": 16}) for precision in ("bf16", "nf4"))
    layers = 8_030_261_248 - 2 * 4096 * 128256
    saved = wide.memory.by_category["weights"] - small.memory.by_category["weights"]
    assert saved == pytest.approx((2 - 0.5 - (1 + 4 / 256) / 64) * layers, rel=1e-4)
    assert wide.step_time_s < small.step_time_s < 1.2 * wide.step_time_s
    with pytest.raises(InputError, match=r"precision.weights nf4 is a format of weights that nobody trains"):
        adapted("nf4")


def test_lora_trains_what_it_targets():
    small, large = (report(lora={"rank": 8, "targets": targets}) for targets in (["attention"], ["attention", "mlp"]))
    assert small.step_time_s < large.step_time_s
    mapping = {**BASE, "workload": {**BASE["workload"], "lora": {"rank": 8}}}
    scenario = from_mapping(mapping)
    assert fit(scenario).memory.peak_bytes == predict(scenario, allow_infeasible=True).memory.peak_bytes


def moe(**routing):
    mapping = {
        **BASE,
        "model": "mixtral-8x7b",
        "parallelism": {"ep": 4},
        "workload": {**BASE["workload"], "routing": routing},
    }
    return predict(from_mapping(mapping), allow_infeasible=True).step_time_s


def test_the_hottest_rank_sets_the_pace_of_experts():
    even = moe()
    assert moe(counts=[100] * 8) == pytest.approx(even)
    uneven = moe(counts=[200, 200, 100, 100, 50, 50, 50, 50])  # ranks of two experts: 400 of 800 on the first, mean 200
    assert uneven == pytest.approx(moe(hottest=2.0)) and uneven > even
    assert moe(hottest=2.0, capacity=1.25) == pytest.approx(moe(hottest=1.25))
    assert moe(hottest=3.0) > uneven


def test_placed_experts_are_told_beside_what_they_would_be_unplaced():
    counts = [200, 200, 100, 100, 50, 50, 50, 50]
    mapping = {
        **BASE,
        "model": "mixtral-8x7b",
        "parallelism": {"ep": 4},
        "workload": {**BASE["workload"], "routing": {"counts": counts, "placement": "greedy"}},
    }
    found = predict(from_mapping(mapping), allow_infeasible=True)
    assert found.step_time_s == pytest.approx(moe(hottest=250 / 200)) and found.step_time_s < moe(counts=counts)
    assert (found.experts.hottest_over_mean, found.experts.in_a_row_over_mean) == (1.25, 2.0)
    assert found.experts.copies == 0 and found.experts.layer is None
    assert any("1.25x the mean of tokens (2.00x unplaced)" in line for line in answer(found))


def test_copies_of_experts_are_in_memory_and_level_an_engine():
    job = {"system": "dgx-h100", "accelerators": 8, "ep": 8}
    job |= {"batch_size": 256, "prompt_tokens": 2048, "output_tokens": 2}
    plain, copied = (
        rapid_llm.infer("qwen3-30b-a3b", **job, routing={"skew": 0.8, "redundant_experts": more}) for more in (0, 32)
    )
    weights = 48 * 3 * 2048 * 768 * 2 * 32 / 8
    assert copied.experts.copied_bytes == pytest.approx(weights)
    more = copied.memory.by_category["weights"] - plain.memory.by_category["weights"]
    assert more == pytest.approx(weights)
    assert copied.ttft_s < plain.ttft_s
    fitted = rapid_llm.fit("qwen3-30b-a3b", **job, routing={"skew": 0.8, "redundant_experts": 32})
    assert fitted.memory.by_category["weights"] == copied.memory.by_category["weights"]


@pytest.mark.parametrize("runtime", ["megatron-core", "torchtitan", "fsdp"])
def test_a_gather_shows_where_a_ring_hides(runtime):
    def step(exchange):
        return report({"cp": 8, "exchange": exchange}, runtime=runtime, sequence_length=65536, global_batch_size=8)

    gathered, ring = (step(exchange) for exchange in ("all-gather", "ring"))
    more = gathered.step_time_s / ring.step_time_s
    assert more == pytest.approx(1.0) if runtime == "fsdp" else more > 1.001


def test_a_predictor_of_a_further_token_is_a_layer_and_a_head_more():
    # DeepSeek-V3, section 2.2: a projection 2 h -> h, one layer and the shared head of 128,256 words on the last stage.
    plain, ahead = report({"pp": 4}), report({"pp": 4}, mtp_layers=1)
    layer = 4096 * (4096 * 2 + 1024 * 2 + 3 * 14336)
    last = 8 * layer + 128256 * 4096
    more = (layer + 2 * 4096**2 + 128256 * 4096) / last
    assert ahead.step_time_s / plain.step_time_s == pytest.approx(1 + 0.9 * more, rel=0.1)
    scenario = from_mapping({**BASE, "workload": {**BASE["workload"], "mtp_layers": 1}})
    assert fit(scenario).memory.peak_bytes == predict(scenario, allow_infeasible=True).memory.peak_bytes


VIT = {
    "model": "vit-l-16",
    "system": "dgx-h100",
    "accelerators": 8,
    "workload": {"kind": "training", "global_batch_size": 512, "micro_batch_size": 64, "sequence_length": 197},
}


def test_an_image_encoder_sees_all_patches_and_classifies_one_token():
    # Dosovitskiy et al. 2021: 12 h^2 a token and layer, 4 s h of full attention, the patches, and the class alone.
    found = predict(from_mapping(VIT))
    h, s, layers = 1024, 197, 24
    forward = s * layers * (24 * h * h + 4 * s * h) + 196 * 2 * 768 * h + 2 * h * 1000
    peak = 8 * 989.4e12
    assert found.mfu == pytest.approx(512 * 3 * forward / (found.step_time_s * peak), rel=1e-3)
    assert found.mfu_causal == found.mfu


@pytest.mark.parametrize(
    ("field", "work"),
    [("sequence_length", {"kind": "training", "global_batch_size": 512}),
     ("prompt_tokens", {"kind": "inference", "batch_size": 32})],
)  # fmt: skip
def test_an_image_has_one_length(field, work):
    found = from_mapping({"model": "vit-l-16", "system": "dgx-h100", "accelerators": 8, "workload": work})
    assert getattr(found.workload, field) == 197
    assert any(one.startswith(f"workload.{field}: 197 (the patches") for one in found.defaults)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"sequence_length": 256}, "workload.sequence_length must be 197, the patches of an image of vit-l-16 and its "
         "class (got 256). Try 197."),
    ],
)  # fmt: skip
def test_what_an_image_encoder_refuses(changes, sentence):
    with pytest.raises(InputError) as error:
        predict(from_mapping({**VIT, "workload": {**VIT["workload"], **changes}}))
    assert str(error.value) == sentence


@pytest.mark.parametrize("precision", ["bf16-mixed", "fp8-mixed", "fp8-block-mixed", "mxfp8-mixed", "nvfp4-mixed"])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen3-30b-a3b"])
def test_every_format_has_a_whole_report_on_blackwell(model, precision):
    mapping = {**BASE, "model": model, "system": "dgx-b200", "precision": precision}
    found = predict(
        from_mapping({**mapping, "parallelism": {"ep": 8} if "a3b" in model else {}}), allow_infeasible=True
    )
    assert found.breakdown and found.step_time_s > 0.0


def test_modules_that_run_again_read_back_and_cost_time_for_memory():
    none, some = (report(recompute=how) for how in ("none", {"modules": ["layernorm", "mlp"]}))
    assert some.step_time_s > none.step_time_s and some.memory.peak_bytes < none.memory.peak_bytes
    again = predict(from_mapping(some.scenario), allow_infeasible=True)
    assert again.step_time_s == some.step_time_s


def test_a_chunk_may_hold_the_head_alone():
    plan = {"pp": 4, "vpp": 2, "schedule": "interleaved"}
    even, alone = (
        report({**plan, "layers_per_stage": layers}).step_time_s for layers in ([4] * 8, [4, 4, 4, 4, 5, 5, 6, 0])
    )
    assert alone == pytest.approx(even, rel=0.2)


def test_experts_of_equal_rows_run_in_graphs_that_wait_for_no_host():
    """Mixtral 8x7B on 64 GB200 in fp8: 19,275 tokens/s each (NeMo 25.04 performance summary, cuda_graphs 1)."""

    def rate(runtime):
        given = {"base": "gb200-nvl72", "node": {"accelerators": 64, "nics": {"count": 64}}}
        found = predict(
            from_mapping(
                {
                    "model": "mixtral-8x7b",
                    "system": given,
                    "accelerators": 64,
                    "runtime": runtime,
                    "parallelism": {"ep": 8, "zero_stage": 1},
                    "workload": {
                        "kind": "training",
                        "global_batch_size": 256,
                        "micro_batch_size": 2,
                        "sequence_length": 4096,
                        "recompute": "none",
                    },
                    "precision": "fp8-mixed",
                }
            )
        )
        return found.tokens_per_s_per_accelerator

    assert rate("megatron-core@nemo-tokendrop-graphs") == pytest.approx(19275, rel=0.1)
    assert rate("megatron-core@nemo-tokendrop") < 0.75 * 19275
