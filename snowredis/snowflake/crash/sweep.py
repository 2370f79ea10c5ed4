"""Release, or take over, the leases that dead processes left in files of crash records.

A process looks at the records of its siblings and of its children: after a claim, after a heartbeat, and when the pool
is full, it releases what the dead left. If it starts while Redis is away, it takes a lease of a sibling over. One
process at a time has a file: that which renamed it.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from snowredis.errors import SnowredisError, StoreUnavailable
from snowredis.process.clock import now_ms
from snowredis.process.exit import End
from snowredis.process.log import log
from snowredis.process.names import ProcessName, ProcessStatus, has_ended, own_name
from snowredis.process.threads import is_interruption
from snowredis.snowflake.crash.files import Directory, FileName, RecordsOff, find_directory, find_place
from snowredis.snowflake.crash.record import PAGE_BYTES, Credentials, read_page
from snowredis.snowflake.protocol import messages
from snowredis.snowflake.protocol.pool_config import PoolConfig

# it leaves the program's own random numbers alone, and forked children do not share its state
RANDOM = random.SystemRandom()
# a file whose process gave no sign of life for so long is removed, once its reservations have ended: heartbeats set the
# time of the file, and the end of a process in another container cannot be seen here
UNUSED_S = 24 * 3600.0
# the same for a process that ended while its claim had no reply, in an outage
UNANSWERED_S = 60.0
# leases of dead processes that are released by a claim, for which an id has to wait, and by a heartbeat
MOST_AT_CLAIM, MOST_AT_BEAT = 8, 100
# no more are released after this time, in s, by a claim; and after this part of the time between two heartbeats
LONGEST_S, BEAT_SHARE = 1.0, 0.25
# one look in so many removes such files, too, in this many directories
CLEAN_ONE_IN, MOST_CLEANED = 500, 100
# files that one look reads, if there are more: each takes some 10 us
MOST_LOOKED_AT = 100

T = TypeVar("T")


class RecordAccess(NamedTuple):
    """Access of one process to crash records.

    Attributes:
        siblings, children: the records of processes with the same parent, and of those that this process started.
        own: the process that reads them.
        read_status: the argument *read* of has_ended().
    """

    siblings: Directory
    children: Directory
    own: ProcessName
    read_status: Callable[[int], ProcessStatus | None] | None = None


def own_access(store: messages.Store) -> RecordAccess | None:
    """Return the access of this process; None if there are no records here."""
    try:
        place = find_place()
    except RecordsOff:
        return None
    siblings, children = (Directory(place.family(store, each)) for each in (place.parent, place.own))
    return RecordAccess(siblings, children, place.own)


# a file of a record, where it is
Found = tuple[Directory, FileName]


class DeadProcesses:
    """Looks for leases that dead processes left, at the cost of a few system calls.

    Args:
        talk: calls a function that talks to the store, with its arguments.
    """

    def __init__(self, store: messages.Store, talk: Callable[..., int]) -> None:
        self._store, self._talk = store, talk
        # for this process and the constants of the pool, which may lack its number at first
        self._key: tuple[int, PoolConfig] | None = None
        self._access: RecordAccess | None = None
        # the number of the file that is looked at next; each process begins at another one
        self._next = RANDOM.randrange(MOST_LOOKED_AT)

    def release(self, beat_s: float = 0.0) -> int:
        """Release leases that dead processes of this machine left: a few, for a claim.

        Never raises, except for what interrupts this thread. Blocks for one round trip to Redis each; LOCK_LIMIT_S for
        another thread.

        Args:
            beat_s: in a heartbeat, the time between two. Many are released then, but no longer than leaves time for the
                next renewal. It looks at one neighbor, each time at another one, and at the others only if that one is
                dead: so it costs the same however many neighbors there are.

        Returns:
            how many worker ids are available again.
        """
        try:
            access = self._own_access()
            if access is None or not self._sees_death(access, only_next=beat_s > 0):
                return 0
            most, longest_s = (MOST_AT_BEAT, beat_s * BEAT_SHARE) if beat_s else (MOST_AT_CLAIM, LONGEST_S)
            return sweep(self._store, access, self._talk, most, longest_s)
        except SnowredisError:
            return 0
        except Exception as error:
            if is_interruption(error):
                raise
            log.exception("pool %s: could not look for leases of dead processes", self._store.config.name)
            return 0

    def _own_access(self) -> RecordAccess | None:
        """Return the access of this process, which takes some time to find, as far as it has been found."""
        key = os.getpid(), self._store.config
        if self._access is None or self._key != key:
            self._access, self._key = own_access(self._store) if self._store.locator else None, key
        return self._access

    def _sees_death(self, access: RecordAccess, *, only_next: bool) -> bool:
        """Return whether sweep() has something to do. Now and then, removes files that nobody asks for any more."""
        if time.time_ns() // 1000 % CLEAN_ONE_IN == 0:
            remove_unused(access.own)
        found = [*_files(access.siblings), *_files(access.children)]
        if only_next and found:
            self._next += 1
            found = [found[self._next % len(found)]]
        return any(_dead(access, found))

    def take_over(self, accept: Callable[[Credentials], T | None]) -> T | None:
        """Take over the lease of a dead process. See take_over()."""
        access = self._own_access()
        return None if access is None else take_over(access, accept)

    def disown(self) -> None:
        """Let no process take their leases over. See disown()."""
        if self._store.locator:
            disown()


def sweep(store: messages.Store, access: RecordAccess, talk: Callable[..., int], most: int, longest_s: float) -> int:
    """Release leases of *store* that dead processes left, *most* at most; return how many were released.

    Each in a conversation of its own: other threads may want to talk to Redis, as to renew this process' own lease.

    Blocks:
        for one round trip to Redis each, two for a claim without a reply; no second one is begun after *longest_s*.

    Raises:
        StoreUnavailable: Redis did not reply; the files stay, and somebody tries again.
    """
    released, until_s = 0, time.monotonic() + longest_s
    for files, name in _dead(access, [*_files(access.siblings), *_files(access.children)]):
        released += talk(_release_one, store, access.own, files, name)
        if released >= most or time.monotonic() >= until_s:
            break
    return released


def remove_unused(own: ProcessName) -> None:
    """Remove files of families that nobody asks for any more."""
    for files, text, name in _records(MOST_CLEANED):
        is_seen = name.process.namespace == own.namespace
        with contextlib.suppress(OSError):
            is_old = files.age_s(text) > UNUSED_S
            # a process that lives may have had no heartbeat in a long outage
            if is_old and (has_ended(name.process, own) or not is_seen) and not _lasts(files, text):
                files.remove(text)


def _records(most: int) -> Iterator[tuple[Directory, str, FileName]]:
    """Iterate over the crash records of *most* families at most: the directory, and the name as text and in parts."""
    with contextlib.suppress(RecordsOff, OSError):
        top = find_directory()
        families = os.listdir(top)
        for family in RANDOM.sample(families, min(len(families), most)):
            for files, text in _files(Directory(os.path.join(top, family))):
                if name := FileName.parse(text, family.partition(".")[2]):
                    yield files, text, name


def _lasts(files: Directory, text: str) -> bool:
    """Return whether the file *text* records a lease with a reservation that has not ended. Raises OSError."""
    found = _read(files, text)
    return found is not None and max(found.terms.until_ms, found.terms.outage_until_ms or 0) > now_ms()


def _read(files: Directory, text: str) -> Credentials | None:
    """Return the credentials in a file; None if there are none, or it is damaged or a copy. Raises OSError."""
    page = files.read(text)
    try:
        found = read_page(page) if len(page) == PAGE_BYTES else None
        return found if found is not None and found.inode == files.inode(text) else None
    except (ValueError, LookupError, TypeError) as error:
        log.warning("a crash record is damaged, so its lease ends by its ttl: %s", error)
        return None


def _files(files: Directory) -> list[tuple[Directory, str]]:
    """Return the files of a family, with their directory."""
    with contextlib.suppress(OSError):
        return [(files, text) for text in files.names()]
    return []


def _dead(access: RecordAccess, found: list[tuple[Directory, str]]) -> Iterator[Found]:
    """Iterate over files of processes that have ended, unless a process that runs is releasing their leases."""
    own, read_status = access.own, access.read_status
    for files, text in found if len(found) <= MOST_LOOKED_AT else RANDOM.sample(found, MOST_LOOKED_AT):
        name = FileName.parse(text, own.namespace)
        if name is None or not has_ended(name.process, own, read_status):
            continue
        if name.taker is None or has_ended(name.taker, own, read_status):
            yield files, name


def _release_one(store: messages.Store, own: ProcessName, files: Directory, name: FileName) -> bool:
    """Release one lease; return whether it was still leased."""
    taken = str(name._replace(taker=own))
    try:
        # the process that renames the file has it
        files.rename(str(name), taken)
        credentials = _read(files, taken)
    except OSError:
        return False
    worker = None
    try:
        if credentials and name.process._replace(image=own.image) == own:
            # an exec: this process goes on as another program
            credentials = credentials._replace(end=End.EXIT)
        worker = release_dead(store, credentials, now_ms()) if credentials else None
    except StoreUnavailable:
        # it may have been released. Nothing of it goes back then, so a process may still take the outage lane over
        with contextlib.suppress(OSError):
            files.rename(taken, str(name._replace(taker=None)))
        raise
    except (SnowredisError, ValueError, LookupError, TypeError) as error:
        log.warning("could not release the lease of a dead process, so it ends by its ttl: %s", error)
    with contextlib.suppress(OSError):
        files.remove(taken)
    if worker is not None:
        log.info("pool %s: released worker id %d of a dead process", store.config.name, worker)
    return worker is not None


def release_dead(store: messages.Store, credentials: Credentials, caller_ms: int) -> int | None:
    """Release the lease of a process that has ended, in one attempt: all that was reserved counts as used.

    Or a lease that a claim without a reply may have got.

    Blocks:
        for one round trip to Redis, two for a claim without a reply.

    Returns:
        the worker id, or None if it was not leased any more.

    Raises:
        StoreUnavailable: Redis did not reply; call again.
    """
    token, terms, pending, owner = credentials[:4]
    opened = messages.KILLED if credentials.end == End.KILLED else ""
    if not terms.lanes_ms:
        # ended before the reply came: the same claim again has the same result. It made no ids, so nothing died
        reply = store.ask(
            messages.ClaimRequest(messages.Seen(), caller_ms, token, owner, options=messages.WANTS_LANE + messages.NOW)
        )
        if not isinstance(reply, messages.Granted):
            return None
        terms, pending, opened = reply.terms, "", "0" * len(reply.terms.lanes_ms)
    request = messages.ReleaseRequest(messages.Seen(), caller_ms, token, terms, pending, opened, credentials.stats)
    return terms.worker if isinstance(store.ask(request), messages.Released) else None


def take_over(access: RecordAccess, accept: Callable[[Credentials], T | None]) -> T | None:
    """Take over the lease of a dead sibling, from which no release was ever sent. Does not talk to Redis.

    Returns:
        what *accept* makes of the credentials in a crash record; None if there is no such lease, or each is of no use
        to *accept*. The caller records it before any id is made.
    """
    for files, name in _dead(access, _files(access.siblings)):
        if name.taker is not None or (taken := _take(access.own, files, name, accept)) is None:
            continue
        # removed before the new record is written: a process that is killed in between leaves no file. With two files,
        # one process could take the lease over by the newer file while another one releases it by the older file
        try:
            files.remove(str(name._replace(taker=access.own)))
        except FileNotFoundError:
            pass
        except OSError:
            continue
        return taken
    return None


def _take(own: ProcessName, files: Directory, name: FileName, accept: Callable[[Credentials], T | None]) -> T | None:
    """Return what *accept* makes of the record *name*, which this process has then; None if it has it not.

    There is no way back after the rename: this may run in a child that was forked in the middle of it, too.
    """
    taken = str(name._replace(taker=own))
    try:
        credentials = _read(files, str(name))
        if not (credentials and credentials.terms.lanes_ms) and files.age_s(str(name)) > UNANSWERED_S:
            # a claim while Redis hung: there may be many, and nothing to release any more
            files.remove(str(name))
        if not _usable(credentials, accept):
            return None
        files.rename(str(name), taken)
        return _usable(_read(files, taken), accept)
    except OSError:
        return None


def _usable(credentials: Credentials | None, accept: Callable[[Credentials], T | None]) -> T | None:
    return accept(credentials) if credentials and credentials.terms.lanes_ms and not credentials.released else None


def disown() -> None:
    """Remove the records of processes that have ended, of all families: this machine is about to be copied.

    Else a process in each copy could take such a lease over: neither the clocks of a copy nor its boot id have to show
    that the machine was stopped. Records of processes in other containers cannot be judged here, and stay.
    """
    own = own_name()
    if own is None:
        return
    for files, text, name in _records(sys.maxsize):
        if has_ended(name.process, own):
            with contextlib.suppress(OSError):
                files.remove(text)
