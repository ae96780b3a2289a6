"""How fast: import, help, first answer from a shell, a warm prediction, a thousand plans, a verdict of memory.

``make bench``. Processes are timed in CPU seconds of a fresh interpreter, best of five after one that fills the page
cache. A warm answer has its catalogue loaded and a scenario never asked before. Targets stand beside the figures.
"""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
GPT = ROOT / "examples" / "gpt-175b-training.yaml"
LLAMA = ROOT / "examples" / "llama-2-70b-inference.yaml"
DEEPSEEK = ROOT / "examples" / "deepseek-v3-inference.yaml"
COMMAND = str(Path(sys.executable).parent / "rapid-llm")
ONE_LINE = (
    "train llama-3.1-70b --system dgx-h100 --accelerators 64 --tp 8 --pp 2 "
    "--global-batch-size 512 --sequence-length 8192"
)
FIT = (
    "fit train llama-3.1-8b --accelerator h100-sxm --tp 4 --micro-batch-size 1 "
    "--global-batch-size 64 --sequence-length 4096"
)
TARGETS = {
    "import rapid_llm": (0.15, "s CPU"),
    "rapid-llm --help": (0.4, "s CPU"),
    "first answer from one line": (1.0, "s wall"),
    "warm predict, GPT-175B on 64": (3e-3, "s wall"),
    "warm predict, 1,000 tokens out": (1e-3, "s CPU"),
    "the same with its breakdown": (1e-3, "s CPU"),
    "the same of DeepSeek-V3": (1.5e-3, "s CPU"),
    "warm predict, GPT-1T on 3,072": (2e-3, "s CPU"),
    "warm predict, DeepSeek-V3 on 2,048": (5e-3, "s CPU"),
    "1,000 plans as one table": (0.5, "s wall"),
    "fit from one line": (0.6, "s wall"),
    "warm fit, training": (3e-4, "s wall"),
    "warm fit, inference": (3e-4, "s wall"),
}


def process(*argv: str) -> tuple[float, float]:
    """CPU and wall seconds of one process."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(argv, check=True, capture_output=True, env=dict(os.environ))
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def best(run: Callable[[], float], times: int = 5) -> float:
    run()
    return min(run() for _ in range(times))


def warm(
    answer: Callable[[Any], object],
    file: Path,
    changes: list[list[str]],
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Seconds of one answer: median over scenarios that were never asked before, after one that loads the catalogue."""
    from rapid_llm import load

    first, *scenarios = [load(file, overrides=change) for change in changes]
    answer(first)
    seconds = []
    for scenario in scenarios:
        start = clock()
        answer(scenario)
        seconds.append(clock() - start)
    return sorted(seconds)[len(seconds) // 2]


GPT_1T = {
    "model": "gpt-1t",
    "system": "selene",
    "accelerators": 3072,
    "parallelism": {"tp": 8, "pp": 64, "dp": 6},
    "workload": {"kind": "training", "global_batch_size": 3072, "sequence_length": 2048, "recompute": "full"},
}
"""512 micro-batches (Narayanan et al. 2021)."""
DEEPSEEK_V3 = {
    "model": "deepseek-v3",
    "system": "h800-8",
    "accelerators": 2048,
    "runtime": "megatron-core@nemo-deepep",
    "parallelism": {"pp": 16, "ep": 64, "dp": 128, "schedule": "dualpipe", "layers_per_stage": [4] * 15 + [1]},
    "workload": {"kind": "training", "global_batch_size": 15360, "sequence_length": 4096, "recompute": "full"},
}


def warm_training(fields: dict[str, Any], batch: int) -> float:
    """CPU seconds of one step at lengths and batch sizes that were never asked before: median after a first one."""
    from rapid_llm import predict
    from rapid_llm.scenario import from_mapping

    def longer(n: int) -> dict[str, Any]:
        work = fields["workload"]
        sizes = {"global_batch_size": work["global_batch_size"] + batch * n}
        return {**fields, "workload": {**work, **sizes, "sequence_length": work["sequence_length"] - 16 * n}}

    first, *scenarios = [from_mapping(longer(n)) for n in range(41)]
    predict(first)
    seconds = []
    for scenario in scenarios:
        start = time.process_time()
        predict(scenario)
        seconds.append(time.process_time() - start)
    return sorted(seconds)[len(seconds) // 2]


def plans() -> float:
    """Seconds for a table of 1,000 plans of one job that were never priced before."""
    from rapid_llm import load
    from rapid_llm.nouns import replaced
    from rapid_llm.predict import evaluate_many

    scenario = load(GPT)
    degrees = [(tp, pp) for tp in (1, 2, 4, 8) for pp in (1, 2, 4, 8, 12, 16)]
    batches = [replaced(scenario.workload, global_batch_size=64 * n) for n in range(1, 43)]
    cuts = [replaced(scenario.parallelism, tp=tp, pp=pp) for tp, pp in degrees]
    pairs = [(work, cut) for work in batches for cut in cuts][:1000]
    scenarios = [replaced(scenario, workload=work, parallelism=cut) for work, cut in pairs]
    start = time.perf_counter()
    evaluate_many(scenarios)
    return time.perf_counter() - start


def measured() -> dict[str, float]:
    from rapid_llm import fit, predict

    def explained(scenario: Any) -> object:
        return predict(scenario).breakdown

    jobs = [[f"workload.sequence_length={2048 - 32 * n}", f"workload.global_batch_size={64 + n}"] for n in range(41)]
    requests = [[f"workload.prompt_tokens={1024 - 8 * n}"] for n in range(41)]
    outputs = [[f"workload.prompt_tokens={1024 - 4 * n}", "workload.output_tokens=1000"] for n in range(201)]
    return {
        "import rapid_llm": best(lambda: process(sys.executable, "-c", "import rapid_llm")[0]),
        "rapid-llm --help": best(lambda: process(COMMAND, "--help")[0]),
        "first answer from one line": best(lambda: process(COMMAND, *ONE_LINE.split())[1]),
        "warm predict, GPT-175B on 64": warm(predict, GPT, jobs),
        "warm predict, 1,000 tokens out": warm(predict, LLAMA, outputs, time.process_time),
        "the same with its breakdown": warm(explained, LLAMA, outputs, time.process_time),
        "the same of DeepSeek-V3": warm(explained, DEEPSEEK, outputs, time.process_time),
        "warm predict, GPT-1T on 3,072": warm_training(GPT_1T, 6),
        "warm predict, DeepSeek-V3 on 2,048": warm_training(DEEPSEEK_V3, 256),
        "1,000 plans as one table": plans(),
        "fit from one line": best(lambda: process(COMMAND, *FIT.split())[1]),
        "warm fit, training": warm(fit, GPT, jobs),
        "warm fit, inference": warm(fit, LLAMA, requests),
    }


def main() -> None:
    found = measured()
    if "--json" in sys.argv:
        print(json.dumps(found))
        return
    print(f"{'what':<36} {'measured':>10} {'target':>8}  {'of target':>9}")
    for name, value in found.items():
        target, unit = TARGETS[name]
        print(f"{name:<36} {value:>10.5f} {target:>8.4f}  {value / target:>8.0%}  {unit}")


if __name__ == "__main__":
    main()
