"""fakeredis in place of a redis-server: threads of a process of its own, on a unix socket. It keeps nothing."""

from __future__ import annotations

import os
import secrets
import socket


def serve(path: str, *keys: str) -> None:
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
