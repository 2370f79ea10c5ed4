"""An embedded server goes on with what the one before it stored, however that one ended."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

import snowredis
from snowredis import embedded
from snowredis.core.layout import Layout
from snowredis.embedded import MISSING_KEY, ask, is_ready
from snowredis.embedded.home import Home
from snowredis.numbers import DatedGenerator, NumbersClosed, create_tag
from snowredis.snowflake.protocol import PoolConfig
from snowredis.snowflake.redis_store import RedisStore
from snowredis.snowflake.replies import Granted, Renewed, Settling
from tests.snowflake.lease.conftest import wall_ms
from tests.support import warm
from tests.support.holder import Holder
from tests.support.waiting import eventually

# claims in a pool of ttl 2 s, says until when the reservation goes, and releases it or closes all descriptors
USER = Path(__file__).parent / "programs" / "reserving_user.py"


class User:
    def __init__(self, home: Path, what: str) -> None:
        self.process = warm.Popen([sys.executable, USER, str(home), what], stdout=subprocess.PIPE, text=True)
        fresh, until_ms, an_id = self._line().split()
        self.fresh, self.until_ms, self.ids = fresh == "True", int(until_ms), [int(an_id)]

    def _line(self) -> str:
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, "the user failed; its error is above"
        return line

    def end(self) -> None:
        assert self.process.stdout
        self.ids += map(int, self.process.stdout.read().split())
        assert self.process.wait(10) == 0


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("SNOWREDIS_EMBEDDED", "redis-server")
    directory = tmp_path / "h"
    yield directory
    embedded.stop(directory)


def ended(home: Path) -> bool:
    return (Home(home).locks / "supervisor").read_bytes() == b"" and not (home / "redis.sock").exists()


def kill_server(home: Path) -> None:
    """Kill the supervisor with -9, and the server with it."""
    state = Home(home).supervisor()
    assert state
    os.kill(state["pid"], signal.SIGKILL)
    eventually(lambda: Home(home).supervisor() is None and not is_ready(state["url"]), "the end of the server")


def holder(server: embedded.Server, name: str = "p") -> Holder:
    return Holder(RedisStore(server.url, PoolConfig(name=name)), wall_ms)


def test_after_a_clean_end_the_next_server_is_fresh_and_needs_no_floor(home: Path) -> None:
    User(home, "close").end()
    eventually(lambda: ended(home), "the end of the server")
    second = User(home, "close")
    second.end()
    assert second.fresh


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_marks_survive_kill_minus_nine_of_supervisor_and_server(home: Path) -> None:
    server = embedded.start(home)
    store = RedisStore(server.url, PoolConfig(name="p"))
    store.create(0)
    held = Holder(store, wall_ms).claim()
    kill_server(home)
    again = embedded.start(home)
    assert again.fresh
    # the same lease goes on, and nobody waits for a floor
    assert isinstance(held.ask_renew(), Renewed)
    assert holder(again).claim().worker != held.worker


@pytest.mark.parametrize("removed", [False, True], ids=["the data is there", "the directory was removed"])
def test_a_process_that_closed_its_descriptors_repeats_no_id_of_those_after_it(home: Path, removed: bool) -> None:
    daemon = User(home, "daemon")
    eventually(lambda: ended(home), "the end of the server")
    if removed:
        shutil.rmtree(home)
    # it makes ids still, and no lock says so
    with snowredis.connect(f"embedded://{home}", pool="p", ttl=2) as ids:
        made = [ids.next_id() for _ in range(100_000)]
    daemon.end()
    assert len(daemon.ids) > 1
    assert not set(made) & set(daemon.ids)


@pytest.mark.parametrize("missing", ["append-only file", "newest append-only file", "keys"])
def test_a_server_that_lost_something_is_not_fresh_and_raises_the_floor(
    home: Path, tmp_path: Path, missing: str
) -> None:
    def claim(server: embedded.Server, name: str) -> object:
        return holder(server, name).ask_claim()

    server = embedded.start(home)
    RedisStore(server.url, PoolConfig(name="p")).create(0)
    assert isinstance(claim(server, "p"), Granted)
    embedded.stop(home)
    older = tmp_path / "older"
    shutil.copytree(home / "appendonlydir", older)
    server = embedded.start(home)
    assert isinstance(claim(server, "p"), Granted)
    if missing == "keys":
        ask(server.url, "FLUSHALL")
    embedded.stop(home)
    if missing != "keys":
        shutil.rmtree(home / "appendonlydir")
    if missing == "newest append-only file":
        shutil.copytree(older, home / "appendonlydir")
    server = embedded.start(home)
    assert not server.fresh
    assert isinstance(claim(server, "p"), Settling)
    assert isinstance(claim(server, "new"), Settling)
    # 31 days later no reservation is left that nobody remembers
    for past_s, fresh in ((31 * 86_400 - 400, False), (500, True)):
        client = redis.Redis.from_url(server.url, decode_responses=True)
        since, identity = str(client.get(MISSING_KEY)).split(" ")
        client.set(MISSING_KEY, f"{int(since) - past_s} {identity}")
        embedded.stop(home)
        server = embedded.start(home)
        assert server.fresh is fresh
        client.close()


def test_a_clock_that_was_set_back_over_a_restart_repeats_no_tick(home: Path) -> None:
    layout = Layout(timestamp_bits=42, backup_bits=1, worker_bits=1, sequence_bits=19)
    config = PoolConfig(name="p", layout=layout, outage_reserve_ms=0)
    server = embedded.start(home)
    store = RedisStore(server.url, config)
    store.create(0)
    used = {}
    holders = [Holder(store, wall_ms).claim() for _ in range(2)]
    for held in holders:
        used[held.worker] = held.until_ms
        held.release("11")
    embedded.stop(home)
    store = RedisStore(embedded.start(home).url, config)
    for _ in range(2):
        held = Holder(store, lambda: wall_ms() - 7_200_000).claim()
        assert min(held.lanes_ms) >= used.pop(held.worker)


def test_numbers_go_on_after_a_restart(home: Path) -> None:
    create_tag(f"embedded://{home}", "t")
    with contextlib.closing(snowredis.generator("segment", tag="t", url=f"embedded://{home}")) as segments:
        first = segments.next_id()
    with contextlib.closing(DatedGenerator("invoices", f"embedded://{home}", period="year")) as dated:
        with pytest.raises(NumbersClosed, match="create it"):
            dated.next_id()
        assert dated.create()
        assert dated.next_id().endswith("-000001")
    embedded.stop(home)
    with contextlib.closing(snowredis.generator("segment", tag="t", url=f"embedded://{home}")) as segments:
        assert segments.next_id() > first
    with contextlib.closing(DatedGenerator("invoices", f"embedded://{home}", period="year")) as dated:
        assert dated.next_id().endswith("-000002")


def test_fakeredis_keeps_nothing_so_only_its_first_start_is_fresh(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNOWREDIS_EMBEDDED", "fakeredis")
    assert embedded.start(home).fresh
    embedded.stop(home)
    assert not embedded.start(home).fresh
