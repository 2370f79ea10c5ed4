"""A streaming replica of the private PostgreSQL of the tests."""

import contextlib
import copy
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.support.databases import MissingDatabase, PostgreSQL


@contextlib.contextmanager
def replica_of(server: PostgreSQL) -> Iterator[PostgreSQL]:
    """Run a replica, which has the databases of *server* under the same names.

    Raises:
        MissingDatabase: on entering, where pg_basebackup is not installed.
    """
    program = shutil.which("pg_basebackup", path=f"{server._programs}:{os.environ.get('PATH', '')}")
    if program is None:
        raise MissingDatabase("no pg_basebackup is installed")
    with tempfile.TemporaryDirectory(prefix="db") as name:
        replica = copy.copy(server)
        replica.directory, replica._process = Path(name), None
        replica.process_options = {**server.process_options, "cwd": name}
        if "user" in replica.process_options:
            os.chown(name, replica.process_options["user"], replica.process_options["group"])
        options = ["-h", str(server.directory), "-U", "postgres", "-D", "data", "-R", "-c", "fast", "--no-sync"]
        subprocess.run([program, *options], check=True, capture_output=True, timeout=120, **replica.process_options)
        try:
            replica.start()
            yield replica
        finally:
            replica.crash()
