"""Credentials of a lease, as JSON: with them another process can release it, or repeat the claim that was under way.

A dict, since it travels between processes: ``store`` (its urls and its pool's settings; not in files, which nobody
reads who does not have them) and ``lanes`` (how many), then
``worker``, ``token``, ``stats`` and, of a lease, ``renewal_id`` and ``pending_renewal_id``, of a claim ``owner``;
crash_record.py adds ``marks_ms`` when it is read.

Crash records: the data with which another process gives a killed process' lease back, in memory that both can read.

A process that was killed cannot release its lease, and no other knows what it used: its worker id
would be unavailable until the end of the reservation. So a process records, in a file in memory (record_files.py) or
in a page that it shares with its parent (gunicorn.py), the credentials of its leases (credentials.py), and before
each tick's ids are published, how far that lane is used. The kernel keeps the page when it kills the process.

The process writes in such an order that whatever it was doing when it died, what can be read is valid and
on the safe side. Others read only after its death, so that no more ids are made, and release the lease (sweep.py), or
pass the credentials to a process that does (reclaimer.py).
"""

from __future__ import annotations

import contextlib
import json
import logging
import mmap
import os
import sys
import time
from collections.abc import Callable
from dataclasses import fields
from typing import Any, Protocol

from snowredis.core.presets import layout_spec, resolve_layout
from snowredis.process.fork import GUARD
from snowredis.snowflake.lease import HeldLease
from snowredis.snowflake.protocol import ClaimRequest, PoolConfig, ReleaseRequest, Store, WorkerStats
from snowredis.snowflake.replies import Granted, Released, Seen

# the worker id of a claim that has no reply yet
UNKNOWN_WORKER = -1


def of_store(store: Store) -> dict[str, Any]:
    """Return the part with which another process can open *store*."""
    config = store.config
    settings = {item.name: getattr(config, item.name) for item in fields(config)}
    address = {"urls": store.urls, "config": settings | {"layout": layout_spec(config.layout)}}
    return {"store": address, "lanes": config.layout.namespaces}


def of_claim(token: str, owner: str) -> dict[str, Any]:
    """Return the part for a claim that is under way."""
    return {"worker": UNKNOWN_WORKER, "token": token, "owner": owner, "stats": ""}


def of_lease(held: HeldLease, stats: WorkerStats) -> dict[str, Any]:
    """Return the part for a lease."""
    return {
        "worker": held.lease.worker,
        "token": held.token,
        "renewal_id": held.renewal_id,
        "pending_renewal_id": held.pending_renewal_id,
        "stats": stats.to_text(),
    }


def config_of(credentials: dict[str, Any]) -> PoolConfig:
    """Return the settings of the pool of *credentials*."""
    settings = credentials["store"]["config"]
    layout, share = resolve_layout(settings["layout"]), tuple(settings["share"])
    return PoolConfig(**settings | {"layout": layout, "share": share})


def release(store: Store, credentials: dict[str, Any]) -> int | None:
    """Release one lease, in one attempt. Blocks for one round trip to Redis, two for a claim without a reply.

    Returns:
        its worker id, or None if it was not leased any more.

    Raises:
        StoreUnavailable: Redis did not reply; call again.
    """
    now_ms = time.time_ns() // 1_000_000
    worker, renewal_id = credentials["worker"], credentials.get("renewal_id", "")
    if worker == UNKNOWN_WORKER:
        # killed before the reply came: the same claim again has the same result
        claim = ClaimRequest(credentials["token"], now_ms, now_ms, 0, credentials["owner"])
        reply = store.claim(claim, Seen())
        if not isinstance(reply, Granted):
            return None
        worker, renewal_id = reply.worker, reply.renewal_id
    request = ReleaseRequest(
        worker=worker,
        token=credentials["token"],
        renewal_id=renewal_id,
        pending_renewal_id=credentials.get("pending_renewal_id", ""),
        caller_ms=now_ms,
        marks_ms=tuple(credentials["marks_ms"]),
        stats=WorkerStats.from_text(credentials["stats"]),
        reclaimed=True,
    )
    return worker if isinstance(store.release(request, Seen()), Released) else None


