"""Release, or take over, the leases that dead processes of this machine left in files of crash records.

Every process that talks to a pool releases them, with its own connection: after a claim, after a heartbeat, and when
the pool is full. A process that starts while Redis is away takes one over. One process at a time has a file: that which
renamed it.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import random
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar

from snowredis.errors import SnowredisError, StoreUnavailable
from snowredis.process.clock import now_ms
from snowredis.process.exit import End
from snowredis.process.names import ProcessName, ProcessStatus, has_ended, own_name
from snowredis.process.threads import is_interruption
from snowredis.snowflake.crash_record import RECORD_BYTES, read_page, release_dead
from snowredis.snowflake.protocol import Store
from snowredis.snowflake.record_files import FileName, address_scope, open_directory, pool_name

log = logging.getLogger("snowredis")

# it leaves the program's own random numbers alone, and forked children do not share its state
RANDOM = random.SystemRandom()
# a file of a pool that nobody asks for any more is removed after this time, once its process has ended, and its
# reservations have: in an outage, the lease may be taken over until then
UNUSED_S = 3600.0
# the same for a process in another container, whose end cannot be seen here: its heartbeats set the time of its file
UNKNOWN_S = 24 * 3600.0
# the same for a process that ended while its claim had no reply, in an outage
UNANSWERED_S = 60.0
# one sweep in so many looks for such files, too
CLEAN_ONE_IN = 500
# processes that one sweep looks at, if there are more: each takes some 10 us
MOST_LOOKED_AT = 100
# the time of a directory is that of the kernel's last tick
GRANULARITY_NS = 100_000_000


T = TypeVar("T")


class Files(Protocol):
    """The directory of the records: record_files.Directory, or a simulated one."""

    def names(self) -> list[str]: ...
    def changed_ns(self) -> int: ...
    def rename(self, old: str, new: str) -> None: ...
    def read(self, name: str) -> bytes: ...
    def inode(self, name: str) -> str: ...
    def age_s(self, name: str) -> float: ...
    def remove(self, name: str) -> None: ...


class RecordAccess(NamedTuple):
    """Access of one process to the crash records of a machine.

    Attributes:
        files: the directory of the records.
        own: the process that reads them.
        read_status: the argument *read* of has_ended().
        scope_of: returns where an address is valid, as address_scope() of record_files.py does.
    """

    files: Files
    own: ProcessName
    read_status: Callable[[int], ProcessStatus | None] | None = None
    scope_of: Callable[[str], list[str]] = address_scope


def own_access() -> RecordAccess | None:
    """Return the access of this process; None if there are no records here."""
    own, directory = own_name(), open_directory()
    return None if own is None or directory is None else RecordAccess(directory, own)


class DeadProcesses:
    """Looks for leases that dead processes left, at the cost of a few system calls. Does not talk to Redis.

    What was seen before is not read again: the name of this process, and the names of the files as long as the time of
    the directory is the same. sweep() reads everything anew before it releases a lease.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pid = 0
        self._access: RecordAccess | None = None
        self._pool = ""
        # the time of the directory, and the files of the pool: replaced as a whole, since threads may look at once
        self._seen: tuple[int, list[str]] = (0, [])
        # the number of the file that is looked at next; each process begins at another one
        self._next = RANDOM.randrange(MOST_LOOKED_AT)

    def release(self, most: int, talk: Callable[[Callable[[], int]], int], *, only_next: bool = False) -> int:
        """Release leases that dead processes of this machine left, *most* at most.

        Never raises, except for what interrupts this thread.

        Args:
            talk: calls a function that talks to the store.
            only_next: look at one neighbor, each time at another one, and at the others only if that one is dead. So a
                heartbeat costs the same however many neighbors there are.

        Returns:
            how many worker ids are available again.
        """
        try:
            is_due = self._store.shared and self.sees_death(only_next=only_next)
            return talk(functools.partial(sweep, self._store, most)) if is_due else 0
        except SnowredisError:
            return 0
        except Exception as error:
            if is_interruption(error):
                raise
            log.exception("pool %s: could not look for leases of dead processes", self._store.config.name)
            return 0

    def sees_death(self, *, only_next: bool = False) -> bool:
        """Return whether sweep() has something to do. Now and then, removes files that nobody asks for any more."""
        now_ns = time.time_ns()
        is_to_clean = now_ns // 1000 % CLEAN_ONE_IN == 0
        if self._pid != os.getpid() or is_to_clean:
            self._access, self._pool = own_access(), pool_name(self._store)
            self._pid, self._seen = os.getpid(), (0, [])
        access = self._access
        if access is None:
            return False
        if is_to_clean:
            remove_unused(access)
        texts = self._texts(access, now_ns)
        if only_next and texts:
            self._next += 1
            texts = [texts[self._next % len(texts)]]
        return any(_dead(access, texts))

    def _texts(self, access: RecordAccess, now_ns: int) -> list[str]:
        """Return the names of the files of the pool's other processes; list them only if some changed since then."""
        before_ns, texts = self._seen
        try:
            changed_ns = access.files.changed_ns()
        except OSError:
            return []
        if changed_ns != before_ns:
            names = ((text, FileName.parse(text)) for text in _texts(access, self._pool))
            texts = [text for text, name in names if name and name.process != access.own]
            # otherwise a file that is made in the same tick of the kernel would not be seen
            self._seen = (changed_ns if abs(now_ns - changed_ns) > GRANULARITY_NS else 0, texts)
        return texts

    def take_over(self, accept: Callable[[dict[str, Any]], T | None], record: Callable[[T], T]) -> T | None:
        """Take over the lease of a dead process. See take_over()."""
        return take_over(self._store, accept, record) if self._store.shared else None

    def disown(self) -> None:
        """Let no process take their leases over. See disown()."""
        if self._store.shared:
            disown()


