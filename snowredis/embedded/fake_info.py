"""Teach fakeredis the one command that the Lua scripts need and it lacks: INFO.

Registered the way fakeredis registers its own commands, so clients and scripts both see
it, in process and over TCP. Nothing happens until install_info() is called.
"""

from __future__ import annotations

__all__ = ["install_info"]


def install_info() -> None:
    """Give every fakeredis server of this process an ``INFO``.

    May be called again, and before or after servers are made. A fakeredis that has its own
    ``INFO`` keeps it.

    The answer holds ``redis_version``, ``run_id`` and ``master_replid``, whatever section is
    asked for. Both ids are drawn once for each ``FakeServer``.

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
        # setdefault is one atomic step: two threads agree
        run_id, replication_id = vars(server).setdefault(
            "_snowredis_ids", (secrets.token_hex(20), secrets.token_hex(20))
        )
        version = ".".join(str(part) for part in (*server.version, 0, 0)[:3])
        lines = (
            "# Server",
            f"redis_version:{version}",
            "redis_mode:standalone",
            f"run_id:{run_id}",
            "# Replication",
            "role:master",
            f"master_replid:{replication_id}",
        )
        return "".join(f"{line}\r\n" for line in lines).encode()

    # the method first: a thread that finds the command must find the method
    ServerCommandsMixin.info = info  # type: ignore[attr-defined]
    command((), (bytes,))(info)
