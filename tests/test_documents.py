import time

import pytest
from pydantic.dataclasses import dataclass

from rapid_llm.documents import Document, build, parse_json, parse_yaml, plain, read_yaml, reading
from rapid_llm.errors import InputError
from rapid_llm.hardware import Accelerator
from rapid_llm.nouns import STRICT, FrozenDict, Map
from rapid_llm.parallelism import Parallelism
from rapid_llm.units import Bytes, Seconds
from rapid_llm.workload import Workload


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Job:
    workload: Workload
    parallelism: Parallelism = Parallelism()
    sizes: Map[Bytes] = FrozenDict()
    waits: tuple[Seconds, ...] = ()
    note: str | None = None


TRAINING = "workload: {kind: training, global_batch_size: 8, sequence_length: 128}\n"


def test_values_follow_yaml_1_2():
    text = """
a: 9e-6
b: 1e9
c: on
d: no
e: 0x1F
f: 012
g: .5
h: -3
i: null
j:
k: '5'
l: 2026-01-01
m: 1:30
n: true
o: [1, 2.0, x]
p: {q: 1}
"""
    assert parse_yaml(text).data == {
        "a": 9e-6, "b": 1e9, "c": "on", "d": "no", "e": 31, "f": 12, "g": 0.5, "h": -3, "i": None, "j": None,
        "k": "5", "l": "2026-01-01", "m": "1:30", "n": True, "o": [1, 2.0, "x"], "p": {"q": 1},
    }  # fmt: skip


def test_lines():
    document = parse_yaml("a: 1\nb:\n  c: [1,\n   {d: 2}]\n", "f.yaml")
    assert document.lines == {"a": 1, "b": 2, "b.c": 3, "b.c[0]": 3, "b.c[1]": 4, "b.c[1].d": 4}
    assert document.where("b.c[1].missing") == ("f.yaml", 4)
    assert document.where("z") == ("f.yaml", None)


def test_pure_parser_reads_the_same(monkeypatch):
    text = "a: &x {b: [1, 2], c: 'd'}\ne: *x\nf: 1e9\n"
    fast = parse_yaml(text)
    monkeypatch.setitem(__import__("sys").modules, "_ruamel_yaml", None)
    assert parse_yaml(text) == fast


BOMB = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{below}'] * 9)}]\n" for below, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "s.yaml: is empty."),
        ("\n  \n", "s.yaml: is empty."),
        ("# only a comment\n", "s.yaml: is empty."),
        ("a: 1\n\tb: 2\n", "s.yaml:2: a tab indents this line; YAML wants spaces."),
        ("a:\n\t- 1\n", "s.yaml:2: a tab indents this line; YAML wants spaces."),
        (BOMB, "s.yaml:6: expands to more than 200000 values; use fewer aliases."),
        ("a: " + "[" * 100 + "]" * 100, "s.yaml:1: is nested deeper than 64 levels."),
        ("a: &a [*a]\n", "s.yaml:1: the alias '*a' names nothing that stands before it."),
        ("- 1\n- 2\n", "s.yaml:1: must be a mapping of fields at its top level (got a list)."),
        ("just text\n", "s.yaml:1: must be a mapping of fields at its top level (got a text)."),
        ("a: 1\nb: 2\na: 3\n", "s.yaml:3: the field 'a' is written twice; the first is in line 1."),
        ("a:\n  b: 2\n  b: 3\n", "s.yaml:3: the field 'a.b' is written twice; the first is in line 2."),
        ("a: 1\n---\nb: 2\n", "s.yaml:2: holds a second document after '---'; one file is one document."),
        ("a: !!python/object:os.system x\n",
         "s.yaml:1: the tag 'tag:yaml.org,2002:python/object:os.system' is not accepted; write plain values."),
        ("a: [1, 2\n",
         "s.yaml:2: is not valid YAML: while parsing a flow sequence did not find expected ',' or ']'."),
        ("? [a]\n: 1\n", "s.yaml:1: a field name must be plain text."),
    ],
)  # fmt: skip
def test_bad_text(text, sentence):
    with pytest.raises(InputError) as error:
        parse_yaml(text, "s.yaml")
    assert str(error.value) == sentence