log = logging.getLogger("snowredis")

# generators of one process whose leases are recorded; those of any others end by their ttl
GENERATORS = 8
# 6 backup bits are the most that a layout has
LANES = 64
# one generator's part of the page: a header, two texts in turn, two rows of marks in turn
HEADER_BYTES = 8
MARKS_BYTES = LANES * 8
TEXT_BYTES = 1532
RECORD_BYTES = HEADER_BYTES + 2 * TEXT_BYTES + 2 * MARKS_BYTES
PAGE_BYTES = GENERATORS * RECORD_BYTES


class PageOwner(Protocol):
    """Whatever gave a page to a crash record."""

    @property
    def is_writer(self) -> bool:
        """Return whether this process may write to the page: false in a child of the process that got it."""

    def touch(self) -> None:
        """Show that the page is still in use; called at each claim and heartbeat."""

    def take_back(self, page: memoryview, *, records_lease: bool) -> None:
        """Take the page back: its generator makes no more ids.

        Args:
            records_lease: a lease could not be released, or a claim has no reply. To be kept for those who give it back
                after the death of this process, unless room is needed.
        """


def read_page(page: bytes) -> dict[str, Any] | None:
    """Return the credentials in a copy of a dead process' record; None if it held nothing.

    Raises ValueError, LookupError, TypeError: the copy is damaged.
    """
    return CrashRecord(None, memoryview(bytearray(page))).read()


class CrashRecord:
    """One generator's crash record: a CrashRecorder. One writer at a time: the thread that talks to the store.

    A process that this one forks shares the page, too, and may be in the middle of any of these methods: it
    calls forget(), after which writing raises an error, so that nothing is written by a child.

    Args:
        owner: whoever gave the page.
        page: RECORD_BYTES of memory.
        common: what all credentials that are written here contain.
    """

    __slots__ = ("_common", "_header", "_owner", "_page", "_row", "_rows", "_texts", "_turn")

    def __init__(
        self, owner: PageOwner | None, page: memoryview, common: dict[str, Any] | None = None
    ) -> None:
        self._owner, self._page, self._common = owner, page, common or {}
        self._header = page[:HEADER_BYTES].cast("q")
        self._texts = [page[HEADER_BYTES + i * TEXT_BYTES :][:TEXT_BYTES] for i in (0, 1)]
        marks = page[HEADER_BYTES + 2 * TEXT_BYTES :].cast("q")
        self._rows = [marks[i * LANES :][:LANES] for i in (0, 1)]
        self._turn = self._row = 0

    def write_claim(self, token: str, owner: str) -> None:
        """Record that a claim is under way."""
        self._write(of_claim(token, owner), fresh=True)

    def write_lease(self, held: HeldLease, stats: WorkerStats, *, fresh: bool) -> memoryview | None:
        """Record the lease *held*; return where its marks belong, or None. See CrashRecorder."""
        return self._write(of_lease(held, stats), fresh=fresh)

    def _write(self, own: dict[str, Any], *, fresh: bool) -> memoryview | None:
        owner = self._owner
        if owner is None or not owner.is_writer:
            # given up; or forked while this record was being made, so forget() was not called
            return None
        # a fresh lease never gets the row of the lease that is recorded now
        row = self._row ^ fresh
        text = json.dumps(self._common | own | {"row": row}).encode()
        if len(text) > TEXT_BYTES:
            log.debug(
                "a crash record of %d bytes is too long; the lease ends by its ttl if this process is killed",
                len(text),
            )
            self.clear()
            return None
        turn, no_marks = self._turn ^ 1, memoryview(bytes(MARKS_BYTES)).cast("q")
        try:
            # checked directly before each store: a fork that bypasses Python calls no forget()
            if fresh and GUARD.alive:
                self._rows[row][:] = no_marks
            if GUARD.alive:
                self._texts[turn][: len(text)] = text
            # one store of 8 bytes: either the old text counts or the new one
            if GUARD.alive:
                self._header[0] = turn << 32 | len(text)
            self._turn, self._row = turn, row
            owner.touch()
            return self._rows[row]
        except (ValueError, IndexError):
            # forget() was called: this is a forked child
            return None

    def clear(self) -> None:
        """Record that nothing is held any more."""
        with contextlib.suppress(ValueError):
            if GUARD.alive:
                self._header[0] = 0

    def forget(self) -> None:
        """Release the page, in a forked child: it is the parent's, and no call that goes on here may write to it."""
        self._owner = None
        for view in (self._header, *self._texts, *self._rows):
            with contextlib.suppress(BufferError):
                view.release()
        # one that a range of ticks still refers to is not released
        self._rows = []

    def give_up(self) -> None:
        """Release this part for another generator. Later calls do nothing."""
        owner, self._owner = self._owner, None
        with contextlib.suppress(ValueError):
            if owner is not None and owner.is_writer and GUARD.alive:
                owner.take_back(self._page, records_lease=self._header[0] != 0)

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # a generator that got no lease may be dropped without close(). At exit, modules may be gone, and others will
        # see that the process has ended
        if not is_finalizing():
            self.give_up()

    def read(self) -> dict[str, Any] | None:
        """Return the credentials that were written last, with ``marks_ms``; None if nothing is held."""
        turn, size = divmod(self._header[0], 1 << 32)
        if not size:
            return None
        written: dict[str, Any] = json.loads(bytes(self._texts[turn][:size]))
        return written | {"marks_ms": tuple(self._rows[written["row"]][: written["lanes"]])}


