"""The Python of the README and of docs/how-to/integrations.md runs as it stands, on a private Redis."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from snowredis.lease.model import PoolConfig
from snowredis.monitor.worker_pool import WorkerPool
from tests.support.servers import redis_server

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
SNIPPETS = {
    f"{name}:{number}": snippet
    for name in ("README.md", "docs/how-to/integrations.md")
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


@pytest.mark.parametrize(
    "page", ["README.md", *(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]
)
def test_every_file_that_a_page_names_exists(page: str) -> None:
    text = re.sub(r"https?://\S+", "", (ROOT / page).read_text("utf-8"))
    for name in re.findall(r"\b(?:scripts|snowredis|examples|docs|tests)/[\w./-]*\w", text):
        assert (ROOT / name).exists(), name
