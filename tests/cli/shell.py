"""Run the command line in this process, as a shell would see it."""

import contextlib
import io
from dataclasses import dataclass

from rapid_llm.cli.door import run


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


def rapid_llm(*argv: str) -> Ran:
    """Exit code and both streams of one command line; neither is a terminal."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = run([str(arg) for arg in argv])
        except SystemExit as leave:
            code = leave.code or 0
    return Ran(code, out.getvalue(), err.getvalue())
