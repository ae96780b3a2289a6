"""Closed forms against flow simulation of the same links: the largest deviation by fabric, collective and algorithm.

Run: python benchmarks/closed_forms.py [SYSTEM or CONSTRUCTOR ...] [--sample N --seed S]

Systems of the catalogue, and some whose files name a constructor, are held to the closed form of their tiers, all
groups of a job at once; constructors to that of their links. Cases whose sends meet on links beyond what the closed
form counts are told apart by what the links carry (``network.agreement``); they are counted, not run. Exit 1 where any
other is more than 1 % off.

What stands for all: a system for those with the same tiers; of jobs a node, two, three, a leaf and one more node, and
the largest up to 1,024, but for systems that differ from one before in rates and sizes alone two of these; of groups
those that fill a job, a node, half a node, a row of nodes, pairs near and far, and some that straddle nodes; of sizes
the ends of 1 KiB to 1 GiB and where lines meet (``telling``), since times are piecewise linear between; of exchanges
those up to 128 ranks, of constructors up to 64. ``--sample`` draws from everything instead: any system, job, group,
constructor and size.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from rapid_llm import hardware
from rapid_llm.hardware import System
from rapid_llm.network.agreement import EXCHANGES, MOST_PAIRS, Compared, on_system, on_topology, sampled, worst
from rapid_llm.network.fabric import Fabric
from rapid_llm.network.specimens import FAMILIES, WRITTEN, written

TARGET = 0.01
MOST = 1024
RANKS = (2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 18, 24, 27, 31, 32, 36, 48, 54, 64, 72, 96, 100, 125, 128, 144, 216, 250)
MANY = (256, 264, 343, 500, 512, 1000, 1024, 1056)


def alike(names: list[str]) -> list[System]:
    """One system for all whose tiers are the same."""
    known = {}
    for system in map(hardware.system, names):
        tiers = Fabric.of(system).tiers
        if tiers:
            key = tuple((t.kind, t.span, t.bandwidth, t.latency, t.port, t.astray, t.dimensions) for t in tiers)
            known.setdefault((key, tiers[0].in_network_reduction), system)
    return list(known.values())


def jobs(system: System, known: set[tuple[object, ...]]) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """Sizes of jobs, and the groups of each as ranks and stride; fewer where a system of the same form is ``known``."""
    node, tiers = system.groups[0].node.accelerators, Fabric.of(system).tiers
    top = min(MOST, system.accelerators)
    if tiers[-1].kind == "torus":
        yield from ((total, [(total, 1)]) for total in (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024) if total <= top)
        return
    leaf = min(tier.span for tier in tiers if tier.span > node or tier is tiers[-1])
    form = tuple((t.kind, t.in_network_reduction, t.astray > 0, t.port > t.bandwidth, t.behind) for t in tiers)
    counts = {3, leaf // node + 1} if form in known else {1, 2, 3, leaf // node, leaf // node + 1, top // node}
    known.add(form)
    for total in sorted({node * count for count in counts if node * count <= top}):
        nodes = total // node
        found = {(total, 1), (node, 1), (node // 2, 2), (nodes, node), (2, 1), (2, total // 2), (total // 2, 1)}
        found |= {(3, 1), (3, node // 2), (nodes, 1), (total // 4, 4), (node + node // 2, 1)}
        yield total, sorted((n, step) for n, step in found if n > 1 and step > 0 and total % (n * step) == 0)


def constructor(name: str) -> Iterator[Compared]:
    """All accelerators of its topologies, and two thirds of those that are not large."""
    for total in (n for n in (*RANKS, *MANY) if FAMILIES[name].has(n)):
        topology = FAMILIES[name].of(total)
        for ranks in {total, max(2, 2 * total // 3)} if total < MANY[0] else {total}:

            def takes(op: str, algorithm: str, ranks: int = ranks) -> bool:
                # of unlike links each send may end at a time of its own
                return algorithm not in EXCHANGES or 4 * ranks * ranks <= MOST_PAIRS

            yield from on_topology(topology, ranks, takes=takes, where=name)


def of_a_file(system: System) -> Iterator[Compared]:
    """Groups of all of a system whose file names a constructor, of half and of three quarters: rows, strides, parts."""
    node, nodes = system.groups[0].node.accelerators, system.accelerators // system.groups[0].node.accelerators
    for total in sorted({node * max(1, part) for part in (nodes, nodes // 2, 3 * nodes // 4)}):
        found = {
            (total, 1),
            (node, 1),
            (total // node, node),
            (2, 1),
            (2, total // 2),
            (total // 2, 1),
            (3, 1),
            (12, 1),
        }
        found |= {(total // 4, 4), (total // 2, 2), (4, 2), (4, total // 4)}
        yield from on_system(system, total, sorted(one for one in found if min(one) > 0 and one[0] > 1))


def every(names: list[str]) -> Iterator[tuple[str, list[Compared]]]:
    """Comparisons by fabric."""
    other = {*FAMILIES, *WRITTEN}
    chosen = [name for name in names if name not in other] if names else hardware.system_names()
    known: set[tuple[object, ...]] = set()
    for system in alike(chosen):
        yield system.name, [one for total, groups in jobs(system, known) for one in on_system(system, total, groups)]
    for name in WRITTEN:
        if not names or name in names:
            yield name, [replace(one, where=name) for one in of_a_file(written(name))]
    for name in FAMILIES:
        if not names or name in names:
            yield name, list(constructor(name))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="systems or constructors (default: all)")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="so many random cases instead")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    print(f"{'where':26s}{'collective':16s}{'algorithm':18s}{'cases':>6s}{'largest':>10s}  at{'':22s}{'meet':>6s}")
    begin, cases, meeting, overall = time.process_time(), 0, 0, 0.0
    parts = (
        every(asked.names) if not asked.sample else [("sample", list(sampled(asked.sample, asked.seed, asked.names)))]
    )
    for name, found in parts:
        for where, op, algorithm, count, farthest, meet in worst(found):
            at, off = "", 0.0
            if farthest is not None:
                off = farthest.off
                at = f"{farthest.ranks} x{farthest.stride} of {farthest.total}, {farthest.size:.0f} B"
            overall, cases, meeting = max(overall, abs(off)), cases + count, meeting + meet
            mark = "  <--" if abs(off) > TARGET else ""
            if not asked.sample or mark:
                line = f"{where:26s}{op:16s}{algorithm:18s}{count:6d}{100 * off:9.2f}%  {at:24s}{meet:6d}{mark}"
                print(line, flush=True)
        print(f"{name}: {len(found)} cases, {time.process_time() - begin:.0f} s so far", file=sys.stderr, flush=True)
    print(
        f"{cases} cases and {meeting} that meet; largest deviation {100 * overall:.2f} % ({100 * TARGET:.0f} % allowed)"
    )
    return int(overall > TARGET or not np.isfinite(overall))


if __name__ == "__main__":
    sys.exit(main())
