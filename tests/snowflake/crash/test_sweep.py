"""Whoever talks to a pool releases the leases that dead processes of this machine left, related or not."""

import contextlib
import errno
import gc
import os
import re
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import snowredis
from snowredis.core.layout import Layout, layout_spec
from snowredis.errors import StoreUnavailable
from snowredis.monitor.checks import check_crash_records
from snowredis.process.names import ProcessName, own_name
from snowredis.snowflake.crash import files as record_files
from snowredis.snowflake.crash import sweep
from snowredis.snowflake.crash.files import FileName
from snowredis.snowflake.crash.record import HEADER_BYTES, PAGE_BYTES, TEXT_BYTES, CrashRecord, Credentials, read_page
from snowredis.snowflake.lease.held import HeldLease
from snowredis.snowflake.protocol.messages import NO_STATS, RenewRequest, Terms
from snowredis.snowflake.protocol.pool_config import PoolConfig
from snowredis.snowflake.protocol.record import EventKind
from snowredis.snowflake.protocol.redis_store import RedisStore
from snowredis.worker_pool import WorkerPool
from tests.snowflake.crash.conftest import ONE, TTL_S, Child, Owned, child, config_of, connect, files_in, name_of
from tests.support.pools import new_pool
from tests.support.programs import finished, run
from tests.support.servers import RedisServer
from tests.support.warm import FORKS_WITH_THREADS

pytestmark = pytest.mark.filterwarnings(FORKS_WITH_THREADS)

RANDOMIZE = Path("/proc/sys/kernel/randomize_va_space")
STACKS_ARE_RANDOM = RANDOMIZE.exists() and RANDOMIZE.read_text() != "0\n"


@contextlib.contextmanager
def holder(url: str, pool: str, *, layout: Layout | None = ONE) -> Iterator[Child]:
    """Fork a process that makes ids until it is killed; the first of its numbers is the id that it made last."""

    def hold(numbers: memoryview) -> None:
        ttl_s = TTL_S if layout is ONE else 30.0
        ids = snowredis.connect(url, pool=pool, layout=layout, ttl=ttl_s, claim_timeout=0)
        numbers[0] = ids.next_ids(3000)[-1]
        signal.pause()

    with child(hold) as process:
        process.wait_for(0, 1)
        yield process


def test_the_only_worker_id_goes_from_one_killed_process_to_the_next(
    server: RedisServer, pool: str, records: Path
) -> None:
    made = []
    for number in (signal.SIGKILL, signal.SIGTERM):
        with holder(server.url, pool) as process:
            made.append(process.numbers[0])
            process.kill(number)
    with connect(server.url, pool) as heir:
        made.append(heir.next_id())
    assert made == sorted(set(made))
    info = snowredis.WorkerPool(server.url, pool).info()
    # nothing handles SIGTERM there, so the process could not note that it was told to end
    assert (info.died, info.expired, info.used) == (2, 0, 0)
    assert files_in(records) == []


@pytest.mark.skipif(not STACKS_ARE_RANDOM, reason="an exec is not seen")
def test_a_program_that_starts_again_by_exec_releases_what_it_had_before(server: RedisServer, records: Path) -> None:
    pool = new_pool(server.url)
    made = [int(line) for line in run("tests.snowflake.crash.programs.execs_itself", server.url, pool, "3").split()]
    assert len(made) == 3
    assert made == sorted(set(made))
    assert files_in(records) == []
    # the process goes on, so nothing died
    info = snowredis.WorkerPool(server.url, pool).info()
    assert (info.releases, info.died, info.expired, info.used) == (3, 0, 0, 0)


