#!/usr/bin/env python3
"""Print the tests of what changed since the branch left main, in commits or not; scripts/test --changed runs them.

A file's tests are the folders that ROOMS has for its package, and every test file that names it: by an import, or by
its path.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
# at every change: seconds
ALWAYS = ("tests/project/test_imports.py",)
MOST = ("core", "snowflake/protocol", "snowflake/generator", "project", "cli")
# package, or file beside the packages -> folders of tests/
ROOMS: dict[str, tuple[str, ...]] = {
    "__init__.py": ("project", "snowflake/generator"),
    "__main__.py": ("cli",),
    "connection.py": ("servers", "snowflake", "ha", "numbers", "project"),
    "core": ("core", "kinds", "cli"),
    "cli": ("cli",),
    "embedded": ("embedded",),
    "errors.py": MOST,
    "integrations": ("integrations",),
    "kinds": ("kinds",),
    "merge": ("merge",),
    "monitor": ("monitor", "cli", "web"),
    "numbers": ("numbers", "kinds"),
    "process": ("process", "snowflake", "numbers", "lab/simulation", "lab/interrupts"),
    "process_generator.py": ("snowflake/generator", "kinds"),
    "py.typed": ("project",),
    "readers.py": ("readers",),
    "servers": ("servers", "snowflake/protocol", "ha", "numbers", "lab/simulation"),
    "settings.py": MOST,
    "signatures.py": MOST,
    "snowflake": ("snowflake", "servers", "lab/simulation", "ha", "lab/interrupts", "monitor", "lab/spec", "lab/chaos"),
    "testing.py": ("snowflake/generator", "kinds", "numbers", "integrations"),
    "web": ("web",),
    "worker_pool.py": ("monitor", "cli", "web"),
}


@cache
def _names() -> dict[str, frozenset[str]]:
    """Return what each Python file of the tests names: modules, what it imports of them, and paths."""
    found = {}
    for path in (ROOT / "tests").rglob("*.py"):
        text = path.read_text("utf-8")
        names = set(re.findall(r"\w[\w./-]*\w", text))
        for module, several in re.findall(r"from ([\w.]+) import (\([^)]*|.*)", text):
            names |= {f"{module}.{name}" for name in re.findall(r"\w+", several)}
        found[path.relative_to(ROOT).as_posix()] = frozenset(names)
    return found


def _named_in(path: str) -> Iterator[str]:
    """Yield the test files, and the folders of other files of tests, that import or name the file *path*."""
    module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    for other, names in _names().items():
        # `import snowredis` stands in nearly every test
        if other != path and (path in names or ("." in module and module in names)):
            yield from _tests_at(other)


def _tests_at(path: str) -> Iterator[str]:
    """Yield the test file *path*, or the nearest folder with tests of a file that holds none."""
    if PurePosixPath(path).name.startswith("test_"):
        yield path
    elif not path.startswith("tests/support/"):
        folders = PurePosixPath(path).parents
        yield from [folder.as_posix() for folder in folders if any((ROOT / folder).glob("test_*.py"))][:1]


@cache
def tests_of(path: str) -> frozenset[str]:
    """Return the tests of one file, as paths of files and folders for pytest."""
    parts = path.split("/")
    found = {*ALWAYS, *(_named_in(path) if path.endswith(".py") else ())}
    if parts[0] == "snowredis":
        found |= {f"tests/{folder}" for folder in ROOMS.get(parts[1], MOST)}
    elif parts[0] == "tests":
        found |= set(_tests_at(path)) or {"tests/core", "tests/project"}
    else:
        found |= {"tests/project"}
    return frozenset(found)


def without_files_in(paths: Iterable[str]) -> list[str]:
    """Return *paths* without what lies in another one of them, and without what does not exist any more."""
    found = {path for path in paths if (ROOT / path).exists()}
    return sorted(
        path for path in found if not any(parent.as_posix() in found for parent in PurePosixPath(path).parents)
    )


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], check=False, capture_output=True, text=True)
    return done.stdout.splitlines()


def main() -> None:
    base = (_git("merge-base", "HEAD", "main") or ["HEAD"])[0]
    changed = {*_git("diff", "--name-only", base), *_git("ls-files", "--others", "--exclude-standard")}
    tests = without_files_in(test for path in changed for test in tests_of(path))
    print("\n".join(tests))


if __name__ == "__main__":
    main()
