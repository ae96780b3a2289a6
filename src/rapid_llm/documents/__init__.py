"""YAML and JSON files with a line for every value, and nouns built from them with one sentence for every mistake."""

from rapid_llm.documents.building import build, known_fields, show
from rapid_llm.documents.reading import (
    Document,
    join,
    merge,
    missing_file,
    parse_json,
    parse_yaml,
    read_table,
    read_yaml,
)
from rapid_llm.documents.writing import plain

__all__ = [
    "Document",
    "build",
    "join",
    "known_fields",
    "merge",
    "missing_file",
    "parse_json",
    "parse_yaml",
    "plain",
    "read_table",
    "read_yaml",
    "show",
]