@pytest.mark.parametrize(("limit", "value"), [("BEAT_SHARE", 0), ("MOST_AT_BEAT", 1)])
def test_a_beat_leaves_time_for_the_next_renewal_however_many_died(
    server: RedisServer, records: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(sweep, limit, value)
    pool = new_pool(server.url)
    with snowredis.connect(server.url, pool=pool) as ids, contextlib.ExitStack() as holders:
        ids.claim()
        # it beats when this test says so
        ids._lifecycle.thread.heartbeat.stop()
        others = [holders.enter_context(holder(server.url, pool, layout=None)) for _ in range(3)]
        for other in others:
            other.kill()
        left, monitor = [4], snowredis.WorkerPool(server.url, pool)
        while left[-1] > 1:
            ids._beat()
            left.append(len(monitor.workers()))
        assert list(dict.fromkeys(left)) == [4, 3, 2, 1]


@pytest.mark.parametrize("end", ["close", "suspend"])
def test_a_beat_releases_nothing_more_once_its_generator_is_closed_or_suspended(
    server: RedisServer, records: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    pool = new_pool(server.url)
    with snowredis.connect(server.url, pool=pool) as ids, contextlib.ExitStack() as holders:
        ids._lifecycle.thread.heartbeat.stop()
        others = [holders.enter_context(holder(server.url, pool, layout=None)) for _ in range(3)]
        for other in others:
            other.kill()
        release_dead, released = sweep.release_dead, []

        def release_and_end(*args: Any) -> int | None:
            released.append(release_dead(*args))
            # as in a signal handler
            getattr(ids, end)()
            return released[-1]

        monkeypatch.setattr(sweep, "release_dead", release_and_end)
        while not released:
            ids._beat()
        assert len(released) == 1


def test_a_living_process_keeps_its_lease_whatever_happens_to_it(server: RedisServer, pool: str) -> None:
    with holder(server.url, pool) as process, contextlib.closing(connect(server.url, pool)) as other:
        for number in (0, signal.SIGSTOP):
            os.kill(process.pid, number)
            with pytest.raises(snowredis.PoolExhausted):
                other.claim()


def test_nothing_is_kept_open_and_a_closed_generator_leaves_no_file(
    server: RedisServer, pool: str, records: Path
) -> None:
    with connect(server.url, pool) as ids:
        ids.claim()
        (file,) = files_in(records)
        descriptors = Path("/proc/self/fd")
        assert str(file) not in {os.path.realpath(one) for one in descriptors.iterdir()}
        # removed by somebody: ids are made on
        file.unlink()
        assert ids.next_id() < ids.next_id()
        ids._beat()
    assert files_in(records) == []


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_closed_generator_needs_no_room_in_the_file_system(server: RedisServer, pool: str, records: Path) -> None:
    maps = Path("/proc/self/maps")
    with connect(server.url, pool) as ids:
        ids.claim()
        assert str(records) in maps.read_text()
    # no removed file is mapped either
    assert str(records) not in maps.read_text()


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="becomes another user")
def test_a_process_that_became_another_user_leaves_a_record_without_a_lease(
    server: RedisServer, pool: str, records: Path
) -> None:
    program = Path(__file__).parent / "programs" / "changes_its_user.py"
    done = finished(program, server.url, pool, layout_spec(ONE), forked=False)
    assert (done.returncode, done.stdout) == (0, "False\n")
    # only its former user may delete the file
    (file,) = files_in(records)
    assert read_page(file.read_bytes()) is None
    with connect(server.url, pool) as ids:
        ids.claim()
        assert not file.exists()
    events = [event.kind for event in WorkerPool(server.url, pool).events()]
    assert EventKind.DIED not in events


def test_a_generator_that_got_no_lease_leaves_no_file_when_it_is_dropped(
    server: RedisServer, pool: str, records: Path
) -> None:
    with connect(server.url, pool) as holding:
        holding.claim()
        for _ in range(3):
            dropped = connect(server.url, pool)
            with pytest.raises(snowredis.PoolExhausted):
                dropped.claim()
            del dropped
        gc.collect()
        assert len(files_in(records)) == 1


def test_an_outage_leaves_few_files_of_closed_generators(
    records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_files, "MOST_UNRELEASED", 2)
    # without those that other tests left
    monkeypatch.setattr(record_files.RECORDS, "unreleased", deque())
    left: list[set[str]] = []
    mute = socket.socket(socket.AF_UNIX)
    mute.bind(f"{tmp_path}/mute.sock")
    mute.listen()
    for _ in range(4):
        with pytest.raises(StoreUnavailable), connect(f"unix://{tmp_path}/mute.sock?socket_timeout=0.2", "away") as ids:
            ids.claim()
        left.append({file.name for file in files_in(records)})
    mute.close()
    # those of the last two
    assert [len(names) for names in left] == [1, 2, 2, 2]
    assert not left[0] & left[2]
    assert not left[1] & left[3]


def test_memory_stays_as_long_as_a_thread_may_write_to_it(server: RedisServer, pool: str, records: Path) -> None:
    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count(str(records))

    record = record_files.RecordFiles().new_record(RedisStore(server.url, config_of(pool)))
    record.write(Credentials("5a" * 16, owner="{}"))
    record.clear()
    texts = record._texts
    # as when a signal handler closes a generator that is being closed
    record.give_up()
    record.give_up()
    del record
    texts[0][:1] = b"{"
    assert (mapped(), files_in(records)) == (1, [])
    del texts
    assert mapped() == 0


def test_a_umask_that_takes_all_rights_leaves_records_that_can_be_read(
    server: RedisServer, pool: str, records: Path
) -> None:
    before = os.umask(0o777)
    try:
        with connect(server.url, pool) as ids:
            ids.claim()
            (file,) = files_in(records)
            assert records.stat().st_mode & 0o777 == 0o700
            assert file.stat().st_mode & 0o777 == 0o400
    finally:
        os.umask(before)


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def removed(path: Path, patch: pytest.MonkeyPatch) -> None:
    """Name a directory that was removed while somebody is in it, as one that a container still mounts."""
    path.mkdir(0o700)
    patch.chdir(path)
    path.rmdir()
    patch.setenv(record_files.VARIABLE, ".")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            lambda path, _: path.mkdir(0o750),
            r"drwxr-x---, user \d+\) is not a directory that only user \d+ can use; .*chmod 700",
        ),
        (lambda path, _: path.symlink_to(path.parent), "is not a directory"),
        (lambda path, _: path.touch(), "is not a directory"),
        (
            lambda path, patch: patch.setenv(record_files.VARIABLE, str(path / "a" / "b")),
            "No such file or directory; make",
        ),
        (removed, "No such file or directory; make"),
        (lambda _, patch: patch.setattr(os, "posix_fallocate", full), "No space left on device; free .*--shm-size"),
        (
            lambda _, patch: patch.setattr(record_files, "parent_name", lambda _: None),
            "/proc does not show this process",
        ),
    ],
    ids=["shared", "symlink", "file", "no directory", "removed", "full", "hidden"],
)
def test_it_is_said_once_why_crash_records_are_off(
    server: RedisServer,
    records: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    spoil: Callable[[Path, pytest.MonkeyPatch], object],
    said: str,
) -> None:
    assert check_crash_records().level == "ok"
    assert files_in(records) == []
    records.rmdir()
    spoil(records, monkeypatch)
    found = check_crash_records()
    assert (found.level, bool(re.search(said, found.text))) == ("warning", True)
    monkeypatch.setattr(record_files.RECORDS, "_warned", False)
    for _ in range(2):
        with snowredis.connect(server.url, pool=new_pool(server.url)) as ids:
            assert ids.next_id()
            assert not records.is_dir() or files_in(records) == []
    logged = [each for each in caplog.records if "crash records are off: " in each.getMessage()]
    assert [each.levelname for each in logged if each.levelname != "DEBUG"] == ["WARNING"]
    assert re.search(said, logged[0].getMessage())


