"""What the shell can do to standard output: close it, fill it, narrow it to ASCII, leave early, interrupt."""

import io
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rapid_llm.cli import style

COMMAND = f'"{sys.executable}" -c "from rapid_llm.cli import main; main()" list models'


def shell(line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        (f"{COMMAND} | head -1; exit ${{PIPESTATUS[0]}}", 0, ""),
        (f"{COMMAND} >&-", 0, ""),
        (f"{COMMAND} 2>&- | wc -l", 0, ""),
        (f"PYTHONIOENCODING=ascii {COMMAND.replace('list models', 'list nothing-é')}", 2, "Known: models"),
    ],
)
def test_no_traceback(line, code, said):
    ran = shell(line)
    assert ran.returncode == code
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk():
    ran = shell(f"{COMMAND} > /dev/full")
    assert (ran.returncode, ran.stderr) == (2, "standard output cannot be written: no space left on device.\n")


def test_interrupt_is_silent():
    body = "import os, signal, rapid_llm.cli.door as d; d._answer = lambda *_: os.kill(os.getpid(), signal.SIGINT); "
    body += "signal.signal(signal.SIGINT, signal.default_int_handler); "  # a shell's background jobs ignore it
    ran = shell(f'"{sys.executable}" -c "{body} import rapid_llm.cli as c; c.main()" list models')
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")


class Screen(io.StringIO):
    """A standard error that may be a terminal."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.mark.parametrize(("terminal", "slow"), [(True, True), (True, False), (False, True)])
def test_what_takes_long_says_so_on_a_terminal_and_wipes_it(terminal, slow, monkeypatch):
    screen = Screen(terminal=terminal)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(style, "PATIENCE", 0.01 if slow else 60.0)
    with style.status("looking"):
        time.sleep(0.2 if slow else 0.0)
    assert screen.getvalue() == ("looking ...\r\x1b[K" if terminal and slow else "")


def test_an_interrupt_that_a_library_turns_into_an_error_of_its_own_stays_one(monkeypatch):
    from rapid_llm.cli import app, door

    monkeypatch.setattr(app, "app", lambda *_, **__: 1 / 0)
    with pytest.raises(KeyboardInterrupt):
        door.run(["list", "models"], lambda: True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_named():
    ran = shell(f"{COMMAND.replace('list models', 'calibrate --emit-benchmark --out /dev/full')}")
    assert (ran.returncode, ran.stderr) == (2, "/dev/full cannot be written: no space left on device.\n")


def test_blocks_have_stand_ins_where_an_encoding_has_none():
    command = "infer llama-3.1-8b --system h100-sxm --batch-size 4 --prompt-tokens 64 --output-tokens 8"
    ran = shell(f"PYTHONIOENCODING=ascii {COMMAND.replace('list models', command)}")
    assert ran.returncode == 0
    assert "?" not in ran.stdout
    bar, legend = ran.stdout[ran.stdout.index("\nmemory ") + 1 :].splitlines()[:2]
    assert set(bar.split("[")[1].split("]")[0].strip()) == {
        part[0] for part in legend.strip().split("  ") if not part.startswith("free")
    }
