"""The stage of one case: a generator, a stopped clock, and all threads and processes that make ids meanwhile."""

from __future__ import annotations

import contextlib
import faulthandler
import itertools
import json
import os
import select
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import redis

import snowredis
from snowredis.core.layout import Layout
from snowredis.errors import SnowredisError
from snowredis.snowflake.generator import SnowflakeGenerator
from snowredis.snowflake.protocol.pool_config import pool_keys
from snowredis.testing import ManualClock, memory_pool
from snowredis.worker_pool import WorkerPool
from tests.lab.interrupts.points import Points, stopped_in_product

# processes with the same worker id make the same ids in one tick: a repeated id is found at once
LAYOUT = Layout(timestamp_bits=41, backup_bits=1, worker_bits=2, sequence_bits=3, tick_ms=1000, epoch_ms=1735689600000)
# a child that takes longer hangs; the longest wait of the product for a lock of its own is 5 s
CHILD_LIMIT_S = 8.0
JOIN_LIMIT_S = 8.0
_numbers = itertools.count(1)


class StageClock(ManualClock):
    """A clock that only sleep() moves; *background* makes the generator start its heartbeat thread."""

    def __init__(self, start_ms: int, *, background: bool = False) -> None:
        super().__init__(start_ms)
        self.background = background


class RedisPlace:
    """Makes a pool for each case, in a real redis-server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._client = redis.Redis.from_url(url, decode_responses=True)
        self._name = ""

    def new_pool(self) -> None:
        # no other test uses this server
        self._client.flushdb()
        self._name = f"case{next(_numbers)}"
        self.create()

    def create(self) -> None:
        with contextlib.closing(self.connect(StageClock(now_ms()))) as ids:
            pool = WorkerPool(self.url, self._name)
            with contextlib.closing(pool):
                pool.create(ids._config)
        # an old pool, as in memory: clocks of cases go back behind this moment
        self._client.hset(pool_keys(self._name)[0], "lost_at", 0)

    def wipe(self) -> None:
        """Delete everything, and create the pool as if it were new, which it is not."""
        pool = pool_keys(self._name)[0]
        before = str(self._client.hget(pool, "incarnation"))
        self._client.flushdb()
        self.create()
        # with the digits of the pool before: another pool raises the floors, which the clock of Redis never reaches
        number, _, digits = str(self._client.hget(pool, "incarnation")).partition("-")
        self._client.hset(pool, "incarnation", f"{number}-{before.partition('-')[2][:8]}{digits[8:]}")

    def advance(self, ms: float) -> None:
        """Do nothing: the clock of Redis goes on by itself."""

    def connect(self, clock: ManualClock) -> SnowflakeGenerator:
        return snowredis.connect(self.url, pool=self._name, layout=LAYOUT, clock=clock)


class MemoryPlace:
    """Makes a pool for each case, in memory, for cases in one process."""

    url = ""

    def new_pool(self) -> None:
        self._now = StageClock(now_ms())
        self._pool = memory_pool(clock=self._now)

    def wipe(self) -> None:
        for store in self._pool._stores.values():
            store._records.clear()

    def advance(self, ms: float) -> None:
        """Let *ms* pass on the clock of the pool."""
        self._now.advance(ms)

    def connect(self, clock: ManualClock) -> SnowflakeGenerator:
        return self._pool.connect(layout=LAYOUT, clock=clock)


Place = RedisPlace | MemoryPlace


def limit_time(limit_s: float) -> None:
    """Kill this process after *limit_s*, with a traceback of every thread on stderr; 0 cancels that."""
    # a handler in C, which also runs while Python waits for a lock; after it, the signal's default action
    faulthandler.register(signal.SIGALRM, chain=True)
    signal.setitimer(signal.ITIMER_REAL, limit_s)


def now_ms() -> int:
    # the middle of a tick
    return time.time_ns() // 1_000_000_000 * 1000 + 500


class Companion(threading.Thread):
    """Another thread of the same process; runs one operation, and may be stopped before its k-th bytecode."""

    def __init__(self, stage: Stage, operation: Callable[[Stage], None], stop_at: int = -1) -> None:
        super().__init__(daemon=True)
        self._stage, self._operation = stage, operation
        self._at_point, self._go_on = threading.Event(), threading.Event()
        self.done = threading.Event()
        self.points = Points({stop_at: self._pause} if stop_at >= 0 else {})

    def _pause(self) -> None:
        self._at_point.set()
        # the main thread, which resumes this one, may be waiting for a lock that is held here
        _wait(self._go_on, threading.main_thread())

    def run(self) -> None:
        try:
            if self.points._actions:
                with self.points:
                    self._stage.attempt(self._operation)
            else:
                self._stage.attempt(self._operation)
        finally:
            self.done.set()
            self._at_point.set()

    def run_to_point(self) -> None:
        self.start()
        _wait(self._at_point, self)

    def let_go_on(self) -> None:
        """Resume the thread; return when it is done, or waits for a lock that the caller holds."""
        self._go_on.set()
        _wait(self.done, self)


def _wait(event: threading.Event, other: threading.Thread) -> None:
    """Wait for *event*, or until the thread *other*, which sets it, waits for a lock of the product."""
    last, same = None, 0
    until_s = time.monotonic() + JOIN_LIMIT_S
    while not event.wait(0.0003) and time.monotonic() < until_s:
        here = stopped_in_product(other.ident)
        same = same + 1 if here is not None and here == last else 0
        last = here
        if same >= 6:
            return


class Stage:
    """State of one case in one process."""

    def __init__(self, place: Place, *, background: bool = False) -> None:
        self.place = place
        place.new_pool()
        self.start_ms = now_ms()
        self.clock = StageClock(self.start_ms, background=background)
        self.ids = place.connect(self.clock)
        self.pid = os.getpid()
        self.made: list[int] = []
        # the ids that the interrupted call itself returned
        self.returned: list[int] = []
        self.refusals: Counter[str] = Counter()
        self.failures: list[str] = []
        self.companions: list[Companion] = []
        # the error, if a worker id has no holder and is not available before its lease ends
        self.leaked = ""
        # how many leases may be lost: some operations are the loss of a lease
        self.lost = 0
        self.reports: list[dict[str, Any]] = []
        # in a child: where to write its report. Of children: pid, where to read the report, and what to close so
        # that it goes on
        self.report_fd = -1
        self.waiting: list[tuple[int, int, int]] = []
        # generators that took the worker id over, hold it to the end, and make no ids
        self.rivals: list[SnowflakeGenerator] = []
        self.in_hook = False
        self.made_in_hook: list[int] = []

    # --- what operations and actions call ----------------------------------------------------------

    def attempt(self, operation: Callable[[Stage], None]) -> None:
        """Run *operation*, which may raise an error of the product; any other is a failure."""
        try:
            operation(self)
        except SnowredisError as error:
            self.refusals[type(error).__name__] += 1
        except Exception as error:  # noqa: BLE001 - any other is a failure
            self.failures.append(f"{type(error).__name__}: {error}")

    def take(self, *ids: int) -> None:
        self.made.extend(ids)

    def in_thread(self, operation: Callable[[Stage], None]) -> None:
        companion = Companion(self, operation)
        self.companions.append(companion)
        companion.start()
        companion.let_go_on()

    def fork(self, *, fork: Callable[[], int] = os.fork, child_first: bool = True) -> bool:
        """Fork; return whether this is the child. The parent reads its report now, or after its own part."""
        reader, writer = os.pipe()
        held, hold = os.pipe()
        pid = fork()
        if pid == 0:
            os.close(reader)
            os.close(hold)
            self._become_child(writer)
            if not child_first:
                os.read(held, 1)
            os.close(held)
            return True
        os.close(writer)
        os.close(held)
        self.waiting.append((pid, reader, hold))
        if child_first:
            self.wait_for_children()
        return False

    def _become_child(self, writer: int) -> None:
        limit_time(CHILD_LIMIT_S)
        self.made, self.made_in_hook = self.made_in_hook, []
        self.returned, self.failures = [], []
        self.companions, self.reports, self.waiting = [], [], []
        if self.report_fd >= 0:
            os.close(self.report_fd)
        self.report_fd = writer

    @property
    def is_child(self) -> bool:
        return os.getpid() != self.pid

    def wait_for_children(self) -> None:
        waiting, self.waiting = self.waiting, []
        for pid, reader, hold in waiting:
            os.close(hold)
            text = b"".join(_read(reader, CHILD_LIMIT_S + 2))
            os.close(reader)
            # its report is the last that it does
            ended, status = os.waitpid(pid, 0 if text else os.WNOHANG)
            if not ended:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            if text:
                self.reports.append(json.loads(text))
            else:
                how = f"dies, wait status {status}" if ended else "hangs"
                self.failures.append(f"a forked child {how}")

    # --- afterwards --------------------------------------------------------------------------------

    def settle(self) -> None:
        """Check that this process can make ids, in this tick and in the next, and keeps its lease."""
        for companion in self.companions:
            companion._go_on.set()
            companion.join(JOIN_LIMIT_S)
            if companion.is_alive():
                self.failures.append("another thread hangs")
        if self.ids.closed:
            return
        self.ids.resume()
        # whatever an action did to it
        passed_ms = self.clock.time_ns() // 1_000_000 - self.start_ms
        if not 0 <= passed_ms < 20_000:
            self.clock.step(-passed_ms)
        try:
            self.take(self.ids.next_id(), self.ids.next_id())
            self.clock.advance(1000)
            self.take(self.ids.next_id())
            self._keeps_lease()
            self.take(self.ids.next_id())
        except Exception as error:  # noqa: BLE001 - whatever it is, no id could be made
            self.failures.append(f"no id can be made afterwards: {type(error).__name__}: {error}")

    def _keeps_lease(self) -> None:
        before = self.ids.lease
        self.ids._beat()
        after = self.ids.lease
        if before is None or after is None or before.token_hash != after.token_hash:
            self.failures.append("the lease of a living process was lost")
        if self.ids.counts.leases_lost > self.lost:
            self.failures.append("the lease of a living process was lost")

    def end_child(self) -> None:
        with contextlib.suppress(BaseException):
            self.wait_for_children()
        self.ids.close()
        self._report()

    def _report(self) -> None:
        report = {"made": self.made, "returned": self.returned, "failures": self.failures, "reports": self.reports}
        os.write(self.report_fd, json.dumps(report).encode())
        os._exit(0)

    def fail_child(self, error: BaseException) -> None:
        self.failures.append(f"in the child: {type(error).__name__}: {error}")
        self._report()

    def die(self) -> None:
        """End this process, a forked child, as kill -9 does, but with a report."""
        with contextlib.suppress(BaseException):
            self.wait_for_children()
        self._report()

    def finish(self) -> None:
        self.wait_for_children()
        self._keeps_lease_beside_children()
        self.ids.close()

    def _keeps_lease_beside_children(self) -> None:
        # the first heartbeat releases what dead children left; the second one would find out that it was this one's
        for _ in range(2):
            if self.reports and not self.ids.closed and self.ids.lease is not None:
                self._keeps_lease()

    def take_over(self) -> list[int]:
        """Claim all worker ids that no rival has anew, make ids at the same clock reading, and return them."""
        made: list[int] = []
        heirs = []
        # more than max_clock_lead: what a clock that was ahead had reserved is within reach; no lease ends so soon
        self.place.advance(3_000)
        try:
            for _ in range(LAYOUT.workers - len(self.rivals)):
                ids = self.place.connect(StageClock(self.start_ms))
                heirs.append(ids)
                made += (ids.next_id(), ids.next_id())
        except SnowredisError as error:
            self.leaked = f"a worker id was not released: {type(error).__name__}: {error}"
        for ids in (*heirs, *self.rivals):
            ids.close()
        return made


def _read(fd: int, limit_s: float) -> Iterator[bytes]:
    until_s = time.monotonic() + limit_s
    while select.select([fd], [], [], max(0.0, until_s - time.monotonic()))[0]:
        part = os.read(fd, 65536)
        if not part:
            return
        yield part
