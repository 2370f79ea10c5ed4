"""Give back, or take over, the leases that dead processes of this machine left in files of crash records.

Every process that talks to a pool gives them back, with its own connection: after a claim, after a heartbeat, and when
the pool is full. A process that starts while Redis is away takes one over. One process at a time has a file: that which
renamed it.
"""

from __future__ import annotations

import contextlib
import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar

from snowredis.errors import SnowredisError, StoreUnavailable
from snowredis.process.exit import End
from snowredis.process.liveness import ProcessName, Status, has_ended, own_name
from snowredis.snowflake.crash_record import RECORD_BYTES, read_page, release
from snowredis.snowflake.protocol import Store
from snowredis.snowflake.record_files import FileName, open_directory, pool_name

log = logging.getLogger("snowredis")

# not the state of the program's own random numbers, nor one that forked children share
RANDOM = random.SystemRandom()
# a file of a pool that nobody asks for any more is removed after this time, once its process has ended, and its
# reservations have: in an outage, the lease may be taken over until then
UNUSED_S = 3600.0
# of a process of which nobody here can tell, one in another container: it writes to its file at every heartbeat
UNKNOWN_S = 24 * 3600.0
# how often that is looked for, instead of at each sweep
CLEAN_PART = 0.02
# processes that one sweep looks at, if there are more: each takes some 10 us
MOST_LOOKED_AT = 100
# how often the processes of a machine sweep at a heartbeat, all together: one of many sweeps now and then
SWEEPS_A_BEAT = 4


T = TypeVar("T")


class Files(Protocol):
    """The directory of the records: record_files.Directory, or a simulated one."""

    def names(self) -> list[str]: ...
    def rename(self, old: str, new: str) -> None: ...
    def read(self, name: str) -> bytes: ...
    def age_s(self, name: str) -> float: ...
    def remove(self, name: str) -> None: ...


class Place(NamedTuple):
    """The directory, and who looks at it.

    Attributes:
        own: the process that looks.
        look: as in has_ended().
    """

    files: Files
    own: ProcessName
    look: Callable[[int], Status | None] | None = None


def this_place() -> Place | None:
    """Return the place of this process; None where there are no records."""
    own, directory = own_name(), open_directory()
    return None if own is None or directory is None else Place(directory, own)


class Swept(NamedTuple):
    """How many leases a sweep gave back, and how many processes it looked at."""

    given_back: int = 0
    looked_at: int = 0


def sweep(store: Store, most: int, place: Place | None = None) -> Swept:
    """Give back leases of *store* that dead processes left, *most* at most.

    Blocks:
        for one round trip to Redis each, two for a claim without a reply.

    Raises:
        StoreUnavailable: Redis did not reply; the files stay, and somebody tries again.
    """
    place = place or this_place()
    if place is None:
        return Swept()
    if RANDOM.random() < CLEAN_PART:
        remove_unused(place)
    names, given_back = list(_names(place, pool_name(store))), 0
    for name in _dead(place, names):
        if given_back >= most:
            break
        given_back += _give_back(store, place, name)
    return Swept(given_back, len(names))


def remove_unused(place: Place) -> None:
    """Remove files whose pool nobody asks for any more."""
    texts: list[str] = []
    with contextlib.suppress(OSError):
        texts = place.files.names()
    for text in texts:
        name = FileName.parse(text)
        if name is None:
            continue
        known = name.process.namespace == place.own.namespace
        with contextlib.suppress(OSError):
            if place.files.age_s(text) > (UNUSED_S if known else UNKNOWN_S) and (
                not known or (has_ended(name.process, place.own, place.look) and not _lasts(place, text))
            ):
                place.files.remove(text)


def _lasts(place: Place, text: str) -> bool:
    """Return whether the file *text* records a lease with a reservation that has not ended. Raises OSError."""
    try:
        lease = read_page(place.files.read(text)) or {}
        return (
            int(max(lease.get("until_ms", 0), lease.get("outage_until_ms", 0))) > time.time_ns() // 1_000_000
        )
    except (ValueError, LookupError, TypeError):
        return False


