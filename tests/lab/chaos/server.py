"""Private redis-server of a chaos run, which can be stopped, frozen, wiped, restored and replaced.

Whoever looks for it finds it at one socket path, a link. Another server takes its place there by a rename, as a DNS
name or a virtual address moves: connections that are there stay with the old one, which is killed.
"""

import contextlib
import itertools
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.ports import free_port
from tests.support.servers import PROGRAM, RedisServer


class Server:
    """redis-server on a unix socket; saves nothing unless a fault does. *hidden*: without the command INFO."""

    def __init__(self, directory: Path, environment: Mapping[str, str], *, hidden: bool = False) -> None:
        if PROGRAM is None:
            raise SystemExit("no redis-server or valkey-server on PATH")
        self.directory = directory
        self.socket = directory / "redis.sock"
        self._environment = environment
        self._hidden = ("--rename-command", "INFO", "") if hidden else ()
        self._old = directory / "old.rdb"
        self._numbers = itertools.count()
        # where a replica reads what it is to copy
        self._ports: dict[Path, int] = {}
        self._current = self._new()
        # the one that is to take its place
        self._standby: RedisServer | None = None
        self.client = redis.Redis(
            unix_socket_path=str(self.socket), decode_responses=True, socket_timeout=5.0, retry=Retry(NoBackoff(), 0)
        )

    def _new(self) -> RedisServer:
        directory = self.directory / str(next(self._numbers))
        directory.mkdir()
        self._ports[directory] = free_port()
        options = ("--bind", "127.0.0.1", "--port", str(self._ports[directory]), *self._hidden)
        return RedisServer(directory, *options, environment=self._environment)

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def _dump(self) -> Path:
        return self._current.directory / "dump.rdb"

    def start(self) -> None:
        """Start it, empty unless there is a dump, and wait until it answers."""
        self._current.start()
        self._lead_to_current()

    def _lead_to_current(self) -> None:
        link = self.directory / "next.sock"
        link.symlink_to(self._current.socket)
        link.replace(self.socket)

    def signal(self, number: int) -> None:
        self._current.kill(number)

    def kill(self) -> None:
        self._current.kill(signal.SIGCONT)
        self._current.kill()
        self.client.connection_pool.disconnect()

    def shutdown(self, *, save: bool) -> None:
        self._dump.unlink(missing_ok=True)
        # it ends in place of a reply
        with contextlib.suppress(redis.ConnectionError):
            self.client.execute_command("SHUTDOWN", "SAVE" if save else "NOSAVE")
        self.kill()

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
        self._standby = self._new()
        self._standby.start()
        self._standby.client().replicaof("127.0.0.1", str(self._ports[self._current.directory]))

    def start_from_backup(self) -> None:
        """Start a server that has read the old snapshot."""
        self._standby = self._new()
        dump = self._standby.directory / "dump.rdb"
        shutil.copyfile(self._old, dump)
        self._standby.start()
        dump.unlink()

    def promote(self) -> None:
        """Promote the replica: from now on, writes to the old master are lost."""
        assert self._standby is not None
        self._standby.client().replicaof("NO", "ONE")

    def move(self) -> None:
        """Move the address to the other server; the old one no longer answers."""
        assert self._standby is not None
        self.kill()
        self._current, self._standby = self._standby, None
        self._dump.unlink(missing_ok=True)
        self._lead_to_current()

    def end(self) -> None:
        if self._standby is not None:
            self._standby.kill()
        self.kill()
