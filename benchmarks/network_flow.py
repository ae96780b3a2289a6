"""Flow simulation from scratch (topology, routes, program, engine), the compiled code warm.

Run: python benchmarks/network_flow.py
"""

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


def superpod(boxes: int) -> Topology:
    outer = clusters.leaf_spine(boxes * 8, 32, 50e9, 2e-6, rails=8, upper=1e-6)
    return clusters.nested([clusters.switch(8, 450e9, LATENCY)] * boxes, outer)


def failed(boxes: int) -> Topology:
    fault = {"link": ["node5.nic3", "leaf0.3"], "down": True}
    return apply(superpod(boxes), read_faults([fault]))


def measure(name: str, network: Callable[[], Topology], template: templates.Template, bounds: tuple[int, ...]) -> None:
    best = float("inf")
    for _ in range(REPEATS):
        begin = time.perf_counter()
        topology = network()
        result = simulate(program(template, bounds, 64e6, topology), topology)
        best = min(best, time.perf_counter() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{name:44s} {1e3 * best:9.1f} ms  {result.classes:6d} classes  {result.events:8d} events  {peak:5.0f} MB")


def main() -> None:
    ring = templates.ring("all_reduce", (1024,), 1)
    exchange = templates.direct("all_to_all", (256,), 1)
    tall = (8, 256, 16384)
    hierarchy = templates.hierarchical("all_reduce", tall, 1)
    measure("ring all-reduce, 1,024 ranks", lambda: shapes.ring(1024, 50e9, LATENCY), ring, (1024,))
    measure("all-to-all, 256 ranks on a switch", lambda: clusters.switch(256, 50e9, LATENCY), exchange, (256,))
    measure("all-to-all, 256 ranks on a ring", lambda: shapes.ring(256, 50e9, LATENCY), exchange, (256,))
    measure("hierarchical, 16,384 ranks on rails", lambda: superpod(2048), hierarchy, tall)
    measure("the same with one failed link", lambda: failed(2048), hierarchy, tall)


if __name__ == "__main__":
    if sys.argv[1:] == ["again"]:
        main()
    else:
        subprocess.run([sys.executable, __file__, "again"], check=True)
