"""Calibrating kernels and accelerators: made-up tables with known constants, sentences, files whole or not at all."""

import csv
import itertools
from pathlib import Path

import numpy as np
import pytest

from rapid_llm import hardware, operators
from rapid_llm.calibration import accelerators, kernels
from rapid_llm.calibration.benchmark import script
from rapid_llm.calibration.writing import write_whole
from rapid_llm.errors import InputError, RapidError
from rapid_llm.operators.kernels import KERNELS
from rapid_llm.validation.kernels import slice_of

SHAPES = list(
    itertools.product((1, 4, 16, 64, 256, 1024, 4096), (512, 1024, 2048, 4096, 8192, 16384), (512, 2048, 8192, 16384))
)


def gemm_table(path: Path, *, kernel: operators.Kernel, gpu: str = "h100-sxm", noise: float = 0.0) -> Path:
    """A table as our own model prices it, with some noise."""
    m, n, k = np.array(SHAPES, dtype=float).T
    columns = {"m": m, "n": n, "k": k, "groups": 1, "x_bytes": 2, "w_bytes": 2, "y_bytes": 2}
    device = hardware.accelerator(gpu)
    seconds = operators.price("gemm", columns, dtype="bf16", kernel=kernel, accelerator=device, replayed=True).seconds
    spread = np.exp(noise * np.random.default_rng(0).standard_normal(len(m)))
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["gpu", "m", "n", "k", "dtype", "latency_us"])
        for (a, b, c), t in zip(SHAPES, seconds * spread * 1e6, strict=True):
            writer.writerow([gpu, a, b, c, "bf16", f"{t:.4f}"])
    return path


def other(**values: float) -> operators.Kernel:
    """cuBLAS with other numbers on Hopper."""
    return kernels._with(operators.kernel("cublas"), "hopper", values)


def test_a_fit_finds_the_constants_behind_a_table(tmp_path):
    table = gemm_table(tmp_path / "gemm.csv", kernel=other(rate=0.6, bandwidth=0.7, setup=3e-6), noise=0.02)
    found = next(kernels.calibrate("cublas", [table]))
    assert found.architecture == "hopper"
    assert found.constants["rate"] == pytest.approx(0.6, rel=0.05)
    assert found.constants["bandwidth"] == pytest.approx(0.7, rel=0.05)
    assert found.constants["setup"] == pytest.approx(3e-6, rel=0.15)
    assert found.after.mape < 0.04 < found.before.mape
    assert found.before.rows == found.after.rows > 0


def test_constants_that_are_held_stay_and_the_file_says_so(tmp_path):
    table = gemm_table(tmp_path / "gemm.csv", kernel=other(rate=0.6, bandwidth=0.7))
    held = kernels.held_of("cublas", ["rate=0.6", "setup = 2 us"])
    found = next(kernels.calibrate("cublas", [table], held))
    assert {name: found.constants[name] for name in held} == {"rate": 0.6, "setup": pytest.approx(2e-6)}
    assert found.constants["bandwidth"] == pytest.approx(0.7, rel=0.05)
    assert "held: rate, setup" in kernels.write([found], tmp_path).read_text()


@pytest.mark.parametrize("text", ["rte=0.8", "rate", "rate=", "rate=fast", "rate=1.5", "rate=nan", "setup=2", "=1", ""])
def test_what_cannot_be_held_is_one_sentence(text):
    with pytest.raises(InputError, match="--hold") as caught:
        kernels.held_of("cublas", [text])
    assert str(caught.value).count("\n") == 0


def test_the_file_that_is_written_is_the_kernel_that_was_fitted(tmp_path):
    table = gemm_table(tmp_path / "gemm.csv", kernel=other(rate=0.6))
    found = next(kernels.calibrate("cublas", [table]))
    (tmp_path / "cublas.yaml").write_text("family: gemm\nconstants: {hopper: {setup: 9 s}}  # left by an earlier day\n")
    path = kernels.write([found], tmp_path)
    again = operators.kernel(str(path))
    assert again.on("hopper").setup < 1e-3
    assert again.on("hopper").rate == pytest.approx(found.constants["rate"], rel=0.01)
    assert again.on("ampere") == operators.kernel("cublas").on("ampere")
    assert again.tiles == operators.kernel("cublas").tiles


@pytest.mark.parametrize("name", [name for name in KERNELS.names() if operators.kernel(name).family in kernels.FREE])
def test_every_kernel_can_be_written(name, tmp_path):
    shipped = operators.kernel(name)
    constants = {constant: kernels.BOUNDS[constant].prior for constant in kernels.free_of(shipped)}
    none = kernels.Errors.of([])
    fits = [
        kernels.Calibration(
            kernel=name, architecture=on, constants=constants, before=none, after=none, by_sample={}, source="rows: 5 #"
        )
        for on in ("hopper", "ampere")
    ]
    again = operators.kernel(str(kernels.write(fits, tmp_path)))
    for on in ("hopper", "ampere"):
        for constant, value in constants.items():
            assert getattr(again.on(on), constant) == pytest.approx(value, rel=0.01), constant
    assert all(again.constants[on] == shipped.constants[on] for on in {*shipped.constants} - {"hopper", "ampere"})


def test_an_accelerator_is_read_off_its_gemms(tmp_path):
    table = gemm_table(tmp_path / "gemm.csv", kernel=operators.kernel("cublas"))
    with pytest.raises(InputError, match="bf16 GEMMs of h100-sxm to fit on"):
        accelerators.calibrate("h100-sxm", [table])


