"""Extras of the package: those that are named anywhere exist, and scripts/try_extras.py imports what is there."""

import ast
import re
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec

from scripts.try_extras import IMPORTS
from tests.support.programs import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = set(PROJECT["optional-dependencies"])
# snowredis[web], and the same from a checkout or a wheel: '.[web]', CHECKOUT[web], snowredis-….whl[web]
ASKED_FOR = re.compile(r"(?:snowredis|CHECKOUT|\.whl|'\.)\[([a-z][a-z,]*)\]")


def texts() -> Iterator[tuple[str, str]]:
    for folder in ("docs", "examples", "scripts", "snowredis", "tests"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in {".md", ".py", ".sh", ".yml", ".txt"}:
                yield str(path.relative_to(ROOT)), path.read_text("utf-8")
    yield from ((name, (ROOT / name).read_text("utf-8")) for name in ("pyproject.toml", "README.md"))


def unknown_extras(text: str) -> set[str]:
    return {name for names in ASKED_FOR.findall(text) for name in names.split(",")} - EXTRAS


def test_every_extra_that_is_named_exists() -> None:
    assert {where: unknown_extras(text) for where, text in texts() if unknown_extras(text)} == {}


def modules_in(statement: str) -> set[str]:
    nodes = list(ast.walk(ast.parse(statement)))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


def test_each_extra_is_tried_with_modules_that_exist() -> None:
    assert set(IMPORTS) == EXTRAS
    modules = {extra: modules_in(statement) for extra, statement in IMPORTS.items()}
    assert {(extra, name) for extra, names in modules.items() for name in names if find_spec(name) is None} == set()
