"""Imports point one way only, layer by layer and file by file."""

from __future__ import annotations

import ast
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.programs import ROOT, finished

MODULES = sorted((ROOT / "snowredis").rglob("*.py"))

# layer -> the layers, or modules, that it may import besides itself: no more than it does. "snowredis" is the package's
# own __init__. Nothing imports merge, which is a tool of its own
MAY_IMPORT = {
    "signatures": set(),
    "errors": {"signatures"},
    "process": {"errors"},
    "settings": {"errors", "core", "process.log"},
    "embedded": {"errors", "process.fork", "process.log"},
    "core": {"errors"},
    "servers": {"errors", "settings", "process", "embedded"},
    "snowflake": {"errors", "signatures", "settings", "core", "process", "servers"},
    "connection": {"errors", "settings", "core", "process", "snowflake"},
    "kinds": {"errors", "settings", "core", "process", "snowflake", "connection"},
    "numbers": {"errors", "signatures", "settings", "core", "process", "servers", "snowflake", "kinds"},
    "process_generator": {"errors", "settings", "core", "process", "snowflake", "connection", "kinds"},
    "testing": {"errors", "settings", "process", "snowflake", "connection", "process_generator", "numbers"},
    "readers": {"errors", "core", "process.log"},
    "monitor": {*("errors", "signatures", "settings", "core", "process.clock", "servers", "snowflake", "numbers")},
    "worker_pool": {"errors", "process.clock", "snowflake", "monitor"},
    "merge": {
        *("errors", "core.as_json", "core.layout", "core.presets", "core.values"),
        *("cli.exit_codes", "cli.options", "cli.output"),
    },
}
LOWER = MAY_IMPORT.keys() - {"merge"}
MAY_IMPORT |= {
    "snowredis": LOWER - {"numbers", "servers", "settings", "signatures"},
    "integrations": {*LOWER, "snowredis"} - {"numbers", "readers", "servers", "signatures", "worker_pool"},
    # "integrations": metrics are shown there, too
    "web": {*LOWER, "integrations"}
    - {"embedded", "numbers", "process_generator", "readers", "servers", "signatures", "testing"},
    # "servers.runner": gameday writes what nothing below the commands writes
    "cli": {*LOWER, "snowredis", "web", "servers.runner"}
    - {"kinds", "process_generator", "readers", "servers", "signatures", "testing"},
    "__main__": {"cli"},
}
# packages of snowflake: each may import those before it
SUBJECTS = ("protocol", "crash", "lease", "ids", "upkeep")
NOT_IN_CORE = {"socket", "threading", "asyncio", "logging", "time", "redis"}
# a Layout looks at the wall clock once, to refuse an epoch that has not begun
EXEMPT = {("snowredis.core.layout", "time")}
# every other module imports it where it is used: that takes 0.15 s
IMPORTS_REDIS = (
    "snowredis.servers.clients",
    "snowredis.servers.connections",
    "snowredis.servers.failover",
    "snowredis.servers.refusals",
    "snowredis.servers.resolving",
    "snowredis.servers.runner",
)
# what is loaded in a process that may never use Redis: it imports none of these, however indirectly
LIGHT = ("snowredis.process_generator", "snowredis.testing", "snowredis.cli", "snowredis.numbers")


class Import(NamedTuple):
    module: str  # absolute, "snowredis.core.layout"
    line: int
    lazy: bool  # inside a function


@functools.cache
def parsed(source: str) -> ast.Module:
    """Parse *source* once for all tests that look at it."""
    return ast.parse(source)


@functools.cache
def imports_of(source: str, module: str, is_package: bool = False, *, for_types: bool = False) -> tuple[Import, ...]:
    """Every import of a module, however deep it stands; those under `if TYPE_CHECKING` only *for_types*."""

    def walk(node: ast.AST, lazy: bool) -> Iterator[Import]:
        children = ast.iter_child_nodes(node)
        match node:
            case ast.If(test=ast.Name("TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")) if not for_types:
                children = iter(node.orelse)
            case ast.Import():
                for alias in node.names:
                    yield Import(alias.name, node.lineno, lazy)
            case ast.ImportFrom():
                base = node.module or ""
                if node.level:
                    parents = module.split(".")[: None if is_package else -1]
                    parents = parents[: len(parents) - node.level + 1]
                    base = ".".join([*parents, base] if base else parents)
                # `from snowredis import errors` imports a module, `from snowredis import connect` the package
                for alias in node.names:
                    inner = ROOT.joinpath(*base.split("."), alias.name)
                    found = inner.is_dir() or inner.with_suffix(".py").exists()
                    yield Import(f"{base}.{alias.name}" if found else base, node.lineno, lazy)
        inside = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in children:
            yield from walk(child, inside)

    return tuple(walk(parsed(source), lazy=False))


def layer_of(module: str) -> str:
    return (module.split(".") + ["snowredis"])[1]


def allows(allowed: str, inner: str) -> bool:
    """Return true if *allowed* of MAY_IMPORT is the module *inner* or contains it."""
    return inner == allowed or inner.startswith(f"{allowed}.")


