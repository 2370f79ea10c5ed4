"""Add INFO to fakeredis: the one command that the Lua scripts need and fakeredis does not have.

It is registered as fakeredis registers its own commands, so that clients and scripts can use it, in process and over
TCP. Nothing happens until install_info() is called.
"""

from __future__ import annotations


def install_info() -> None:
    """Add ``INFO`` to every fakeredis server of this process, unless fakeredis has it.

    The reply has ``redis_version``, ``run_id`` and ``master_replid``, whatever section is requested. Both ids are
    random, and the same for all calls on one ``FakeServer``. Servers may be created before or after the call.

    Raises:
        ImportError: fakeredis is not installed, or its registry of commands has moved.
    """
    import secrets

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

    # the method first: a thread that finds the command must find the method
    ServerCommandsMixin.info = info  # type: ignore[attr-defined]
    command((), (bytes,))(info)
