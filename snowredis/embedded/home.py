"""The directory of an embedded server, and the directory beside it that has its lock files.

The server's files may be removed while processes use it: the locks are not among them, so that a second server cannot
start beside the first. The kernel releases each lock when the processes that hold it end, so no process that was killed
leaves a wrong state:

``start``       held while a process starts, joins or stops the server or looks for users; guards the other two
``users``       shared by all processes that use the server and their forked children, until they end
``supervisor``  held by the supervisor process until it ends; contains its state as JSON

Two files are no locks, and outlive all processes: the server's append-only file; and ``identity``, beside the locks,
the identity of the last server, which says whether the append-only file that a new server reads is the newest.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from snowredis.errors import ConfigError, StoreUnavailable, as_cause

try:
    import fcntl
except ImportError:
    # Windows: Home.make() refuses
    fcntl = None  # type: ignore[assignment]

# sun_path has 108 bytes on Linux, 104 on the BSDs and macOS, the last of them a NUL
_SOCKET_PATH_LIMIT = 107 if sys.platform == "linux" else 103
# longer than a start or an end can take: those have their own limits
_START_LOCK_LIMIT_S = 35.0

# directory -> file descriptor of its lock "users", open until the process ends
_users_fds: dict[Path, int] = {}


def wait_until(condition: Callable[[], bool], limit_s: float) -> bool:
    """Call *condition* every 10 ms until it returns True; return False after *limit_s*."""
    deadline_s = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.01)
    return True


class Home:
    """Directory of an embedded server, with its locks and files.

    Attributes:
        path, locks: the server's directory, and that of its locks, which has the same name with ``.lock``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.locks = Path(f"{path}.lock")
        self.socket = path / "redis.sock"
        self.log = path / "log"
        self._identity = self.locks / "identity"

    def __str__(self) -> str:
        return f"embedded://{self.path}"

    @classmethod
    def make(cls, directory: str | Path | None) -> Home:
        """Create both directories, by default those of this user, if missing. Raises ConfigError if unsafe."""
        if fcntl is None:
            raise ConfigError(
                "embedded:// does not work on this system, which has no fcntl: it was not started. Use the URL of a "
                "Redis, or snowredis.testing.memory_pool() in tests of one process."
            )
        home = cls(Path(directory or _default()).absolute())
        length = len(os.fsencode(home.socket))
        if length >= _SOCKET_PATH_LIMIT:
            raise ConfigError(
                f"the path {home.path} is too long: with the socket's name it has {length} bytes, of which a socket "
                f"allows fewer than {_SOCKET_PATH_LIMIT}. Name a shorter directory."
            )
        _make_directory(home.path)
        _make_directory(home.locks)
        return home

    def last_identity(self) -> str:
        """Return the identity of the last server; empty if there was none."""
        try:
            return self._identity.read_text("ascii")
        except FileNotFoundError:
            return ""

    def note_identity(self, identity: str) -> None:
        """Write the identity of the server that has started, durably."""
        new = self._identity.with_suffix(".new")
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:
            file.write(identity)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._identity)

    @contextlib.contextmanager
    def own_errors(self) -> Iterator[None]:
        """Raise StoreUnavailable for an OSError of the with block: a full or read-only file system, too many files."""
        try:
            yield
        except OSError as error:
            raise StoreUnavailable(str(self), f"its files cannot be used: {error}") from as_cause(error)

    @contextlib.contextmanager
    def start_lock(self, limit_s: float = _START_LOCK_LIMIT_S) -> Iterator[None]:
        """Hold the lock ``start`` in the with block. Blocks for *limit_s* at most, then raises StoreUnavailable."""
        with self._opened("start") as fd:
            if not wait_until(lambda: _try_lock(fd), limit_s):
                raise StoreUnavailable(str(self), "another process takes too long to start or stop it")
            try:
                yield
            finally:
                # close() alone would not release it: a child that another thread forked has a copy
                fcntl.flock(fd, fcntl.LOCK_UN)

    def is_held(self) -> bool:
        """Return True if this process, or one that it was forked from, is a user."""
        with self._opened("users") as fd:
            try:
                return os.path.sameopenfile(_users_fds[self.path], fd)
            except (KeyError, OSError):  # never held; or closed, as daemons close all files
                return False

    def hold_users(self) -> bool:
        """Make this process a user until it ends; return True if there was none before."""
        if self.is_held():
            return False
        fd = os.open(self.locks / "users", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        alone = _try_lock(fd)
        fcntl.flock(fd, fcntl.LOCK_SH)
        _users_fds[self.path] = fd
        return alone

    def release_users(self) -> None:
        """Make this process no user any more, after the server did not start."""
        os.close(_users_fds.pop(self.path))

    def has_users(self) -> bool:
        """Return True if a process uses the server. Call it with the start lock held."""
        with self._opened("users") as fd:
            return not _try_lock(fd)

    def supervisor(self) -> dict[str, Any] | None:
        """Return the state of the running supervisor: pid and kind, and url once the server replies.

        Empty if it has only just started; None if there is none.
        """
        with self._opened("supervisor") as fd:
            if _try_lock(fd):
                return None
            # the last whole line: another may be being written
            lines = os.read(fd, 16_384).split(b"\n")[:-1]
            state: dict[str, Any] = json.loads(lines[-1]) if lines else {}
            return state

    @contextlib.contextmanager
    def be_supervisor(self) -> Iterator[Callable[[dict[str, Any]], None]]:
        """Hold the lock ``supervisor``; yield a function that writes the state. BlockingIOError if it is held."""
        with self._opened("supervisor") as fd:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

            def write(state: dict[str, Any]) -> None:
                os.write(fd, json.dumps(state).encode() + b"\n")

            try:
                yield write
            finally:
                self.clear()

    def clear(self) -> None:
        """Remove the socket and the state that a killed server may have left."""
        self.socket.unlink(missing_ok=True)
        with self._opened("supervisor") as fd:
            os.ftruncate(fd, 0)

    def keep_young(self) -> None:
        """Keep programs that remove old files, such as those that clean /var/tmp, from removing the locks."""
        for file in self.locks.iterdir():
            # note_identity() may have renamed it
            with contextlib.suppress(FileNotFoundError):
                os.utime(file)

    @contextlib.contextmanager
    def _opened(self, name: str) -> Iterator[int]:
        fd = os.open(self.locks / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            yield fd
        finally:
            os.close(fd)


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"the directory {path} cannot be created: {error}") from as_cause(error)
    status = path.lstat()
    # a directory that others can write to could hold a socket of theirs
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise ConfigError(
            f"{path} is not safe for a server's socket and locks: it must be a directory, not a link, that belongs to "
            "this user and that nobody else can write to. Remove it, or name another directory."
        )


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _default() -> Path:
    # the same for all processes of a user, in any environment; its append-only file outlives a restart of the machine
    for temporary in ("/var/tmp", "/tmp"):  # noqa: S108  (make() refuses a directory of another user)
        if os.access(temporary, os.W_OK | os.X_OK):
            break
    return Path(temporary) / f"snowredis-{os.geteuid()}"