def wrong_imports(source: str, module: str, is_package: bool = False) -> list[str]:
    layer = layer_of(module)
    wrong = []
    for found in imports_of(source, module, is_package):
        top = found.module.partition(".")[0]
        if top == "snowredis":
            inner = found.module.removeprefix("snowredis.")
            right = any(allows(allowed, inner) for allowed in MAY_IMPORT[layer] | {layer})
        elif layer == "core":
            right = top not in NOT_IN_CORE or (module, top) in EXEMPT
        else:
            right = top != "redis" or found.lazy or module in IMPORTS_REDIS
        if not right:
            wrong.append(f"{module}:{found.line} imports {found.module}")
    return wrong


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_the_package_is_where_this_test_looks_for_it() -> None:
    assert {"snowredis", "snowredis.errors", "snowredis.core", *IMPORTS_REDIS} <= set(map(module_name, MODULES))


def test_no_file_has_more_than_500_lines() -> None:
    lengths = {path.name: len(path.read_text("utf-8").splitlines()) for path in MODULES}
    assert {name: length for name, length in lengths.items() if length > 500} == {}


def test_no_import_points_back() -> None:
    wrong = [wrong_imports(path.read_text(), module_name(path), path.name == "__init__.py") for path in MODULES]
    to_do = "imports point down (docs/explanation/architecture.md): take the value as an argument, or move the function"
    assert list(itertools.chain.from_iterable(wrong)) == [], to_do


def test_each_import_that_is_allowed_exists() -> None:
    unused = {(layer, allowed) for layer, may in MAY_IMPORT.items() for allowed in may}
    for path in MODULES:
        name = module_name(path)
        for found in imports_of(path.read_text(), name, path.name == "__init__.py", for_types=True):
            inner = found.module.removeprefix("snowredis.")
            unused -= {(layer_of(name), allowed) for allowed in MAY_IMPORT[layer_of(name)] if allows(allowed, inner)}
    assert unused == set()


def test_a_subject_of_snowflake_imports_only_those_before_it() -> None:
    folder = ROOT / "snowredis" / "snowflake"
    assert {path.name for path in folder.iterdir() if path.is_dir()} - {"__pycache__"} == set(SUBJECTS)
    wrong = []
    for path in folder.glob("*/*.py"):
        for found in imports_of(path.read_text(), module_name(path), path.name == "__init__.py", for_types=True):
            inner = f"{found.module}..".removeprefix("snowredis.snowflake.").partition(".")[0]
            is_inside = found.module.startswith("snowredis.snowflake")
            if is_inside and inner not in SUBJECTS[: SUBJECTS.index(path.parent.name) + 1]:
                wrong.append(f"{path.name} of {path.parent.name} imports {found.module}")
    assert wrong == []


def arrows_of_the_diagram() -> dict[str, set[str]]:
    """Return for each package of the diagram in the architecture page what it imports, directly or by others."""
    text = (ROOT / "docs" / "explanation" / "architecture.md").read_text("utf-8")
    lines = text.partition("flowchart TD\n")[2].partition("```")[0].splitlines()
    chains = [[side.split("&") for side in line.split("-->")] for line in lines]
    arrows: dict[str, set[str]] = {}
    for chain in chains:
        for tails, heads in itertools.pairwise(chain):
            for tail in tails:
                arrows.setdefault(tail.strip(), set()).update(head.strip() for head in heads)
    for name in TopologicalSorter(arrows).static_order():
        below = arrows.setdefault(name, set())
        below.update(*(arrows[other] for other in below))
    return arrows


def test_the_diagram_shows_every_import() -> None:
    arrows = arrows_of_the_diagram()
    assert {path.name for path in (ROOT / "snowredis").iterdir() if (path / "__init__.py").exists()} <= arrows.keys()
    on_top = {"cli", "web", "integrations"}
    missing = set()
    for path in MODULES:
        name = module_name(path)
        layer = layer_of(name)
        for found in imports_of(path.read_text(), name, path.name == "__init__.py"):
            other = layer_of(found.module)
            if found.module.startswith("snowredis.") and other != layer and {layer, other} <= arrows.keys():
                missing |= {(layer, other)} if other not in arrows[layer] | on_top else set()
    assert missing == set(), "do without the import, or draw its arrow in docs/explanation/architecture.md"


def circle_in(arrows: Mapping[str, Iterable[str]]) -> list[str]:
    """Return modules of which each imports the next, the last of them the first; none if there is no circle."""
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        # graphlib names them from the imported to the importing one
        circle: list[str] = error.args[1][::-1]
        return circle
    return []


def test_no_files_import_each_other_however_lazily() -> None:
    names = {module_name(path) for path in MODULES}
    arrows = {}
    for path in MODULES:
        module, is_package = module_name(path), path.name == "__init__.py"
        found = imports_of(path.read_text(), module, is_package, for_types=True)
        arrows[module] = {one.module for one in found} & names
    assert circle_in(arrows) == []


@pytest.mark.parametrize("module", ["snowredis", *LIGHT])
def test_importing_what_may_never_use_redis_loads_nothing_heavy_and_starts_no_thread(module: str) -> None:
    heavy = {"redis", "asyncio", "ssl", "multiprocessing", "fakeredis", "starlette"}
    # for its own work
    heavy |= {"ctypes", "subprocess"} if module == "snowredis" else set()
    done = finished("-m", "tests.project.programs.loaded_modules", module, *heavy, forked=False)
    assert (done.stdout.split(), done.stderr) == ([], "")
