"""Merge and migrate through a PgBouncer in transaction mode: the sessions are the application's, too."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from snowredis.cli.exit_codes import ExitCode
from tests.support.databases import PostgreSQL
from tests.support.pgbouncer import pooled
from tests.support.statements import execute, rows_of

_SETTINGS = (
    *("statement_timeout", "lock_timeout", "row_security", "default_transaction_read_only", "DateStyle", "TimeZone"),
    *("idle_in_transaction_session_timeout", "extra_float_digits", "IntervalStyle", "bytea_output"),
)


def sessions(pooler: Path, database: str) -> set[tuple[str, ...]]:
    """Return the settings of both sessions that the pooler keeps for a database."""
    engine = sa.create_engine(pooled(pooler, database), connect_args={"prepare_threshold": None}, pool_size=2)
    # each has a transaction, so each has a session of its own
    clients = [engine.connect() for _ in range(2)]
    found = {tuple(client.scalar(sa.text(f"SHOW {name}")) for name in _SETTINGS) for client in clients}
    for client in clients:
        client.close()
    engine.dispose()
    return found


def test_no_command_leaves_a_setting_or_a_lock_in_the_sessions_of_a_pooler(
    postgresql_server: PostgreSQL, pgbouncer_of: Path, tmp_path: Path, offline: Callable[..., Any]
) -> None:
    names = ("pooled_a", "pooled_b")
    for name in names:
        execute(
            postgresql_server.new_database(name),
            f"ALTER DATABASE {name} SET statement_timeout = '50s'",
            f"ALTER DATABASE {name} SET default_transaction_read_only = on",
        )
        execute(
            postgresql_server.url(name),
            "SET TRANSACTION READ WRITE",
            "CREATE TABLE players (id bigserial PRIMARY KEY, name text)",
            f"INSERT INTO players (name) SELECT '{name}' || n FROM generate_series(1, 30) n",
        )
    before = {name: sessions(pgbouncer_of, name) for name in names}
    kept, changed = (pooled(pgbouncer_of, name) for name in names)
    drafted = offline("merge", "draft", kept, changed).out
    path = tmp_path / "game.map"
    path.write_text(drafted.replace("reviewed = false", "reviewed = true"))
    for argv, code in (
        (["merge", "check", f"a={kept}#players.id", f"b={changed}#players.id"], ExitCode.FOUND_CLASHES),
        (["merge", "draft", kept, changed], ExitCode.OK),
        (["merge", "run", str(path), kept, changed, "--dry-run"], ExitCode.OK),
        (["merge", "run", str(path), kept, changed], ExitCode.OK),
        (["merge", "run", str(path), kept, changed], ExitCode.MERGE_REFUSED),
    ):
        offline(*argv, code=code)
        assert {name: sessions(pgbouncer_of, name) for name in names} == before, argv
        locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
        assert rows_of(postgresql_server.url("postgres"), locks) == [(0,)], argv
    assert rows_of(postgresql_server.url(names[0]), "SELECT count(*) FROM players") == [(60,)]
