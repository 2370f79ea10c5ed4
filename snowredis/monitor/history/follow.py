"""Follow the events of one server, with leases that ended and that no script has written yet."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from snowredis.lease.codes import EventKind
from snowredis.monitor.history.events import Event

# between two looks at the leases; each takes four short commands
FOLLOW_EVERY_S = 1.0


def follow(
    written: Iterator[Event | None], read_ended: Callable[[], list[Event]], after: str
) -> Iterator[Event | None]:
    """Yield the events of *written*, and those of *read_ended* once, as soon as they are there.

    Args:
        written: events from the stream, and None when there was none for a while.
        read_ended: returns the expiries that no script has written yet.
        after: "$": only leases that end from now on; else a place in the stream: that end after its time.
    """
    # expiries that were yielded, or are older than *after*, until they are written, too
    known: set[str] = set()
    if after == "$":
        known.update(event.key for event in read_ended())
    after_ms = 0 if after == "$" else int(after.partition("-")[0])
    looked_at_s = -FOLLOW_EVERY_S
    while True:
        for event in written:
            if event is None:
                break
            if event.kind == EventKind.EXPIRED and event.key in known:
                known.discard(event.key)
                continue
            yield event
            if time.monotonic() - looked_at_s >= FOLLOW_EVERY_S:
                break
        if time.monotonic() - looked_at_s >= FOLLOW_EVERY_S:
            looked_at_s = time.monotonic()
            for event in read_ended():
                if event.key not in known and event.at_ms > after_ms:
                    known.add(event.key)
                    yield event
        yield None
