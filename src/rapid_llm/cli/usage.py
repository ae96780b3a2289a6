"""What cyclopts found wrong with a command line, in our words."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from cyclopts import (
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    RepeatArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from rapid_llm.cli.flags import ALTERNATIVES, NAMES, VERB_FLAGS
from rapid_llm.documents import missing_file
from rapid_llm.errors import InputError, nearest
from rapid_llm.synonyms import setting

_EXAMPLES = {
    "MODEL": "llama-3.1-70b",
    "FILE": "examples/llama-3.1-70b-training.yaml",
    "rapid-llm list WHAT": "models",
    "rapid-llm show WHAT": "accelerator h100-sxm",
    "rapid-llm show NAME": "accelerator h100-sxm",
    "rapid-llm diff A": "examples/llama-3.1-70b-decode.yaml examples/hypothetical-accelerator.yaml",
    "rapid-llm diff B": "examples/llama-3.1-70b-decode.yaml examples/hypothetical-accelerator.yaml",
}
"""What to give, by the name of an argument, or of one of a command."""
_ALTERNATIVES = frozenset(("plan", "sweep", "search", "optimize", "optimise", "tune", "autotune", "recommend", "best"))
"""What one who wants several plans at once may look for."""
_READ_FILES = frozenset(f"rapid-llm {verb}" for verb in ("run", "explain", "check"))
"""Verbs that take a job from a file."""


def input_error(error: CycloptsError, argv: Sequence[str] = ()) -> InputError:
    """Turn an error of the argument parser for a command line into one sentence with a suggestion."""
    verb = " ".join(error.command_chain or ())
    command = f"rapid-llm {verb}".strip()
    if isinstance(error, UnknownCommandError):
        return _unknown_verb(error, command)
    if isinstance(error, UnknownOptionError):
        return _unknown_flag(error, command, argv)
    if isinstance(error, MissingArgumentError):
        return _missing(error, command, argv)
    if isinstance(error, UnusedCliTokensError):
        extra = " ".join(error.unused_tokens or ())
        if apart := _apart(argv, error.unused_tokens or ()):
            return InputError(f"'{command}' does not take '{extra}'. Quote what holds spaces: {apart}.")
        return InputError(f"'{command}' does not take '{extra}'. See: {command} --help")
    if isinstance(error, RepeatArgumentError):
        return InputError(f"{error.token.keyword} is given more than once. Keep one of them.")
    if isinstance(error, CoercionError) and error.argument is not None:
        given = error.token.value if error.token else ""
        return InputError(f"{error.argument.name} does not take '{given}'. See: {command} --help")
    return InputError(f"{' '.join(str(error).split())} See: {command} --help")


def _apart(argv: Sequence[str], unused: Sequence[str]) -> str:
    """A flag and its value in quotes, where words of the value stand behind it as words of their own."""
    for place in range(2, len(argv) + 1 - len(unused)):
        if list(argv[place : place + len(unused)]) == list(unused) and argv[place - 2].startswith("--"):
            return f"{argv[place - 2]} '{' '.join([argv[place - 1], *unused])}'"
    return ""


def _unknown_verb(error: UnknownCommandError, command: str) -> InputError:
    given = (error.unused_tokens or [""])[0]
    verbs = [name for name in error.app or () if not name.startswith("-")]
    guess = nearest(given, verbs)
    hint = f" Did you mean '{guess[0]}'?" if guess else f" Known: {', '.join(verbs)}."
    if given.lower() in _ALTERNATIVES:
        return InputError(f"'{given}' is not a verb of {command}. {ALTERNATIVES}")
    if command == "rapid-llm fit" and not guess and not given.startswith("-"):
        hint = f" Try: {command} infer {given}, or {command} train {given}."
    return InputError(f"'{given}' is not a verb of {command}.{hint} See: {command} --help", suggestions=guess)


def _unknown_flag(error: UnknownOptionError, command: str, argv: Sequence[str]) -> InputError:
    given = error.token.keyword or error.token.value
    if given == "-":
        return InputError(f"'{command}' reads files, and '-' is none. Standard input is /dev/stdin.")
    flags = [name for argument in error.argument_collection for name in argument.names if name.startswith("--")]
    whole = setting(given, _value_of(given, argv)) if "--set" in flags else None
    quoted = f'"{whole}"' if whole and " " in whole else whole
    guess = [f"--set {quoted}"] if whole else nearest(given, flags)
    other = _other_verb(given, command)
    if field := _field(given, command):
        hint = f" It reads a file; train and infer write one with --out DIR. Try DIR/scenario.yaml --set {field}=VALUE."
    elif other:
        hint = f" It is one of '{other}'."
    elif whole:
        hint = f" Try {guess[0]}."
    elif guess:
        hint = f" Did you mean '{guess[0]}'?"
    else:
        hint = " Any scenario field goes through --set a.b=c." if "--set" in flags else ""
    return InputError(f"{given} is not a flag of '{command}'.{hint} See: {command} --help", suggestions=guess)


def _field(flag: str, command: str) -> str:
    """The field that a flag of a job is, where it was given to a verb that takes it from a file."""
    name = flag.removeprefix("--").replace("-", "_")
    if command not in _READ_FILES or name not in NAMES:
        return ""
    from rapid_llm.scenario import keywords  # few errors need it

    return next(iter(keywords.spelled({name: "tp=1"})))


def _other_verb(flag: str, command: str) -> str:
    """The verb that has a flag which the one in use, a job of the other kind, has not."""
    group, _, own = command.rpartition(" ")
    name = flag.removeprefix("--").replace("-", "_")
    others = (verb for verb, names in VERB_FLAGS.items() if own in VERB_FLAGS and verb != own and name in names)
    return next((f"{group} {verb}" for verb in others), "")


def _value_of(flag: str, argv: Sequence[str]) -> str:
    """What stands behind a flag on the command line, or behind its equals sign."""
    for place, word in enumerate(argv):
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
        if word == flag and place + 1 < len(argv):
            return argv[place + 1]
    return ""


def _missing(error: MissingArgumentError, command: str, argv: Sequence[str]) -> InputError:
    from rapid_llm.cli.link_by_link import is_file

    name = error.argument.name if error.argument is not None else ""
    operands = list(takewhile(lambda word: not word.startswith("-"), argv[len(error.command_chain or ()) :]))
    lost = next((word for word in operands if is_file(word) and not os.path.exists(word)), None)  # noqa: PTH110
    if lost is not None:
        return missing_file(Path(lost))
    if error.keyword == "--system" and (given := _value_of(error.keyword, argv)).startswith("-"):
        return InputError(f"--system '{given}' names no system. Try '4x dgx-h100 + 4x dgx-a100', or dgx-h100.")
    if error.keyword and re.match(r"-\.?\d", given := _value_of(error.keyword, argv)):
        return InputError(f"{error.keyword} must be positive (got {given}). Try {given.lstrip('-')}.")
    if error.keyword:
        return InputError(f"{error.keyword} needs a value. See: {command} --help")
    example = _EXAMPLES.get(f"{command} {name}", _EXAMPLES.get(name))
    if name == "OP":
        example = " ".join([*operands, "all_reduce", *([] if operands else ["--system dgx-h100"]), "--size 256MiB"])
    hint = f"Try: {command} {example}" if example else f"See: {command} --help"
    return InputError(f"'{command}' needs {name}. {hint}")
