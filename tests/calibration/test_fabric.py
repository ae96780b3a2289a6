"""Fits of a library's costs: they find what made the data, and a file is whole or not there."""

import sys

import numpy as np
import pytest

from rapid_llm import hardware
from rapid_llm.calibration import Measurement, calibrate
from rapid_llm.calibration import fabric as fitting
from rapid_llm.documents import read_yaml
from rapid_llm.errors import InputError
from rapid_llm.network import Fabric, library, price
from rapid_llm.network.technologies import LIBRARIES
from rapid_llm.nouns import FrozenDict, replaced

DGX = Fabric.of(hardware.system("dgx-h100"))
SIZES = np.logspace(3, 9, 25)


def measured(link="infiniband-ndr", ranks=(16,), ops=("all_reduce",), **changes):
    """Times of a machine whose costs differ from the catalogue's."""
    base = library("nccl")
    cost = replaced(base.cost(link, "inter"), **changes)
    true = replaced(base, links=FrozenDict({**base.links, link: cost}))
    return [
        Measurement(op, size, n, price(op, size, n, 1, fabric=DGX, library=true).seconds.item())
        for op in ops
        for n in ranks
        for size in SIZES
    ]


def test_a_fit_finds_the_machine_that_made_the_data():
    got = calibrate(DGX, measured(launch=4e-5, efficiency=0.5, ranks=(16, 128)), library="nccl")
    assert got.link == "infiniband-ndr"
    assert got.after.launch == pytest.approx(4e-5, rel=0.1)
    assert got.after.efficiency == pytest.approx(0.5, rel=0.02)
    assert got.error_after < 0.02 < got.error_before
    assert (got.rows, got.unseen, got.held_out) == (26, 24, "every second size")


def test_whole_pairs_are_held_out_where_there_are_enough():
    ops = ("all_reduce", "all_gather", "reduce_scatter")
    got = calibrate(DGX, measured(efficiency=0.6, ranks=(16, 32), ops=ops), library="nccl")
    assert got.held_out.startswith("whole pairs")
    assert got.error_after < 0.02


def test_rows_inside_a_node_say_nothing_of_the_network():
    rows = measured() + [Measurement("all_reduce", 1e6, 8, 3e-5)] * 3
    assert calibrate(DGX, rows, library="nccl").aside == 3


def test_an_exact_table_changes_nothing():
    got = calibrate(DGX, measured(), library="nccl")
    assert got.error_after < 1e-3


def test_the_file_is_a_library(tmp_path):
    got = calibrate(DGX, measured(efficiency=0.5), library="nccl")
    path = tmp_path / "mine.yaml"
    fitting.write(got.document("mine", "a log"), path)
    loaded = library(str(path))
    assert loaded.links["infiniband-ndr"].efficiency == got.after.efficiency
    assert loaded.links["nvlink4"] == library("nccl").links["nvlink4"]
    assert read_yaml(path).data["links"]["infiniband-ndr"]["source"] == "a log"
    other = tmp_path / "other"
    other.touch()
    assert path.stat().st_mode == other.stat().st_mode


LINKS = [(name, link) for name in LIBRARIES.names() for link in library(name).links]


@pytest.mark.parametrize(("name", "link"), LINKS)
def test_every_link_of_every_library_is_read_as_it_was_written(name, link, tmp_path):
    known = library(name)
    cost = known.links[link]
    found = fitting.Calibration(
        library=known, link=link, before=cost, after=cost, fitted=("launch",), rows=8, unseen=4, aside=0,
        held_out="every second size", error_before=0.1, error_after=0.1,
    )  # fmt: skip
    path = tmp_path / "mine.yaml"
    fitting.write(found.document("mine", "a log"), path)
    assert library(str(path)).links[link] == cost
    assert " us\n" in path.read_text()
    assert " B/s" not in path.read_text()


def test_a_link_inside_a_node_is_fitted_and_written(tmp_path):
    rows = measured(link="nvlink4", ranks=(8,), launch=9e-6)
    got = calibrate(DGX, rows, library="nccl")
    path = tmp_path / "mine.yaml"
    fitting.write(got.document("mine", "a log"), path)
    assert library(str(path)).links["nvlink4"] == got.after


def test_a_file_is_whole_or_not_there(tmp_path, monkeypatch):
    path = tmp_path / "mine.yaml"
    path.write_text("old")

    class Broken:
        def dump(self, data, stream):
            stream.write("half")
            raise OSError("disk full")

    monkeypatch.setattr(fitting, "YAML", Broken)
    with pytest.raises(OSError, match="disk full"):
        fitting.write({}, path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_errors_are_sentences(monkeypatch):
    with pytest.raises(InputError, match=r"^link of these rows 'nvlink4' is unknown\. Known: infiniband-ndr\.$"):
        calibrate(DGX, measured(), library="nccl", link="nvlink4")
    with pytest.raises(InputError, match=r"^7 rows use infiniband-ndr; at least 8 are needed to fit and to check\.$"):
        calibrate(DGX, measured()[:7], library="nccl")
    with pytest.raises(InputError, match=r"has one message size, so no row is left to check the fit on: measure at"):
        calibrate(DGX, [Measurement("all_reduce", 1e6, 16, 1e-4)] * 8, library="nccl")
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(InputError, match=r"^calibration needs scipy: pip install 'rapid-llm\[fit\]'\.$"):
        calibrate(DGX, measured(), library="nccl")
