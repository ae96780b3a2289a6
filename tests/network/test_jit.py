import subprocess
import sys

import pytest

from rapid_llm import notices

COMPILING = """
from rapid_llm import notices
from rapid_llm.network.jit import njit
notices.listen(print)
njit(cache=CACHE)(lambda x: x + 1)(1)
njit(cache=CACHE)(lambda x: x + 2)(1)
"""


@pytest.mark.parametrize(
    ("cache", "then"),
    [
        ("False", "later runs find it compiled"),
        ("True", "no folder can keep it, so set NUMBA_CACHE_DIR to one that can"),  # code of no file has no cache
    ],
)
def test_compilation_is_announced_once_and_needs_no_cache(cache, then):
    code = COMPILING.replace("CACHE", cache)
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [f"compiling a part of the flow engine, seconds to a minute; {then}"]


def test_nobody_hears_a_notice_unless_asked(monkeypatch, capsys):
    monkeypatch.setattr(notices, "_LISTENERS", [])
    notices.notify("quiet")
    assert capsys.readouterr() == ("", "")
