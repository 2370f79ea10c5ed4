"""Which connection makes room for another, and which one is closed first."""

from __future__ import annotations

from snowredis.web.connections import PROBE_RESERVE, Connections
from snowredis.web.settings import Limits


class FakeConnection:
    """A connection without a socket."""

    since_s = 0.0
    dropped = False

    def __init__(self, address: str | None = None) -> None:
        self.address = address

    def drop(self) -> None:
        self.dropped = True


def connections_of(most: int, per_address: int = 1000) -> Connections:
    return Connections(Limits(max_connections=most, max_connections_per_address=per_address))


def test_a_new_connection_replaces_the_one_that_owes_a_request_for_longest() -> None:
    pool = connections_of(3)
    asked, half, newer = (FakeConnection() for _ in range(3))
    for at_s, one in enumerate((asked, half, newer)):
        assert pool.add(one, at_s) == "open"
    pool.request_complete(asked)
    pool.response_complete(asked, 3)
    # one that has asked before is kept, although it waits too
    assert pool.add(FakeConnection(), 4) == "open"
    assert [one.dropped for one in (asked, half, newer)] == [False, True, False]
    pool.request_complete(newer)
    fourth = next(iter(pool.unfinished))
    pool.request_complete(fourth)
    assert pool.add(FakeConnection(), 5) == "open"
    assert asked.dropped
    assert len(pool.everyone) == 3


def test_while_all_are_busy_there_is_room_for_probes_only() -> None:
    pool = connections_of(2)
    for _ in range(2):
        busy = FakeConnection()
        pool.add(busy, 0)
        pool.request_complete(busy)
    outcomes = []
    for _ in range(PROBE_RESERVE + 1):
        probe = FakeConnection()
        outcomes.append(pool.add(probe, 1))
        pool.request_complete(probe)
    assert outcomes == ["probes"] * PROBE_RESERVE + ["refused"]


def test_an_address_makes_room_among_its_own() -> None:
    pool = connections_of(100, per_address=2)
    other, first, second = FakeConnection("10.0.0.1"), FakeConnection("10.0.0.2"), FakeConnection("10.0.0.2")
    for one in (other, first, second):
        pool.add(one, 0)
    assert pool.add(FakeConnection("10.0.0.2"), 1) == "open"
    assert (other.dropped, first.dropped, second.dropped) == (False, True, False)
    for one in list(pool.unfinished):
        pool.request_complete(one)
    assert pool.add(FakeConnection("10.0.0.2"), 2) == "refused"
    assert pool.add(FakeConnection(None), 2) == "open"
    # a connection that ends makes room again
    pool.remove(second)
    pool.remove(second)
    assert pool.add(FakeConnection("10.0.0.2"), 3) == "open"


def test_waits_end_in_order_and_more_bytes_do_not_make_them_longer() -> None:
    pool = Connections(Limits(request_timeout_s=10, keep_alive_s=20))
    half, idle, busy = (FakeConnection() for _ in range(3))
    for one in (half, idle, busy):
        pool.add(one, 0)
    pool.request_began(half, 9)
    for one in (idle, busy):
        pool.request_complete(one)
    pool.response_complete(idle, 1)
    assert pool.overdue(9.9) == []
    assert pool.overdue(10) == [half]
    assert pool.overdue(21) == [half, idle]
    # a part of the next request counts from its first byte
    pool.request_began(idle, 15)
    assert pool.overdue(24.9) == [half]
    assert pool.overdue(25) == [half, idle]
