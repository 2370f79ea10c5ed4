"""A Redis of one's own for demos, tests and development: one for all processes of a user.

The first process that asks starts it, the others join it, and a supervisor process ends it
a moment after the last of them has ended, however that ended. It is reached only through
``embedded://`` URLs or this module, and keeps no pool on disk: not for production. What it keeps
is the time up to which ids may have been stamped, so that the next server repeats none.
"""

from __future__ import annotations

import logging
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from snowredis.embedded.home import Home, wait_until
from snowredis.embedded.reserved import DEFAULT_REACH_MS, now_ms
from snowredis.embedded.server import FRESH_KEY, ServerKind, answers, ask, find_server
from snowredis.errors import ConfigError, StoreUnavailable

__all__ = ["FRESH_KEY", "Server", "ServerKind", "find_server", "join", "resolve", "start", "stop"]

log = logging.getLogger("snowredis")

# a server outlives its last user so long: programs run one after the other share it
LINGER_S = 2.0
# a busy machine starts a redis-server within 1 s, fakeredis within 5 s
_START_LIMIT_S = 15.0
# what was reserved at most is waited for: a ttl of 30 s, and its lead. More shows a clock that is wrong, or a long ttl
_WAIT_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Server:
    """A running server.

    Attributes:
        kind: in words, such as "redis-server 7.0.15 (/usr/bin/redis-server)".
        url: for redis-py, ``unix:///…/redis.sock`` or ``redis://127.0.0.1:port``.
        directory: where its socket, locks and log are.
        fresh: no reservation of an earlier server of this directory reaches the time at which this
            one started, and no process that used one was alive. So a pool may be made in it without
            the first-start wait.
            This is a reading of ``FRESH_KEY`` in Redis. Whoever makes a pool must look there at
            that moment: a server that was flushed has forgotten its pools and, with them, this
            key, so that the wait comes back. Whoever deletes a pool must delete the key too.
    """

    kind: str
    url: str
    directory: Path
    fresh: bool


def start(
    directory: str | Path | None = None, *, linger_s: float = LINGER_S, reach_ms: int = DEFAULT_REACH_MS
) -> Server:
    """Start the server of *directory*, or join the one that runs there.

    From then on this process and its forked children are its users until they end; children
    that exec another program are not. If the supervisor is killed its server dies with it, and
    the next start() starts another: not a fresh one while users of the old one are alive.

    Args:
        directory: by default /var/tmp/snowredis-UID. Made with mode 700.
        linger_s: how long the server outlives its last user; said by who starts it.
        reach_ms: how far beyond the clock a pool of this process may reserve: its ttl, max_clock_lead and a tick.

    Raises:
        ConfigError: the directory is a link, somebody else's or writable by others, or its path
            is too long for a socket; or as find_server().
        StoreUnavailable: there is nothing to start, or it did not start or answer in time; or ids of an
            earlier server may be stamped with times that this machine's clock reaches in over a minute.

    Blocks:
        about 0.1 s to start, 1 ms to join; half a minute where users of an earlier server were killed, until
        the time that they had reserved has passed; a minute or so if a server or another starter hangs.
    """
    home = Home.make(directory)
    told = False
    while True:
        with home.start_lock():
            state = _running(home)
            wait_s = 0.0 if state else _wait_s(home)
            if not wait_s:
                if state:
                    home.hold_users()
                else:
                    state = _start(home, linger_s)
                home.reserved.use(reach_ms)
                fresh = ask(state["url"], "EXISTS", FRESH_KEY) == b":1"
                return Server(state["kind"], state["url"], home.path, fresh)
        if not told:
            log.warning(
                "%s: waiting %.1f s: users of the server before were killed, and may have stamped ids up to then",
                home,
                wait_s,
            )
            told = True
        # with the lock free: another process may look, too
        time.sleep(min(wait_s, 1.0))


