"""A Redis server for demos, tests and development, shared by all processes of a user. Not for production.

The first process that asks starts it, the others join it, and a supervisor process ends it a moment after the last of
them has ended, in whatever way that ended. It is reached only through ``embedded://`` URLs or this module. It keeps no
pool on disk, only the time up to which ids may have been made, so that the next server repeats none.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from snowredis.embedded.home import Home, wait_until
from snowredis.embedded.server import FRESH_KEY, ServerKind, ask, continue_from, find_server, is_ready
from snowredis.errors import ConfigError, StoreUnavailable, as_cause

__all__ = ["FRESH_KEY", "Server", "ServerKind", "find_server", "join", "resolve", "start", "stop"]

log = logging.getLogger("snowredis")

# how long a server outlives its last user: programs that run one after the other share it
LINGER_S = 2.0
# a busy machine starts a redis-server within 1 s, fakeredis within 5 s
_START_LIMIT_S = 15.0


@dataclass(frozen=True, slots=True)
class Server:
    """A running embedded server.

    Attributes:
        kind: program and version, such as "redis-server 7.0.15 (/usr/bin/redis-server)".
        url: for redis-py, ``unix:///…/redis.sock``.
        directory: where its socket, data and log are; its locks are beside it, in the same name with ``.lock``.
        fresh: True if it has all that earlier servers of this directory wrote, or there was none: a pool that it does
            not have can be created without the wait for its floor. It was read from FRESH_KEY in Redis, which a
            flush removes together with the pools. fakeredis keeps nothing: only the first of a directory is fresh.
    """

    kind: str
    url: str
    directory: Path
    fresh: bool


def start(directory: str | Path | None = None, *, linger_s: float = LINGER_S) -> Server:
    """Start the server of *directory*, or join the one that runs there. It goes on with what earlier ones stored.

    From then on this process and its forked children are its users until they end; children that exec another program
    are not. If the supervisor is killed, its server dies with it, and the next start() starts another one.

    Args:
        directory: by default /var/tmp/snowredis-UID. Created with mode 700.
        linger_s: how long the server outlives its last user; the process that starts it decides.

    Raises:
        ConfigError: the directory is a symbolic link, belongs to another user or can be written by others, or its path
            is too long for a socket; or SNOWREDIS_EMBEDDED is unknown.
        StoreUnavailable: no server program was found, or it did not start or reply in time; or the file system of the
            directory is full or read-only.

    Blocks:
        about 0.1 s to start, 1 ms to join; a minute or so if a server or another process that starts one hangs.
    """
    home = Home.make(directory)
    with home.own_errors(), home.start_lock():
        state = _running_state(home)
        if state:
            home.hold_users()
        else:
            state = _start(home, linger_s)
        fresh = ask(state["url"], "EXISTS", FRESH_KEY) == b":1"
        return Server(state["kind"], state["url"], home.path, fresh)


def _start(home: Home, linger_s: float) -> dict[str, Any]:
    """Start the server of *home* and return its state. Makes this process a user, unless that fails."""
    kind = find_server()
    if not kind.program and not os.environ.get("SNOWREDIS_EMBEDDED"):
        log.warning("%s: there is no redis-server, so fakeredis is used, which keeps nothing after its last user", home)
    was_user = home.is_held()
    alone = home.hold_users()
    try:
        last = home.last_identity() or ("new" if alone else "")
        state = _spawn(home, kind, linger_s)
        home.note_identity(continue_from(state["url"], last))
    except BaseException:
        if not was_user:
            home.release_users()
        raise
    return state


def join(url: str) -> Server:
    """Call start() for the directory of *url*: ``embedded://`` or ``embedded:///absolute/directory``.

    Raises ConfigError for another form of *url*; else as start().
    """
    if not re.fullmatch(r"embedded://(/[^?#]*)?", url):
        raise ConfigError(f"{url!r} is not valid: write embedded:// or embedded:///absolute/directory")
    return start(unquote(url.removeprefix("embedded://")) or None)


def resolve(url: str) -> str:
    """Return the Redis URL of an ``embedded:`` URL, as join() does, and any other URL as it is."""
    return join(url).url if url.startswith("embedded:") else url


def stop(directory: str | Path | None = None) -> None:
    """End the server of *directory* now, also while it is in use. Does nothing if none runs.

    Raises:
        ConfigError: the directory is not safe, as in start().
        StoreUnavailable: it could not be ended.

    Blocks:
        until it has ended, some 10 ms; a minute or so if it hangs.
    """
    home = Home.make(directory)
    with home.own_errors(), home.start_lock():
        for number in (signal.SIGTERM, signal.SIGKILL):
            wait_until(lambda: (state := home.supervisor()) is None or "pid" in state, 5.0)
            if not (state := home.supervisor()):
                break
            # the pid is that of a running process: it holds the lock of the file that the pid was read from
            with contextlib.suppress(ProcessLookupError):
                os.kill(state["pid"], number)
            wait_until(lambda: home.supervisor() is None, 5.0)
        if home.supervisor() is not None:
            raise StoreUnavailable(str(home), "its supervisor does not end")


def _running_state(home: Home) -> dict[str, Any] | None:
    """Return the state of the server, waiting until it replies; None if one has to be started."""

    def is_decided() -> bool:
        state = home.supervisor()
        return state is None or ("url" in state and is_ready(state["url"]))

    # it may be ending, or still starting although the process that started it was killed
    if not wait_until(is_decided, _START_LIMIT_S):
        raise StoreUnavailable(str(home), f"it is running but does not reply; see {home.log}")
    return home.supervisor()


def _absolute(entries: Iterable[str]) -> Iterator[str]:
    for entry in entries:
        # a relative path, such as "", of a current directory that was removed
        with contextlib.suppress(FileNotFoundError):
            yield os.path.abspath(entry)


def _spawn(home: Home, kind: ServerKind, linger_s: float) -> dict[str, Any]:
    """Start a supervisor, which starts the server, and return its state once the server replies."""
    if getattr(sys, "frozen", False):
        # sys.executable is the program itself, which would start again
        raise StoreUnavailable(str(home), "a frozen program has no Python to start it with; give the URL of a Redis")
    home.clear()
    # the same packages as in this process, and none of the current directory
    path = os.pathsep.join(_absolute(sys.path))
    try:
        with home.log.open("wb") as log:
            output = subprocess.check_output(
                [sys.executable, "-P", "-m", "snowredis.embedded.supervisor"]
                + [str(home.path), kind.program, str(kind), str(linger_s)],
                stdin=subprocess.DEVNULL,
                stderr=log,
                env=os.environ | {"PYTHONPATH": path},
                start_new_session=True,
                timeout=_START_LIMIT_S,
            )
        state: dict[str, Any] = json.loads(output)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise StoreUnavailable(str(home), f"{kind} did not start; see {home.log}") from as_cause(error)
    return state
