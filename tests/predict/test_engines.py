"""What older engines did, by what follows from it."""

import pytest

from rapid_llm.nouns import replaced
from rapid_llm.predict import evaluate
from rapid_llm.scenario import from_mapping


def scenario(model, runtime, *, system="dgx-a100", tp=1, precision="fp16", **work):
    base = {"kind": "inference", "batch_size": 1, "prompt_tokens": 512, "output_tokens": 16}
    return from_mapping(
        {
            "model": model,
            "system": system,
            "runtime": runtime,
            "precision": precision,
            "parallelism": {"tp": tp},
            "workload": {**base, **work},
        }
    )


def without(given, **host):
    changed = replaced(given.runtime.host, **host)
    return replaced(given, runtime=replaced(given.runtime, host=changed))


@pytest.mark.parametrize(("tokens", "maps"), [(2048, False), (4096, True)])
def test_tensors_of_all_reduces_are_mapped_anew_beyond_what_memory_is_left(tokens, maps):
    """160 messages of 8192 x 2 bytes a token: 5.4 GB at 2,048 tokens, 10.7 at 4,096, and vLLM leaves a tenth of 80."""
    given = scenario("llama-2-70b", "vllm@2023", tp=8, prompt_tokens=tokens)
    more = evaluate(given).ttft_s - evaluate(without(given, per_gib_mapped=0.0)).ttft_s
    gib = 161 * tokens * 8192 * 2 / 2**30
    assert more == pytest.approx(gib * given.runtime.host.per_gib_mapped if maps else 0.0, rel=0.01)


def test_what_prepares_a_pass_hides_behind_a_longer_one():
    short, long = (scenario("llama-2-70b", "vllm@2023", tp=8, prompt_tokens=n) for n in (64, 2000))
    none = replaced(short.runtime.host.preparing, prefill=0.0)
    saved = [evaluate(s).ttft_s - evaluate(without(s, preparing=none)).ttft_s for s in (short, long)]
    assert saved[0] == pytest.approx(80 * short.runtime.host.preparing.prefill, rel=0.1)
    assert saved[1] < 0.5 * saved[0]


def test_a_bias_behind_an_all_reduce_is_a_launch():
    def names(runtime):
        table = evaluate(scenario("bloom-176b", runtime, tp=8))
        return [name for rows in table.steps.priced.kernels for name in rows.rows.names]

    assert names("vllm@2023").count("bias") == 2
    assert "bias" not in names("vllm")


def test_query_heads_in_a_group_of_seven_read_the_cache_alone():
    """Qwen2-7B has 28 query heads on 4 KV heads; the precompiled kernels of 0.9 take powers of two."""
    work = {"batch_size": 64, "prompt_tokens": 1024, "output_tokens": 64}
    old, new = (evaluate(scenario("qwen2-7b", f"tensorrt-llm{v}", system="dgx-h100", **work)) for v in ("@2024", ""))
    assert old.steps.family("attention")[-2] > 1.5 * new.steps.family("attention")[-2]


def test_llama_cpp_keeps_its_head_in_six_bits():
    table = evaluate(scenario("llama-3-8b", "llama.cpp", system="rtx-4090", precision="q4-k"))
    rows = {
        n: r
        for t in table.steps.priced.kernels
        for n, r in zip(t.rows.names, t.rows.columns.get("w_bytes", ()), strict=False)
    }
    assert rows["lm_head"][0] == pytest.approx(210 / 256)
    assert rows["down"][0] == pytest.approx(0.6, rel=0.01)


def test_llama_cpp_of_may_2024_launches_kernel_by_kernel_and_unpacks_prompts_for_cublas():
    now, then = (
        evaluate(scenario("llama-3-8b", engine, system="rtx-4090", precision="q4-k"))
        for engine in ("llama.cpp", "llama.cpp@2024")
    )
    assert 1.05 < then.tpot_s / now.tpot_s < 1.3
    assert 1.15 < then.ttft_s / now.ttft_s < 1.6


def test_experts_of_llama_cpp_are_unpacked_too():
    """gpt-oss 20B decodes at 189 tok/s on an A100 and 266 on an RTX 4090, which has half the memory bandwidth."""
    large, small = (
        evaluate(scenario("gpt-oss-20b", "llama.cpp", system=name, precision="q4-k")).tpot_s
        for name in ("a100-sxm", "rtx-4090")
    )
    assert large > small / 1.05