class CrashRecords:
    """Crash records in memory that is shared with children which are forked later: one writes, its parent reads."""

    def __init__(self) -> None:
        view = memoryview(mmap.mmap(-1, PAGE_BYTES))
        self._parts = [view[i * RECORD_BYTES :][:RECORD_BYTES] for i in range(GENERATORS)]
        self._writer_pid = 0
        self.free: list[memoryview] = []

    def adopt(self) -> None:
        """Let this process write here, and none of its own children. Called once, in the child."""
        self._writer_pid = os.getpid()
        self.free = list(self._parts)

    @property
    def is_writer(self) -> bool:
        """Return whether this is the process that called adopt()."""
        return self._writer_pid == os.getpid()

    def new_record(self, store: Store) -> CrashRecord | None:
        """Return a part of the page for one generator of *store*.

        None if no other process can reach the store, no part is left, or this process is not the writer.
        """
        if not self.is_writer or not store.urls:
            return None
        try:
            page = self.free.pop()
        except IndexError:
            return None
        record = CrashRecord(self, page, of_store(store))
        # maybe a lease that was not released: its marks must not be read while those of the next one are written
        record.clear()
        return record

    def touch(self) -> None:
        """Do nothing: the page lasts as long as its process."""

    def take_back(self, page: memoryview, *, records_lease: bool) -> None:
        """Keep *page* for another generator; one that records a lease is used after all others, the oldest first."""
        if records_lease:
            self.free.insert(0, page)
        else:
            self.free.append(page)

    def stores(self) -> list[dict[str, Any]]:
        """Return where a living child has its leases, as of some moment. Called in the parent; never raises."""
        found = []
        for part in self._parts:
            # it may be writing meanwhile
            with contextlib.suppress(ValueError, LookupError, TypeError):
                written = CrashRecord(None, part).read()
                if written is not None:
                    found.append({"urls": written["store"]["urls"]})
        return found

    def read(self) -> list[dict[str, Any]]:
        """Return the credentials of a dead child's leases, and clear them. Called in the parent; never raises."""
        leases = []
        for part in self._parts:
            record = CrashRecord(None, part)
            try:
                written = record.read()
            except (ValueError, LookupError, TypeError):
                log.exception(
                    "could not read the crash record of a killed process; its lease ends by its ttl"
                )
                written = None
            if written is not None:
                leases.append(written)
            record.clear()
        return leases
