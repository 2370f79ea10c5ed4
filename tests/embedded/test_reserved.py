"""An embedded server is started only when the reservations of the one before have ended."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis

import snowredis
from snowredis import embedded
from snowredis.core.layout import Layout
from snowredis.embedded import reserved
from snowredis.embedded.reserved import DEFAULT_REACH_MS, NOTE_EVERY_MS, Reserved
from snowredis.errors import StoreUnavailable
from snowredis.numbers import DatedGenerator, NumbersClosed
from snowredis.snowflake.protocol import PoolConfig
from snowredis.snowflake.redis_store import RedisStore
from tests.support.holder import Holder
from tests.support.waiting import eventually

# claims in a pool of ttl 2 s, says until when the reservation goes, and gives it back or closes all descriptors
USER = Path(__file__).parent / "programs" / "reserving_user.py"


class User:
    def __init__(self, home: Path, what: str) -> None:
        self.process = subprocess.Popen([sys.executable, USER, str(home), what], stdout=subprocess.PIPE, text=True)
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
def home(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "h"
    yield directory
    embedded.stop(directory)


def noted(home: Path) -> dict[str, Any]:
    return dict(json.loads((home / "reserved").read_text()))


def ended(home: Path) -> bool:
    return (home / "supervisor").read_bytes() == b"" and not (home / "redis.sock").exists()


# --- lives of real servers -------------------------------------------------------------------------


def test_after_a_clean_end_the_next_server_is_fresh_at_once(home: Path) -> None:
    User(home, "close").end()
    eventually(lambda: ended(home), "the end of the server")
    assert not noted(home)["running"]
    assert 0 < noted(home)["until_ms"] <= time.time() * 1000
    second = User(home, "close")
    second.end()
    assert second.fresh


def test_a_process_that_closed_its_descriptors_is_waited_for(home: Path) -> None:
    daemon = User(home, "daemon")
    eventually(lambda: ended(home), "the end of the server")
    # it makes ids still, and no lock says so
    with snowredis.connect(f"embedded://{home}", pool="p", ttl=2) as ids:
        made = [ids.next_id() for _ in range(100_000)]
    daemon.end()
    assert len(daemon.ids) > 1
    assert not set(made) & set(daemon.ids)
    assert ids.decode(made[0]).timestamp_ms >= daemon.until_ms


def test_dated_numbers_that_ended_with_their_server_are_not_made_again(home: Path) -> None:
    numbers = DatedGenerator("invoices", f"embedded://{home}", period="year")
    with pytest.raises(NumbersClosed, match="create it"):
        numbers.next_id()
    assert numbers.create()
    assert numbers.next_id().endswith("-000001")
    embedded.stop(home)
    with pytest.raises(NumbersClosed):
        DatedGenerator("invoices", f"embedded://{home}", period="year").next_id()
    numbers.close()


@pytest.fixture(params=["redis-server", "fakeredis"])
def server(request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch) -> embedded.Server:
    monkeypatch.setenv("SNOWREDIS_EMBEDDED", request.param)
    try:
        embedded.find_server()
    except StoreUnavailable as error:
        pytest.skip(str(error))
    return embedded.start(home)


def test_what_is_reserved_at_the_end_is_noted(server: embedded.Server) -> None:
    layout = Layout(timestamp_bits=33, backup_bits=1, worker_bits=10, sequence_bits=19, tick_ms=1000)
    highest_ms = 0
    for name, ahead_ms in (("alive", None), ("ahead", 90_000)):
        store = RedisStore(server.url, PoolConfig(name=name, layout=layout))
        holder = Holder(store, lambda: int(time.time() * 1000))
        # fakeredis drops a connection now and then whose request comes in pieces
        eventually(partial(attempt, partial(store.create, 0)), "a pool")
        eventually(partial(attempt, holder.claim), "a claim")
        mark_ms = holder.until_ms
        if ahead_ms is not None:
            mark_ms = int(time.time() * 1000) + ahead_ms
            eventually(partial(attempt, partial(holder.release, 0, mark_ms)), "a release")
        highest_ms = max(highest_ms, mark_ms)
        store.close()
    embedded.stop(server.directory)
    assert not noted(server.directory)["running"]
    # to the end of the tick whose first ms is reserved
    assert noted(server.directory)["until_ms"] == -(-highest_ms // 1000) * 1000


def attempt(work: Callable[[], object]) -> bool:
    with contextlib.suppress(StoreUnavailable):
        work()
        return True
    return False


def test_a_server_that_was_flushed_has_an_end_that_nobody_can_tell(server: embedded.Server) -> None:
    with contextlib.closing(redis.Redis.from_url(server.url)) as client:
        client.flushall()
    embedded.stop(server.directory)
    assert noted(server.directory)["running"]


def test_no_server_starts_at_a_clock_far_behind_what_was_reserved(home: Path) -> None:
    home.mkdir(mode=0o700)
    file = Reserved(home / "reserved")
    file.begin()
    # the same as a clock that is set back by two hours
    file.end(int(time.time() * 1000) + 7_200_000)
    with pytest.raises(StoreUnavailable, match="which may have been set back"):
        snowredis.connect(f"embedded://{home}", pool="p", ttl=2)


# --- the file --------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    now_ms = [1_000_000_000]
    monkeypatch.setattr(reserved, "now_ms", lambda: now_ms[0])
    return now_ms


def test_a_directory_without_a_past_has_no_bound(tmp_path: Path) -> None:
    assert Reserved(tmp_path / "reserved").bound_ms() == 0


def test_the_bound_of_a_server_that_ended_is_what_was_read_and_never_goes_down(
    tmp_path: Path, clock: list[int]
) -> None:
    file = Reserved(tmp_path / "reserved")
    for until_ms in (5_000, 3_000):
        file.begin()
        file.end(until_ms)
        assert file.bound_ms() == 5_000


@pytest.mark.parametrize("back_ms", [0, 3_600_000])
def test_the_bound_of_a_server_that_was_killed_is_its_reach_and_stays(
    tmp_path: Path, clock: list[int], back_ms: int
) -> None:
    file = Reserved(tmp_path / "reserved")
    file.begin()
    file.use(100_000)
    file.use(50)
    clock[0] += NOTE_EVERY_MS
    file.note_time()
    last_ms = clock[0]
    clock[0] += 3_000 - back_ms
    bound_ms = file.bound_ms()
    assert bound_ms >= last_ms + 3_000 + 100_000
    # also while the clock goes on
    clock[0] += 1_000
    assert file.bound_ms() == bound_ms


def test_a_file_that_was_cut_off_counts_as_a_server_that_was_killed(tmp_path: Path, clock: list[int]) -> None:
    path = tmp_path / "reserved"
    path.write_text('{"until_ms": 12')
    assert Reserved(path).bound_ms() == clock[0] + DEFAULT_REACH_MS
