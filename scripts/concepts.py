#!/usr/bin/env python3
"""Count what a person has to learn: options, settings, JSON fields, conditions, errors, words.

example:
  scripts/concepts.py      # one line for each kind of concept
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from scripts._docs.events import RECORDS  # noqa: E402
from scripts._docs.schema import schema_of  # noqa: E402
from snowredis.cli import build_parser  # noqa: E402
from snowredis.core.as_json import DecodedId  # noqa: E402
from snowredis.core.layout import Parts  # noqa: E402
from snowredis.monitor.conditions import LEVELS, TABLE  # noqa: E402
from snowredis.settings import SETTINGS  # noqa: E402


def _leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    children = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not children:
        yield parser
    for action in children:
        for child in action.choices.values():
            yield from _leaves(child)


def options() -> int:
    """Return the number of options of all commands, without --help."""
    actions = [action for parser in _leaves(build_parser()) for action in parser._actions if action.option_strings]
    return sum("--help" not in action.option_strings for action in actions)


def json_fields() -> int:
    """Return the number of fields of all records that commands and service show."""
    return sum(len(schema_of(record)["properties"]) for record in (*RECORDS, DecodedId, Parts))


def error_classes() -> int:
    """Return the number of classes of errors, by the names of their bases."""
    bases: dict[str, set[str]] = {}
    for path in (ROOT / "snowredis").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    found = {"SnowredisError"}
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return len(found)


def glossary_words() -> int:
    """Return the number of words in the glossary."""
    text = (ROOT / "docs" / "explanation" / "glossary.md").read_text("utf-8")
    return len(re.findall(r"^\| (?!word \|)[^-]", text, re.MULTILINE))


def lease_forms() -> int:
    """Return how many classes of monitor/ show a lease: records in JSON with a worker id and a state."""
    shown = (schema_of(record)["properties"] for record in RECORDS)
    return sum({"worker", "state"} <= properties.keys() for properties in shown)


def count() -> dict[str, int]:
    """Return how many there are of each kind of concept."""
    return {
        "options": options(),
        "settings of connect()": len(SETTINGS),
        "JSON fields": json_fields(),
        "conditions": len(TABLE),
        "levels": len(LEVELS),
        "error classes": error_classes(),
        "glossary words": glossary_words(),
        "forms of a lease": lease_forms(),
    }


if __name__ == "__main__":
    for what, number in count().items():
        print(f"{number:5}  {what}")
