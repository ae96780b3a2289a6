"""Data files written whole or not at all."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from rapid_llm.documents import parse_yaml


def write_whole(path: Path, text: str) -> None:
    """Replace a data file: the new text must parse, and stands in its place at once or not at all, a crash included."""
    parse_yaml(text, str(path))
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o666 & ~_mask())  # a temporary file is its owner's alone
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _mask() -> int:
    """Permissions that this process withholds from new files."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def replace_block(text: str, head: Sequence[str], values: Mapping[str, str], source: str) -> str:
    """The text of a YAML file with the plain numbers of one mapping replaced (or the mapping appended).

    ``head``: the keys that lead to the mapping, two blanks of indent each. Its other lines stay, its ``source`` and
    ``kind`` are renewed.
    """
    lines = text.splitlines()
    at, depth = -1, 0
    for depth, key in enumerate(head):
        line = f"{'  ' * depth}{key}:"
        found = next((i for i in range(at + 1, len(lines)) if lines[i] == line), None)
        at = found if found is not None else (at + 1 if depth else len(lines))
        if found is None:
            lines.insert(at, line)
    start = at
    indent = "  " * (depth + 1)
    end = start + 1
    while end < len(lines) and lines[end].startswith(indent):
        end += 1
    fresh = {"source": source, "kind": "fitted", **values}
    kept = [line for line in lines[start + 1 : end] if line.split(":")[0].strip() not in fresh]
    lines[start + 1 : end] = [f"{indent}{name}: {value}" for name, value in fresh.items()] + kept
    return "\n".join(lines) + "\n"
