import subprocess
import sys

from rapid_llm import notices

COMPILING = """
from rapid_llm import notices
from rapid_llm.network.jit import njit
notices.listen(print)
njit(lambda x: x + 1)(1)
njit(lambda x: x + 2)(1)
"""


def test_compilation_is_announced_once():
    said = subprocess.run([sys.executable, "-c", COMPILING], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["compiling the flow engine, half a minute to a minute; later runs find it compiled"]


def test_nobody_hears_a_notice_unless_asked(monkeypatch, capsys):
    monkeypatch.setattr(notices, "_LISTENERS", [])
    notices.notify("quiet")
    assert capsys.readouterr() == ("", "")
