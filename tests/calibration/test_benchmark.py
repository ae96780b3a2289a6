"""The emitted script from end to end: on a stand-in for PyTorch, and on PyTorch itself where it is installed."""

import csv
import subprocess
import sys
import time
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from rapid_llm import hardware
from rapid_llm.calibration import accelerators, kernels
from rapid_llm.calibration.benchmark import script
from rapid_llm.cli.door import run as rapid_llm
from rapid_llm.errors import InputError
from rapid_llm.validation import tables
from rapid_llm.validation.kernels import samples, slice_of

from .torch_stub import Gpu, build


def emitted(monkeypatch, gpu, out, *more, minutes=4.0):
    """Run the script on a stand-in; its exit code, or what it says as it ends."""
    with monkeypatch.context() as patch:
        for name in [name for name in sys.modules if name == "torch" or name.startswith("torch.")]:
            patch.delitem(sys.modules, name)
        for name, module in build(gpu).items():
            patch.setitem(sys.modules, name, module)
        if gpu.release < (2, 3):
            patch.setitem(sys.modules, "torch.nn.attention", None)
        patch.setattr(time, "monotonic", lambda: gpu.clock)
        patch.setattr(sys, "argv", ["script", "--minutes", str(minutes), "--out", str(out), *more])
        try:
            exec(compile(script(), "kernel_benchmark.py", "exec"), {"__name__": "__main__"})
        except SystemExit as stop:
            return stop.code
    return 0


def rows_of(file):
    with file.open() as table:
        return list(csv.DictReader(table))


def test_tables_feed_both_fits(tmp_path, monkeypatch):
    gpu = Gpu()
    assert emitted(monkeypatch, gpu, tmp_path) == 0
    found = tables.find(tmp_path)
    assert {table.schema for table in found} == {"kernel_gemm", "kernel_context", "kernel_generation", "kernel_moe"}
    for kernel in ("cublas", "cublas-fp8", "vllm-fa2", "flash-decode", "cutlass-moe"):
        part, dtype = slice_of(kernel), "fp8" if kernel == "cublas-fp8" else "bf16"
        whole = next(table for table in found if table.schema == part.schema)
        written = sum(row.get("dtype", dtype) == dtype for row in rows_of(whole.path))
        assert sum(len(sample.seconds) for sample in samples(part, found)) > 0.8 * written > 0
    read = accelerators.calibrate("h100-sxm", [tmp_path / "gemm.csv"])
    assert read.hbm == pytest.approx(gpu.bandwidth / 3.35e12, rel=0.02)  # what the stand-in's memory reaches
    fitted = list(kernels.calibrate("vllm-fa2", [tmp_path / "attn_context.csv"]))
    assert [one.architecture for one in fitted] == ["hopper"]
    assert fitted[0].after.mape < fitted[0].before.mape
    given = ["--table", str(tmp_path / "gemm.csv"), "--out", str(tmp_path)]
    assert rapid_llm(["calibrate", "accelerator", gpu.name, *given]) == 0


@pytest.mark.parametrize(
    ("gpu", "names"),
    [
        (Gpu(version="2.1.2"), {"gemm fp8", "context", "generation"}),
        (Gpu(version="2.4.0"), {"gemm fp8", "context", "generation"}),
        (Gpu(version="2.8.0"), {"gemm fp8", "context", "generation", "moe"}),
        (Gpu(name="NVIDIA A100-SXM4-80GB", capability=(8, 0)), {"context", "generation"}),
        (Gpu(name="NVIDIA GeForce RTX 4090", capability=(8, 9), memory=24e9), {"gemm fp8", "context", "generation"}),
        (Gpu(name="NVIDIA B200", capability=(10, 0)), {"gemm fp8", "context", "generation", "moe"}),
        (
            Gpu(name="AMD Instinct MI300X", arch="gfx942", capability=(9, 4)),
            {"gemm fp8", "context", "generation", "moe"},
        ),
        (Gpu(name="AMD Instinct MI210", arch="gfx90a"), {"context", "generation", "moe"}),
        (Gpu(flash=False), {"gemm fp8", "moe"}),
    ],
)
def test_what_a_gpu_or_a_version_lacks_is_left_out(tmp_path, monkeypatch, gpu, names):
    assert emitted(monkeypatch, gpu, tmp_path, minutes=0.5) == 0
    dtypes = Counter(row["dtype"] for row in rows_of(tmp_path / "gemm.csv"))
    files = {"context": "attn_context.csv", "generation": "attn_generation.csv", "moe": "moe.csv"}
    found = {name for name, file in files.items() if (tmp_path / file).exists()}
    assert dtypes["bf16"] > 20
    assert found | ({"gemm fp8"} if dtypes["fp8"] else set()) == names
    assert gpu.capture is None
    assert gpu.live < 1e6


