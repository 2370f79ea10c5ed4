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
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from snowredis.embedded.home import Home, wait_until
from snowredis.errors import ConfigError, StoreUnavailable, as_cause

__all__ = ["FRESH_KEY", "Server", "ServerKind", "find_server", "join", "resolve", "start", "stop"]

log = logging.getLogger("snowredis")

# how long a server outlives its last user: programs that run one after the other share it
LINGER_S = 2.0
# a busy machine starts a redis-server within 1 s, fakeredis within 5 s
_START_LIMIT_S = 15.0
# kept in Redis itself, so that a flushed server loses it: the identity of the server that wrote it
FRESH_KEY = "snowredis:embedded:fresh"
# since when data may be missing, in s since 1970, and the identity of the server that wrote it
MISSING_KEY = "snowredis:embedded:missing"
# the scripts need this version
_OLDEST_VERSION = (6, 2)


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


# --- the server program, and single commands to a running server --------------------------------------


@dataclass(frozen=True, slots=True)
class ServerKind:
    """A server that can be started. str() describes it to people.

    Attributes:
        program: path of its binary; empty for fakeredis.
        version: such as "7.0.15".
    """

    program: str
    version: str

    def __str__(self) -> str:
        if not self.program:
            return f"fakeredis {self.version}"
        return f"{Path(self.program).name} {self.version} ({self.program})"


def find_server() -> ServerKind:
    """Find the server that start() would start.

    The first that exists of redis-server and valkey-server on PATH, and fakeredis; or the one that
    SNOWREDIS_EMBEDDED in the environment names: redis-server or fakeredis.

    Blocks:
        a few ms, to run the program with --version; 5 s if that hangs.

    Raises:
        ConfigError: SNOWREDIS_EMBEDDED is none of them.
        StoreUnavailable: there is none; it says how to install one.
    """
    finders = {"redis-server": _on_path, "fakeredis": _fakeredis}
    wanted = os.environ.get("SNOWREDIS_EMBEDDED")
    if wanted and wanted not in finders:
        raise ConfigError(f"SNOWREDIS_EMBEDDED={wanted!r} is unknown. Use one of {', '.join(finders)}, or unset it.")
    for name in [wanted] if wanted else finders:
        if kind := finders[name]():
            return kind
    oldest = ".".join(map(str, _OLDEST_VERSION))
    raise StoreUnavailable(
        "embedded://",
        f"SNOWREDIS_EMBEDDED={wanted} is not installed on this machine"
        if wanted
        else f"this machine has no redis-server of version {oldest} or later. Install one with apt install "
        "redis-server, brew install redis or pip install 'snowredis[fake]'",
    )


def ask(url: str, *words: str) -> bytes:
    """Send one command to the unix socket of *url* and return the first line of the reply, such as b"+PONG" or b":1".

    Does not use redis-py, whose import takes longer than the start of a redis-server.

    Raises:
        StoreUnavailable: no reply within 1 s.
    """
    request = f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(1.0)
            link.connect(unquote(urlsplit(url).path))
            link.sendall(request.encode("ascii"))
            return link.makefile("rb").readline().strip()
    except OSError as error:
        raise StoreUnavailable(url, str(error)) from as_cause(error)


# KEYS[1] is FRESH_KEY, KEYS[2] says since when data may be missing, and to which server. ARGV[1]: the identity of the
# last server; "new" if there was none and no process can have used one.
# Pools, registries and tags see a restart as a server that may have lost writes. This one has lost none if the last
# server wrote FRESH_KEY: then they get the new identity in place of that server's. Returns the new identity.
_CONTINUE = """
local id, wrote = identity(), redis.call('GET', KEYS[1])
if wrote == ARGV[1] then
  for _, key in ipairs(redis.call('KEYS', 'snowredis:*')) do
    if redis.call('TYPE', key)['ok'] == 'hash' then
      for _, field in ipairs({ 'run_id', 'identity' }) do
        if redis.call('HGET', key, field) == wrote then redis.call('HSET', key, field, id) end
      end
    end
  end
end
local now = redis.call('TIME')[1]
local since, known = string.match(redis.call('GET', KEYS[2]) or '', '^(%d+) (.*)$')
if known ~= ARGV[1] then since = now end
-- no outage lane is longer than 31 days
if wrote == ARGV[1] or ARGV[1] == 'new' or now - since > 2678400 then
  redis.call('SET', KEYS[1], id)
else
  redis.call('DEL', KEYS[1])
  redis.call('SET', KEYS[2], since .. ' ' .. id)
end
return { ok = id }
"""


def continue_from(url: str, last_identity: str) -> str:
    """Let the server at *url* continue what the server with *last_identity* wrote; return its own identity.

    *last_identity* is "new" if no other server can have granted anything.
    """
    # read as a file, since this package must not import servers/
    identity = resources.files("snowredis").joinpath("servers", "lua", "identity.lua").read_text("utf-8")
    reply = ask(url, "EVAL", f"{identity}\n{_CONTINUE}", "2", FRESH_KEY, MISSING_KEY, last_identity)
    if not reply.startswith(b"+"):
        raise StoreUnavailable(url, reply.decode(errors="replace"))
    return reply[1:].decode("ascii")


def is_ready(url: str) -> bool:
    """Return True if the server at *url* replies to PING within 1 s."""
    try:
        return ask(url, "PING") == b"+PONG"
    except StoreUnavailable:
        return False


def _on_path() -> ServerKind | None:
    for name in ("redis-server", "valkey-server"):
        if (program := shutil.which(name)) and (version := _version(program)):
            return ServerKind(program, version)
    return None


def _fakeredis() -> ServerKind | None:
    import importlib.metadata
    import importlib.util

    # without lupa it runs no scripts
    if importlib.util.find_spec("fakeredis") and importlib.util.find_spec("lupa"):
        return ServerKind("", importlib.metadata.version("fakeredis"))
    return None


def _version(program: str) -> str | None:
    """Return the version of *program*; None if it does not run on this machine or is too old."""
    silent = subprocess.DEVNULL
    try:
        output = subprocess.check_output([program, "--version"], stdin=silent, stderr=silent, text=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"v=((\d+)\.(\d+)[\d.]*)", output)
    return match[1] if match and (int(match[2]), int(match[3])) >= _OLDEST_VERSION else None
