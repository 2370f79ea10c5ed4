"""The code of snowredis in a process that makes ids, for docs/explanation/what-your-process-runs.md."""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize
from pathlib import Path

from scripts._docs.lua import lua_of
from scripts._docs.tables import table
from snowredis.servers.scripts import PROLOGUE
from snowredis.snowflake.protocol.redis_store import SCRIPTS

PACKAGE = Path(__file__).parents[2] / "snowredis"
C_FILE = PACKAGE / "snowflake/ids/_fastpath.c"
# A claim that finds no Redis has loaded what a claim needs; tests/project/test_cold_start.py compares one that lives
_PROGRAM = """
import sys
import snowredis

ids = snowredis.connect("unix:///nonexistent/redis.sock", pool="loaded")
try:
    ids.next_id()
except snowredis.StoreUnavailable:
    print(*sorted(name for name in sys.modules if name.split(".")[0] == "snowredis"))
"""


def what_runs() -> str:
    """Return the sums, and a table of the modules."""
    paths = [path for path in map(path_of, loaded_modules()) if path.suffix == ".py"]
    counts = {path: code_lines(path.read_text("utf-8")) for path in paths}
    every = list(PACKAGE.rglob("*.py"))
    names = (*PROLOGUE, "pool", *SCRIPTS)
    rows = [
        ("Python", f"{len(paths)} of {len(every)} files", f"{sum(counts.values()):,}"),
        ("C", f"`{C_FILE.relative_to(PACKAGE.parent)}`", f"{lines_of(C_FILE.read_text('utf-8')):,}"),
        ("Lua", ", ".join(f"`{name}`" for name in names), f"{sum(len(lua_lines(lua_of(name))) for name in names):,}"),
    ]
    modules = [
        (f"`{path.relative_to(PACKAGE)}`", purpose_of(path), str(count)) for path, count in counts.items() if count
    ]
    return "\n\n".join(
        [table(("language", "files", "code lines"), rows), table(("module", "what it is", "code lines"), modules)]
    )


def loaded_modules() -> list[str]:
    """Return the names of the modules of snowredis that a claim and an id load, in order."""
    command = [sys.executable, "-c", _PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, cwd=PACKAGE.parent)
    return done.stdout.split()


def path_of(module: str) -> Path:
    """Return the source of *module*."""
    path = PACKAGE.parent.joinpath(*module.split("."))
    found = (path / "__init__.py", path.with_suffix(".py"), path.with_suffix(".c"))
    return next(one for one in found if one.exists())


def purpose_of(path: Path) -> str:
    """Return the first line of a module's docstring."""
    return (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").partition("\n")[0]


def code_lines(source: str) -> int:
    """Return the number of lines of Python, without docstrings, comments and blank lines."""
    texts: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node
        ):
            texts |= {*range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)}
    blank = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return len({n for t in tokens if t.type not in blank for n in range(t.start[0], t.end[0] + 1)} - texts)


def lua_lines(source: str) -> list[str]:
    """Return the lines of a script, without comments and blank lines."""
    return [line for line in source.splitlines() if line.strip() and not line.strip().startswith("--")]


def lines_of(source: str) -> int:
    """Return the number of lines of C that are not blank."""
    return sum(bool(line.strip()) for line in source.splitlines())
