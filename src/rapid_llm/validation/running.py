"""From tables to a scorecard."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path

from rapid_llm.errors import InputError, nearest, unknown_name
from rapid_llm.validation import tables
from rapid_llm.validation.cases import Case
from rapid_llm.validation.evaluation import Predictor, Progress, evaluate, predictor
from rapid_llm.validation.kernels.samples import UnknownAccelerator
from rapid_llm.validation.scorecard import Scorecard, score
from rapid_llm.validation.suites import SUITES


def published() -> Path:
    """The folder of the package's own tables of published figures."""
    with resources.as_file(resources.files(__package__).joinpath("data")) as folder:
        return folder


def suite_names() -> tuple[str, ...]:
    """The names of all suites."""
    return tuple(SUITES)


def cases_of(suites: Iterable[str], found: Sequence[tables.Table]) -> tuple[Case, ...]:
    """The cases of the named suites in some tables; InputError for a suite that does not exist."""
    return _read(suites, found)[0]


def _read(suites: Iterable[str], found: Sequence[tables.Table]) -> tuple[tuple[Case, ...], tuple[str, ...]]:
    """The cases of the named suites in some tables, and a sentence for each broken row of those that the suites read
    and for each table that is set aside, as its accelerator is unknown."""
    chosen = tuple(suites) or suite_names()
    for name in chosen:
        if name not in SUITES:
            raise InputError(unknown_name("suite", name, SUITES), field="suites", suggestions=nearest(name, SUITES))
    cases, said = list[Case](), dict[str, None]()
    for name in dict.fromkeys(chosen):
        for table in found:
            try:
                own = tuple(SUITES[name](table))
            except UnknownAccelerator as error:
                place = "" if str(table.path) in error.message else f"{table.path}: "
                said[f"{place}{error.message} The table is set aside."] = None
                continue
            cases += own
            if own:
                said |= dict.fromkeys(table.broken)
    return tuple(cases), tuple(said)


def run(
    suites: Iterable[str] = (),
    data_dir: Path | str | None = None,
    *,
    predict: Predictor | None = None,
    progress: Progress | None = None,
) -> Scorecard:
    """Score suites (all of them by default) on the tables of a folder, or on the package's own published figures.

    ``predict`` turns a scenario mapping into a report (the product's own by default). InputError for an unknown suite,
    and for a folder that does not exist or holds no table of their schemas.
    """
    folder = Path(data_dir) if data_dir is not None else published()
    found = tables.find(folder)
    cases, said = _read(suites, found)
    if not cases:
        if data_dir is None:
            raise InputError(
                "the published figures have no row for these suites: name a folder of tables with --data FOLDER.",
                field="data",
            )
        if said:
            raise InputError(f"{said[0]} Nothing is left to score.", field="data")
        why = tables.almost(folder) or "tables are known by their columns. See: rapid-llm validate --help"
        raise InputError(f"{folder} has no row for these suites: {why}", field="data")
    card = score(evaluate(cases, predict or predictor(), progress))
    return card if data_dir is None else replace(card, broken=said)