def test_crash_records_that_a_person_switched_off_are_no_fault(
    server: RedisServer, pool: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(record_files.VARIABLE, "off")
    with connect(server.url, pool) as ids:
        assert ids.next_id()
    found = check_crash_records()
    assert (found.level, found.text[:33]) == ("ok", "off, by SNOWREDIS_CRASH_RECORDS: ")
    assert not [each for each in caplog.records if each.levelname == "WARNING" and "off" in each.getMessage()]


def test_what_a_dead_process_half_wrote_is_removed_and_harms_nobody(
    server: RedisServer, pool: str, records: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with holder(server.url, pool) as process:
        (file,) = files_in(records)
        name = name_of(file)
        process.kill()
    page = bytearray(file.read_bytes())
    file.with_name(str(name._replace(number="77"))).write_bytes(b"")
    file.with_name(str(name._replace(number="78"))).write_bytes(b"\xff" * len(page))
    file.with_name(str(name._replace(number="79"))).write_bytes(bytes(len(page)))
    for start in (HEADER_BYTES, HEADER_BYTES + TEXT_BYTES):
        page[start : start + 32] = b"\xff\xfe{[" * 8
    file.with_name(str(name._replace(number="80"))).write_bytes(page)
    file.with_name("something.else").write_bytes(b"")
    with connect(server.url, pool):
        assert max(left.name for left in files_in(records)) == "something.else"
        assert len(files_in(records)) == 2
    assert "a crash record is damaged" in caplog.text


def test_a_heartbeat_looks_at_one_neighbor_and_at_each_of_them_in_turn(
    server: RedisServer, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # no other heartbeat within the test
    with snowredis.connect(server.url, pool=new_pool(server.url)) as ids:
        ids.next_id()
        (file,) = files_in(records)
        name = name_of(file)
        neighbors = {2**21 + number for number in range(40)}
        for pid in neighbors:
            file.with_name(str(name._replace(process=name.process._replace(pid=pid)))).touch(0o600)
        looked_at: list[int] = []

        def has_ended(process: Any, *_: object) -> bool:
            looked_at.append(process.pid)
            return False

        # it would look, too
        heartbeat = ids._lifecycle.thread.heartbeat
        assert heartbeat is not None
        heartbeat.stop()
        heartbeat.join()
        monkeypatch.setattr(sweep, "has_ended", has_ended)
        for count in range(1, 42):
            ids._beat()
            assert len(looked_at) == count
        assert set(looked_at) == {*neighbors, os.getpid()}


def test_a_redis_that_does_not_reply_costs_no_record(
    server: RedisServer, pool: str, records: Path, tmp_path: Path
) -> None:
    with holder(server.url, pool) as process:
        process.kill()
    before = files_in(records)
    config = config_of(pool)
    away = RedisStore(f"unix://{tmp_path}/no.sock", config)
    # as if this was the address that the dead process used
    away.locator = RedisStore(server.url, config).locator
    access = sweep.own_access(away)
    assert access is not None
    with pytest.raises(StoreUnavailable):
        sweep.sweep(away, access, lambda talk, *args: int(talk(*args)), 5, sweep.LONGEST_S)
    assert files_in(records) == before
    with connect(server.url, pool):
        assert files_in(records) != before


@pytest.mark.parametrize(("left_s", "remains"), [(3_600, True), (-1, False)])
def test_a_file_remains_as_long_as_its_outage_lane_can_be_taken_over(
    records: Path, monkeypatch: pytest.MonkeyPatch, left_s: float, remains: bool
) -> None:
    """In an outage of over a day, processes that use another Redis tidy up, too."""
    own = own_name()
    assert own is not None
    page = memoryview(bytearray(PAGE_BYTES))
    now_ms = int(time.time() * 1000)
    lane_ms = now_ms + int(left_s * 1000)
    terms = Terms(7, now_ms - 3_600_000, lane_ms, "1-a", "ab", (0, 0, 0, 0))
    held = HeldLease.granted(terms, PoolConfig(name="orders"), "ab", 1, 0)
    path = stranger(records, own) / str(FileName(own._replace(started="1", image="1"), "1"))
    path.touch()
    inode = record_files._inode(str(path))
    assert CrashRecord(Owned(), page, inode).write(held.credentials(NO_STATS))
    path.write_bytes(page)
    monkeypatch.setattr(sweep, "UNUSED_S", -1.0)
    sweep.remove_unused(own)
    assert bool(files_in(records)) == remains


def stranger(records: Path, own: ProcessName, namespace: str = "") -> Path:
    """Return the directory of a family that is not that of this process, and make it."""
    path = records / f"{'0' * 16}.{namespace or own.namespace}"
    path.mkdir(0o700, parents=True)
    records.chmod(0o700)
    return path


def test_files_that_nobody_asks_for_any_more_are_removed_in_time(
    records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, left = own_name(), []
    assert own is not None
    here, elsewhere = stranger(records, own), stranger(records, own, "another")
    for directory, process in ((here, own), (here, own._replace(started="1", image="1")), (elsewhere, own)):
        (directory / str(FileName(process, "1"))).touch()
    for unused_s in (60.0, -1.0):
        monkeypatch.setattr(sweep, "UNUSED_S", unused_s)
        sweep.remove_unused(own)
        left.append(len(files_in(records)))
    assert left == [3, 1]
    # with its files, a directory is gone
    assert list(records.iterdir()) == [here]
    assert name_of(*files_in(records)).process == own


def test_other_files_in_the_directory_are_left_alone(records: Path) -> None:
    own = own_name()
    assert own is not None
    dead = FileName(own._replace(started="1", image="1"), "1")
    kept = []
    for directory in (stranger(records, own), stranger(records, own, "another")):
        for name in ("notes", str(dead)):
            (directory / name).touch()
            kept.append(directory / name)
    sweep.disown()
    # only that of a process that has ended for certain
    assert files_in(records) == sorted(each for each in kept if each != kept[1])


def test_a_process_whose_pool_has_other_lanes_leaves_the_record_alone(
    records: Path, server: RedisServer, pool: str
) -> None:
    """Redis would refuse to release what was recorded when the pool had another number of lanes."""
    with holder(server.url, pool) as process:
        process.kill()
    other = replace(config_of(pool), layout=replace(ONE, backup_bits=3, sequence_bits=9))
    for config, looks in ((other, 0), (config_of(pool), 1)):
        with contextlib.closing(RedisStore(server.url, config)) as store:
            assert sweep.DeadProcesses(store, lambda *_: 1).release() == looks


def test_a_record_of_a_stranger_is_never_read(
    records: Path, server: RedisServer, pool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another parent started it; a thousand of them cost a claim nothing."""
    own, read = own_name(), []
    assert own is not None
    with holder(server.url, pool) as process:
        (file,) = files_in(records)
        directory = stranger(records, own)
        for number in range(1000):
            (directory / str(name_of(file)._replace(number=f"{number:x}"))).touch()
        process.kill()
    file.rename(directory / file.name)
    monkeypatch.setattr(record_files.Directory, "read", lambda _, name: read.append(name))
    monkeypatch.setattr(sweep, "CLEAN_ONE_IN", sys.maxsize)
    with contextlib.closing(connect(server.url, pool)) as ids, pytest.raises(snowredis.PoolExhausted):
        ids.claim()
    assert read == []
    assert len(files_in(directory)) == 1001


def test_a_renewal_is_recorded_before_it_is_sent(
    server: RedisServer, pool: str, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded: list[tuple[str, str]] = []

    def renew(request: RenewRequest) -> None:
        (file,) = files_in(records)
        credentials = read_page(file.read_bytes())
        assert credentials is not None
        recorded.append((credentials.terms.renewal_id, credentials.pending_renewal_id))
        assert recorded[-1] == (request.lease.renewal_id, request.pending)
        raise StoreUnavailable("nowhere", "no reply")

    with connect(server.url, pool) as ids:
        ids.claim()
        leases = ids._lease_manager
        with monkeypatch.context() as patched:
            patched.setattr(leases.store, "ask", renew)
            for _ in range(2):
                with pytest.raises(StoreUnavailable):
                    leases.send_renewal(NO_STATS)
        # the same one is repeated
        assert recorded[0] == recorded[1]
        assert all(recorded[0])
        assert leases.send_renewal(NO_STATS)
        (file,) = files_in(records)
        credentials = read_page(file.read_bytes())
        assert credentials is not None
        assert (credentials.terms.renewal_id, credentials.pending_renewal_id) == (recorded[0][1], "")
