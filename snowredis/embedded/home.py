"""The directory of an embedded server: is it safe, and who uses what is in it.

Every question is answered by a lock that the kernel drops when its holder ends, never by a
pid or a file that a killed process leaves behind:

``start``       held by who starts, joins, stops or counts users; all below happens under it
``users``       shared by all using processes and their forked children until they end
``supervisor``  held by the supervisor as long as it lives; its state as JSON

Beside them ``reserved``, see embedded.reserved: that one has to outlive everybody.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from snowredis.embedded.reserved import Reserved
from snowredis.errors import ConfigError, StoreUnavailable

# sun_path has 108 bytes on Linux, 104 on the BSDs and macOS, the last of them a NUL
_SOCKET_PATH_LIMIT = 107 if sys.platform == "linux" else 103
# longer than any start or end can take, each with its own limit
_START_LOCK_LIMIT_S = 35.0

# open until the process ends: that is what makes it a user
_users_fds: dict[Path, int] = {}


def wait_until(condition: Callable[[], bool], limit_s: float) -> bool:
    """Ask every 10 ms; False if it did not come true in *limit_s*."""
    deadline_s = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.01)
    return True


class Home:
    """The directory, its locks and its files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket = path / "redis.sock"
        self.log = path / "log"
        self.reserved = Reserved(path / "reserved")

    def __str__(self) -> str:
        return f"embedded://{self.path}"

    @classmethod
    def make(cls, directory: str | Path | None) -> Home:
        """The directory, or the default one if None, made if need be. Raises ConfigError if it is not safe."""
        import stat

        home = cls(Path(directory or _default()).absolute())
        length = len(os.fsencode(home.socket))
        if length >= _SOCKET_PATH_LIMIT:
            raise ConfigError(
                f"{home.path} is too long: the path of the socket in it would have {length} bytes, and "
                f"has to stay under {_SOCKET_PATH_LIMIT}. Name a shorter directory."
            )
        try:
            home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{home.path} cannot be made a directory: {error}") from error
        found = home.path.lstat()
        # 022: others could put a socket of their own there
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise ConfigError(
                f"{home.path} is no safe place for a server's socket: it has to be a directory, not a link, "
                f"of this user, that nobody else may write to. Remove it, or name another directory."
            )
        return home

    @contextlib.contextmanager
    def start_lock(self, limit_s: float = _START_LOCK_LIMIT_S) -> Iterator[None]:
        with self._opened("start") as fd:
            if not wait_until(lambda: _try_lock(fd), limit_s):
                raise StoreUnavailable(str(self), "another process takes too long to start or end it")
            try:
                yield
            finally:
                # not left to close(): a child that another thread forks meanwhile has a copy
                fcntl.flock(fd, fcntl.LOCK_UN)

    def is_held(self) -> bool:
        """Whether this process, or one that it was forked from, is a user."""
        with self._opened("users") as fd:
            try:
                return os.path.sameopenfile(_users_fds[self.path], fd)
            except (KeyError, OSError):  # never held; closed by code that makes a daemon
                return False

    def hold_users(self) -> bool:
        """Be a user until the end of the process; True if nobody was, this process included."""
        if self.is_held():
            return False
        fd = os.open(self.path / "users", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        alone = _try_lock(fd)
        fcntl.flock(fd, fcntl.LOCK_SH)
        _users_fds[self.path] = fd
        return alone

    def release_users(self) -> None:
        """Be none any more: the server did not start."""
        os.close(_users_fds.pop(self.path))

    def has_users(self) -> bool:
        with self._opened("users") as fd:
            return not _try_lock(fd)

    def supervisor(self) -> dict[str, Any] | None:
        """The state of the living supervisor: pid, and once the server answers, url and kind.

        Empty if it has only just begun; None if there is none.
        """
        import json

        with self._opened("supervisor") as fd:
            if _try_lock(fd):
                return None
            # the last whole line: it may be writing
            lines = os.read(fd, 16_384).split(b"\n")[:-1]
            state: dict[str, Any] = json.loads(lines[-1]) if lines else {}
            return state

    @contextlib.contextmanager
    def be_supervisor(self) -> Iterator[Callable[[dict[str, Any]], None]]:
        """Hold that lock; gives the function that writes the state. Raises BlockingIOError if there is one."""
        import json

        with self._opened("supervisor") as fd:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

            def write(state: dict[str, Any]) -> None:
                os.write(fd, json.dumps(state).encode() + b"\n")

            try:
                yield write
            finally:
                self.clear()

    def clear(self) -> None:
        """Remove what a server that has ended may have left."""
        self.socket.unlink(missing_ok=True)
        with self._opened("supervisor") as fd:
            os.ftruncate(fd, 0)

    @contextlib.contextmanager
    def _opened(self, name: str) -> Iterator[int]:
        fd = os.open(self.path / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            yield fd
        finally:
            os.close(fd)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _default() -> Path:
    # one for all processes of a user, whatever their environment says; it outlives a restart of the machine, as the
    # bound in it should
    for temporary in ("/var/tmp", "/tmp"):  # noqa: S108  (make() refuses a directory of somebody else)
        if os.access(temporary, os.W_OK | os.X_OK):
            break
    return Path(temporary) / f"snowredis-{os.geteuid()}"