@pytest.mark.parametrize(
    ("factor", "sentence"),
    [
        (1e3, "which is too slow to be true: is latency_us in microseconds, and gpu right?"),
        (1e-3, "beat the datasheet's roofline: is latency_us in microseconds, and gpu right?"),
    ],
)
def test_an_accelerator_is_not_read_off_a_table_in_another_unit(tmp_path, factor, sentence, monkeypatch):
    monkeypatch.setattr(accelerators, "_LEAST", 1)
    table = gemm_table(tmp_path / "gemm.csv", kernel=operators.kernel("cublas"))
    assert accelerators.calibrate("h100-sxm", [table]).hbm > 0.5
    head, *rows = table.read_text().splitlines()
    cells = [row.rpartition(",") for row in rows]
    table.write_text("\n".join([head, *(f"{start},{float(time) * factor:.6f}" for start, _, time in cells)]) + "\n")
    with pytest.raises(InputError) as error:
        accelerators.calibrate("h100-sxm", [table])
    assert sentence in error.value.message


@pytest.mark.parametrize(
    ("header", "rows", "sentence"),
    [
        ("m,n,k,latency_us", [], "one of gemm also needs the column dtype."),
        (
            "gpu,m,n,k,dtype,latency_ms",
            ["h100-sxm,1,512,512,bf16,3"],
            "one of gemm also needs the column latency_us (it has latency_ms: microseconds are wanted).",
        ),
        (
            "gpu;m;n;k;dtype;latency_us",
            ["h100-sxm;1;512;512;bf16;3"],
            "is no table of kernel timings: semicolons part its columns, and a CSV has commas.",
        ),
        (
            "gpu,m,n,k,dtype,latency_us",
            ["h100-sxm,1,512,512,bf16,-1"],
            "microseconds, a number above 0 (got '-1').",
        ),
        (
            "gpu,m,n,k,dtype,latency_us",
            ["h100-sxm,1,512,512,bf16,3 us"],
            "a number above 0 (got '3 us').",
        ),
        (
            "gpu,m,n,k,dtype,latency_us",
            ["h100-sxm,1,512,512,bf16,3"],
            "at least 40 are needed. Try more --minutes for the benchmark, or several --table.",
        ),
        ("gpu,m,n,k,dtype,latency_us", ["h100-sxm,1,512,512,fp64,3"], "cublas, which takes rows of dtype bf16."),
        ("gpu,m,n,k,dtype,latency_us", ["h100-sxm,1,512,x,bf16,3"], ":2: k must be a number above 0 (got 'x')."),
        ("gpu,m,n,k,dtype,latency_us", ["h100-sxm,0,512,512,bf16,3"], ":2: m must be a number above 0 (got '0')."),
        ("gpu,m,n,k,dtype,latency_us", [], "holds no row."),
        ("gpu,m,n,k,dtype,latency_us", ["h100-sxm,4096,8192,8192,bf16,0.7"], "is latency_us in microseconds, and gpu"),
        ("gpu,m,n,k,dtype,latency_us", ["h100-sxm,4096,8192,8192,bf16,7e5"] * 99, "is latency_us in microseconds?"),
        ("m,n,k,dtype,latency_us", ["1,512,512,bf16,3"], "must have a column gpu, or be named after an accelerator"),
        ("gpu,m,n,k,dtype,latency_us", ["h999,1,512,512,bf16,3"], "h999"),
    ],
)
def test_a_bad_table_is_one_sentence(tmp_path, header, rows, sentence):
    table = tmp_path / "table.csv"
    table.write_text("\n".join([header, *rows]) + "\n")
    with pytest.raises(RapidError) as error:
        list(kernels.calibrate("cublas", [table]))
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_a_kernel_without_tables_says_which_have_some(tmp_path):
    table = gemm_table(tmp_path / "gemm.csv", kernel=operators.kernel("cublas"))
    with pytest.raises(InputError, match="no table describes kernel fa1"):
        list(kernels.calibrate("fa1", [table]))
    with pytest.raises(
        InputError, match=r"^no table describes kernel cublas-12\.2\. Did you mean 'cublas'\? Of family"
    ):
        list(kernels.calibrate("cublas-12.2", [table]))
    with pytest.raises(InputError, match=r"kernel fa3, which takes|belongs to kernel fa3: it needs columns"):
        list(kernels.calibrate("fa3", [table]))  # training's, of one's own table
    for name in KERNELS.names():
        try:
            slice_of(name)
        except InputError as error:
            assert len(error.message) < 250


@pytest.mark.parametrize(("name", "what"), [("", "is not one"), ("absent.csv", "does not exist")])
def test_a_table_must_be_a_file(tmp_path, name, what):
    path = tmp_path / name
    with pytest.raises(InputError) as error:
        kernels.read_table(path)
    assert error.value.message == f"--table must name a file: {path} {what}."


def test_a_half_written_file_is_never_left_behind(tmp_path):
    path = tmp_path / "device.yaml"
    path.write_text("name: kept\n")
    with pytest.raises(InputError):
        write_whole(path, "name: [broken\n")
    assert path.read_text() == "name: kept\n"
    assert list(tmp_path.iterdir()) == [path]


def test_the_benchmark_is_a_program_that_names_our_columns():
    compile(script(), "kernel_benchmark.py", "exec")
    assert "gpu m n k dtype latency_us" in script()
    assert "rapid_llm" not in script()
    assert "torch.OutOfMemoryError" not in script()  # a name that torch before 2.5 lacks
