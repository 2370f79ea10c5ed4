"""Raise again what a signal handler raised in a hook of os.fork(), since Python ignores what comes out of a hook.

Without this, Ctrl-C would do nothing if it came while a fork waits for a thread.

The thread of a process that forks, which gives back the leases of its dead children: soon, also if it has no lease.

It starts at the first fork by Python after connect() or configure(), and ends when there are neither children nor
records of other processes. It has no descriptor, reaps no child and handles no signal: it looks at the files of the
crash records (sweep.py) from time to time, often while processes die, else seldom. A fork waits while it does that, so
that no lock of it, and no module that it imports, is left half-way in a child.

Record the leases of this process, and give back those that others leave: called wherever a store is opened.

All that this needs is imported here: in the middle of a claim another thread may fork, and its child would inherit the
locks of the import system.
"""

from __future__ import annotations

import _thread
import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

from snowredis.errors import SnowredisError, StoreUnavailable
from snowredis.process.exit import EXIT
from snowredis.snowflake.lease import THIS
from snowredis.snowflake.open import open_store
from snowredis.snowflake.protocol import Store
from snowredis.snowflake.record_files import RecordFiles, pool_name
from snowredis.snowflake.sweep import has_others, left_by_the_dead, sweep

# between two looks whether the fork has ended, and how many there are
WAIT_S, MOST_WAITS = 0.005, 200


def raise_after_fork(error: BaseException, forking: FrameType | None) -> None:
    """Raise *error* in this thread once more when *forking*, the frame that called os.fork(), goes on. Does not block.

    A call that blocks is ended by that only if *error* is the KeyboardInterrupt of Python's own handler.
    """
    # no more threads, or the interpreter is about to end
    with contextlib.suppress(RuntimeError):
        _thread.start_new_thread(_raise_in, (threading.get_ident(), error, forking, _place(forking)))


def _place(frame: FrameType | None) -> int:
    return -1 if frame is None else frame.f_lasti


def _raise_in(thread: int, error: BaseException, forking: FrameType | None, fork_at: int) -> None:
    for _ in range(MOST_WAITS):
        time.sleep(WAIT_S)
        # there are more hooks, of others, too
        if forking is None or _place(forking) != fork_at:
            break
    of_python = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if type(error) is KeyboardInterrupt and of_python and thread == threading.main_thread().ident:
        signal.pthread_kill(thread, signal.SIGINT)
        return
    # not at the top: a Python that was built without libffi has none, and this is a hook of each fork
    import ctypes

    # only a class can be raised in another thread, which is instantiated there
    once_more = type("Again", (type(error),), {"__new__": lambda _: error})
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(once_more))


log = logging.getLogger("snowredis")

# between two looks: while processes die, and the longest while there are records of other processes, or none
SHORTEST_S, LONGEST_S, IDLE_S = 0.02, 0.25, 0.5
# until Redis, which did not reply, is asked again
RETRY_S, LONGEST_RETRY_S = 0.5, 5.0
# leases that are given back before the next look
MOST = 200
# Python warns of a fork beside a thread, so the thread ends before each fork; else it only has to be idle
ENDS_BEFORE_FORKS = sys.version_info >= (3, 12)
# a fork waits for this time at most while the thread talks to Redis, or imports a client for that
TALK_TIMEOUT_S, IMPORT_TIMEOUT_S = 0.1, 2.0
# an exit waits for this time at most until the leases of the dead are given back
EXIT_TIMEOUT_S = 2.0
# pools that are watched: a process that opens more of them gives back those of the last ones
MOST_POOLS = 16

# the name of a pool of which only settings are known
ANY = ""

Namer = Callable[[], str]
Opener = Callable[[], Store]
_Watched = tuple[Namer, Opener]


