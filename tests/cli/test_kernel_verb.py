"""``kernel``, ``calibrate`` and ``explain --roofline`` from the command line."""

import json

import pytest

from rapid_llm.cli import door


def run(capsys, *argv):
    code = door.run(argv)
    out = capsys.readouterr()
    return code, out.out, out.err


def test_a_gemm_says_what_its_time_is_made_of(capsys):
    shape = ("--m", "4096", "--n", "11008", "--k", "4096", "--dtype", "bf16", "--accelerator", "h100-sxm")
    code, out, _ = run(capsys, "kernel", "gemm", *shape)
    assert code == 0
    for word in ("time", "kernel", "tiles", "waves", "traffic", "HBM", "L2", "trust", "90 %"):
        assert word in out
    code, out, _ = run(capsys, "kernel", "gemm", *shape, "--json")
    found = json.loads(out)
    assert found["seconds"] == pytest.approx(468e-6, rel=0.1)
    assert found["tiles"] == -(-4096 // found["tile"][0]) * -(-11008 // found["tile"][1]) * found["split"]
    assert found["roofline_s"] < found["seconds"]
    assert found["errors"]["suite"] == "gemm"


@pytest.mark.parametrize(
    "argv",
    [
        ("attention", "--heads", "32", "--kv-heads", "8", "--past", "4096", "--batch", "64"),
        ("attention", "--heads", "32", "--new", "4096"),
        ("mla", "--heads", "16", "--past", "4096", "--batch", "64"),
        ("mla", "--heads", "128", "--new", "4096", "--past", "512"),
        ("moe", "--tokens", "64", "--experts", "64", "--experts-per-token", "4", "--hidden", "2048", "--inter", "1024"),
        ("scan", "--new", "4096", "--heads", "32"),
        ("convolution", "--new", "4096", "--channels", "8192"),
        ("convolution", "--new", "1", "--channels", "8192", "--batch", "64"),
        ("pointwise", "--read-bytes", "1e9", "--write-bytes", "1e9"),
    ],
)
def test_every_family_answers(capsys, argv):
    code, out, err = run(capsys, "kernel", *argv, "--accelerator", "h100-sxm")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == [
        "time", "kernel", "rate", "sides", "tiles", "traffic", "trust",
    ]  # fmt: skip
    assert " waves, the last " in out or " wave, the last " in out or argv[0] == "pointwise"
    if argv[0] != "pointwise":
        found = json.loads(run(capsys, "kernel", *argv, "--accelerator", "h100-sxm", "--json")[1])
        assert 0 < found["last_wave_occupancy"] <= 1
        assert found["tiles"] > (found["waves"] - 2) * 132 and found["l2_bytes"] > 0


def test_tiles_are_those_that_the_shape_asks_for(capsys):
    def cut(*argv):
        return json.loads(run(capsys, "kernel", *argv, "--accelerator", "h100-sxm", "--json")[1])

    prefill = cut("attention", "--heads", "32", "--kv-heads", "8", "--new", "4096", "--runtime", "megatron-core")
    rows = prefill["tile"][0]
    assert prefill["tiles"] == 32 * -(-4096 // rows)
    decode = cut("attention", "--heads", "32", "--kv-heads", "8", "--batch", "2", "--past", "4096")
    assert decode["tiles"] == 2 * 8 * decode["split"]
    assert decode["runs"] != decode["kernel"]
    moe = cut("moe", "--tokens=64", "--experts=8", "--experts-per-token=8", "--hidden=2048", "--inter=1024")
    high, wide = moe["tile"]
    even = 8 * -(-64 // high) * (2048 // wide + 2048 // wide)
    assert even <= moe["tiles"] < 1.5 * even  # routed at random, some experts get a tile more


def test_latent_attention_is_absorbed_in_decode_and_scored_by_its_own_suite(capsys):
    shape = ("--heads", "16", "--past", "4096", "--batch", "8", "--accelerator", "h100-sxm", "--json")
    found = json.loads(run(capsys, "kernel", "mla", *shape)[1])
    assert found["hbm_bytes"] == pytest.approx(8 * (4097 * 576 + 2 * 16 * (576 + 512) / 2) * 2, rel=0.05)
    assert found["errors"]["suite"] == "mla"


def test_bytes_of_a_cached_element_are_those_of_a_format(capsys):
    argv = ("attention", "--heads", "8", "--past", "100", "--kv-bytes", "3", "--accelerator", "l4")
    assert run(capsys, "kernel", *argv) == (2, "", "--kv-bytes must be one of 0.5, 0.5625, 1, 2, 4 (got 3).\n")


def test_bytes_take_units(capsys):
    sizes = ("--read-bytes", "1GB", "--write-bytes", "512 MiB", "--accelerator", "h100-sxm", "--json")
    _, out, _ = run(capsys, "kernel", "pointwise", *sizes)
    plain = ("--read-bytes", "1e9", "--write-bytes", str(2**29), "--accelerator", "h100-sxm", "--json")
    assert run(capsys, "kernel", "pointwise", *plain)[1] == out
    code, _, err = run(capsys, "kernel", "pointwise", "--read-bytes", "1 parsec", *sizes[2:-1])
    assert (code, err) == (2, "--read-bytes has the unknown unit 'parsec'. Write it as in '80 GiB'.\n")


def test_a_head_has_a_dimension(capsys):
    _, _, err = run(capsys, "kernel", "attention", "--heads", "8", "--head-size", "128", "--accelerator", "h100-sxm")
    assert "Did you mean '--head-dim'?" in err


@pytest.mark.parametrize("size", ["nan", "inf", "1e308"])
def test_a_size_that_is_none_or_has_no_end_is_refused(capsys, size):
    code, out, err = run(
        capsys, "kernel", "pointwise", "--read-bytes", size, "--write-bytes", "0", "--accelerator", "l4"
    )
    assert (code, out) == (2, "")
    assert err.startswith("pointwise: read_bytes must be at most 1e+18 (got ")


def test_a_device_that_was_not_measured_says_whose_constants_stand_in(capsys):
    _, out, _ = run(capsys, "kernel", "attention", "--heads", "32", "--new", "4096", "--accelerator", "rtx-pro-6000")
    assert "was not measured" in out


def test_query_heads_that_do_not_divide_name_a_number_that_does(capsys):
    code, _, err = run(
        capsys, "kernel", "attention", "--heads", "32", "--kv-heads", "5", "--new", "64", "--accelerator", "b200-sxm"
    )
    assert code == 2
    assert err == "attention: heads must be a multiple of kv_heads (got 32 and 5). Try kv_heads 4.\n"


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (("--m", "0", "--n", "8", "--k", "8", "--accelerator", "h100-sxm"), "gemm: m must be positive (got 0). Try 1."),
        (("--m", "8", "--n", "-8", "--k", "8", "--accelerator", "l4"), "gemm: n must be positive (got -8). Try 1."),
        (
            ("--m", "8", "--n", "8", "--k", "8", "--accelerator", "a100-sxm", "--dtype", "fp8"),
            "a100-sxm has no matrix rate for fp8: it has bf16, fp16, fp64, int4, int8, tf32. Try one of these.",
        ),
    ],
)
def test_bad_input_is_one_sentence(capsys, argv, sentence):
    code, _, err = run(capsys, "kernel", "gemm", *argv)
    assert code == 2
    assert err.strip() == sentence


def test_calibrate_prints_its_benchmark_and_wants_a_subject(capsys):
    code, out, _ = run(capsys, "calibrate", "--emit-benchmark")
    assert code == 0
    compile(out, "benchmark", "exec")
    code, _, err = run(capsys, "calibrate")
    assert code == 2
    assert "accelerator, kernel or fabric" in err


def test_the_roofline_of_a_scenario_is_a_page(capsys, tmp_path):
    path = tmp_path / "roofline.html"
    code, *_ = run(capsys, "explain", "examples/gpt-175b-training.yaml", "--roofline", str(path))
    assert code == 0
    assert "FLOP per byte" in path.read_text()


def test_a_kernel_stands_under_the_roof_of_its_own_format(capsys, tmp_path):
    path = tmp_path / "roofline.html"
    code, out, _ = run(capsys, "explain", "examples/llama-3.1-70b-training.yaml", "--roofline", str(path), "--json")
    assert code == 0
    assert "datasheet, bf16 989 TFLOP/s" in path.read_text()  # not the 1,979 of fp8, in which nothing is multiplied
    formats = {one["name"]: one["dtype"] for one in json.loads(out)["kernels"]}
    assert formats["up"] == "bf16"
    assert "" in formats.values()  # norms work on vector units alone


@pytest.mark.parametrize(
    ("card", "name"), [("rtx-4090", "roofline at the clock it holds"), ("h100-sxm", "datasheet roofline")]
)
def test_a_roofline_above_the_datasheet_is_called_so(capsys, card, name):
    _, out, _ = run(capsys, "kernel", "gemm", "--m", "4096", "--n", "4096", "--k", "4096", "--accelerator", card)
    assert f"; {name} " in out


def test_constants_that_are_typical_say_so_with_a_wider_interval(capsys):
    shape = ("kernel", "gemm", "--m", "4096", "--n", "4096", "--k", "4096", "--accelerator")
    code, out, _ = run(capsys, *shape, "tpu-v5e")
    assert code == 0
    assert "constants are typical ones, no such kernel was measured on tpu-v5e: 90 % within " in " ".join(out.split())
    errors = json.loads(run(capsys, *shape, "tpu-v5e", "--json")[1])["errors"]
    assert errors["typical"]
    assert errors["within"] > 1.2 * errors["p90"]
    errors = json.loads(run(capsys, *shape, "h100-sxm", "--json")[1])["errors"]
    assert not errors["typical"]
    assert errors["within"] == errors["p90"]


@pytest.mark.parametrize(
    ("alias", "name"), [("w4a16", "int4_wo"), ("int4-wo", "int4_wo"), ("w8a8", "int8"), ("float16", "fp16")]
)
def test_a_format_has_one_price_by_any_of_its_names(capsys, alias, name):
    shape = ("kernel", "gemm", "--m", "8", "--n", "4096", "--k", "4096", "--accelerator", "a100-sxm", "--dtype")
    assert run(capsys, *shape, alias)[1] == run(capsys, *shape, name)[1]


def test_formats_of_weights_alone_read_16_bit_activations(capsys):
    shape = ("kernel", "gemm", "--m", "4096", "--n", "64", "--k", "4096", "--accelerator", "a100-sxm", "--dtype")
    for name in ("int4_wo", "q4_k"):
        assert json.loads(run(capsys, *shape, name, "--json")[1])["hbm_bytes"] > 4096 * 4096 * 2.0


def test_an_error_of_another_format_is_called_so(capsys):
    shape = ("kernel", "gemm", "--m", "64", "--n", "4096", "--k", "4096", "--accelerator", "h100-sxm", "--dtype")
    assert "no rows of this format; nearest: suite gemm h100-sxm/" in run(capsys, *shape, "tf32")[1]
    for name in ("bf16", "fp16", "fp8"):
        assert "no rows" not in run(capsys, *shape, name)[1]


@pytest.mark.parametrize("card", ["h100-sxm", "mi300x", "l40s"])
def test_block_scales_need_units_that_apply_them(capsys, card):
    shape = ("kernel", "gemm", "--m", "64", "--n", "4096", "--k", "4096", "--dtype", "mxfp8", "--accelerator")
    code, _, err = run(capsys, *shape, card)
    assert (code, err.count("\n")) == (2, 1)
    assert f"{card} has no matrix rate for mxfp8" in err
    for newer in ("b200-sxm", "mi355x"):
        assert run(capsys, *shape, newer)[0] == 0
