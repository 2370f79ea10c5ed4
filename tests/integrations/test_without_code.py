"""Frameworks that need no code of snowredis: each makes ids that differ, and leaves no worker id leased at its end."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import httpx
import pytest

import snowredis
from tests.support import warm
from tests.support.pools import new_pool
from tests.support.ports import free_port
from tests.support.programs import ROOT
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

PROGRAMS = Path(__file__).with_name("programs") / "without_code"
# server -> its arguments
SERVERS = {
    "granian": ("--interface", "asgi", "--port", "{port}"),
    "hypercorn": ("--bind", "127.0.0.1:{port}"),
    "uvicorn": ("--port", "{port}", "--loop", "uvloop"),
}


def environment(url: str, pool: str) -> dict[str, str]:
    packages = os.pathsep.join([str(ROOT), str(PROGRAMS)])
    return {**os.environ, "PYTHONPATH": packages, "SNOWREDIS_URL": url, "SNOWREDIS_POOL": pool}


def need(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")


@pytest.mark.parametrize("program", sorted(PROGRAMS.glob("with_*.py")), ids=lambda path: path.stem)
def test_a_program_makes_ten_ids(server: RedisServer, program: Path) -> None:
    need(program.stem.removeprefix("with_"))
    new_pool(server.url, program.stem)
    done = warm.run(
        [sys.executable, str(program)],
        env=environment(server.url, program.stem),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert len(set(map(int, done.stdout.split()))) == 10
    assert snowredis.WorkerPool(server.url, program.stem).workers() == []


@pytest.mark.parametrize("name", SERVERS)
def test_an_asgi_server_runs_the_lifespan(server: RedisServer, name: str) -> None:
    need(name)
    pool, port = f"asgi-{name}", free_port()
    new_pool(server.url, pool)
    arguments = [part.format(port=port) for part in SERVERS[name]]
    process = warm.Popen([sys.executable, "-m", name, "asgi_server:app", *arguments], env=environment(server.url, pool))
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            first = eventually(lambda: client.get("/").raise_for_status().text, limit_s=30, ignored=(httpx.HTTPError,))
            ids = {int(first), *(int(client.get("/").raise_for_status().text) for _ in range(9))}
        assert len(ids) == 10
        assert len(snowredis.WorkerPool(server.url, pool).workers()) == 1
    finally:
        process.terminate()
        process.wait(20)
    assert snowredis.WorkerPool(server.url, pool).workers() == []
