"""Build the documentation site: ``docs/*.md`` and pages made from docstrings, data and the scenario's schema."""

import ast
import inspect
import itertools
import re
import sys
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from string import Template

from markdown_it import MarkdownIt

from rapid_llm import scenario
from rapid_llm.cli import catalogue

ROOT = Path(__file__).resolve().parents[1]
FORMULA_ROOMS = ("model", "operators", "network", "parallelism", "lowering", "execution", "memory", "predict")
MOST_NAMED = 12
TITLES = {
    "index": "RAPID-LLM",
    "newcomer": "Newcomer",
    "training-engineer": "Training engineer",
    "serving-engineer": "Serving engineer",
    "hardware-architect": "Hardware architect",
    "network-researcher": "Network researcher",
    "scripts": "Scripts and CI",
    "metrics": "Metrics",
    "scenario": "Scenario reference",
    "catalogue": "Catalogue",
    "formulas": "Formulas",
    "architecture": "Architecture",
}
PAGE = Template("""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>$title · RAPID-LLM</title>
<style>
body { font: 16px/1.55 system-ui, sans-serif; margin: 0; color: #1d232b; display: flex; min-height: 100vh }
nav { background: #f4f6f8; padding: 1.5rem; min-width: 11rem } nav a { display: block; padding: .15rem 0 }
main { padding: 1.5rem 2.5rem; max-width: 60rem; min-width: 0 } a { color: #22569c; text-decoration: none }
nav a.here { font-weight: 600; color: inherit }
pre { background: #f4f6f8; padding: 1rem; overflow-x: auto; border-radius: 6px; line-height: 1.35; font-size: .85rem }
pre:has(.language-console) { white-space: pre-wrap }
code { background: #f4f6f8; font-size: .9em }
table { border-collapse: collapse; font-size: .9rem; display: block; overflow-x: auto }
td, th { border-bottom: 1px solid #dde3e9; padding: .25rem .7rem .25rem 0; text-align: left; vertical-align: top }
</style>
<nav>$links</nav><main>$body</main></html>
""")


def main(site: Path) -> None:
    """Write every page into ``site``."""
    site.mkdir(parents=True, exist_ok=True)
    pages = {path.stem: path.read_text("utf-8") for path in sorted((ROOT / "docs").glob("*.md"))}
    pages |= {"index": (ROOT / "README.md").read_text("utf-8"), "formulas": formulas()}
    pages |= {"catalogue": catalogue_tables(), "scenario": pages.get("scenario", "") + scenario_fields()}
    render = MarkdownIt("commonmark").enable("table").render
    for name in pages:
        links = "".join(_link(other, other == name) for other in TITLES if other in pages)
        body = re.sub(r'href="(?:docs/)?([\w.-]+)\.md', r'href="\1.html', render(pages[name]))
        html = PAGE.substitute(title=escape(TITLES.get(name, name)), links=links, body=body)
        (site / f"{name}.html").write_text(html, "utf-8")
    print(f"{len(pages)} pages in {site}: open {site / 'index.html'}")


def _link(name: str, here: bool) -> str:
    mark = ' class="here"' if here else ""
    return f'<a{mark} href="{name}.html">{escape(TITLES[name])}</a>'


def formulas() -> str:
    """One section per room with the docstring of every public function."""
    parts = ["# Formulas\n\nEvery public function of the rooms that hold physics, with its units and source.\n"]
    for room in FORMULA_ROOMS:
        parts.append(f"\n## {room}\n")
        for path in sorted((ROOT / "src/rapid_llm" / room).glob("*.py")):
            parts += _functions(path, f"{room}/{path.name}")
    return "\n".join(parts)


def _functions(path: Path, name: str) -> Iterator[str]:
    tree = ast.parse(path.read_text("utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]
    documented = [(node, ast.get_docstring(node)) for node in functions]
    if any(text for _, text in documented):
        yield f"\n### {name}\n\n{_prose(ast.get_docstring(tree) or '')}\n"
    for node, text in documented:
        if text:
            yield f"\n**`{node.name}({ast.unparse(node.args)})`**\n\n{_prose(inspect.cleandoc(text))}\n"


def _prose(text: str) -> str:
    """A docstring as Markdown: double backticks are code, and nothing else is marked up."""
    parts = text.split("``")
    plain = [re.sub(r"([_<\[\]`])", r"\\\1", part) for part in parts[::2]]
    code = [f"`{part}`" for part in parts[1::2]]
    return "".join(part for pair in itertools.zip_longest(plain, code, fillvalue="") for part in pair)


def catalogue_tables() -> str:
    """A table per kind of entry, as ``rapid-llm list`` prints it."""
    parts = ["# Catalogue\n\nSources of every number: `rapid-llm show accelerator h100-sxm`.\n"]
    for kind, table in catalogue.TABLES.items():
        header, rows, _ = table()
        parts += [f"\n## {kind.capitalize()}s ({len(rows)})\n", _table(header, rows)]
    return "\n".join(parts)


def scenario_fields() -> str:
    """The fields of a scenario from its JSON Schema."""
    schema = scenario.schema()
    parts = ["\n## Every field\n\nFrom the JSON Schema that `rapid-llm schema` prints.\n"]
    for name, noun in {"Scenario": schema, **schema.get("$defs", {})}.items():
        rows = [[f"`{field}`", _type(spec), _default(spec)] for field, spec in noun.get("properties", {}).items()]
        if rows:
            summary = _prose(noun.get("description", "").split("\n\n")[0].replace("\n", " "))
            parts += [f"\n### {name}\n\n{summary}\n", _table(("field", "type", "default"), rows)]
    return "\n".join(parts)


def _type(spec: dict) -> str:
    if "$ref" in spec:
        return spec["$ref"].rpartition("/")[2]
    if "enum" in spec or "const" in spec:
        names = [str(name) for name in spec.get("enum", [spec.get("const")])]
        return ", ".join(names) if len(names) <= MOST_NAMED else "a catalogue name"
    options = spec.get("anyOf") or spec.get("oneOf")
    named = [_type(option) for option in options or () if option.get("type") != "null"]
    return " or ".join(named) if named else str(spec.get("type", "any"))


def _default(spec: dict) -> str:
    default = spec.get("default", "required")
    return "" if default is None else f"`{default}`" if not isinstance(default, dict) else "see below"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "site"))
