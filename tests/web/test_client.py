"""The client of the service in forked children, without a service: whatever a child returns is its parent's."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from snowredis.web.client import Client, ServiceError

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def returns_an_id(client: Client) -> bool:
    try:
        client.next_id()
    except ServiceError:
        return False
    return True


def client_with(ids: list[int]) -> Client:
    client = Client("http://127.0.0.1:9", max_wait=0)
    client._ids = ids
    return client


def in_child(check: Callable[[], bool]) -> bool:
    child = os.fork()
    if child == 0:
        os._exit(check())
    return bool(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def test_a_child_with_the_pid_of_its_parent_has_none_of_its_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    # as process 1 of another pid namespace has, or a process whose pid is used again
    pid = os.getpid()
    client = client_with([3, 2, 1])
    monkeypatch.setattr(os, "getpid", lambda: pid)
    assert not in_child(lambda: returns_an_id(client))
    assert client.next_id() == 1


class ForkingList(list[int]):
    """Ids of a client; a signal handler forks while one is taken."""

    child: int | None = None

    def pop(self, *args: int) -> int:  # type: ignore[override]
        an_id = super().pop(*args)
        if self.child is None:
            self.child = os.fork()
        return an_id


def test_a_child_that_is_forked_while_an_id_is_taken_does_not_return_it() -> None:
    ids = ForkingList([3, 2, 1])
    client, parent = client_with(ids), os.getpid()
    got_one = True
    try:
        got_one = returns_an_id(client)
    finally:
        if os.getpid() != parent:
            os._exit(got_one)
    assert got_one
    assert ids.child is not None
    assert os.waitstatus_to_exitcode(os.waitpid(ids.child, 0)[1]) == 0
    assert client.next_id() == 2
