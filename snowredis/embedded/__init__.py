"""A Redis server for development, tests and demos, shared by all processes of a user. Not for production.

The first process that needs the server starts it. It runs until stop(), and is reached only through ``embedded://``
URLs or this module. It writes each command to its append-only file before it replies, so a restart loses nothing.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, NamedTuple, Self
from urllib.parse import quote, unquote

from snowredis.errors import ConfigError, StoreUnavailable, as_cause
from snowredis.process.log import log

try:
    import fcntl
except ImportError:
    # Windows: start() refuses
    fcntl = None  # type: ignore[assignment]

__all__ = ["FRESH_KEY", "Server", "ServerKind", "find_server", "join", "resolve", "start", "stop"]

SOCKET = "redis.sock"
# the name until the server has FRESH_KEY
_NEW_SOCKET = "new.sock"
_PONG = b"+PONG\r\n"
# since when the server has everything, in s since 1970; 0 for the first of a directory. A flush removes it
FRESH_KEY = "snowredis:embedded:since"
# no outage lane is longer, so nothing older than this can be in use
_LONGEST_RESERVE_S = 31 * 86_400
# a busy machine starts a redis-server within 1 s, fakeredis within 5 s
_SILENCE_LIMIT_S = 15.0
_ATTEMPTS = 3
# the scripts need this version
_OLDEST_VERSION = (6, 2)
# sun_path has 108 bytes on Linux, 104 on the BSDs and macOS, the last of them a NUL
_SOCKET_PATH_LIMIT = 107 if sys.platform == "linux" else 103


class Server(NamedTuple):
    """A running embedded server.

    Attributes:
        url: for redis-py, ``unix:///…/redis.sock``.
        fresh: True if it has all that earlier servers of this directory wrote, or there was none. A pool that it does
            not have can then be created without the wait for its floor.
    """

    url: str
    fresh: bool


def start(directory: str | Path | None = None) -> Server:
    """Start the server of *directory*, or join the one that runs there. It goes on with what earlier ones stored.

    Args:
        directory: by default /var/tmp/snowredis-UID. Created with mode 700. The lock is beside it, in a file of the
            same name with ``.lock``.

    Raises:
        ConfigError: the directory is no directory, belongs to another user or can be written by others, or its path
            is too long for a socket.
        StoreUnavailable: no server program was found, or it did not start or reply in time; or the file system of the
            directory is full or read-only.

    Blocks:
        about 0.1 s to start, 1 ms to join; up to a minute if a server hangs, which is then killed and started again.
    """
    with _own_errors(directory) as home:
        _run(home)
        fresh = _is_fresh(home)
        # programs that clean /var/tmp remove what is old
        for path in (Path(f"{home}.lock"), *home.rglob("*")):
            with contextlib.suppress(FileNotFoundError):
                os.utime(path)
    return Server(f"unix://{quote(str(home / SOCKET))}", fresh)


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
    """End the server of *directory*, even if it is in use. Does nothing if none runs. What it stored is kept.

    Raises:
        ConfigError: the directory is not safe, as in start().
        StoreUnavailable: it could not be ended.

    Blocks:
        until it has ended, some 10 ms; 15 s at most.
    """
    with _own_errors(directory) as home, _Lock(home) as lock:
        if not lock.acquire():
            lock.kill_holder()
            _wait(lock.acquire)
        if not lock.acquire():
            raise StoreUnavailable(f"embedded://{home}", "it does not end")


def _run(home: Path) -> None:
    """Return when a server replies at the socket of *home*: the one that runs, or a new one."""
    attempts, heard_s = 0, time.monotonic()
    while (reply := _ask(home / SOCKET, "PING")) != _PONG:
        if reply or _make_visible(home):
            heard_s = time.monotonic()
        # the directory of a server that runs has a log, unless its files were removed
        silent_too_long = time.monotonic() - heard_s > (_SILENCE_LIMIT_S if (home / "log").exists() else 1.0)
        with _Lock(home) as lock:
            must_start = lock.acquire()
            if must_start or silent_too_long:
                if attempts == _ATTEMPTS:
                    raise StoreUnavailable(f"embedded://{home}", f"it does not start or reply; see {home / 'log'}")
                attempts, heard_s = attempts + 1, time.monotonic()
            if must_start:
                _start_program(home, lock)
            elif silent_too_long:
                # a server that hangs or has no files must not go on beside the next one
                lock.kill_holder()
        time.sleep(0.01)


def _start_program(home: Path, lock: _Lock) -> None:
    """Start a server, which holds *lock* until it ends."""
    program = find_server().program
    if not program:
        log.warning("%s: there is no redis-server, so fakeredis is used, which keeps nothing after its end", home)
    # Redis appends to a file without a manifest; programs that remove old files may leave one
    if not any((home / "appendonlydir").glob("*.manifest")):
        shutil.rmtree(home / "appendonlydir", ignore_errors=True)
    words = [program, "--port", "0", "--unixsocket", str(home / _NEW_SOCKET), "--unixsocketperm", "700"]
    words += ["--save", "", "--appendonly", "yes", "--appendfsync", "always"]
    words += ["--dir", str(home), "--logfile", str(home / "log"), "--daemonize", "no"]
    with (home / "log").open("ab") as output:
        lock.start_holder(words if program else _fake_command(home), output)


def _make_visible(home: Path) -> bool:
    """Give the socket of a new server its name when FRESH_KEY is written; return True if there is a new server."""
    reply = _ask(home / _NEW_SOCKET, "PING")
    if reply == _PONG:
        with _Lock(home) as lock:
            since_s = 0 if sum(pid > 0 for pid in lock.pids()) == 1 else int(time.time())
        if _ask(home / _NEW_SOCKET, "SET", FRESH_KEY, str(since_s), "NX"):
            # another process may have done it
            with contextlib.suppress(FileNotFoundError):
                (home / _NEW_SOCKET).rename(home / SOCKET)
    return bool(reply)


def _is_fresh(home: Path) -> bool:
    now_s = int(time.time())
    # fakeredis sends it in one line
    since_s = re.fullmatch(rb"(?:\$\d+\r\n|\+)(\d+)\r\n", _ask(home / SOCKET, "GET", FRESH_KEY))
    if since_s is None:
        # flushed
        _ask(home / SOCKET, "SET", FRESH_KEY, str(now_s), "NX")
    return since_s is not None and now_s - int(since_s[1]) > _LONGEST_RESERVE_S


def _ask(path: Path, *words: str) -> bytes:
    """Send one command to a unix socket; return a short reply, or nothing if there is none within 1 s.

    Does not use redis-py, whose import takes longer than the start of a redis-server.
    """
    request = f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as link:
        link.settimeout(1.0)
        link.connect(str(path))
        link.sendall(request.encode("ascii"))
        reply = link.makefile("rb")
        line = reply.readline()
        return line + reply.readline() if re.match(rb"\$\d", line) else line
    return b""


# --- the directory -------------------------------------------------------------------------------------


@contextlib.contextmanager
def _own_errors(directory: str | Path | None) -> Iterator[Path]:
    """Create the directory, by default that of this user, and yield it. Raises ConfigError if it is unsafe.

    Raises StoreUnavailable for an OSError of the with block: a full or read-only file system, too many files.
    """
    if fcntl is None:
        raise ConfigError(
            "embedded:// does not work on this system, which has no fcntl: it was not started. Use the URL of a Redis, "
            "or snowredis.testing.memory_pool() in tests of one process."
        )
    # the same for all processes of a user, in any environment; its append-only file outlives a restart of the machine
    temporary = "/var/tmp" if os.access("/var/tmp", os.W_OK | os.X_OK) else "/tmp"  # noqa: S108 - it is checked below
    home = Path(directory or f"{temporary}/snowredis-{os.geteuid()}").absolute()
    length = len(os.fsencode(home / SOCKET))
    if length >= _SOCKET_PATH_LIMIT:
        raise ConfigError(
            f"the path {home} is too long: with the socket's name it has {length} bytes, of which a socket "
            f"allows fewer than {_SOCKET_PATH_LIMIT}. Name a shorter directory."
        )
    try:
        with contextlib.suppress(FileExistsError):
            home.mkdir(mode=0o700, parents=True)
        status = home.lstat()
        # a directory that others can write to could hold a socket of theirs
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise ConfigError(
                f"{home} is not safe for a server's socket: it must be a directory, not a link, that belongs to this "
                "user and that nobody else can write to. Remove it, or name another directory."
            )
        yield home
    except OSError as error:
        raise StoreUnavailable(f"embedded://{home}", f"its files cannot be used: {error}") from as_cause(error)


# --- the program ---------------------------------------------------------------------------------------


class ServerKind(NamedTuple):
    """A server that can be started. str() describes it to people.

    Attributes:
        program: path of its binary; empty for fakeredis.
        version: such as "7.0.15".
    """

    program: str
    version: str

    def __str__(self) -> str:
        return (
            f"{Path(self.program).name} {self.version} ({self.program})"
            if self.program
            else f"fakeredis {self.version}"
        )


def find_server() -> ServerKind:
    """Find the server that start() would start: redis-server or valkey-server on PATH, else fakeredis.

    Blocks:
        a few ms, to run the program with --version; 5 s if that hangs.

    Raises:
        StoreUnavailable: there is none; it says how to install one.
    """
    if found := _on_path() or _fakeredis():
        return found
    raise StoreUnavailable(
        "embedded://",
        f"this machine has no redis-server of version {'.'.join(map(str, _OLDEST_VERSION))} or later. Install one with "
        "apt install redis-server, brew install redis or pip install 'snowredis[fake]'",
    )


def _on_path() -> ServerKind | None:
    for name in ("redis-server", "valkey-server"):
        if program := shutil.which(name):
            # one that does not run on this machine, or is too old, is none
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                silent = subprocess.DEVNULL
                said = subprocess.check_output([program, "--version"], stdin=silent, stderr=silent, timeout=5)
                match = re.search(r"v=((\d+)\.(\d+)[\d.]*)", said.decode())
                if match and (int(match[2]), int(match[3])) >= _OLDEST_VERSION:
                    return ServerKind(program, match[1])
    return None


def _fakeredis() -> ServerKind | None:
    import importlib.metadata
    import importlib.util

    # a frozen program has no Python to run it; without lupa it runs no scripts
    if not getattr(sys, "frozen", False) and importlib.util.find_spec("fakeredis") and importlib.util.find_spec("lupa"):
        return ServerKind("", importlib.metadata.version("fakeredis"))
    return None


def _fake_command(home: Path) -> list[str]:
    # the same packages as in this process, and none of the current directory
    code = "import sys; sys.path[:] = sys.argv[2:]; from snowredis.embedded.fake import serve; serve(sys.argv[1])"
    return [sys.executable, "-P", "-c", code, str(home / _NEW_SOCKET), *map(os.path.abspath, filter(None, sys.path))]


# --- the lock ------------------------------------------------------------------------------------------


# descriptors of locks in this process; a forked child closes its copies, which would hold the lock, too
_open_fds: set[int] = set()


class _Lock:
    """The lock of a server, which the kernel releases when the server has ended, in whatever way.

    The file is beside the directory, which may be removed while a server runs. It contains the pids of all servers.
    """

    def __init__(self, home: Path) -> None:
        self._path = f"{home}.lock"
        _close_in_child()
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        _open_fds.add(self._fd)

    def __enter__(self) -> Self:
        if os.fstat(self._fd).st_uid != os.geteuid():
            raise ConfigError(f"{self._path} belongs to another user. Remove it, or name another directory.")
        return self

    def __exit__(self, *_: object) -> None:
        _open_fds.discard(self._fd)
        os.close(self._fd)

    def acquire(self) -> bool:
        """Return True if no server has the lock; then this process has it until the with block ends."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # else another process made a new file meanwhile
            return os.path.samestat(os.fstat(self._fd), os.stat(self._path))
        except (BlockingIOError, FileNotFoundError):
            return False

    def pids(self) -> list[int]:
        """Return the pids of all servers so far; the last is 0 while a process starts one."""
        return [int(word) for word in os.pread(self._fd, 1 << 20, 0).split()]

    def start_holder(self, words: list[str], output: IO[bytes]) -> None:
        """Run a server, which has the lock until it ends. It is no child of this process."""
        os.write(self._fd, b"0\n")
        # a shell writes its pid into the file, and becomes the server; exec keeps the descriptor, and so the lock
        script = """exec /bin/sh -c 'echo $$ && exec "$0" "$@"' "$0" "$@" &"""
        subprocess.run(
            ["/bin/sh", "-c", script, *words],
            stdin=subprocess.DEVNULL,
            stdout=self._fd,
            stderr=output,
            start_new_session=True,
            check=True,
        )

    def kill_holder(self) -> None:
        """Kill the server that has the lock; what it acknowledged is on disk."""
        if any(pids := self.pids()) and pids[-1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pids[-1], signal.SIGKILL)


@functools.cache
def _close_in_child() -> None:
    def close() -> None:
        while _open_fds:
            os.close(_open_fds.pop())

    os.register_at_fork(after_in_child=close)


def _wait(until: Callable[[], bool]) -> None:
    end_s = time.monotonic() + _SILENCE_LIMIT_S
    while not until() and time.monotonic() < end_s:
        time.sleep(0.01)