def test_bad_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scenario.yaml").write_text(TRAINING)
    (tmp_path / "binary.yaml").write_bytes(b"\x7fELF\0\0")
    (tmp_path / "latin.yaml").write_bytes(b"a: 1\nb: caf\xe9\n")
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "broken.json").write_text('{"a": 1,\n "b": }')
    (tmp_path / "twice.json").write_text('{"a": 1, "a": 2}')
    (tmp_path / "large.yaml").write_text("a: " + "x" * reading.MAX_FILE_BYTES)
    expected = {
        "scenari.yaml": "scenari.yaml: no such file. Did you mean 'scenario.yaml'?",
        "nowhere/a.yaml": "nowhere/a.yaml: no such file. There is no folder 'nowhere'.",
        "binary.yaml": "binary.yaml: is a binary file; a YAML or JSON text is needed.",
        "latin.yaml": "latin.yaml:2: is not UTF-8 text.",
        "folder.yaml": "folder.yaml: is a folder, not a file.",
        "broken.json": "broken.json:2: is not valid JSON: expecting value.",
        "twice.json": "twice.json: the field 'a' is written twice.",
        "large.yaml": "large.yaml: is too large: at most 4,194,304 bytes are read. Try a smaller file.",
    }
    for name, sentence in expected.items():
        with pytest.raises(InputError) as error:
            read_yaml(name)
        assert str(error.value) == sentence


def test_json():
    assert parse_json('{"a": [1, 2.5, null, true]}').data == {"a": [1, 2.5, None, True]}


def test_sixty_lines_are_fast():
    text = "\n".join(f"k{i}: {{value: {i} GiB, source: a page}}" for i in range(60))
    parse_yaml(text)
    start = time.process_time()
    for _ in range(10):
        parse_yaml(text)
    assert (time.process_time() - start) / 10 < 0.01


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (TRAINING + "paralelism: {tp: 2}\n", "s.yaml:2: unknown field 'paralelism'. Did you mean 'parallelism'?"),
        ("workload:\n  kind: training\n  global_batch_size: 8\n  sequence_lenght: 128\n",
         "s.yaml:4: unknown field 'workload.sequence_lenght'. Did you mean 'sequence_length'?"),
        (TRAINING + "qwert: 1\n",
         "s.yaml:2: unknown field 'qwert'. Known: workload, parallelism, sizes, waits, note."),
        ("workload: {kind: training, global_batch_size: 8}\n",
         "s.yaml:1: the field 'workload.sequence_length' is missing. Try sequence_length: 4096."),
        ("parallelism: {tp: 2}\n", "s.yaml: the field 'workload' is missing. Try to add it."),
        ("workload: 5\n", "s.yaml:1: workload must be a mapping of fields (got 5)."),
        ("workload: {kind: trainin}\n",
         "s.yaml:1: workload.kind 'trainin' is unknown. Did you mean 'training'? Known: training, inference."),
        ("workload: {sequence_length: 8}\n",
         "s.yaml:1: the field 'workload.kind' is missing. Known: training, inference."),
        (TRAINING + "parallelism: {tp: -2}\n", "s.yaml:2: parallelism.tp must be at least 1 (got -2). Try 1."),
        (TRAINING + "parallelism: {tp: 0}\n", "s.yaml:2: parallelism.tp must be at least 1 (got 0). Try 1."),
        (TRAINING + "parallelism: {tp: true}\n", "s.yaml:2: parallelism.tp must be an integer (got true)."),
        (TRAINING + "parallelism: {tp: 1.5}\n", "s.yaml:2: parallelism.tp must be an integer (got 1.5). Try 2."),
        (TRAINING + "parallelism: {tp: two}\n", "s.yaml:2: parallelism.tp must be an integer (got 'two')."),
        (TRAINING + "parallelism: {zero_stage: 4}\n",
         "s.yaml:2: parallelism.zero_stage 4 is unknown. Known: 0, 1, 2, 3."),
        (TRAINING + "parallelism: {sp: maybe}\n", "s.yaml:2: parallelism.sp must be true or false (got 'maybe')."),
        (TRAINING + "parallelism: {schedule: 1f2b}\n",
         "s.yaml:2: parallelism.schedule '1f2b' is unknown. Did you mean '1f1b'? Known: gpipe, 1f1b, "
         "interleaved, breadth-first, zb-h1, zb-h2, zb-v, dualpipe, dualpipe-v, pipedream-2bw."),
        ("workload: {kind: training, global_batch_size: 8, sequence_length: 1e30}\n",
         "s.yaml:1: workload.sequence_length must be an integer of at most 1,000,000,000,000 (got 1e+30)."),
        ("workload:\n  kind: training\n  global_batch_size: 8\n  sequence_length: 8\n  recompute: {mode: selectiv}\n",
         "s.yaml:5: workload.recompute.mode 'selectiv' is unknown. Did you mean 'selective'? "
         "Known: none, selective, full."),
        (TRAINING + "sizes: {hbm: 80}\n", "s.yaml:2: sizes.hbm needs a unit, such as '80 GiB' (got 80)."),
        (TRAINING + "sizes: [1]\n", "s.yaml:2: sizes must be a mapping of fields (got [1])."),
        (TRAINING + "waits: [5 us, 5]\n", "s.yaml:2: waits[1] needs a unit, such as '5 us' (got 5)."),
        (TRAINING + "waits: 5 us\n", "s.yaml:2: waits must be a list (got '5 us')."),
        (TRAINING + "note: 5\n", "s.yaml:2: note must be text (got 5). Write '5', in quotes."),
    ],
)  # fmt: skip
def test_bad_fields(text, sentence):
    with pytest.raises(InputError) as error:
        build(Job, parse_yaml(text, "s.yaml"))
    assert str(error.value) == sentence


