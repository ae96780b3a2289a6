"""Scores on measured tables: keys that no fit saw, with bounds a little above what is reached."""

import sys
from pathlib import Path

import numpy as np
import pytest

from rapid_llm import hardware
from rapid_llm.network import Fabric, Tier, library, price

from .toys import fabric, leaf

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"

pytestmark = [pytest.mark.shared, pytest.mark.skipif(not DATA.is_dir(), reason="no ../shared/data beside the checkout")]


@pytest.fixture(scope="module")
def fit():
    pytest.importorskip("pandas")
    pytest.importorskip("scipy")
    sys.path.insert(0, str(ROOT / "tools"))
    import fit_network

    sys.path.pop(0)
    return fit_network


def h100(count):
    return Tier("node", count, 450e9, 0.5e-6, "nvlink4", in_network_reduction=True)


def pairs(bandwidth, name, host_bandwidth, host):
    pair = Tier("pair", 2, bandwidth, 0.6e-6, name, "full")
    return fabric(pair, Tier("host", 4, host_bandwidth, 0.8e-6, host, "shared"))


def mean_errors(rows, seconds):
    error = abs(seconds / (rows.latency_us * 1e-6) - 1)
    return error.groupby([rows.gpu, rows.op]).mean()


def test_nccl_inside_a_node(fit):
    rows = fit.nccl_rows(DATA)
    rows = rows[~rows.fit & (rows.gpu != "l40s")].reset_index(drop=True)
    errors = mean_errors(rows, fit.predict(rows, library("nccl")))
    assert len(errors) == 12
    assert errors.max() < 0.11, errors
    assert errors.mean() < 0.075, errors


def test_pairs_over_pcie(fit):
    """L40S: two GPUs. With four and eight that box carries 5 and 2 GB/s over its sockets, as no other does."""
    rows = fit.nccl_rows(DATA)
    rows = rows[~rows.fit & (rows.gpu == "l40s") & (rows.ngpus == 2)].reset_index(drop=True)
    assert mean_errors(rows, fit.predict(rows, library("nccl"))).max() < 0.2


@pytest.mark.parametrize("engine", ["sglang-custom-all-reduce", "vllm-custom-all-reduce", "trtllm-one-shot"])
def test_all_reduce_of_inference_engines(fit, engine):
    rows = fit.custom_rows(DATA, engine.split("-", maxsplit=1)[0])
    rows = rows[~rows.fit & (rows.gpu != "l40s")].reset_index(drop=True)
    errors = mean_errors(rows, fit.predict(rows, library("nccl"), library(engine)))
    assert errors.max() < 0.12, errors


def _published(query):
    import pandas as pd

    rows = pd.read_csv(DATA / "network" / "nccl_measured.csv.gz").query(query).dropna(subset=["time_us"])
    return rows.assign(op=rows.collective.replace({"alltoall": "all_to_all", "sendrecv": "send_recv"}))


@pytest.mark.parametrize(
    ("query", "system", "name", "bound"),
    [
        ("gpu == 'MI250X' and collective == 'all_gather'", "lumi-g", "rccl", 0.3),
        ("gpu == 'MI250X' and collective == 'all_reduce'", "lumi-g", "rccl", 0.15),
        ("gpu == 'MI355X'", "mi355x-8", "rccl", 0.1),
        ("gpu == 'A100'", "dgx-a100", "nccl", 0.35),
    ],
)
def test_published_logs(query, system, name, bound):
    rows = _published(query)
    fabric = Fabric.of(hardware.system(system))
    times = [
        price(o, b, n, 1, fabric=fabric, library=name).seconds.item()
        for o, b, n in zip(rows.op, rows.bytes, rows.ranks, strict=True)
    ]
    assert np.median(abs(np.array(times) / (rows.time_us * 1e-6) - 1)) < bound


BOXES = {
    # 2 x 4 H100 of an unnamed cloud: four 400 Gb/s cards a node are assumed.
    "2x4 H100 (unnamed cloud)": (fabric(h100(4), leaf(8, 50e9, 1.45e-6)), 0.3),
    "8 GPUs NVSwitch (H-class, unnamed)": (fabric(h100(8)), 0.1),
    "Azure ND GB200 v6 (4 GPUs per VM)": (fabric(Tier("node", 4, 900e9, 0.5e-6, "nvlink5")), 0.1),
}


@pytest.mark.parametrize("system", BOXES)
def test_logs_of_clusters_that_no_fit_saw(system):
    box, bound = BOXES[system]
    rows = _published(f"system == '{system}'")
    times = price("all_reduce", rows.bytes, rows.ranks, 1, fabric=box, library="nccl").seconds
    assert np.median(abs(times / (rows.time_us * 1e-6) - 1)) < bound


@pytest.mark.parametrize(
    ("network", "ranks", "box", "bound"),
    [
        ("h100_dgx", 8, fabric(h100(8)), 0.1),
        ("h100_dgx", 4, fabric(h100(4)), 0.13),
        ("a100_pairwise_nvlink", 4, pairs(300e9, "nvlink3", 31.5e9, "pcie4-x16"), 0.1),
        ("h100_pairwise_nvlink", 4, pairs(300e9, "nvlink4", 63e9, "pcie5-x16"), 0.15),
    ],
)
def test_profiles_of_another_tool(network, ranks, box, bound):
    """Vidur's all-reduce profiles (MIT), whole nodes: other machines, another NCCL, never fitted."""
    import pandas as pd

    rows = pd.read_csv(DATA / "kernels" / "vidur_all_reduce_ms.csv.gz")
    rows = rows.query(f"network == '{network}' and num_workers == {ranks} and devices_per_node == {ranks}")
    times = price("all_reduce", rows.bytes, ranks, 1, fabric=box, library="nccl").seconds
    assert np.median(abs(times / (rows.time_ms * 1e-3) - 1)) < bound
