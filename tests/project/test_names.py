"""One word for one thing: names of the code use the words of the glossary, and no class name exists twice."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.project.test_imports import MODULES, ROOT, parsed

# word -> what to say instead, by docs/explanation/glossary.md
SYNONYMS = {
    "cut": "lowered, of an outage lane; width, of a field",
    "cuts": "lowered, of outage lanes",
    "fit_ms": "usable_from_ms",
    "give_back": "release",
    "kept_ms": "lane_until_ms",
    "has_beat": "heartbeat",
    "look": "read",
    "lookout": "sweep",
    "machine": "host, or worker id",
    "node": "server, or worker id",
    "ns": "namespace; nanoseconds have a name before the unit",
    "ownership": "holding, or holder",
    "page_owner": "page_file",
    "reference": "weak_generator, or what it refers to",
    "server_place": "address_scope",
    "take_back": "undo, or release",
    "take_out": "remove",
    "take_turn": "say what is done in the turn",
    "take_up": "adopt, or reclaim",
    "tally": "count",
    "this_place": "own_access",
    "turn": "side, of a crash record",
    "twin": "copy",
    "watch": "poll, follow or close_at_exit",
}
# names that others chose: Redis Cluster's nodes, nodes of PostgreSQL's plans
OF_OTHERS = {
    *((f"snowredis/servers/{name}.py", "node") for name in ("clients", "connections", "failover")),
    ("snowredis/readers.py", "node"),
    ("snowredis/servers/failover.py", "_ClusterNode"),
}
# words that tests and scripts use in their common meaning: connections that are cut, machines that are simulated
COMMON_IN_TESTS = {"cut", "cuts", "machine", "node", "ns", "reference", "turn", "watch"}


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_")


def names_of(source: str) -> Iterator[str]:
    """Yield the names of classes, functions, arguments, fields, attributes and variables."""
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.ClassDef):
            yield from (ast.unparse(each.target) for each in node.body if isinstance(each, ast.AnnAssign))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            arguments = node.args
            yield from (one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs))


def lua_names_of(source: str) -> Iterator[str]:
    """Yield the names of local variables and functions, and of arguments."""
    for pattern in (r"\blocal (?:function )?([\w, ]+)", r"\bfunction ?\w*\(([\w, ]*)"):
        for names in re.findall(pattern, source):
            yield from re.findall(r"\w+", names)


def synonyms_in(name: str) -> list[str]:
    """Return the words of SYNONYMS in *name*; "ns" only where it stands alone, since it is also a unit."""
    words = f"_{snake_case(name)}_"
    return [word for word in SYNONYMS if f"_{word}_" in words and (word != "ns" or words == "_ns_")]


def test_names_use_the_words_of_the_glossary() -> None:
    found = {
        (path.relative_to(ROOT).as_posix(), name): synonyms_in(name)
        for path in MODULES
        for name in names_of(path.read_text("utf-8"))
        if synonyms_in(name)
    }
    wrong = {where: [f"{word}: {SYNONYMS[word]}" for word in words] for where, words in found.items()}
    assert {where: advice for where, advice in wrong.items() if where not in OF_OTHERS} == {}


def test_names_in_lua_use_the_words_of_the_glossary() -> None:
    paths = list((ROOT / "snowredis").rglob("*.lua"))
    found = {(path.name, name) for path in paths for name in lua_names_of(path.read_text("utf-8")) if synonyms_in(name)}
    assert (found, len(paths) > 10) == (set(), True)


def test_names_in_tests_and_scripts_use_the_words_of_the_glossary() -> None:
    # by a pattern, since parsing all of them takes seconds; the name of a test is a sentence
    defined = re.compile(r"\b(?:def|class|for) (?!test_)(\w+)|^ *(?:self\.)?(\w+)(?:: [^=\n]+)? = ", re.MULTILINE)
    found = set()
    for path in {*(ROOT / "tests").rglob("*.py"), *(ROOT / "scripts").rglob("*.py")} - {Path(__file__)}:
        names = {one or other for one, other in defined.findall(path.read_text("utf-8"))}
        found |= {(path.name, name) for name in names if set(synonyms_in(name)) - COMMON_IN_TESTS}
    assert found == set()


def test_no_two_classes_have_one_name() -> None:
    places: dict[str, list[Path]] = defaultdict(list)
    for path in MODULES:
        for node in ast.walk(parsed(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(path.relative_to(ROOT))
    # Django wants this name in each file of a command
    doubles = {name for name, paths in places.items() if len(paths) > 1 and name != "Command"}
    assert doubles == set()
