"""The private redis-server of a chaos run: ended, frozen, wiped, restored from an old snapshot."""

from __future__ import annotations

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

PROGRAM = shutil.which("redis-server") or shutil.which("valkey-server")
# a busy machine starts a server within a second or two
START_LIMIT_S = 30.0


class Server:
    """On a unix socket; keeps nothing unless a fault saves it."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        if PROGRAM is None:
            raise SystemExit("no redis-server or valkey-server on PATH")
        self.directory = directory
        self.socket = directory / "redis.sock"
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None
        self._old = directory / "old.rdb"
        self._dump = directory / "dump.rdb"
        self.client = redis.Redis(
            unix_socket_path=str(self.socket),
            decode_responses=True,
            socket_timeout=5.0,
            retry=Retry(NoBackoff(), 0),
        )

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def start(self) -> None:
        """Start it, empty unless there is a dump, and wait until it answers."""
        arguments = ["--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.directory)]
        with (self.directory / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(PROGRAM), *arguments, "--save", "", "--appendonly", "no"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
            )
        deadline_s = time.monotonic() + START_LIMIT_S
        while True:
            try:
                self.client.ping()
                return
            except (redis.ConnectionError, redis.TimeoutError):
                if self._process.poll() is not None or time.monotonic() > deadline_s:
                    raise SystemExit((self.directory / "redis.log").read_text()[-2000:]) from None
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
        """Kill -9 and start: everything is gone."""
        self.kill()
        self._dump.unlink(missing_ok=True)
        self.start()

    def restore_old(self) -> None:
        """Kill -9 and start from a snapshot that is out of date."""
        self.kill()
        shutil.copyfile(self._old, self._dump)
        self.start()
        self._dump.unlink()