def test_number_without_a_unit_in_an_accelerator():
    text = "name: x\n" + "\n" * 10 + "memory:\n  hbm:\n    capacity: 80\n    bandwidth: 3 TB/s\n"
    with pytest.raises(InputError) as error:
        build(Accelerator, parse_yaml(text, "system.yaml"))
    assert str(error.value) == "system.yaml:14: memory.hbm.capacity needs a unit, such as '80 GiB' (got 80)."
    assert error.value.field == "memory.hbm.capacity"


def test_suggestions_stand_in_the_error():
    with pytest.raises(InputError) as error:
        build(Job, {"paralelism": {}})
    assert error.value.suggestions == ("parallelism",)
    assert error.value.field == "paralelism"
    assert str(error.value) == "unknown field 'paralelism'. Did you mean 'parallelism'?"


def test_over_keeps_places():
    base = parse_yaml("a: {b: 1,\n c: 2}\n", "base.yaml")
    top = parse_yaml("\n\na: {c: 3}\n", "top.yaml").over(base)
    assert top.data == {"a": {"b": 1, "c": 3}}
    assert top.where("a.b") == ("base.yaml", 1)
    assert top.where("a.c") == ("top.yaml", 3)


def test_plain_reads_back():
    job = build(Job, parse_yaml(TRAINING + "sizes: {l2: 50 MiB}\nwaits: [2.7 us]\n"))
    data = plain(job)
    assert data["sizes"] == {"l2": "52428800 B"}
    assert data["waits"] == ["2.7e-06 s"]
    assert build(Job, data) == job
    assert hash(build(Job, data)) == hash(job)


def test_a_noun_passes_as_a_value():
    assert build(Job, {"workload": build(Job, parse_yaml(TRAINING)).workload}).parallelism == Parallelism()
    assert Document(data={}).error("x", "a.b").field == "a.b"


def test_a_device_without_an_end_is_read_up_to_the_limit():
    with pytest.raises(InputError) as error:
        reading.read_yaml("/dev/zero")
    assert str(error.value) == "/dev/zero: is too large: at most 4,194,304 bytes are read. Try a smaller file."
