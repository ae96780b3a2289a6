import gzip

import pytest

from rapid_llm.errors import InputError
from rapid_llm.validation import tables

HEADER = "id,source,gpu,n_gpus,framework,model,tp,pp,outcome,mem_gb,mem_unit,mem_kind"


def test_tables_are_known_by_their_columns(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "anything.csv").write_text(HEADER + ",extra\nm1,s,A100,8.0,f,m,1,,ok,67.5,GiB,peak,x\n")
    (tmp_path / "zipped.csv.gz").write_bytes(gzip.compress((HEADER + "\n").encode()))
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    found = tables.find(tmp_path)
    assert [(t.schema, t.path.name, len(t.rows)) for t in found] == [
        ("memory", "anything.csv", 1),
        ("memory", "zipped.csv.gz", 0),
    ]
    row = found[0].rows[0]
    assert tables.number(row, "mem_gb") == 67.5
    assert tables.integer(row, "n_gpus") == 8
    assert tables.count(row, "pp") == 1
    assert tables.number(row, "outcome") is None


def test_matching_cells():
    row = {"source": "Llama3-405b-report", "tp": "8"}
    assert tables.matches(row, {"source": "llama3"})
    assert tables.matches(row, {"source": "llama3", "tp": "=8"})
    assert not tables.matches(row, {"source": "=llama3"})
    assert not tables.matches(row, {"gpu": "A100"})


def test_a_folder_that_is_none(tmp_path):
    with pytest.raises(InputError, match=r"^--data must be a folder of measured tables: .*none is not one\.$"):
        tables.find(tmp_path / "none")


def test_a_binary_file(tmp_path):
    (tmp_path / "bad.csv").write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(InputError, match=r"bad\.csv: cannot be read: it is not text in UTF-8\.$"):
        tables.find(tmp_path)