def sweep(store: Store, most: int, access: RecordAccess | None = None) -> int:
    """Release leases of *store* that dead processes left, *most* at most; return how many were released.

    Blocks:
        for one round trip to Redis each, two for a claim without a reply.

    Raises:
        StoreUnavailable: Redis did not reply; the files stay, and somebody tries again.
    """
    access = access or own_access()
    if access is None:
        return 0
    released = 0
    for name in _dead(access, _texts(access, pool_name(store))):
        if released >= most:
            break
        released += _release_one(store, access, name)
    return released


def remove_unused(access: RecordAccess) -> None:
    """Remove files whose pool nobody asks for any more."""
    texts: list[str] = []
    with contextlib.suppress(OSError):
        texts = access.files.names()
    for text in texts:
        name = FileName.parse(text)
        if name is None:
            continue
        known = name.process.namespace == access.own.namespace
        with contextlib.suppress(OSError):
            if access.files.age_s(text) > (UNUSED_S if known else UNKNOWN_S) and (
                not known or (has_ended(name.process, access.own, access.read_status) and not _lasts(access, text))
            ):
                access.files.remove(text)


def _lasts(access: RecordAccess, text: str) -> bool:
    """Return whether the file *text* records a lease with a reservation that has not ended. Raises OSError."""
    lease = _read(access.files, text)
    return int(max(lease.get("until_ms", 0), lease.get("outage_until_ms", 0))) > now_ms()


def _read(files: Files, text: str) -> dict[str, Any]:
    """Return the credentials in a file; {} if there are none, or it is damaged or a copy. Raises OSError."""
    page = files.read(text)
    try:
        found = (len(page) == RECORD_BYTES and read_page(page)) or {}
        return found if found.get("inode") == files.inode(text) else {}
    except (ValueError, LookupError, TypeError) as error:
        log.warning("a crash record is damaged, so its lease ends by its ttl: %s", error)
        return {}


def _is_elsewhere(store: Store, access: RecordAccess, credentials: dict[str, Any]) -> bool:
    """Return whether the process that left *credentials* meant another server by the address of *store*."""
    pairs = zip(credentials.get("server", ()), access.scope_of(store.where), strict=False)
    return any(then != now for then, now in pairs)


def _texts(access: RecordAccess, pool: str) -> list[str]:
    """Return the names of the files of *pool*."""
    with contextlib.suppress(OSError):
        return [text for text in access.files.names() if text.startswith(pool)]
    return []


