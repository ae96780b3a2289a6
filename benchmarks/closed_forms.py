"""Closed forms against flow simulation of the same links: the largest deviation by system, collective and algorithm.

Run: python benchmarks/closed_forms.py [SYSTEM or CONSTRUCTOR ...]

Systems of the catalogue are held to the closed form of their tiers, all groups of a job at once; constructors to that
of their links. Cases whose sends meet on links beyond what the closed form counts are told apart by what the links
carry (``network.agreement``), and only counted.
"""

import sys
import time

from rapid_llm import hardware
from rapid_llm.network.agreement import CONSTRUCTORS, Compared, on_system, on_topology, worst
from rapid_llm.network.fabric import Fabric

SIZES = (2.0**12, 2.0**16, 2.0**20, 2.0**24, 2.0**28)
RANKS = (2, 3, 4, 5, 6, 7, 8, 12, 16, 18, 24, 32, 36, 40, 48, 64, 72, 96, 128, 144, 256, 512, 1024)
STRIDES = (1, 2, 4, 8, 16, 32, 64)
NODES = (1, 2, 3, 5, 8, 32, 128)
MOST = {"": 1024, "direct": 128, "one-shot": 128, "two-shot": 16, "pxn": 128, "tree": 512, "halving-doubling": 256}


def systems(name: str) -> list[Compared]:
    system = hardware.system(name)
    if not Fabric.of(system).tiers:
        return []
    node = system.groups[0].node.accelerators
    wanted = {node * count for count in NODES} | ({2, 4} if node > 4 else set())
    groups = [(ranks, stride) for ranks in RANKS for stride in STRIDES]
    return [
        one
        for total in sorted(wanted)
        if total <= min(system.accelerators, 1024) and (total <= node or system.fabric is not None)
        for one in on_system(system, total, groups, SIZES)
    ]


def constructors(name: str) -> list[Compared]:
    return [one for total in RANKS for one in on_topology(name, total, SIZES, MOST)]


def main() -> None:
    wanted = sys.argv[1:] or [*hardware.system_names(), *CONSTRUCTORS]
    print(f"{'where':26s}{'collective':16s}{'algorithm':18s}{'cases':>6s}{'largest':>10s}  at{'':22s}{'meet':>6s}")
    overall = 0.0
    for name in wanted:
        begin = time.process_time()
        found = constructors(name) if name in CONSTRUCTORS else systems(name)
        for where, op, algorithm, cases, farthest, meeting in worst(found):
            at, off = "", 0.0
            if farthest is not None:
                off = farthest.off
                at = f"{farthest.ranks} x{farthest.stride} of {farthest.total}, {farthest.size:.0f} B"
            overall = max(overall, abs(off))
            print(f"{where:26s}{op:16s}{algorithm:18s}{cases:6d}{100 * off:9.2f}%  {at:24s}{meeting:6d}", flush=True)
        print(f"{name}: {len(found)} cases in {time.process_time() - begin:.0f} s", file=sys.stderr)
    print(f"largest deviation: {100 * overall:.2f} %")


if __name__ == "__main__":
    main()
