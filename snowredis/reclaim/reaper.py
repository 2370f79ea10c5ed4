"""The reaper: a thread that gives back the leases of descendants that have died.

It learns of a process from the process itself (channel.py), of its death from the pidfd that it was sent, and reads the
crash records then: a process that has ended makes no more ids. It reaps no zombie, handles no signal, and starts no
process. The thread ends with its process, whether Redis replies or not.
"""

from __future__ import annotations

# its hooks for forks come in pairs: it must not be imported by the thread in the middle of a fork
import concurrent.futures.thread  # noqa: F401
import contextlib
import json
import logging
import os
import select
import threading
import time
from collections import deque
from typing import Any

from snowredis.errors import SnowredisError, StoreUnavailable
from snowredis.lease.model import Store
from snowredis.lease.open import open_store
from snowredis.reclaim.channel import Channel
from snowredis.reclaim.crash_record import PAGE_BYTES, CrashRecords
from snowredis.reclaim.credentials import config_of
from snowredis.reclaim.reclaimer import RETRY_S, release
from snowredis.runtime.exit import EXIT
from snowredis.runtime.thread import start_thread

log = logging.getLogger("snowredis")

# leases that wait for a Redis that does not reply: a thousand deaths a second for ten seconds; each takes 2 KB
MOST_WAITING = 10_000
# an exit waits for this time at most until the leases of the dead are given back
EXIT_TIMEOUT_S = 2.0


class Waiting:
    """A lease of a process that has died, and the time at which it has ended by itself."""

    __slots__ = ("credentials", "until_s")

    def __init__(self, credentials: dict[str, Any]) -> None:
        self.credentials = credentials
        self.until_s = time.monotonic() + credentials["store"]["config"]["ttl_ms"] / 1000


class Reaper:
    """Gives leases of dead descendants back, in a thread of the process that made *channel*."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        # pidfd -> the memory of the crash records of that process
        self._watched: dict[int, int] = {}
        self._waiting: deque[Waiting] = deque(maxlen=MOST_WAITING)
        self._retry_at_s = 0.0
        self._stores: dict[str, Store] = {}
        self._epoll = select.epoll()
        self._started = False
        # a thread waits until everything is done that can be done
        self._asked = False
        self._done = threading.Event()
        self.importing = threading.RLock()

    # --- in the threads of the program -------------------------------------------------------------

    def start(self) -> None:
        """Start the thread, unless it runs. Never raises."""
        if self._started or self.channel.receiver is None:
            return
        self._started = True
        try:
            self._epoll.register(self.channel.receiver, select.EPOLLIN)
            start_thread(self._run, "snowredis-reaper")
            EXIT.watch(self)
            EXIT.arm()
        except (OSError, RuntimeError) as error:
            log.warning(
                "no thread for the leases of killed child processes (%s): they end by their ttl", error
            )

    def close(self) -> None:
        """Give back what dead processes left, at exit. Blocks for EXIT_TIMEOUT_S at most."""
        self._done.clear()
        if self.channel.receiver is not None and self.channel.ask():
            self._done.wait(EXIT_TIMEOUT_S)

    def after_fork(self) -> None:
        """Close what the parent's thread uses, in a forked child."""
        self._epoll.close()
        watched, self._watched = self._watched, {}
        for descriptors in watched.items():
            for descriptor in descriptors:
                with contextlib.suppress(OSError):
                    os.close(descriptor)

    # --- in the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            try:
                self._step()
            except OSError as error:
                log.warning("the leases of killed child processes end by their ttl from now on: %s", error)
                return
            except Exception:
                log.exception("could not give the lease of a killed child process back")

    def _step(self) -> None:
        """Wait for messages and deaths, then give back what can be given back."""
        timeout_s = max(0.0, self._retry_at_s - time.monotonic()) if self._waiting else None
        for descriptor, _ in self._epoll.poll(0 if self._asked else timeout_s):
            if descriptor in self._watched:
                self._bury(descriptor)
            else:
                self._receive()
        if self._waiting and (self._asked or time.monotonic() >= self._retry_at_s):
            self._give_back()
        if self._asked and not self._epoll.poll(0) and not self._waiting:
            self._asked = False
            self._done.set()
        elif self._asked and self._waiting:
            # Redis does not reply: whoever waits has a limit of time, and this is no loop without a pause
            self._asked = False

    def _receive(self) -> None:
        """Watch the processes that have sent their crash records."""
        while (message := self.channel.receive()) is not None:
            text, descriptors = message
            if text == b"d":
                self._asked = True
            elif len(descriptors) == 2:
                memory, process = descriptors
                self._watched[process] = memory
                self._epoll.register(process, select.EPOLLIN)
            else:
                # no more descriptors are left in this process
                for descriptor in descriptors:
                    os.close(descriptor)
                if not text:
                    raise OSError("the channel was closed")

    def _bury(self, process: int) -> None:
        """Read the crash records of a process that has ended, and forget it."""
        memory = self._watched.pop(process)
        self._epoll.unregister(process)
        os.close(process)
        try:
            page = bytearray(os.pread(memory, PAGE_BYTES, 0))
        finally:
            os.close(memory)
        if len(page) == PAGE_BYTES:
            self._waiting.extend(map(Waiting, CrashRecords(page).read()))

    def _give_back(self) -> None:
        """Release the leases that wait. Blocks for one round trip to Redis each; stops at the first without a reply."""
        silent = set()
        for _ in range(len(self._waiting)):
            lease = self._waiting.popleft()
            address = json.dumps(lease.credentials["store"])
            try:
                if address not in silent:
                    worker = release(self._store(address, lease.credentials), lease.credentials)
                    if worker is not None:
                        pool = lease.credentials["store"]["config"]["name"]
                        log.info("pool %s: gave worker id %d of a killed process back", pool, worker)
                    continue
            except StoreUnavailable:
                silent.add(address)
                self._retry_at_s = time.monotonic() + RETRY_S
            except SnowredisError as error:
                log.warning("could not give back the lease of a killed process: %s", error)
                continue
            if time.monotonic() < lease.until_s:
                self._waiting.append(lease)

    def _store(self, address: str, credentials: dict[str, Any]) -> Store:
        store = self._stores.get(address)
        if store is None:
            # a child that is forked in the middle of an import could never finish it
            with self.importing:
                store = open_store(credentials["store"]["urls"], config_of(credentials))
            self._stores[address] = store
        return store
