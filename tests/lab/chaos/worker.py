"""One process of a chaos run: makes batches of ids, records them, forks when it is told to.

Told through stdin: one command a line, "<kind of fork> <how the child ends> <seconds that it lives>".
When stdin ends, so do the process and its children.
"""

import ctypes
import logging
import multiprocessing
import os
import random
import select
import signal
import sys
import time
import traceback
from array import array
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import snowredis
from snowredis.process.fork import GUARD
from snowredis.snowflake.ids import allocator as id_allocator
from snowredis.snowflake.lease.requests import LeaseManager
from snowredis.snowflake.protocol.messages import WorkerStats
from tests.lab.chaos.runs import KINDS, Recorder, Run, runs_of

# a fork that is to happen inside next_ids() tries this often, this far apart
INSIDE_TRIES, INSIDE_S = 2_000, 0.0003
RETRY_S = 0.01
LIBRARY = str(Path(snowredis.__file__).parent)


class Worker:
    def __init__(self, ids: snowredis.SnowflakeGenerator, recorder: Recorder, rest_s: float) -> None:
        self._ids = ids
        self._rest_s = rest_s
        self._recorder = recorder
        self._random = random.Random(os.urandom(8))
        self._commands = select.poll()
        self._commands.register(0, select.POLLIN)
        self._buffer = array("q", bytes(8 * 5_000))
        self._ended = False
        # what the next fork inside next_ids() is to become, and how often it may still be tried
        self._inside: tuple[str, float] | None = None
        self._tries = 0
        # how and when this child ends
        self._ending = ""
        self._ends_s = 0.0
        self._forked = False

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self._terminate)
        signal.signal(signal.SIGUSR1, self._fork_inside)
        signal.signal(signal.SIGALRM, self._fork_inside)
        # nobody waits for children
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        self._guarded(self._work)
        if self._ending:
            self._end_child()
        self._ids.close()

    def _guarded(self, work: Callable[[], None]) -> None:
        """Run a function and record its crash: a child's exit is not visible otherwise."""
        try:
            work()
        except KeyboardInterrupt:
            if not self._ended:
                raise
        except BaseException:  # noqa: BLE001
            self._recorder.crashed(traceback.format_exc())
            os._exit(70)

    def _work(self) -> None:
        while not self._ended:
            self._obey()
            if self._ending and time.monotonic() > self._ends_s:
                return
            try:
                runs = self._make()
            except snowredis.SnowredisError as error:
                self._own_file()
                self._recorder.note(error)
                time.sleep(RETRY_S)
                continue
            self._own_file()
            self._recorder.record(runs)
            if self._rest_s:
                time.sleep(self._rest_s)

    def _make(self) -> list[Run]:
        """Make some ids, in one of the possible ways."""
        way = self._random.randrange(10)
        if way < 6:
            return runs_of(self._ids.next_ids(20_000))
        if way == 6:
            return runs_of(self._ids.next_ids(self._random.choice((1, 2, 100, 150_000))))
        if way == 7:
            self._ids.fill(self._buffer)
            return runs_of(self._buffer.tolist())
        return self._make_singles(300)

    def _make_singles(self, count: int) -> list[Run]:
        """Make ids with next_id(): the clock may be stepped between two of them, and a fork may be in any of them."""
        runs: list[Run] = []
        self._forked = False
        for _ in range(count):
            try:
                an_id = self._ids.next_id()
            except snowredis.SnowredisError:
                if not runs:
                    raise
                break
            if self._forked:
                # what was made before is the parent's
                self._forked = False
                runs.clear()
            if runs and runs[-1][0] + runs[-1][1] == an_id:
                runs[-1] = (runs[-1][0], runs[-1][1] + 1)
            else:
                runs.append((an_id, 1))
        return [] if self._forked else runs

    def _own_file(self) -> None:
        # asked of the system, since a fork in C tells nobody
        if os.getpid() != self._recorder.pid:
            self._recorder.open(KINDS.index("fork inside next_ids"))

    # --- ends and forks ----------------------------------------------------------------------------

    def _terminate(self, *_: Any) -> None:
        if not self._ended:
            self._ended = True
            # lands in the middle of whatever is going on, as in servers that end by an exception
            raise KeyboardInterrupt

    def _end_child(self) -> NoReturn:
        if self._ending == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._ending == "close":
            self._ids.close()
        os._exit(0)

    def _obey(self) -> None:
        for _, events in self._commands.poll(0):
            if not events & select.POLLIN:
                self._ended = True
            elif not self._ending:
                for line in os.read(0, 4096).decode().splitlines() or [""]:
                    self._command(line)

    def _command(self, line: str) -> None:
        if not line:
            self._ended = True
            return
        number, ending, seconds = line.split()
        kind, life_s = KINDS[int(number)], float(seconds)
        if kind == "os.fork":
            if os.fork() == 0:
                self._become_child(int(number), ending, life_s)
        elif kind == "fork in C":
            # PyDLL, since CDLL lets go of the GIL, and nobody would give it back in the child
            if ctypes.PyDLL(None).fork() == 0:
                self._become_child(int(number), ending, life_s)
        elif kind == "clone of a suspended process":
            self._clone(int(number), ending, life_s)
        elif kind == "multiprocessing":
            context: Any = multiprocessing.get_context("fork")
            context.Process(target=self._child_main, args=(int(number), ending, life_s)).start()
        else:
            self._inside, self._tries = (ending, life_s), INSIDE_TRIES
            os.kill(os.getpid(), signal.SIGUSR1)

    def _clone(self, kind: int, ending: str, life_s: float) -> None:
        """Suspend, copy this process without informing the copy, and resume both.

        A snapshot of a machine copies every byte and all threads. fork() in C leaves the other threads out and the
        kernel wipes a page: both are undone here.
        """
        ids: Any = self._ids
        ids.suspend()
        # as they would be where the thread that holds them is copied, too
        with ids._lock, ids._lease_manager.conversation.lock:
            clone = ctypes.PyDLL(None).fork() == 0
            if clone:
                if GUARD.sees_all_forks:
                    GUARD.is_reset.value = 1
                GUARD._pid = os.getpid()
                ids._lifecycle.thread.heartbeat = None
        if clone:
            self._become_child(kind, ending, life_s)
        ids.resume()

    def _become_child(self, kind: int, ending: str, life_s: float) -> None:
        self._ending, self._ends_s = ending, time.monotonic() + life_s
        # commands are for the parent; the end of stdin is for all
        self._commands = select.poll()
        self._commands.register(0, 0)
        if kind != KINDS.index("fork inside next_ids"):
            self._recorder.open(kind)

    def _child_main(self, kind: int, ending: str, life_s: float) -> None:
        self._become_child(kind, ending, life_s)
        self._guarded(self._work)
        self._end_child()

    def _fork_inside(self, _: int, frame: FrameType | None) -> None:
        """Signal handler that forks, but only if it has interrupted the library while that makes ids.

        Anywhere else a batch may be finished and not recorded, and both processes would hand it on.
        """
        if self._inside is None:
            return
        while frame is not None and not frame.f_code.co_filename.startswith(LIBRARY):
            frame = frame.f_back
        if frame is None:
            self._tries -= 1
            if self._tries:
                signal.setitimer(signal.ITIMER_REAL, INSIDE_S)
            return
        (ending, life_s), self._inside = self._inside, None
        if os.fork() == 0:
            self._forked = True
            self._become_child(KINDS.index("fork inside next_ids"), ending, life_s)


