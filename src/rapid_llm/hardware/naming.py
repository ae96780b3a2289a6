"""Accelerators as people, drivers and tables write them: ``NVIDIA H100 80GB HBM3``, ``RTX4090``, ``Intel Gaudi 2``.

A catalogue name is a model with what tells its kinds apart (``h100`` with ``sxm``, ``a100`` with ``sxm`` and ``40gb``).
"""

import re
from collections.abc import Callable, Iterable
from typing import Final

_FORMS: Final = frozenset(("sxm", "pcie", "nvl"))
_KIND: Final = re.compile(r"sxm|pcie|nvl|\d+gb|\d+w|hbm\w*")  # parts of a name that are not its model
_SIZE: Final = re.compile(r"(\d+)\s?gi?b\b")
_MAKERS: Final = ("apple", "arc")  # often left out
_NOISE: Final = re.compile(
    r"nvidia|amd|intel|google|apple|habana|geforce|instinct|tesla|quadro|gpu|core|generation|oam|nvl72|edition|server"
    r"|workstation|blackwell|superchip|memory|\d+x?|\d*gi?b|hbm\w*|gddr\w*|sxm|pcie|nvl"
)
"""Words that say nothing more about which product it is, or that are read apart."""


def as_written(text: str, names: Iterable[str], capacity_gb: Callable[[str], float]) -> str | None:
    """The catalogue name that ``text`` means, or None where none or several do.

    ``capacity_gb`` gives the memory of a name in GB; a size that the text states has to be it, within a tenth.
    """
    plain = re.sub(r"\b(sxm|pcie)\d\b", r"\1", text.casefold())
    remarks = " ".join(re.findall(r"\((.*?)\)", plain))
    words = [word for word in re.split(r"[^a-z0-9.]+", re.sub(r"\(.*?\)", " ", plain)) if word]
    words += [word for word in ("pcie", "nvl") if word in remarks.split()]
    spelt = {name: many for name in names if (many := _spelt(name, words))}
    fitting = [name for name, many in spelt.items() if many == max(spelt.values())]  # m1 max 14 is no m1 max
    if sizes := [float(size) for size in _SIZE.findall(plain)]:
        fitting = [name for name in fitting if any(0.9 < size / capacity_gb(name) < 1.1 for size in sizes)]
    plainest = sorted(fitting, key=len)[:2]
    return plainest[0] if plainest and len({len(name) for name in plainest}) == len(plainest) else None


def _spelt(name: str, words: list[str]) -> int:
    """How many words spell the model of a name; 0 where they do not, or hold what tells them apart from that name."""
    parts = name.split("-")
    kind = {part for part in parts if _KIND.fullmatch(part)}
    model = [part for part in parts if part not in kind]
    spellings = {"".join(model)} | ({"".join(model[1:])} if model[0] in _MAKERS else set())
    found = next((run for run in _runs(words) if "".join(words[slice(*run)]) in spellings), None)
    if found is None:
        return 0
    rest = {*words[: found[0]], *words[found[1] :]}
    form = next((word for word in ("pcie", "nvl") if word in rest), "sxm")
    special = {part for part in kind - _FORMS if not part.endswith("gb")}
    known = all(map(_NOISE.fullmatch, rest - special))
    return found[1] - found[0] if known and kind & _FORMS <= {form} and special <= rest else 0


def _runs(words: list[str]) -> list[tuple[int, int]]:
    """Bounds of all runs of up to four words, longest first: ``rtx 3080 ti`` before ``rtx 3080``."""
    return [(at, at + size) for size in (4, 3, 2, 1) for at in range(len(words) - size + 1)]