@pytest.mark.parametrize("memory", [8e9, 2e9])
def test_a_small_slow_board_gets_enough_rows_in_its_minutes(tmp_path, monkeypatch, capsys, memory):
    gpu = Gpu("NVIDIA GeForce RTX 3060", (8, 6), rate=22e12, bandwidth=0.33e12, memory=memory, host=60e-3)
    assert emitted(monkeypatch, gpu, tmp_path) == 0
    assert 210 < gpu.clock < 241  # four minutes less what has no kernel here, and the last case
    assert gpu.peak <= memory
    assert capsys.readouterr().out.count("left out gemm") == 0
    read = accelerators.calibrate("rtx-3060", [tmp_path / "gemm.csv"])
    assert read.hbm == pytest.approx(0.33e12 / 0.36e12, rel=0.02)


@pytest.mark.parametrize(
    ("name", "catalogue", "more"),
    [
        ("NVIDIA B200", "b200-sxm", {"capability": (10, 0)}),
        ("AMD Instinct MI300X", "mi300x", {"arch": "gfx942"}),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000", {"capability": (12, 0)}),
    ],
)
def test_caches_that_hold_much_are_outgrown(tmp_path, monkeypatch, name, catalogue, more):
    memory = hardware.accelerator(catalogue).memory.hbm
    gpu = Gpu(name, rate=100e12, bandwidth=0.8 * memory.bandwidth, memory=memory.capacity, **more)
    assert emitted(monkeypatch, gpu, tmp_path) == 0
    assert accelerators.calibrate(catalogue, [tmp_path / "gemm.csv"]).hbm == pytest.approx(0.8, rel=0.02)


def test_what_is_measured_is_kept_whatever_stops_it(tmp_path, monkeypatch):
    gpu, made = Gpu(), []

    def stop(self, seconds, run=Gpu.run):
        made.append(seconds)
        if len(made) > 20000:
            raise KeyboardInterrupt
        run(self, seconds)

    monkeypatch.setattr(Gpu, "run", stop)
    assert emitted(monkeypatch, gpu, tmp_path) == 130
    assert {file.name for file in tmp_path.iterdir()} >= {"gemm.csv", "attn_context.csv", "attn_generation.csv"}
    assert len(rows_of(tmp_path / "gemm.csv")) > 50
    with pytest.raises(InputError, match="bf16 GEMMs of h100-sxm to fit on"):
        accelerators.calibrate("h100-sxm", [tmp_path / "gemm.csv"])


@pytest.mark.parametrize(
    ("gpu", "sentence"),
    [
        (Gpu("", version="2.9.0+cpu"), "PyTorch 2.9.0+cpu sees no NVIDIA or AMD GPU here: it is built for CPUs; "
         "pytorch.org has builds for CUDA and ROCm."),
        (Gpu("Tesla T4", (7, 5)), "Tesla T4 does not multiply bf16, which the tables are of: it takes a GPU of Ampere "
         "or later."),
        (Gpu("NVIDIA RTX A6000", (8, 6), kernels=False), "NVIDIA RTX A6000 runs no bf16 GEMM with PyTorch 2.9.0+cu128: "
         "CUDA error: no kernel image is available for execution on the device"),
    ],
)  # fmt: skip
def test_why_there_are_no_tables(tmp_path, monkeypatch, gpu, sentence):
    assert emitted(monkeypatch, gpu, tmp_path) == sentence
    assert list(tmp_path.iterdir()) == []


