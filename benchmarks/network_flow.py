"""Flow simulation from scratch (topology, routes, program, engine), the compiled code warm, against its targets.

Run: python benchmarks/network_flow.py

Each case runs in a process of its own, after one small collective that loads the compiled code; the time is CPU time,
the best of a few; memory is what the case adds to the process, and the peak of the whole process.
"""

import gc
import resource
import subprocess
import sys
import time
from collections.abc import Callable

from rapid_llm.network import clusters, shapes, templates
from rapid_llm.network.engine import simulate
from rapid_llm.network.faults import apply, read_faults
from rapid_llm.network.programs import program
from rapid_llm.network.topology import Topology

REPEATS = 5
LATENCY = 1e-6
TALL = (8, 256, 16384)


def superpod(boxes: int) -> Topology:
    outer = clusters.leaf_spine(boxes * 8, 32, 50e9, 2e-6, rails=8, upper=1e-6)
    return clusters.nested([clusters.switch(8, 450e9, LATENCY)] * boxes, outer)


def failed(boxes: int) -> Topology:
    fault = {"link": ["node5.nic3", "leaf0.3"], "down": True}
    return apply(superpod(boxes), read_faults([fault]))


RING = templates.ring("all_reduce", (1024,), 1)
EXCHANGE = templates.direct("all_to_all", (256,), 1)
HIERARCHY = templates.hierarchical("all_reduce", TALL, 1)
Case = tuple[Callable[[], Topology], templates.Template, tuple[int, ...], float]
CASES: dict[str, Case] = {
    "ring all-reduce, 1,024 ranks": (lambda: shapes.ring(1024, 50e9, LATENCY), RING, (1024,), 50),
    "all-to-all, 256 ranks on a switch": (lambda: clusters.switch(256, 50e9, LATENCY), EXCHANGE, (256,), 30),
    "all-to-all, 256 ranks on a ring": (lambda: shapes.ring(256, 50e9, LATENCY), EXCHANGE, (256,), 60),
    "hierarchical, 16,384 ranks on rails": (lambda: superpod(2048), HIERARCHY, TALL, 1000),
    "the same with one failed link": (lambda: failed(2048), HIERARCHY, TALL, 1000),
}
"""Topology, template, bounds, and the most milliseconds that it may take."""


def load() -> tuple[float, int]:
    """Load the compiled code with two small collectives: seconds, and functions that had to be compiled."""
    begin = time.process_time()
    for network, phases, bounds in (
        (shapes.ring(8, 50e9), templates.direct("all_to_all", (8,), 1), (8,)),
        (failed(8), templates.hierarchical("all_reduce", (8, 64), 1), (8, 64)),
    ):
        simulate(program(phases, bounds, 64e6, network), network)
    from rapid_llm.network.engine import crowding, folding, loop, state
    from rapid_llm.network.routing import drive

    known = [f for m in (crowding, folding, loop, state, drive) for f in vars(m).values() if hasattr(f, "stats")]
    return time.process_time() - begin, sum(sum(f.stats.cache_misses.values()) for f in known)


def megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(name: str) -> None:
    network, template, bounds, target = CASES[name]
    load()
    before, best = megabytes(), float("inf")
    for _ in range(REPEATS):
        gc.collect()
        begin = time.process_time()
        topology = network()
        result = simulate(program(template, bounds, 64e6, topology), topology)
        best = min(best, 1e3 * (time.process_time() - begin))
    print(
        f"{name:36s}{best:7.1f} ms  target {target:5.0f}  ratio {best / target:4.2f}  {result.classes:6d} classes"
        f"  {result.events:8d} events  {megabytes() - before:4.0f} MB more, {megabytes():4.0f} in all",
        flush=True,
    )


def main() -> None:
    load()  # compiles where this is the first time
    subprocess.run([sys.executable, __file__, "load"], check=True)
    for name in CASES:
        subprocess.run([sys.executable, __file__, name], check=True)


if __name__ == "__main__":
    if not sys.argv[1:]:
        main()
    elif sys.argv[1] == "load":
        seconds, compiled = load()
        print(f"a second process loads compiled code in {1e3 * seconds:.0f} ms and compiles {compiled} functions")
    else:
        measure(sys.argv[1])
