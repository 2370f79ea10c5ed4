"""Private PostgreSQL, MariaDB and SQLite for tests and scripts: unix sockets in a directory of their own, no network.

Each server makes new databases: `with postgresql() as server: url = server.new_database()`. Nothing is synced to the
disk: data survives a kill of the server, not of the machine.
"""

import contextlib
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from tests.support.waiting import eventually

# a busy machine starts a server within a few seconds
START_LIMIT_S = 30.0
# directories that are not on every PATH
_SBIN = "/usr/sbin:/usr/local/sbin"


def program(name: str) -> str | None:
    """Return the path of a program that may be in a directory for administrators; None if it is not installed."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{_SBIN}")


class MissingDatabase(Exception):
    """The server or its driver is not installed, or does not work on this machine."""


class DatabaseServer(Protocol):
    """A server that new databases can be made on; SQLite counts as one."""

    name: str

    def new_database(self, name: str | None = None) -> str:
        """Create an empty database and return its SQLAlchemy URL."""


class Sqlite:
    """Directory of SQLite files."""

    name = "sqlite"

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._numbers = itertools.count(1)

    def new_database(self, name: str | None = None) -> str:
        """Return the URL of a file that does not exist yet."""
        return f"sqlite:///{self.directory / (name or f'test{next(self._numbers)}')}.db"


class _Server:
    """One server process, its data and its socket in *directory*.

    Attributes:
        pid: of the server, while it runs.
        process_options: of Popen, for programs that use its files.
    """

    name: str
    _stop_signal: signal.Signals
    _crash_signal = signal.SIGKILL
    _unready: tuple[type[Exception], ...]

    def __init__(self, directory: Path, settings: Sequence[str]) -> None:
        self.directory, self._settings = directory, settings
        self._numbers = itertools.count(1)
        self.process_options: dict[str, Any] = {"cwd": directory, "stdin": subprocess.DEVNULL}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def url(self, database: str) -> str:
        raise NotImplementedError

    def _command(self) -> list[str | Path]:
        raise NotImplementedError

    def _execute(self, statement: str) -> None:
        raise NotImplementedError

    def start(self) -> None:
        """Start the server and wait until it replies."""
        log = self.directory / "log"
        with log.open("ab") as output:
            self._process = process = subprocess.Popen(
                [*self._command(), *self._settings], stdout=output, stderr=output, **self.process_options
            )

        def replies() -> bool:
            assert process.poll() is None, log.read_text(errors="replace")
            self._execute("SELECT 1")
            return True

        eventually(replies, f"a reply of {self.name}", START_LIMIT_S, ignored=self._unready)

    def stop(self) -> None:
        """Stop the server; clients are disconnected."""
        self.kill(self._stop_signal)

    def crash(self) -> None:
        """End the server at once, as a crash does; start() recovers what was committed."""
        self.kill(self._crash_signal)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to the server and wait for its end; start() recovers the data."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)
            self._process.wait(START_LIMIT_S)
            self._process = None

    def new_database(self, name: str | None = None) -> str:
        """Create an empty database and return its SQLAlchemy URL."""
        name = name or f"test{next(self._numbers)}"
        self._execute(f"CREATE DATABASE {name}")
        return self.url(name)


class PostgreSQL(_Server):
    """Private PostgreSQL; user and first database are called postgres. As root it runs as the user nobody."""

    name = "postgresql"
    _stop_signal = signal.SIGINT  # fast shutdown
    # immediate shutdown, without a checkpoint; after SIGKILL its children would outlive it
    _crash_signal = signal.SIGQUIT

    def __init__(self, directory: Path, settings: Sequence[str] = ()) -> None:
        import psycopg

        super().__init__(directory, [word for setting in settings for word in ("-c", setting)])
        self._unready = (psycopg.OperationalError,)
        found = [*Path("/usr/lib/postgresql").glob("*/bin/initdb"), *filter(None, [shutil.which("initdb")])]
        if not found:
            raise MissingDatabase("no PostgreSQL server is installed: no initdb on PATH or in /usr/lib/postgresql")
        self._programs = Path(max(map(str, found))).parent
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self.process_options |= {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            os.chown(directory, nobody.pw_uid, nobody.pw_gid)
        options = ["--no-sync", "--no-locale", "-E", "UTF8", "-A", "trust", "-U", "postgres", "-D", "data"]
        _create_data([self._programs / "initdb", *options], self.process_options)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql+psycopg://postgres@/{database}?host={self.directory}"

    def _command(self) -> list[str | Path]:
        settings = ("listen_addresses=", "fsync=off", "shared_buffers=16MB", "max_prepared_transactions=50")
        words = [word for setting in settings for word in ("-c", setting)]
        return [self._programs / "postgres", "-D", "data", "-k", self.directory, *words]

    def _execute(self, statement: str) -> None:
        import psycopg

        with psycopg.connect(host=str(self.directory), user="postgres", dbname="postgres", autocommit=True) as client:
            client.execute(statement.encode())


class MariaDB(_Server):
    """Private MariaDB; its user is called root and has no password."""

    name = "mariadb"
    _stop_signal = signal.SIGTERM

    def __init__(self, directory: Path, settings: Sequence[str] = ()) -> None:
        import pymysql

        super().__init__(directory, [f"--{setting}" for setting in settings])
        self._unready = (pymysql.OperationalError,)
        server, install = program("mariadbd"), program("mariadb-install-db")
        if server is None or install is None:
            raise MissingDatabase("no MariaDB server is installed: mariadbd and mariadb-install-db are not on PATH")
        self._program = server
        # debug-no-sync: 0.6 s instead of 6. A server that starts removes the temporary tables that are in its tmpdir
        self._common = [f"--datadir={directory / 'data'}", "--innodb-log-file-size=4M", "--debug-no-sync"]
        self._common.append(f"--tmpdir={directory}")
        if os.geteuid() == 0:
            self._common.append("--user=root")
        _create_data(
            [install, "--no-defaults", *self._common] + ["--auth-root-authentication-method=normal", "--skip-test-db"],
            self.process_options,
        )

    @property
    def socket(self) -> Path:
        return self.directory / "mariadb.sock"

    def url(self, database: str) -> str:
        # without TLS, whose setup takes 25 ms of each connection, and which a unix socket does not need
        return f"mariadb+pymysql://root@localhost/{database}?unix_socket={self.socket}&charset=utf8mb4&ssl_disabled=1"

    def _command(self) -> list[str | Path]:
        private = [f"--socket={self.socket}", "--skip-networking", f"--pid-file={self.directory / 'pid'}"]
        small = ["--innodb-buffer-pool-size=32M", "--character-set-server=utf8mb4"]
        return [self._program, "--no-defaults", *self._common, *private, *small]

    def _execute(self, statement: str) -> None:
        import pymysql

        with (
            contextlib.closing(pymysql.connect(unix_socket=str(self.socket), user="root", ssl_disabled=True)) as client,
            client.cursor() as cursor,
        ):
            cursor.execute(statement)


def _create_data(command: Sequence[str | Path], options: dict[str, Any]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, **options)
    if done.returncode:
        raise MissingDatabase(f"{Path(command[0]).name} does not work here: {done.stderr[-300:]}")


@contextlib.contextmanager
def _running(kind: type[PostgreSQL | MariaDB], settings: Sequence[str]) -> Iterator[Any]:
    # tmp_path of root is closed to the user that PostgreSQL runs as, and its name is too long for a socket
    with tempfile.TemporaryDirectory(prefix="db", dir=memory_directory(4 << 30)) as directory:
        try:
            server = kind(Path(directory), settings)
        except ImportError as error:
            raise MissingDatabase(f"no driver for {kind.name}: {error.name} is not installed") from error
        try:
            server.start()
            yield server
        finally:
            # its data is removed, and an orderly end takes seconds
            server.crash()


def postgresql(*settings: str) -> contextlib.AbstractContextManager[PostgreSQL]:
    """Run a private PostgreSQL, with settings such as "shared_buffers=128MB".

    Raises:
        MissingDatabase: on entering, where it or its driver is not installed.
    """
    return _running(PostgreSQL, settings)


def mariadb(*settings: str) -> contextlib.AbstractContextManager[MariaDB]:
    """Run a private MariaDB, with settings such as "innodb-buffer-pool-size=128M".

    Raises:
        MissingDatabase: on entering, where it or its driver is not installed.
    """
    return _running(MariaDB, settings)


@contextlib.contextmanager
def sqlite() -> Iterator[Sqlite]:
    """Make SQLite databases in a temporary directory; in memory if the system can, since every commit is synced."""
    with tempfile.TemporaryDirectory(prefix="db", dir=memory_directory(0)) as directory:
        yield Sqlite(Path(directory))


def memory_directory(free_bytes: int) -> Path | None:
    """Return a directory in memory, if the system has one with as much space: a database of PostgreSQL has 8 MB."""
    memory = Path("/dev/shm")
    has_space = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free >= free_bytes
    return memory if has_space else None


# by the name that tests and scripts use
SERVERS: dict[str, Callable[[], contextlib.AbstractContextManager[DatabaseServer]]] = {
    "sqlite": sqlite,
    "postgresql": postgresql,
    "mariadb": mariadb,
}