class _Thread:
    """One run of the thread."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        # set by others: end; look at once
        self.stopped, self.woken = threading.Event(), threading.Event()
        # set by the thread: it has ended; it has looked
        self.ended, self.looked = threading.Event(), threading.Event()


class ParentWatch:
    """Starts and stops the thread; one for the process.

    Attributes:
        pools: by any key, of each pool whose leases are given back: its pool_name(), or ANY, and how to open its store.
    """

    def __init__(self) -> None:
        self.pools: dict[str, _Watched] = {}
        # used and closed by the thread only; each with what it was opened for
        self._stores: dict[str, tuple[_Watched, Store]] = {}
        self._registered = False
        self._thread: _Thread | None = None
        # held by the thread, except while it waits
        self._busy = threading.RLock()
        self._importing = False
        # raised by a signal handler while a fork waited
        self._interruption: BaseException | None = None
        self._delay_s = SHORTEST_S
        self._retry_s = RETRY_S

    def add(self, key: str, name_of: Namer, open_store: Opener) -> None:
        """Give back leases of one more pool, or of another one under the same key. Starts and connects nothing yet."""
        if key not in self.pools and len(self.pools) >= MOST_POOLS:
            self.pools.pop(next(iter(self.pools)))
        self.pools[key] = name_of, open_store
        if not self._registered and hasattr(os, "register_at_fork"):
            self._registered = True
            os.register_at_fork(
                before=self._before_fork,
                after_in_parent=self._after_in_parent,
                after_in_child=self._after_in_child,
            )
            EXIT.watch(self)

    # --- in the threads of the program -------------------------------------------------------------

    def _before_fork(self) -> None:
        """Wait until the thread is idle, or has ended."""
        try:
            self._wait()
        except BaseException as error:  # noqa: BLE001 - whatever a signal handler raises; the fork is as after a time-out
            self._interruption = error

    def _wait(self) -> None:
        thread = self._running()
        if thread is None:
            return
        # after a time-out, this is a fork beside a thread that does something, as in many programs
        timeout_s = IMPORT_TIMEOUT_S if self._importing else TALK_TIMEOUT_S
        if ENDS_BEFORE_FORKS:
            thread.stopped.set()
            thread.woken.set()
            thread.ended.wait(timeout_s)
        else:
            self._busy.acquire(timeout=timeout_s)

    def _after_in_parent(self) -> None:
        """Let the thread go on, or start it; raise what a signal handler raised meanwhile."""
        try:
            self._go_on()
        except BaseException as error:  # noqa: BLE001 - whatever a signal handler raises
            self._interruption = error
        interruption, self._interruption = self._interruption, None
        if interruption is not None:
            raise_after_fork(interruption, sys._getframe().f_back)

    def _go_on(self) -> None:
        # not acquired
        with contextlib.suppress(RuntimeError):
            self._busy.release()
        if self._running() is not None:
            return
        # its hooks for forks come in pairs: imported by the thread while a fork waits for that, only the second half
        # of them would run
        import concurrent.futures.thread  # noqa: F401

        thread = self._thread = _Thread()
        # no more threads, or the interpreter is about to end
        with contextlib.suppress(RuntimeError):
            _thread.start_new_thread(self._run, (thread,))

    def _after_in_child(self) -> None:
        """Forget the parent's thread and its connections, in a forked child."""
        self._thread, self._importing, self._busy = None, False, threading.RLock()
        self._interruption = None
        stores, self._stores = self._stores, {}
        for _, store in stores.values():
            store.after_fork()

    def close(self) -> None:
        """Give back what dead children left, at exit. Blocks for EXIT_TIMEOUT_S at most; never raises."""
        thread = self._running()
        if thread is not None and left_by_the_dead():
            thread.looked.clear()
            thread.woken.set()
            thread.looked.wait(EXIT_TIMEOUT_S)

    def _running(self) -> _Thread | None:
        """Return the thread of this process, unless it has ended, or is about to."""
        thread = self._thread
        running = thread is not None and not thread.stopped.is_set() and thread.pid == os.getpid()
        return thread if running else None

    # --- in the thread -----------------------------------------------------------------------------

    def _run(self, thread: _Thread) -> None:
        try:
            while not thread.stopped.is_set():
                thread.woken.wait(self._delay_s)
                thread.woken.clear()
                if thread.stopped.is_set():
                    break
                with self._busy:
                    going_on = self._look()
                thread.looked.set()
                if not going_on:
                    thread.stopped.set()
        except Exception:
            log.exception("leases of killed child processes end by their ttl from now on")
        finally:
            thread.stopped.set()
            thread.looked.set()
            thread.ended.set()

    def _look(self) -> bool:
        """Give back what can be given back; return whether there will be more to do."""
        given_back = 0
        self._close_unused()
        try:
            if pools := left_by_the_dead():
                given_back = self._give_back(pools)
            self._retry_s = RETRY_S
        except StoreUnavailable as error:
            log.debug("leases of killed processes wait for Redis: %s", error)
            self._delay_s, self._retry_s = self._retry_s, min(2 * self._retry_s, LONGEST_RETRY_S)
            return True
        others = has_others()
        if given_back:
            self._delay_s = SHORTEST_S
        else:
            self._delay_s = min(2 * self._delay_s, LONGEST_S if others else IDLE_S)
        return others or has_children()

    def _give_back(self, pools: set[str]) -> int:
        given_back, errors = 0, []
        for key, watched in list(self.pools.items()):
            if watched[0]() not in {*pools, ANY}:
                continue
            try:
                store = self._store(key, watched)
                if store.config.registry:
                    # its number, without which it has another name
                    store.prepare()
                if pool_name(store) in pools:
                    given_back += sweep(store, MOST)
            except StoreUnavailable as error:
                errors.append(error)
            except SnowredisError as error:
                # settings of the environment that cannot work: whoever makes an id is told
                log.debug("cannot look for leases of killed processes: %s", error)
        if errors:
            raise errors[0]
        return given_back

    def _store(self, key: str, watched: _Watched) -> Store:
        if key not in self._stores:
            self._importing = True
            try:
                self._stores[key] = watched, watched[1]()
            finally:
                self._importing = False
        return self._stores[key][1]

    def _close_unused(self) -> None:
        """Close the stores of pools that are not watched any more, or whose settings may have changed."""
        for key, (watched, store) in list(self._stores.items()):
            # each add() counts, also one with the same functions
            if self.pools.get(key) is not watched:
                store.close()
                # last: a child that is forked meanwhile has to call its after_fork()
                del self._stores[key]


def has_children() -> bool:
    """Return whether this process has children, alive or not reaped yet. Reaps none."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    except OSError:
        pass
    return True


PARENT = ParentWatch()


def watch(store: Store) -> None:
    """Record leases of *store* from now on, and give back those of dead processes. Starts and opens nothing yet."""
    if not store.shared:
        return
    _watch_others()
    urls = store.urls
    if urls:
        # its number of a registry is known later
        PARENT.add(pool_name(store), lambda: pool_name(store), lambda: open_store(list(urls), store.config))


def watch_settings(open_settings: Callable[[], Store]) -> None:
    """Give back leases of the process' generator, of which only the settings are known yet."""
    _watch_others()
    PARENT.add("settings", lambda: ANY, open_settings)


def _watch_others() -> None:
    # a server may have a place of its own for the records of its workers (gunicorn.py)
    if THIS.crash_records is None:
        THIS.crash_records = RecordFiles()
    THIS.sweep = sweep
