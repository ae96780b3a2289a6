import sys
from importlib import import_module

import pytest

from rapid_llm.errors import InputError
from rapid_llm.provenance import Catalogue, Source, is_path

FILES = {
    "h100-sxm": """
source: NVIDIA H100 datasheet
notes: not for machines
aliases: [H100, hopper]
memory:
  hbm: {capacity: 80 GiB, bandwidth: {value: 3.35 TB/s, source: page 3, kind: estimate}}
sustained:
  source: fit
  kind: fitted
  clock: 0.8
units: 132
levels: [1, {value: 2, source: table 2}]
""",
    "h200-sxm": "base: h100-sxm\nsource: NVIDIA H200 datasheet\nlevels: [3]\nmemory: {hbm: {capacity: 141 GB}}\n",
    "loop-a": "base: loop-b\n",
    "loop-b": "base: loop-a\n",
    "orphan": "\nbase: h100-sx\n",
    "odd": "a: {value: 1, source: x, kind: rumour}\n",
}


@pytest.fixture
def catalogue(tmp_path, monkeypatch, request):
    package = f"catalogue_{request.node.name.split('[')[0]}"
    folder = tmp_path / package / "data"
    folder.mkdir(parents=True)
    (tmp_path / package / "__init__.py").write_text("")
    for name, text in FILES.items():
        (folder / f"{name}.yaml").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield Catalogue(package, "data", "accelerator")
    sys.modules.pop(package, None)


def test_sources(catalogue):
    data, sources = catalogue.load("h100-sxm")
    assert data == {
        "aliases": ["H100", "hopper"],
        "memory": {"hbm": {"capacity": "80 GiB", "bandwidth": "3.35 TB/s"}},
        "sustained": {"clock": 0.8},
        "units": 132,
        "levels": [1, 2],
    }
    datasheet = Source("datasheet", "NVIDIA H100 datasheet")
    assert sources == {
        "memory.hbm.capacity": datasheet,
        "memory.hbm.bandwidth": Source("estimate", "page 3"),
        "sustained.clock": Source("fitted", "fit"),
        "units": datasheet,
        "levels[0]": datasheet,
        "levels[1]": Source("datasheet", "table 2"),
    }


def test_base(catalogue):
    data, sources = catalogue.load("h200-sxm")
    assert data["memory"]["hbm"] == {"capacity": "141 GB", "bandwidth": "3.35 TB/s"}
    assert data["levels"] == [3]
    assert "aliases" not in data
    assert sources["memory.hbm.capacity"].text == "NVIDIA H200 datasheet"
    assert sources["units"].text == "NVIDIA H100 datasheet"
    document = catalogue.document("h200-sxm")
    assert document.where("memory.hbm.capacity") == ("h200-sxm.yaml", 4)
    assert document.where("memory.hbm.bandwidth") == ("h100-sxm.yaml", 6)


def test_names(catalogue):
    assert catalogue.names() == sorted(FILES)
    assert catalogue.resolve("hopper") == "h100-sxm"
    assert catalogue.resolve("H200-SXM") == "h200-sxm"
    assert catalogue.document("H100") is catalogue.document("h100-sxm")


def test_a_path_stands_for_a_name(catalogue, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("base: h100-sxm\nunits: 140\n")
    assert catalogue.load(str(path))[0]["units"] == 140
    second = tmp_path / "second.yaml"
    second.write_text("base: ./mine.yaml\nsustained: {clock: 0.9}\n")
    assert catalogue.load(str(second))[0]["units"] == 140
    assert is_path("a.yaml") and is_path("./a") and not is_path("h100-sxm")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("h100-sxn", "accelerator 'h100-sxn' is not in the catalogue. Did you mean 'h100-sxm'? "
         "See: rapid-llm list accelerators"),
        ("zzz", "accelerator 'zzz' is not in the catalogue. See: rapid-llm list accelerators"),
        ("loop-a", "loop-b.yaml:1: base 'loop-a' inherits from itself: loop-a -> loop-b -> loop-a."),
        ("orphan", "orphan.yaml:2: accelerator 'h100-sx' is not in the catalogue. Did you mean 'h100-sxm'? "
         "See: rapid-llm list accelerators"),
        ("odd", "odd.yaml:1: a: kind 'rumour' is unknown. "
         "Known: datasheet, measured, fitted, architecture, estimate, user."),
    ],
)  # fmt: skip
def test_sentences(catalogue, name, sentence):
    with pytest.raises(InputError) as error:
        catalogue.load(name)
    assert str(error.value) == sentence


def test_sentences_of_models_and_systems(catalogue):
    model = Catalogue(catalogue.package, "data", "model").unknown("lama-3.1-8b", ["llama-3.1-8b", "mixtral"])
    assert str(model) == (
        "model 'lama-3.1-8b' is not in the catalogue. Did you mean 'llama-3.1-8b'? See: rapid-llm list models"
    )
    system = Catalogue(catalogue.package, "data", "system").unknown("dgx-h1000", ["dgx-h100", "dgx-a100"])
    assert str(system) == (
        "system 'dgx-h1000' is not in the catalogue. Did you mean 'dgx-h100'? A path to a YAML file works too."
    )
    assert system.suggestions[0] == "dgx-h100"


@pytest.mark.parametrize("package", ["model", "hardware"])
def test_one_alias_is_of_one_entry(package):
    found = import_module(f"rapid_llm.{package}.catalogue")
    catalogues = [one for one in vars(found).values() if isinstance(one, Catalogue)]
    assert catalogues
    for catalogue in catalogues:
        aliases = {name: catalogue.document(name).data.get("aliases") or () for name in catalogue.names()}
        wrong = {
            alias: catalogue.meanings(str(alias))
            for name in aliases
            for alias in aliases[name]
            if catalogue.meanings(str(alias)) != (name,)
        }
        assert not wrong
