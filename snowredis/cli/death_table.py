"""Workers that died in the last hour, as a table. Shared by `workers` and `top`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from snowredis.cli.output import MAX_FOREIGN, Cell, Column, Line, ago, compact, printable, table, time_of

if TYPE_CHECKING:
    from snowredis.monitor.snapshot import Death

_COLUMNS = (
    Column("worker", right=True),
    Column("died"),
    Column("", right=True),
    Column("host", shrinks=True),
    Column("pid", right=True),
    Column("label", shrinks=True),
    Column("last heartbeat", shrinks=True),
    Column("ids", right=True),
    Column("how"),
)
_HOW = {"expired": "lease ended", "reclaimed": "killed, released by another process"}


def death_table(
    deaths: Sequence[Death], now_ms: int, width: int | None = None, time_text: Callable[[int], str] = time_of
) -> list[Line]:
    """Return a table of *deaths* as of *now_ms* on the Redis clock."""
    rows: list[list[Cell]] = [
        [
            (str(death.worker), "strong"),
            (time_text(death.at_ms), "bad"),
            (ago(max(0, now_ms - death.at_ms)), "dim"),
            printable(death.host, MAX_FOREIGN),
            str(death.pid or ""),
            printable(death.label, MAX_FOREIGN),
            ("unknown", "dim") if death.heartbeat_ms is None else time_text(death.heartbeat_ms),
            compact(death.ids_made),
            (_HOW[death.kind], "dim"),
        ]
        for death in deaths
    ]
    return table(_COLUMNS, rows, width)