def _wait_s(home: Home) -> float:
    """How long the clock needs to pass what was reserved. Raises StoreUnavailable if that is too long."""
    wait_s = (home.reserved.bound_ms() - now_ms()) / 1000
    if wait_s > _WAIT_LIMIT_S:
        raise StoreUnavailable(
            str(home),
            f"ids of an earlier server there may be stamped up to {wait_s:,.0f} s after the time that this machine's "
            "clock shows, which may have been set back. No server was started. Correct the clock, or, if ids may be "
            f"repeated, remove {home.path}",
        )
    # whoever is alive still may hold a reservation; the pools wait for their floors then
    return 0.0 if home.has_users() else max(0.0, wait_s)


def _start(home: Home, linger_s: float) -> dict[str, Any]:
    kind = find_server()
    was_user = home.is_held()
    alone = home.hold_users()
    home.reserved.begin()
    try:
        state = _spawn(home, kind, linger_s)
        if alone:
            ask(state["url"], "SET", FRESH_KEY, "1")
    except BaseException:
        if not was_user:
            home.release_users()
        if home.supervisor() is None:
            # nobody was told of it
            home.reserved.end(0)
        raise
    return state


def join(url: str, *, reach_ms: int = DEFAULT_REACH_MS) -> Server:
    """The server of ``embedded://`` or ``embedded:///absolute/directory``, started if need be.

    Args:
        url: one of these two.
        reach_ms: as start().

    Raises:
        ConfigError: *url* is of another form; or as start().
        StoreUnavailable: as start().

    Blocks:
        as start().
    """
    from urllib.parse import unquote

    if not re.fullmatch(r"embedded://(/[^?#]*)?", url):
        raise ConfigError(f"{url!r} has to be embedded:// or embedded:///absolute/directory, and no more")
    return start(unquote(url.removeprefix("embedded://")) or None, reach_ms=reach_ms)


def resolve(url: str) -> str:
    """Turn an ``embedded:`` URL into that of a running server, as join(); any other is returned as it is."""
    return join(url).url if url.startswith("embedded:") else url


def stop(directory: str | Path | None = None) -> None:
    """End the server of *directory* now, whoever uses it. Does nothing where none runs.

    Raises:
        ConfigError: as start().
        StoreUnavailable: it could not be ended.

    Blocks:
        until it has ended, some 10 ms; a minute or so if it hangs.
    """
    import contextlib
    import signal

    home = Home.make(directory)
    with home.start_lock():
        for number in (signal.SIGTERM, signal.SIGKILL):
            wait_until(lambda: (state := home.supervisor()) is None or "pid" in state, 5.0)
            if not (state := home.supervisor()):
                break
            # of a living process: it holds the lock of the file that it wrote this pid to
            with contextlib.suppress(ProcessLookupError):
                os.kill(state["pid"], number)
            wait_until(lambda: home.supervisor() is None, 5.0)
        if home.supervisor() is not None:
            raise StoreUnavailable(str(home), "its supervisor does not end")


def _running(home: Home) -> dict[str, Any] | None:
    """The state of the server once it answers; None if one has to be started."""

    def decided() -> bool:
        state = home.supervisor()
        return state is None or ("url" in state and answers(state["url"]))

    # it may be ending, or starting still after its starter was killed
    if not wait_until(decided, _START_LIMIT_S):
        raise StoreUnavailable(str(home), f"it runs and does not answer; {home.log} may tell why")
    return home.supervisor()


def _spawn(home: Home, kind: ServerKind, linger_s: float) -> dict[str, Any]:
    """Start a supervisor, which starts the server; the state once that answers."""
    import json
    import subprocess
    import sys

    home.clear()
    # it finds the same packages as this process, and none by the accident of a current directory
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    try:
        with home.log.open("wb") as log:
            done = subprocess.run(
                [sys.executable, "-P", "-m", "snowredis.embedded.supervisor"]
                + [str(home.path), kind.program, str(kind), str(linger_s)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=os.environ | {"PYTHONPATH": path},
                start_new_session=True,
                timeout=_START_LIMIT_S,
                check=True,
            )
        state: dict[str, Any] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise StoreUnavailable(str(home), f"{kind} did not start; {home.log} may tell why") from error
    return state
