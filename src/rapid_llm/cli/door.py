"""The one place where a command becomes an exit code: every error leaves here as one sentence."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import rapid_llm
from rapid_llm.errors import InputError, InternalError, RapidError
from rapid_llm.notices import listen

REPORT_AT = "the project's issue tracker"


def run(argv: Sequence[str], interrupted: Callable[[], bool] = lambda: False) -> int:
    """Run one command line and return its exit code; ``interrupted``: what failed did so because it was stopped."""
    _open_streams()
    listen(lambda notice: print(notice, file=sys.stderr, flush=True))
    try:
        code = _answer(argv, interrupted)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader left (head, less): nothing to say.
        _discard_output()
        return 0
    except OSError as error:
        _discard_output()
        return _tell(InputError(f"standard output cannot be written: {(error.strerror or 'failed').lower()}."))
    return code


def _open_streams() -> None:
    """A closed stream takes and forgets; a character that a stream cannot encode becomes a question mark."""
    sys.stdout = sys.stdout or io.StringIO()
    sys.stderr = sys.stderr or io.StringIO()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _discard_output() -> None:
    """Point standard output elsewhere, so that nothing is flushed into it at exit."""
    with contextlib.suppress(OSError):  # of a sandbox without the device
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _answer(argv: Sequence[str], interrupted: Callable[[], bool]) -> int:
    from cyclopts import CycloptsError

    from rapid_llm.cli.app import app, spelled_out

    as_json = "--json" in argv
    warnings.simplefilter("ignore")  # of libraries, about their own future: nothing that a user could act on
    try:
        _refuse_empty(argv)
        result = app(spelled_out(argv), exit_on_error=False, print_error=False, result_action="return_value")
    except RapidError as error:
        return _tell(error, as_json=as_json)
    except CycloptsError as error:
        from rapid_llm.cli.usage import input_error

        return _tell(input_error(error, argv), as_json=as_json)
    except Exception as error:
        if interrupted():  # a compiled library makes an error of its own of it
            raise KeyboardInterrupt from None
        if isinstance(error, OSError) and not error.filename:
            raise
        return _tell(_ours(error, argv), as_json=as_json)
    return result if isinstance(result, int) else 0


def _refuse_empty(argv: Sequence[str]) -> None:
    """InputError for an argument without any text, as an unset variable of a shell leaves it."""
    for before, word in pairwise(["", *argv]):
        if not word and not before.startswith("--"):
            raise InputError("an argument is an empty text: is a variable of the shell unset? See: rapid-llm --help")


def _tell(error: RapidError, *, as_json: bool = False) -> int:
    if as_json:
        from rapid_llm.cli.text import json_text

        print(json_text({"error": error_object(error)}))
    else:
        print(" ".join(str(error).splitlines()), file=sys.stderr)
    return error.exit_code


def error_object(error: RapidError) -> dict[str, Any]:
    """The JSON form of an error, with stable keys."""
    return {
        "message": str(error),
        "field": error.field,
        "line": error.line,
        "suggestions": list(error.suggestions),
    }


def _ours(error: Exception, argv: Sequence[str]) -> RapidError:
    """Wrap an exception that should not have reached a user: say where it rose and how to report it."""
    if isinstance(error, OSError) and error.filename:
        return InputError(f"{error.filename}: {(error.strerror or 'cannot be read').lower()}.")
    where = error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    at = f" at {Path(where.tb_frame.f_code.co_filename).name}:{where.tb_lineno}" if where else ""
    what = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    return InternalError(
        f"internal error{at} ({what}): this is a fault of rapid-llm, not of your input; please report this line, "
        f"'rapid-llm {' '.join(argv)}' and version {rapid_llm.__version__} at {REPORT_AT}."
    )
