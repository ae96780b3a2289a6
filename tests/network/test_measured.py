"""Scores on measured profiles that no fit saw, with bounds a little above what is reached.

The scorecard's own tables are scored in tests/validation/test_collectives.py.
"""

from pathlib import Path

import numpy as np
import pytest

from rapid_llm.network import Tier, price

from .toys import fabric

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"

pytestmark = [pytest.mark.shared, pytest.mark.skipif(not DATA.is_dir(), reason="no ../shared/data beside the checkout")]


def h100(count):
    return Tier("node", count, 450e9, 0.5e-6, "nvlink4", in_network_reduction=True)


def pairs(bandwidth, name, host_bandwidth, host):
    pair = Tier("pair", 2, bandwidth, 0.6e-6, name, "full")
    return fabric(pair, Tier("host", 4, host_bandwidth, 0.8e-6, host, "shared"))


@pytest.mark.parametrize(
    ("network", "ranks", "box", "bound"),
    [
        ("h100_dgx", 8, fabric(h100(8)), 0.1),
        ("h100_dgx", 4, fabric(h100(4)), 0.25),  # Simple from 9 MB on, where an older NCCL kept LL128
        ("a100_pairwise_nvlink", 4, pairs(300e9, "nvlink3", 31.5e9, "pcie4-x16"), 0.22),
        ("h100_pairwise_nvlink", 4, pairs(300e9, "nvlink4", 63e9, "pcie5-x16"), 0.25),
    ],
)
def test_profiles_of_another_tool(network, ranks, box, bound):
    """Vidur's all-reduce profiles (MIT), whole nodes: other machines, another NCCL, never fitted."""
    import pandas as pd

    rows = pd.read_csv(DATA / "kernels" / "vidur_all_reduce_ms.csv.gz")
    rows = rows.query(f"network == '{network}' and num_workers == {ranks} and devices_per_node == {ranks}")
    times = price("all_reduce", rows.bytes, ranks, 1, fabric=box, library="nccl").seconds
    assert np.median(abs(times / (rows.time_ms * 1e-3) - 1)) < bound