def _dead(access: RecordAccess, texts: list[str], most: int = MOST_LOOKED_AT) -> Iterator[FileName]:
    """Iterate over files of processes that have ended, unless a process that runs is releasing their leases."""
    for text in texts if len(texts) <= most else RANDOM.sample(texts, most):
        name = FileName.parse(text)
        if name is None or name.process.namespace != access.own.namespace:
            continue
        if has_ended(name.process, access.own, access.read_status) and (
            name.taker is None or has_ended(name.taker, access.own, access.read_status)
        ):
            yield name


def _release_one(store: Store, access: RecordAccess, name: FileName) -> bool:
    """Release one lease; return whether it was still leased."""
    files, taken = access.files, str(name._replace(taker=access.own, sent=False))
    try:
        if _is_elsewhere(store, access, _read(files, str(name))):
            return False
        # the process that renames the file has it
        files.rename(str(name), taken)
        credentials = _read(files, taken)
    except OSError:
        return False
    worker = None
    try:
        if credentials and name.process._replace(image=access.own.image) == access.own:
            # an exec: this process goes on as another program
            credentials["end"] = End.EXIT
        worker = release_dead(store, credentials) if credentials else None
    except StoreUnavailable as error:
        # R7 (release): what may have been released is taken over by nobody
        sent = name.sent or name.taker is not None or not error.is_unsent
        with contextlib.suppress(OSError):
            files.rename(taken, str(name._replace(taker=None, sent=sent)))
        raise
    except (SnowredisError, ValueError, LookupError, TypeError) as error:
        log.warning("could not release the lease of a dead process, so it ends by its ttl: %s", error)
    with contextlib.suppress(OSError):
        files.remove(taken)
    if worker is not None:
        log.info("pool %s: released worker id %d of a dead process", store.config.name, worker)
    return worker is not None


def take_over(
    store: Store,
    accept: Callable[[dict[str, Any]], T | None],
    record: Callable[[T], T],
    access: RecordAccess | None = None,
) -> T | None:
    """Take over the lease of a dead process, from which no release was ever sent. Does not talk to Redis.

    Args:
        accept: returns what is made of the credentials in a crash record; None if this lease is of no use.
        record: records that as a lease of this process, with the marks of the dead one, before any id is made.

    Returns:
        the result of *record*; None if there is no such lease.
    """
    access = access or own_access()
    if access is None:
        return None
    for name in _dead(access, _texts(access, pool_name(store))):
        if name.taker is not None or name.sent or (taken := _take(store, access, name, accept)) is None:
            continue
        # removed before the new record is written: a process that is killed here leaves no file. With two files, one
        # process could take the lease over by the newer file while another one releases it by the older file
        try:
            access.files.remove(str(name._replace(taker=access.own)))
        except FileNotFoundError:
            pass
        except OSError:
            continue
        return record(taken)
    return None


def disown(access: RecordAccess | None = None) -> None:
    """Let no process take over a lease of a process that has ended, of any pool: this machine is about to be copied."""
    access = access or own_access()
    if access is None:
        return
    texts = _texts(access, "")
    for name in _dead(access, texts, len(texts)):
        with contextlib.suppress(OSError):
            access.files.rename(str(name), str(name._replace(taker=None, sent=True)))


def _take(store: Store, access: RecordAccess, name: FileName, accept: Callable[[dict[str, Any]], T | None]) -> T | None:
    """Return what *accept* makes of the record *name*, which this process has then; None if it has it not.

    There is no way back after the rename: this may run in a child that was forked in the middle of it, too.
    """
    files, taken = access.files, str(name._replace(taker=access.own))
    try:
        credentials = _read(files, str(name))
        if _is_elsewhere(store, access, credentials):
            return None
        if "lanes_ms" not in credentials and files.age_s(str(name)) > UNANSWERED_S:
            # a claim while Redis hung: there may be many, and nothing to release any more
            files.remove(str(name))
        if not _usable(credentials, accept):
            return None
        files.rename(str(name), taken)
        return _usable(_read(files, taken), accept)
    except OSError:
        return None


def _usable(credentials: dict[str, Any], accept: Callable[[dict[str, Any]], T | None]) -> T | None:
    try:
        return accept(credentials) if "lanes_ms" in credentials and not credentials.get("released") else None
    except (ValueError, LookupError, TypeError):
        return None