def _names(place: Place, pool: str) -> Iterator[FileName]:
    """Iterate over the names of files of *pool*."""
    try:
        found = [text for text in place.files.names() if text.startswith(pool)]
    except OSError:
        return
    if len(found) > MOST_LOOKED_AT:
        found = RANDOM.sample(found, MOST_LOOKED_AT)
    for text in found:
        name = FileName.parse(text)
        if name is not None and name.process.namespace == place.own.namespace:
            yield name


def _dead(place: Place, names: Iterable[FileName]) -> Iterator[FileName]:
    """Iterate over those of processes that have ended, unless a process that runs is giving them back."""
    for name in names:
        if has_ended(name.process, place.own, place.look) and (
            name.taker is None or has_ended(name.taker, place.own, place.look)
        ):
            yield name


def _give_back(store: Store, place: Place, name: FileName) -> bool:
    """Give one lease back; return whether it was still leased."""
    files, taken = place.files, str(name._replace(taker=place.own, sent=False))
    try:
        # whoever renames it, has it
        files.rename(str(name), taken)
        page = files.read(taken)
    except OSError:
        return False
    worker = None
    try:
        credentials = read_page(page) if len(page) == RECORD_BYTES else None
        if credentials and name.process._replace(image=place.own.image) == place.own:
            # an exec: this process goes on as another program
            credentials["end"] = End.EXIT
        worker = release(store, credentials) if credentials else None
    except StoreUnavailable as error:
        # R7 (release): what may have been released is taken over by nobody
        sent = name.sent or name.taker is not None or not error.is_unsent
        with contextlib.suppress(OSError):
            files.rename(taken, str(name._replace(taker=None, sent=sent)))
        raise
    except (SnowredisError, ValueError, LookupError, TypeError) as error:
        log.warning("could not give the lease of a dead process back, so it ends by its ttl: %s", error)
    with contextlib.suppress(OSError):
        files.remove(taken)
    if worker is not None:
        log.info("pool %s: gave worker id %d of a dead process back", store.config.name, worker)
    return worker is not None


def take_over(
    store: Store,
    accept: Callable[[dict[str, Any]], T | None],
    record: Callable[[T], T],
    place: Place | None = None,
) -> T | None:
    """Take over the lease of a dead process, from which no release was ever sent. Does not talk to Redis.

    Args:
        accept: returns what is made of the credentials in a crash record; None if this lease is of no use.
        record: records that as a lease of this process, with the marks of the dead one, before any id is made.

    Returns:
        the result of *record*; None if there is no such lease.
    """
    place = place or this_place()
    if place is None:
        return None
    for name in _dead(place, _names(place, pool_name(store))):
        if name.taker is not None or name.sent or (taken := _take(place, name, accept)) is None:
            continue
        # first: a process that is killed here leaves no file. With two, the lease would be given back by the older one
        # while a process that took it over from the newer one makes ids
        try:
            place.files.remove(str(name._replace(taker=place.own)))
        except FileNotFoundError:
            pass
        except OSError:
            continue
        return record(taken)
    return None


def _take(place: Place, name: FileName, accept: Callable[[dict[str, Any]], T | None]) -> T | None:
    """Return what *accept* makes of the record *name*, which this process has then; None if it has it not.

    There is no way back after the rename: this may run in a child that was forked in the middle of it, too.
    """
    taken = str(name._replace(taker=place.own))
    try:
        if not _usable(place.files.read(str(name)), accept):
            return None
        place.files.rename(str(name), taken)
        return _usable(place.files.read(taken), accept)
    except OSError:
        return None


def _usable(page: bytes, accept: Callable[[dict[str, Any]], T | None]) -> T | None:
    try:
        credentials = read_page(page) if len(page) == RECORD_BYTES else None
        is_lease = credentials and "lanes_ms" in credentials and not credentials.get("released")
        return accept(credentials) if credentials and is_lease else None
    except (ValueError, LookupError, TypeError):
        return None
