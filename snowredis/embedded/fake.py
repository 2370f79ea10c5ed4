"""fakeredis in place of a redis-server: threads of a process of its own, on a unix socket. It keeps nothing."""

from __future__ import annotations

import os
import secrets
import socket


def serve(path: str) -> None:
    """Serve at the unix socket *path*, which only this user can reach, until this process is killed."""
    from fakeredis import TcpFakeServer

    class UnixFakeServer(TcpFakeServer):
        address_family = socket.AF_UNIX

        def server_bind(self) -> None:
            super().server_bind()
            os.chmod(path, 0o700)

        def get_request(self) -> tuple[socket.socket, object]:
            connection, _ = super().get_request()
            # fakeredis tells connections apart by their addresses
            return connection, (path, connection.fileno())

    install_info()
    # a path in place of host and port, as the address family has it
    server = UnixFakeServer(path, server_version=(7, 0, 0))  # type: ignore[arg-type]
    server.daemon_threads = True
    server.serve_forever()


def install_info() -> None:
    """Add ``INFO`` to every fakeredis server of this process, unless fakeredis has it.

    It is the one command that the Lua scripts need and fakeredis does not have. It is registered as fakeredis registers
    its own commands, so that clients and scripts can use it, in process and over TCP.

    The reply has ``redis_version``, ``run_id`` and ``master_replid``, whatever section is requested. Both ids are
    random, and the same for all calls on one ``FakeServer``. Servers may be created before or after the call.

    Raises:
        ImportError: fakeredis is not installed, or its registry of commands has moved.
    """
    from fakeredis._commands import SUPPORTED_COMMANDS, command
    from fakeredis.commands_mixins.server_mixin import ServerCommandsMixin

    if "info" in SUPPORTED_COMMANDS:
        return

    def info(self: ServerCommandsMixin, *_sections: bytes) -> bytes:
        server = self._server
        # setdefault is atomic: two threads get the same ids
        run_id, replication_id = vars(server).setdefault(
            "_snowredis_ids", (secrets.token_hex(20), secrets.token_hex(20))
        )
        version = ".".join(str(part) for part in (*server.version, 0, 0)[:3])
        return (
            f"# Server\r\nredis_version:{version}\r\nredis_mode:standalone\r\nrun_id:{run_id}\r\n"
            f"# Replication\r\nrole:master\r\nmaster_replid:{replication_id}\r\n"
        ).encode()

    # the method is added before the command, so that a thread that finds the command finds the method
    ServerCommandsMixin.info = info  # type: ignore[attr-defined]
    command((), (bytes,))(info)
