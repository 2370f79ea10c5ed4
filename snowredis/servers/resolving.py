"""Connect to a host by its name within a time limit: the system's resolver has none, and may wait for seconds.

A name is looked up in a thread. Who gives up leaves it running, and the next attempt takes what it finds. Loaded for
connections over TCP only.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import Any

import redis
from redis import exceptions

from snowredis.process.threads import may_start_threads, start_thread

# a result that nobody waited for is used for so long
_KEPT_S = 10.0
# without a time limit of the connection, or of the call
_LONGEST_S = 2.0

# host, port, type of the socket, and the process: a forked child has none of the threads
_Key = tuple[str, int, int, int]


class _Lookup:
    """One lookup of a name, in a thread of its own."""

    def __init__(self, key: _Key) -> None:
        self._key = key
        self._found: list[str] = []
        self._error: OSError | None = None
        self.ended_s: float | None = None
        # held until the lookup has ended; a threading.Event would not be safe in a signal handler
        self._running = threading.Lock()
        self._running.acquire()

    def run(self) -> None:
        """Look the name up."""
        try:
            self._found = _addresses(*self._key[:3])
        except OSError as error:
            self._error = error
        finally:
            self.ended_s = time.monotonic()
            self._running.release()

    def result(self, seconds: float) -> list[str]:
        """Return the addresses, after *seconds* at most. Raises OSError, redis-py's TimeoutError."""
        if not self._running.acquire(timeout=max(0.0, seconds)):
            raise exceptions.TimeoutError(f"the name {self._key[0]!r} was not resolved within {seconds:.1f} s")
        self._running.release()
        _lookups.pop(self._key, None)
        if self._error is not None:
            # a copy: several threads may wait for the same lookup
            raise type(self._error)(*self._error.args)
        _last[self._key[:3]] = self._found
        return self._found


# those under way, and those whose result nobody has used
_lookups: dict[_Key, _Lookup] = {}
# the last addresses of each name, for the exit of the process
_last: dict[tuple[str, int, int], list[str]] = {}


def resolve(host: str, port: int, kind: int, seconds: float) -> list[str]:
    """Return the addresses of *host*, after *seconds* at most.

    At exit, when no thread is started any more, those that it had before; only if there are none, it is looked up here.

    Raises OSError, redis-py's TimeoutError.
    """
    try:
        # no name: this asks nobody
        return _addresses(host, port, kind, socket.AI_NUMERICHOST)
    except UnicodeError as error:
        raise OSError(f"{host!r} cannot be the name of a host: {error}") from None
    except OSError:
        pass
    if not may_start_threads():
        return _last.get((host, port, kind)) or _addresses(host, port, kind)
    key = host, port, kind, os.getpid()
    lookup = _lookups.get(key)
    if lookup is None or (lookup.ended_s is not None and time.monotonic() - lookup.ended_s > _KEPT_S):
        lookup = _lookups[key] = _Lookup(key)
        try:
            start_thread(lookup.run, "snowredis-resolve")
        except RuntimeError:
            # the system refuses a thread
            lookup.run()
    return lookup.result(seconds)


def _addresses(host: str, port: int, kind: int, flags: int = 0) -> list[str]:
    found = socket.getaddrinfo(host, port, kind, socket.SOCK_STREAM, flags=flags)
    return [str(address[4][0]) for address in found]


class ResolvedConnection(redis.Connection):
    """A connection of redis-py whose host is resolved within its time limit, which holds for all addresses together."""

    def _connect(self) -> Any:
        host, limit_s = self.host, self.socket_connect_timeout
        until_s = time.monotonic() + (_LONGEST_S if limit_s is None else limit_s)
        failure: OSError | None = None
        addresses = resolve(host, self.port, self.socket_type, until_s - time.monotonic())
        try:
            for number, address in enumerate(addresses):
                # what is left is divided: an address that does not reply leaves time for the next one
                left_s = max(0.001, until_s - time.monotonic()) / (len(addresses) - number)
                self.host, self.socket_connect_timeout = address, left_s
                try:
                    return super()._connect()  # type: ignore[no-untyped-call]
                except OSError as error:
                    failure = error
        finally:
            # the name of a certificate is that of the host
            self.host, self.socket_connect_timeout = host, limit_s
        raise failure or OSError(f"the name {host!r} has no address")
