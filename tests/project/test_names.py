"""Names use the words of the glossary, no class name exists twice, and comments are sentences or name a thing."""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.project.test_imports import MODULES
from tests.support.programs import ROOT

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


# what gives a name: a definition, a variable, an argument or a field with a type; in Lua a function, arguments, locals.
# By patterns, since parsing all files takes seconds; the name of a test is a sentence
GIVES = {
    ".py": r"\b(?:def|class|for) (?!test_)(\w+)|^ *(?:self\.)?(\w+)(?:: [^=\n]+)? = |[(,] ?\**(\w+): |^ +(\w+): \w",
    ".lua": r"\blocal (?:function )?([\w, ]+)|\bfunction ?\w*\(([\w, ]*)",
}


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_")


def code_of(path: Path) -> str:
    """Return the text of a file without docstrings."""
    return re.sub(r'"""[\s\S]*?"""', "", path.read_text("utf-8"))


def synonyms_in(name: str) -> set[str]:
    """Return the words of SYNONYMS in *name*; "ns" only where it stands alone, since it is also a unit."""
    words = f"_{snake_case(name)}_"
    return {word for word in SYNONYMS if f"_{word}_" in words and (word != "ns" or words == "_ns_")}


@pytest.mark.parametrize("folder", ["snowredis", "tests", "scripts"])
def test_names_use_the_words_of_the_glossary(folder: str) -> None:
    common = set() if folder == "snowredis" else COMMON_IN_TESTS
    read, found = 0, dict[tuple[str, str], list[str]]()
    for path in sorted((ROOT / folder).rglob("*")):
        if path.suffix not in GIVES or path == Path(__file__):
            continue
        given = re.findall(GIVES[path.suffix], code_of(path), re.MULTILINE)
        names = set(re.findall(r"\w+", " ".join(" ".join(groups) for groups in given)))
        read += len(names)
        where = path.relative_to(ROOT).as_posix()
        found |= {
            (where, name): [f"{word}: {SYNONYMS[word]}" for word in words]
            for name in names
            if (words := synonyms_in(name) - common) and (where, name) not in OF_OTHERS
        }
    assert found == {}
    assert read > 500


def test_no_two_classes_have_one_name() -> None:
    places = defaultdict(list)
    for path in MODULES:
        for name in re.findall(r"^ *class (\w+)", code_of(path), re.MULTILINE):
            places[name].append(path.relative_to(ROOT))
    # Django wants this name in each file of a command
    doubles = {name for name, paths in places.items() if len(paths) > 1 and name != "Command"}
    assert doubles == set()


# --- comments ---------------------------------------------------------------------------------------

MARKS = {".c": "/*", ".css": "/*", ".js": "//", ".lua": "--", ".tla": "\\*"}
HASH = {"", ".cfg", ".py", ".sh", ".toml", ".yaml", ".yml"}
FRAGMENT = "of|not|and|or|but"


def fragments(text: str, mark: str) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line with a comment that begins with a fragment, unless it continues a comment."""
    begins = re.compile(rf"(?:^|\s){re.escape(mark)} ?(?:{FRAGMENT})\b", re.IGNORECASE)
    before = ""
    for number, line in enumerate(text.splitlines(), 1):
        if begins.search(line) and not before.lstrip().startswith(mark):
            yield number, line.strip()
        before = line


def test_no_comment_begins_with_a_fragment() -> None:
    folders = ("docs", "examples", "scripts", "snowredis", "tests")
    found: dict[str, str] = {}
    for path in [ROOT / "pyproject.toml", *(path for name in folders for path in (ROOT / name).rglob("*"))]:
        mark = "#" if path.suffix in HASH else MARKS.get(path.suffix)
        if mark and path.is_file():
            found |= {f"{path.name}:{number}": line for number, line in fragments(path.read_text("utf-8"), mark)}
    assert found == {}, "say it as a sentence of its own"