def test_without_pytorch(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(SystemExit) as stop:
        exec(compile(script(), "kernel_benchmark.py", "exec"), {"__name__": "__main__"})
    assert str(stop.value).startswith("This needs PyTorch, which cannot be imported here (")
    assert str(stop.value).endswith("Try: pip install torch")


def test_minutes_must_be_some(tmp_path, monkeypatch, capsys):
    assert emitted(monkeypatch, Gpu(), tmp_path, minutes=-1.0) == 2
    assert "--minutes must be above 0 (got -1); 4 are enough for all tables" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    assert emitted(monkeypatch, Gpu(), tmp_path / "file") == f"{tmp_path / 'file'} cannot be written: File exists."


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_pytorch_itself_runs_every_call(tmp_path):
    """Shapes, formats and arguments of every call, fp8 and grouped products too, on the CPU."""
    there = Path(__file__).with_name("torch_on_cpu.py")
    ran = subprocess.run(
        [sys.executable, str(there), "--minutes", "1", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "left out" not in ran.stdout
    assert {table.schema.removeprefix("kernel_") for table in tables.find(tmp_path)} == {
        "gemm", "context", "generation", "moe"}  # fmt: skip
    assert {row["dtype"] for row in rows_of(tmp_path / "gemm.csv")} == {"bf16", "fp8"}


def test_a_table_is_whole_or_of_the_run_before(tmp_path, monkeypatch):
    before = tmp_path / "gemm.csv"
    before.write_text("of the run before\n")
    held = []

    def look(self, seconds, run=Gpu.run):
        held.append((before.read_text(), sorted(file.name for file in tmp_path.glob("*.part"))))
        run(self, seconds)

    monkeypatch.setattr(Gpu, "run", look)
    assert emitted(monkeypatch, Gpu(host=0.5), tmp_path, minutes=0.3) == 0
    assert {text for text, _ in held} == {"of the run before\n"}
    assert ["gemm.csv.part"] in [parts for _, parts in held]
    assert not list(tmp_path.glob("*.part"))
    assert before.read_text().startswith("gpu,m,n,k,dtype,latency_us")


def test_progress_goes_to_standard_error_and_reasons_are_counted(tmp_path, monkeypatch, capsys):
    assert emitted(monkeypatch, Gpu(flash=False), tmp_path) == 0
    out, err = capsys.readouterr()
    assert out.startswith("NVIDIA H100 80GB HBM3, PyTorch 2.9.0+cu128: 4 minutes\n")
    assert "left out 24 of prefill: " in out
    assert out.count("left out") <= 3 * 5
    lines = err.splitlines()
    assert lines[-1].startswith("gemm_fp8: ") and lines[-1].endswith(" of 240 s")
    assert 8 <= len(lines) <= 17  # every quarter of a minute


def test_a_terminal_is_told_each_second_on_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert emitted(monkeypatch, Gpu(), tmp_path, minutes=0.5) == 0
    err = capsys.readouterr().err
    assert err.count("\r") > 25
    assert "\n" not in err
    assert err.endswith(f"\r{'':<60}\r")


def test_a_run_without_gemms_says_that_nothing_can_be_fitted(tmp_path, monkeypatch):
    def lost(self, seconds, run=Gpu.run):
        if self.clock > 1.6:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        run(self, seconds)

    monkeypatch.setattr(Gpu, "run", lost)
    said = "No table of GEMMs was measured, which rapid-llm calibrate needs: all were left out, as said above."
    assert emitted(monkeypatch, Gpu(), tmp_path) == said