def without_reservations() -> None:
    """Make this process trust its lease as systems with a plain TTL do: to show what the checker then finds.

    And let every heartbeat take a while, as over a network: until its answer such a process goes on.
    """
    making: Any = id_allocator
    decide, renew = making.decide, LeaseManager.send_renewal

    def trusting(lanes: Any, now_ms: float, until_tick: int, tick_ms: int, rules: Any) -> Any:
        return decide(lanes, now_ms, 1 << 62, tick_ms, rules)

    def slow(lease_manager: LeaseManager, stats: WorkerStats) -> bool:
        time.sleep(0.4)
        return renew(lease_manager, stats)

    keeping: Any = LeaseManager
    making.decide, keeping.send_renewal = trusting, slow


def main() -> None:
    url, pool, layout, ttl, outage_reserve, skew, durability, directory, slot, began_ns, *others = sys.argv[1:]
    plain_ttl, rest_s = others
    if plain_ttl == "1":
        without_reservations()
        # such leases end by their ttl only
        os.environ["SNOWREDIS_CRASH_RECORDS"] = "off"
    logging.basicConfig(level=logging.WARNING, format="%(relativeCreated)d ms %(process)d %(message)s")
    recorder = Recorder(Path(directory), int(slot), int(began_ns))
    settings: dict[str, Any] = {"durability": durability}
    ids = snowredis.connect(
        url,
        pool=pool,
        layout=layout,
        ttl=float(ttl),
        outage_reserve=float(outage_reserve),
        max_clock_lead=float(skew),
        failover_slack=float(skew),
        label=slot,
        **settings,
    )
    Worker(ids, recorder, float(rest_s)).run()


if __name__ == "__main__":
    main()
