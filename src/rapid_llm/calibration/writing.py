"""Data files written whole or not at all."""

import os
import tempfile
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
