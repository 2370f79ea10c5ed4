"""scripts/test --changed runs the tests of every file of the package, and lists of files name those that exist."""

import fnmatch
import re
import tomllib
from collections.abc import Iterator

from scripts import _changed
from tests import conftest
from tests.project.test_imports import MODULES, module_name
from tests.support.programs import ROOT

TESTS = sorted((ROOT / "tests").rglob("test_*.py"))
# a pattern, since parsing all files takes seconds
IMPORT = re.compile(r"^ *(?:from (snowredis[\w.]*) import (\([^)]*\)|.*)|import (snowredis[\w.]+))", re.MULTILINE)


def is_chosen(test: str, chosen: frozenset[str]) -> bool:
    return any(test == one or test.startswith(f"{one}/") for one in chosen)


def imported_by_tests() -> Iterator[tuple[str, str]]:
    """Yield (name, test file) for each name of the package that a test imports: modules, and what is in them."""
    for path in TESTS:
        test = path.relative_to(ROOT).as_posix()
        for base, names, whole in IMPORT.findall(path.read_text("utf-8")):
            yield base or whole, test
            for name in re.findall(r"\w+", names):
                yield f"{base}.{name}", test


def test_a_change_of_a_module_runs_every_test_that_imports_it() -> None:
    modules = {module_name(path): path.relative_to(ROOT).as_posix() for path in MODULES}
    missed = set()
    for module, test in imported_by_tests():
        if module in modules and "." in module and not is_chosen(test, _changed.tests_of(modules[module])):
            missed.add((module, test))
    assert missed == set()


def test_the_lists_of_conftest_and_of_coverage_name_what_exists() -> None:
    assert {path.parent.name for path in TESTS} >= conftest.QUICK
    assert {path.name for path in TESTS} >= conftest.THOROUGH
    measured = re.search(r"measured=\((tests/.*)\)", (ROOT / "scripts/test").read_text("utf-8"))
    assert measured is not None
    assert [pattern for pattern in measured[1].split() if not list(ROOT.glob(pattern))] == []
    coverage = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["coverage"]["run"]
    assert [source for source in coverage["source"] if not (ROOT / source).is_dir()] == []
    files = [path.relative_to(ROOT).as_posix() for path in MODULES]
    omitted = {pattern: [one for one in files if fnmatch.fnmatch(one, pattern)] for pattern in coverage["omit"]}
    assert [pattern for pattern, found in omitted.items() if not found] == []
