"""A private PgBouncer in transaction mode before a private PostgreSQL, on a unix socket."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.support.databases import START_LIMIT_S, MissingDatabase, PostgreSQL, program
from tests.support.programs import in_background
from tests.support.waiting import eventually

# a part of the name of the socket
_PORT = 6432
_SETTINGS = """[databases]
* = host={server}
[pgbouncer]
listen_addr =
listen_port = {port}
unix_socket_dir = {directory}
auth_type = trust
auth_file = {directory}/users
pool_mode = transaction
default_pool_size = {size}
"""


@contextlib.contextmanager
def pgbouncer(server: PostgreSQL, size: int = 2) -> Iterator[Path]:
    """Run a pooler; yield the directory of its socket, for pooled().

    Args:
        size: sessions of the server that all clients of a database share.

    Raises:
        MissingDatabase: on entering, where it is not installed.
    """
    import psycopg

    pooler = program("pgbouncer")
    if pooler is None:
        raise MissingDatabase("no PgBouncer is installed")
    with tempfile.TemporaryDirectory(prefix="pgb") as name:
        directory, settings = Path(name), Path(name, "pgbouncer.ini")
        settings.write_text(_SETTINGS.format(server=server.directory, port=_PORT, directory=directory, size=size))
        (directory / "users").write_text('"postgres" ""\n"app" ""\n')
        options = server.process_options
        if "user" in options:
            os.chown(directory, options["user"], options["group"])
        log = directory / "log"
        with in_background([pooler, "-q", settings], log, **server.process_options) as process:

            def replies() -> bool:
                assert process.poll() is None, log.read_text(errors="replace")
                psycopg.connect(host=name, port=_PORT, user="postgres", dbname="postgres").close()
                return True

            eventually(replies, "a reply of PgBouncer", START_LIMIT_S, ignored=(psycopg.OperationalError,))
            yield directory


def pooled(directory: Path, database: str) -> str:
    """Return the URL of a database through the pooler of pgbouncer()."""
    return f"postgresql+psycopg://postgres@/{database}?host={directory}&port={_PORT}"
