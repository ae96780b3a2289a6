"""Jobs that trtllm-bench sizes: the batch and the budget that it picks before the engine has measured its cache."""

import numpy as np
import pytest

from rapid_llm import runtime as runtimes
from rapid_llm.hardware import system
from rapid_llm.memory import CATEGORIES
from rapid_llm.network import Fabric, library, price
from rapid_llm.predict.replica import job_of
from rapid_llm.scenario import from_mapping
from rapid_llm.workload import scattered_load

KV_CACHE = CATEGORIES.index("kv_cache")


def job(model="llama-3.3-70b", *, chip="dgx-h100", precision="fp8", prompt=1000, output=1000, runtime=None, **plan):
    work = {"kind": "inference", "batch_size": "auto", "prompt_tokens": prompt, "output_tokens": output}
    work |= {"batching": "continuous", "total_requests": 3000}
    base = {"model": model, "system": chip, "precision": precision, "workload": work, "parallelism": plan}
    ranks = plan.get("tp", 1) * plan.get("pp", 1)
    return from_mapping({**base, "accelerators": max(ranks, plan.get("ep", 1)), "runtime": runtime or "tensorrt-llm"})


def limits(one):
    engine = job_of(one).engine
    return engine.max_sequences, engine.max_batched_tokens


@pytest.mark.parametrize(
    ("one", "found"),
    [
        # finetune_setting: no fewer than 64 sequences and 2,048 tokens; up to the next 32, 128 and 256 of them
        (job(), (64, 2048)),
        (job(chip="hgx-h200", output=8192), (64, 2048)),
        (job(tp=4), (768, 2048)),
        (job(chip="hgx-h200", tp=8), (3328, 6656)),
        (job(chip="hgx-h200", prompt=2048, output=128, tp=2), (640, 10240)),
        # a latent counts as a key and a value for each head
        (job("deepseek-r1", chip="hgx-h200", precision="fp8-block", ep=8, output=8192), (64, 2048)),
    ],
)
def test_its_rule(one, found):
    assert limits(one) == found


def test_formats_that_it_does_not_know_keep_the_engines_own_limits():
    assert limits(job("gpt-oss-120b", chip="hgx-h200", precision={"kv_cache": "bf16"})) == (2048, 8192)


def test_a_user_sizes_the_engine():
    chosen = {"base": "tensorrt-llm", "serving": {"sized_by": "user", "max_sequences": 512}}
    assert limits(job(runtime=chosen)) == (512, 8192)


def test_a_budget_holds_the_longest_prompt_beside_a_full_batch():
    one = job_of(job(prompt=20_000))
    assert one.budget == 20_000 + one.engine.max_sequences
    server = runtimes.load("vllm", "hopper", memory=80 * 2**30)
    assert job_of(job(prompt=20_000, runtime="vllm")).budget == server.serving.max_batched_tokens


def test_windows_are_freed_where_an_engine_does_so():
    def cache(frees):
        serving = {"frees_windows": frees, "sized_by": "user"}
        one = job("gpt-oss-20b", precision={"kv_cache": "bf16"}, runtime={"base": "tensorrt-llm", "serving": serving})
        return job_of(one).account(16).by_category[KV_CACHE].max()

    assert cache(frees=False) > 1.5 * cache(frees=True)


def test_popular_experts_load_the_rank_that_holds_them():
    assert scattered_load(128, 1, 0.8) == scattered_load(128, 8, 0.0) == scattered_load(128, 16, 0.8) == 1.0
    loads = [scattered_load(128, ranks, 0.8) for ranks in (2, 4, 8)]
    assert loads == sorted(loads) and 1.05 < loads[0] < 1.2 and 1.6 < loads[2] < 1.9


def test_a_chain_waits_for_a_piece_at_every_hop():
    """What eight ranks broadcast takes a long message as long as a gather and six pieces of 12 MiB more."""
    fabric, nccl = Fabric.of(system("dgx-h100")), library("nccl")

    def seconds(op, size):
        return float(price(op, np.array([size]), np.array([8]), np.array([1]), fabric=fabric, library=nccl).seconds[0])

    rate = 7 / 8 / ((seconds("all_gather", 2e9) - seconds("all_gather", 1e9)) / 1e9)
    more = [seconds("broadcast", size) - seconds("all_gather", size) - size / 8 / rate for size in (3 * 2**20, 2**30)]
    assert more[1] == pytest.approx(6 * 12 * 2**20 / rate, rel=0.25)
    assert more[0] < 0.4 * more[1], "a short one is a part of a piece"