def test_a_grace_cpu_holds_its_accelerator_back():
    """Of an H200 and a GH200, which differ in host and 800 GB/s, eager engines show the host."""
    fast, slow = (
        evaluate(scenario("llama-3.1-8b", "hf-transformers", system=name, batch_size=1))
        for name in ("h200-sxm", "gh200")
    )
    assert slow.tpot_s > 1.5 * fast.tpot_s


def test_a_cache_that_puts_requests_off_runs_at_its_mean_length():
    """vLLM admits by what is there; TensorRT-LLM sets all of the output aside."""
    work = {"batch_size": 256, "prompt_tokens": 2048, "output_tokens": 2048}
    engines = [evaluate(scenario("llama-2-7b", name, **work)) for name in ("vllm", "tensorrt-llm")]
    assert all(table.rounds > 1 for table in engines)
    assert engines[0].running > 1.2 * engines[1].running


def test_micro_batches_of_2024_cross_the_stages_one_after_the_other():
    """Each reads all weights of all stages: two of eight requests take as long as two batches of eight."""
    given = scenario("llama-2-7b", "tensorrt-llm@2024", batch_size=16)
    plan = replaced(given.parallelism, pp=2)
    both = evaluate(replaced(given, parallelism=plan, accelerators=2))
    half = evaluate(scenario("llama-2-7b", "tensorrt-llm@2024", batch_size=8))
    assert both.tpot_s == pytest.approx(2 * half.tpot_s, rel=0.05)
    overlapped = evaluate(
        replaced(scenario("llama-2-7b", "tensorrt-llm", batch_size=16), parallelism=plan, accelerators=2)
    )
    assert overlapped.tpot_s < 0.7 * both.tpot_s


@pytest.mark.parametrize("requests", [1, 64])
def test_what_a_shared_expert_waits_for_hides_beside_the_routed_ones(requests):
    """58 layers: launches and ramps of its kernels show no more in captured steps; prompts, launched by the host, keep
    them."""
    given = scenario("deepseek-v3", "sglang", system="dgx-b200", tp=8, precision="fp8-block", batch_size=requests)
    apart = replaced(given.runtime.overlap, shared_beside=False)
    beside, alone = (evaluate(one) for one in (given, replaced(given, runtime=replaced(given.runtime, overlap=apart))))
    assert 58 * 5e-6 < alone.tpot_s - beside.tpot_s < 58 * 25e-6
    assert beside.ttft_s == alone.ttft_s


@pytest.mark.parametrize(("host", "moved"), [({"per_sample": "10 us"}, 1.0), ({"per_sequence": "10 us"}, 0.25)])
def test_sampling_takes_the_accelerator_as_long_whatever_its_host(host, moved):
    def token(speed, costs):
        system = {"base": "dgx-h100", "node": {"host_speed": speed}}
        runtime = {"base": "tensorrt-llm", "host": {"per_sample": "0 s", "per_step": "0 s", **costs}}
        work = {"kind": "inference", "batch_size": 64, "prompt_tokens": 64, "output_tokens": 64}
        asked = {"model": "llama-3.1-8b", "system": system, "accelerators": 1, "runtime": runtime, "workload": work}
        return evaluate(from_mapping(asked)).tpot_s

    slow, fast = (token(speed, host) - token(speed, {}) for speed in (1.0, 4.0))
    assert slow == pytest.approx(64 * 10e-6)
    assert fast == pytest.approx(moved * slow)


def test_a_request_of_a_loop_comes_while_others_decode_where_prompts_interrupt_them():
    """However many prompts are read, those between two looks wait for half of the decode steps between them."""

    def waits(interval):
        runtime = {"base": "sglang", "serving": {"receive_interval": interval}}
        work = {"kind": "inference", "batch_size": 8, "prompt_tokens": 4096, "output_tokens": 512}
        asked = {"model": "llama-3.1-8b", "system": "dgx-h100", "accelerators": 1, "runtime": runtime}
        return evaluate(from_mapping({**asked, "workload": {**work, "batching": "continuous"}}))

    near, far = waits(1), waits(21)
    step = far.steps.traversal[1] + far.steps.host[1]
    assert far.ttft_s - near.ttft_s == pytest.approx(10 * step, rel=0.1)
