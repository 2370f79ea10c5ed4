"""A Redis server for development, tests and demos, shared by all processes of a user. Not for production.

The first process that needs the server starts it. It runs until stop(), and is reached only through ``embedded://``
URLs or this module. It writes each command to its append-only file before it replies, so a restart loses nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import quote, unquote

from snowredis.errors import ConfigError, StoreUnavailable, as_cause
from snowredis.process.fork import GUARD
from snowredis.process.log import log

try:
    import fcntl
except ImportError as error:
    raise ConfigError(f"embedded:// does not work on this system: {error}. Use the URL of a Redis.") from error

__all__ = ["FRESH_KEY", "Server", "find_server", "join", "start", "stop"]

SOCKET = "redis.sock"
# the first server of a directory has it from the start; a flush, or the loss of a file, removes it for good
FRESH_KEY = "snowredis:embedded:fresh"
# a busy machine starts a redis-server within 1 s, fakeredis within 5 s
_SILENCE_LIMIT_S = 15.0


class Server(NamedTuple):
    """A running embedded server.

    Attributes:
        url: for redis-py, ``unix:///…/redis.sock``.
        fresh: True if it has all that earlier servers of this directory wrote, or there was none. A pool that it never
            had can then be created without the wait for its floor.
    """

    url: str
    fresh: bool


def start(directory: str | Path | None = None) -> Server:
    """Start the server of *directory*, or join the one that runs there. It goes on with what earlier ones stored.

    Args:
        directory: by default /var/tmp/snowredis-UID. Created with mode 700. The lock is beside it, in a file of the
            same name with ``.lock``.

    Raises:
        ConfigError: the directory is no directory, belongs to another user or can be written by others.
        StoreUnavailable: no server program was found, or it did not start or reply in time; the path of the directory
            is too long for a socket; or its file system is full or read-only.

    Blocks:
        about 0.1 s to start, 1 ms to join; up to a minute if a server hangs, which is then killed and started again.
    """
    with _own_errors(directory) as home:
        _run(home)
        fresh = _ask(home / SOCKET, "EXISTS", FRESH_KEY) == b":1\r\n"
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


def stop(directory: str | Path | None = None) -> None:
    """End the server of *directory*, even if it is in use. Does nothing if none runs. What it stored is kept.

    Raises:
        ConfigError: the directory is not safe, as in start().
        StoreUnavailable: it could not be ended.

    Blocks:
        until it has ended, some 10 ms; 15 s at most.
    """
    with _own_errors(directory) as home, _Lock(home) as lock:
        for _ in range(1_500):
            if lock.acquire():
                return
            lock.kill_holder()
            time.sleep(0.01)
        raise StoreUnavailable(f"embedded://{home}", "it does not end")


def _run(home: Path) -> None:
    """Return when a server replies at the socket of *home*: the one that runs, or a new one."""
    attempts, heard_s = 0, time.monotonic()
    while (reply := _ask(home / SOCKET, "PING")) != b"+PONG\r\n":
        if reply:
            heard_s = time.monotonic()
        # the directory of a server that runs has a log, unless its files were removed
        is_silent = time.monotonic() - heard_s > (_SILENCE_LIMIT_S if (home / "log").exists() else 1.0)
        with _Lock(home) as lock:
            if (must_start := lock.acquire()) or is_silent:
                if attempts == 3:
                    raise StoreUnavailable(f"embedded://{home}", f"it does not start or reply; see {home / 'log'}")
                attempts, heard_s = attempts + 1, time.monotonic()
                # a server that hangs or has no files must not go on beside the next one
                _start_program(home, lock) if must_start else lock.kill_holder()
        time.sleep(0.01)


def _start_program(home: Path, lock: _Lock) -> None:
    """Start a server, which holds *lock* until it ends."""
    program, _ = find_server()
    is_first = not lock.pids() and not any(home.iterdir())
    if program == "fakeredis":
        log.warning("%s: there is no redis-server, so fakeredis is used, which keeps nothing after its end", home)
        (home / SOCKET).unlink(missing_ok=True)
        # the same packages as in this process, and none of the current directory
        path = [*map(os.path.abspath, filter(None, sys.path))]
        code = (
            f"import sys; sys.path[:] = {path!r}; from snowredis.embedded import serve_fake; serve_fake(*sys.argv[1:])"
        )
        words = [sys.executable, "-P", "-c", code, str(home / SOCKET), *[FRESH_KEY] * is_first]
    else:
        if is_first:
            (home / "appendonly.aof").write_bytes(_command("SET", FRESH_KEY, "1"))
        # Redis appends to a file without a manifest; programs that remove old files may leave one
        if not any((home / "appendonlydir").glob("*.manifest")):
            shutil.rmtree(home / "appendonlydir", ignore_errors=True)
        words = [program, "--port", "0", "--unixsocket", str(home / SOCKET), "--unixsocketperm", "700"]
        words += ["--save", "", "--appendonly", "yes", "--appendfsync", "always"]
        words += ["--dir", str(home), "--logfile", str(home / "log"), "--daemonize", "no"]
    lock.start_holder(home, words)


def find_server() -> tuple[str, str]:
    """Return name and version of what start() runs: redis-server or valkey-server on PATH, else fakeredis.

    Blocks:
        a few ms, to run the program with --version; 5 s if that hangs.

    Raises:
        StoreUnavailable: there is none; it says how to install one.
    """
    from importlib import metadata, util

    for name in ("redis-server", "valkey-server"):
        # one that does not run on this machine, or is too old, is none
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            silent = subprocess.DEVNULL
            said = subprocess.check_output([name, "--version"], stdin=silent, stderr=silent, timeout=5, text=True)
            found = re.search(r"v=((\d+)\.(\d+)[\d.]*)", said)
            if found and (int(found[2]), int(found[3])) >= (6, 2):
                return name, found[1]
    # a frozen program has no Python to run it; without lupa it runs no scripts
    if not getattr(sys, "frozen", False) and all(map(util.find_spec, ("fakeredis", "lupa"))):
        return "fakeredis", metadata.version("fakeredis")
    raise StoreUnavailable(
        "embedded://",
        "this machine has no redis-server of version 6.2 or later, which the scripts need. Install one with apt "
        "install redis-server, brew install redis or pip install 'snowredis[fake]'",
    )


def _command(*words: str) -> bytes:
    return (f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)).encode("ascii")


def _ask(path: Path, *words: str) -> bytes:
    """Send one command to a unix socket; return a line, or nothing if there is none within 1 s.

    Does not use redis-py, whose import takes longer than the start of a redis-server.
    """
    # another OSError says that the path is too long
    with contextlib.suppress(ConnectionError, FileNotFoundError, TimeoutError), socket.socket(socket.AF_UNIX) as link:
        link.settimeout(1.0)
        link.connect(str(path))
        link.sendall(_command(*words))
        return link.makefile("rb").readline()
    return b""


# --- the directory -------------------------------------------------------------------------------------


@contextlib.contextmanager
def _own_errors(directory: str | Path | None) -> Iterator[Path]:
    """Create the directory, by default that of this user, and yield it. Raises ConfigError if it is unsafe.

    Raises StoreUnavailable for an OSError of the with block: a full or read-only file system, too many files.
    """
    # the same for all processes of a user, in any environment; its append-only file outlives a restart of the machine
    temporary = "/var/tmp" if os.access("/var/tmp", os.W_OK | os.X_OK) else "/tmp"  # noqa: S108 - it is checked below
    home = Path(directory or f"{temporary}/snowredis-{os.geteuid()}").absolute()
    try:
        with contextlib.suppress(FileExistsError):
            home.mkdir(mode=0o700, parents=True)
        status = home.lstat()
        # a directory that others can write to could hold a socket of theirs
        if home.is_symlink() or not home.is_dir() or status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise ConfigError(
                f"{home} is not safe for a server's socket: it must be a directory, not a link, that belongs to this "
                "user and that nobody else can write to. Remove it, or name another directory."
            )
        yield home
    except OSError as error:
        raise StoreUnavailable(f"embedded://{home}", f"its files cannot be used: {error}") from as_cause(error)


# --- the lock ------------------------------------------------------------------------------------------


class _Lock:
    """The lock of a server, which the kernel releases when the server has ended, in whatever way.

    The file is beside the directory, which may be removed while a server runs. It contains the pids of all servers.
    """

    def __init__(self, home: Path) -> None:
        self._path = f"{home}.lock"
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        # a copy of the descriptor would hold the lock, too
        GUARD.reset_in_child(self)

    def __enter__(self) -> Self:
        if os.fstat(self._fd).st_uid != os.geteuid():
            raise ConfigError(f"{self._path} belongs to another user. Remove it, or name another directory.")
        return self

    def __exit__(self, *_: object) -> None:
        fd, self._fd = self._fd, -1
        with contextlib.suppress(OSError):
            os.close(fd)

    _after_fork = __exit__

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

    def start_holder(self, home: Path, words: list[str]) -> None:
        """Run a server, which has the lock until it ends. It is no child of this process."""
        os.write(self._fd, b"0\n")
        # a shell writes its pid into the file, and becomes the server; exec keeps the descriptor, and so the lock
        script = """exec /bin/sh -c 'echo $$ && exec "$0" "$@" 2>>log' "$0" "$@" &"""
        command, quiet = ["/bin/sh", "-c", script, *words], subprocess.DEVNULL
        subprocess.run(command, cwd=home, stdin=quiet, stdout=self._fd, start_new_session=True, check=True)

    def kill_holder(self) -> None:
        """Kill the server that has the lock; what it acknowledged is on disk."""
        if any(pids := self.pids()) and pids[-1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pids[-1], signal.SIGKILL)


# --- fakeredis in place of a redis-server: threads of a process of its own. It keeps nothing -------------


def serve_fake(path: str, *keys: str) -> None:
    """Serve at the unix socket *path*, which only this user can reach, until this process is killed.

    Args:
        keys: those that are there before the first client.
    """
    from fakeredis import FakeRedis, TcpFakeServer

    class UnixFakeServer(TcpFakeServer):
        address_family = socket.AF_UNIX

        def get_request(self) -> tuple[socket.socket, object]:
            connection, _ = super().get_request()
            # fakeredis tells connections apart by their addresses
            return connection, (path, connection.fileno())

    install_info()
    # the mode of the socket
    os.umask(0o077)
    # a path in place of host and port, as the address family has it
    server = UnixFakeServer(path, server_version=(7, 0, 0))  # type: ignore[arg-type]
    for key in keys:
        FakeRedis(server=server.fake_server).set(key, 1)
    server.serve_forever()


def install_info() -> None:
    """Add ``INFO`` to every fakeredis server of this process.

    It is the one command that the Lua scripts need and fakeredis does not have. It is registered as fakeredis registers
    its own commands, so that clients and scripts can use it, in process and over TCP.

    The reply has ``redis_version``, ``run_id`` and ``master_replid``, whatever section is requested. Both ids are
    one random text, the same for all calls on one ``FakeServer``. Servers may be created before or after the call.

    Raises:
        ImportError: fakeredis is not installed, or its registry of commands has moved.
    """
    from fakeredis._commands import command
    from fakeredis.commands_mixins.server_mixin import ServerCommandsMixin

    def info(self: ServerCommandsMixin, *_sections: bytes) -> bytes:
        # setdefault is atomic: two threads get the same id
        identity = vars(self._server).setdefault("_snowredis_id", secrets.token_hex(20))
        version = ".".join(str(part) for part in (*self._server.version, 0, 0)[:3])
        return (
            f"# Server\r\nredis_version:{version}\r\nredis_mode:standalone\r\nrun_id:{identity}\r\n"
            f"# Replication\r\nrole:master\r\nmaster_replid:{identity}\r\n"
        ).encode()

    # the method is added before the command, so that a thread that finds the command finds the method
    ServerCommandsMixin.info = info  # type: ignore[attr-defined]
    command((), (bytes,))(info)
