"""Private redis-server of a chaos run, which can be stopped, frozen, wiped, restored and replaced.

Whoever looks for it finds it at one socket path. Another server takes its place there by a rename, as a DNS name
or a virtual address moves: connections that are there stay with the old one, which is killed.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.ports import free_port

PROGRAM = shutil.which("redis-server") or shutil.which("valkey-server")
# a busy machine starts a server within a second or two
START_LIMIT_S = 30.0


class Server:
    """redis-server on a unix socket; saves nothing unless a fault does. *hidden*: without the command INFO."""

    def __init__(self, directory: Path, environment: Mapping[str, str], *, hidden: bool = False) -> None:
        if PROGRAM is None:
            raise SystemExit("no redis-server or valkey-server on PATH")
        self.directory = directory
        self.socket = directory / "redis.sock"
        self._environment = {**os.environ, **environment}
        self._hidden = ["--rename-command", "INFO", ""] if hidden else []
        self._process: subprocess.Popen[bytes] | None = None
        # the one that is to take its place
        self._standby: subprocess.Popen[bytes] | None = None
        self._standby_socket = directory / "next.sock"
        # where a replica reads what it is to copy
        self._port = self._standby_port = free_port()
        self._old = directory / "old.rdb"
        self._dump = self._standby_dump = directory / "dump.rdb"
        self._numbers = itertools.count()
        self.client = _client(self.socket)

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def start(self) -> None:
        """Start it, empty unless there is a dump, and wait until it answers."""
        self._process = self._run(self.socket, self._port, self._dump)

    def _run(self, path: Path, port: int, dump: Path, *options: str) -> subprocess.Popen[bytes]:
        arguments = ["--bind", "127.0.0.1", "--port", str(port), "--unixsocket", str(path)]
        arguments += ["--dir", str(self.directory), "--dbfilename", dump.name]
        arguments += ["--save", "", "--appendonly", "no", *self._hidden, *options]
        log_path = self.directory / "redis.log"
        with log_path.open("ab") as log:
            process = subprocess.Popen(
                [str(PROGRAM), *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment
            )
        client = self.client if path == self.socket else _client(path)
        deadline_s = time.monotonic() + START_LIMIT_S
        while True:
            try:
                client.ping()
                return process
            except (redis.ConnectionError, redis.TimeoutError):
                if process.poll() is not None or time.monotonic() > deadline_s:
                    raise SystemExit(log_path.read_text()[-2000:]) from None
                time.sleep(0.005)

    def signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._gone()

    def shutdown(self, *, save: bool) -> None:
        self._dump.unlink(missing_ok=True)
        try:
            self.client.execute_command("SHUTDOWN", "SAVE" if save else "NOSAVE")
        except redis.ConnectionError:
            # that is its answer
            self._gone()
        else:
            self.kill()

    def _gone(self) -> None:
        assert self._process is not None
        self._process.wait(30)
        self._process = None
        self.socket.unlink(missing_ok=True)
        self.client.connection_pool.disconnect()

    def keep_snapshot(self) -> None:
        """Write the snapshot that restore_old() comes back to."""
        self.client.save()
        self._dump.replace(self._old)

    def restart_empty(self) -> None:
        """Kill with -9 and start again, empty."""
        self.kill()
        self._dump.unlink(missing_ok=True)
        self.start()

    def restore_old(self) -> None:
        """Kill with -9 and start again from an old snapshot."""
        self.kill()
        shutil.copyfile(self._old, self._dump)
        self.start()
        self._dump.unlink()

    # --- another server in its place ---------------------------------------------------------------

    def start_replica(self) -> None:
        """Start a replica of this server; it has run for a while when it is promoted."""
        self._start_standby("--replicaof", "127.0.0.1", str(self._port))

    def start_from_backup(self) -> None:
        """Start a server that has read the old snapshot."""
        self._start_standby(backup=True)

    def _start_standby(self, *options: str, backup: bool = False) -> None:
        # a file of its own: a replica writes what it copies there
        self._standby_dump = self.directory / f"{next(self._numbers)}.rdb"
        self._standby_port = free_port()
        if backup:
            shutil.copyfile(self._old, self._standby_dump)
        self._standby = self._run(self._standby_socket, self._standby_port, self._standby_dump, *options)
        self._standby_dump.unlink(missing_ok=True)

    def promote(self) -> None:
        """Promote the replica: from now on, writes to the old master are lost."""
        _client(self._standby_socket).replicaof("NO", "ONE")

    def move(self) -> None:
        """Move the address to the other server; the old one no longer answers."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait(30)
        self._standby_socket.replace(self.socket)
        self._process, self._standby = self._standby, None
        self._port, self._dump = self._standby_port, self._standby_dump
        self._dump.unlink(missing_ok=True)
        self.client.connection_pool.disconnect()

    def end(self) -> None:
        if self._standby is not None:
            self._standby.kill()
            self._standby.wait(30)
        self.kill()


def _client(path: Path) -> redis.Redis:
    return redis.Redis(
        unix_socket_path=str(path), decode_responses=True, socket_timeout=5.0, retry=Retry(NoBackoff(), 0)
    )
