"""The Python of the README and of docs/integrations.md runs as it stands, on a private Redis."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from snowredis.lease.model import PoolConfig
from snowredis.monitor.pool import WorkerPool
from tests.support.servers import redis_server

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
SNIPPETS = {
    f"{name}:{number}": snippet
    for name in ("README.md", "docs/integrations.md")
    for number, snippet in enumerate(
        re.findall(r"```python\n(.*?)```", (ROOT / name).read_text("utf-8"), re.DOTALL), 1
    )
}


def test_there_are_snippets() -> None:
    assert len(SNIPPETS) >= 14


@pytest.mark.parametrize("snippet", SNIPPETS.values(), ids=SNIPPETS)
def test_a_snippet_runs(snippet: str, tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        for pool in ("orders", "default"):
            WorkerPool(server.url, pool).create(PoolConfig(name=pool))
        source = snippet.replace("redis://localhost:6379/0", server.url)
        done = subprocess.run(
            [sys.executable, "-c", source],
            cwd=ROOT,
            env={**os.environ, "SNOWREDIS_URL": server.url},
            capture_output=True,
            text=True,
            timeout=30,
        )
    assert done.returncode == 0, done.stderr


def test_every_setting_in_the_table_is_an_argument_of_connect_and_the_other_way_round() -> None:
    import inspect

    from snowredis.connection import connect

    table = README[README.index("| setting |") :].partition("\n\n")[0]
    told = set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE))
    assert told == set(inspect.signature(connect).parameters) - {"clock"}


@pytest.mark.parametrize(
    "page", ["README.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
)
def test_every_file_that_a_page_names_exists(page: str) -> None:
    text = re.sub(r"https?://\S+", "", (ROOT / page).read_text("utf-8"))
    for name in re.findall(r"\b(?:scripts|snowredis|examples|docs|tests)/[\w./-]*\w", text):
        assert (ROOT / name).exists(), name


def test_the_environment_says_what_connect_takes() -> None:
    import inspect

    from snowredis.connection import _VARIABLES, connect

    options = {option for option, _ in _VARIABLES.values()}
    assert options == set(inspect.signature(connect).parameters) - {"clock", "url"}
    assert all(name == f"SNOWREDIS_{option.upper()}" for name, (option, _) in _VARIABLES.items())
