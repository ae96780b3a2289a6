import pytest

from rapid_llm.errors import InfeasibleError, InputError, InternalError, RapidError, did_you_mean, nearest, unknown_name


def test_exit_codes():
    assert (InputError.exit_code, InfeasibleError.exit_code, InternalError.exit_code) == (2, 3, 4)
    assert all(issubclass(kind, RapidError) for kind in (InputError, InfeasibleError, InternalError))


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (InputError("x is wrong."), "x is wrong."),
        (InputError("x is wrong.", file="a.yaml"), "a.yaml: x is wrong."),
        (InputError("x is wrong.", file="a.yaml", line=7), "a.yaml:7: x is wrong."),
    ],
)
def test_text(error, text):
    assert str(error) == text
    assert error.message == "x is wrong."


def test_nearest():
    known = ["llama-3.1-8b", "llama-3-8b", "Mixtral-8x7B"]
    assert nearest("lama-3.1-8b", known)[0] == "llama-3.1-8b"
    assert nearest("mixtral-8x7b", known) == ["Mixtral-8x7B"]
    assert nearest("zzz", known) == []
    assert did_you_mean("zzz", known) == ""
    assert nearest("llama", known, limit=1) == ["llama-3-8b"]
    assert nearest("qwen3-235b", ["qwen3-32b", "qwen3-235b-a22b"])[0] == "qwen3-235b-a22b"
    kimi = ["kimi-k2", "moonshotai/Kimi-K2-Instruct", "kimi-k2.5", "kimi-k2.7-code", "moonshotai/Kimi-K2.5"]
    assert nearest("kimi-k2.5-instruct", kimi)[0] == "kimi-k2.5"
    assert nearest("moonshotai/Kimi-K2.5-Instruct", kimi)[0] == "moonshotai/Kimi-K2.5"
    assert nearest("kimi-k2-instruct", kimi[2:] + kimi[:1])[0] == "kimi-k2"
    assert nearest("a100-40gb-sxm", ["a100", "a100-sxm-40gb"])[0] == "a100-sxm-40gb"


@pytest.mark.parametrize(
    ("theirs", "known", "ours"),
    [
        ("--gpus", ["--tp", "--accelerators", "--accelerator"], "--accelerators"),
        ("--gpu", ["--tp", "--accelerators", "--accelerator"], "--accelerator"),
        ("--tensor_parallel_size", ["--tp", "--pp"], "--tp"),
        ("--batch", ["--batch-size"], "--batch-size"),
        ("--batch", ["--global-batch-size", "--micro-batch-size"], "--global-batch-size"),
        ("plan", ["placement", "parallelism"], "parallelism"),
        ("memory", ["fit", "train"], "fit"),
    ],
)
def test_words_of_other_tools_come_before_what_is_spelt_alike(theirs, known, ours):
    assert nearest(theirs, known)[0] == ours


def test_unknown_name():
    assert unknown_name("precision", "bf61", ["bf16", "fp16"]) == (
        "precision 'bf61' is unknown. Did you mean 'bf16'? Known: bf16, fp16."
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (f"system '{'a' * 100000}' is unknown.", f"system '{'a' * 76}...' is unknown."),
        (f"must be 0 or more (got {'1' * 400}). Try 1.", f"must be 0 or more (got {'1' * 77}...). Try 1."),
        (f"'{'a b ' * 100}' is no name.", f"'{('a b ' * 100)[:76]}...' is no name."),
        (f"/tmp/{'a' * 100} is a folder.", f"/tmp/{'a' * 100} is a folder."),
    ],
)
def test_a_long_value_is_cut(given, said):
    assert InputError(given).message == said
