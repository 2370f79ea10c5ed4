"""`migrate backfill`: fill the second columns of all rows, in batches, then build their indexes."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from snowredis.cli.exit_codes import ExitCode, interrupted_by_signals
from snowredis.cli.migration import add_source, next_line, open_migration
from snowredis.cli.options import Parser, positive
from snowredis.cli.output import compact, duration, is_terminal, write

if TYPE_CHECKING:
    from snowredis.merge.migrate.backfill import Progress

SUMMARY = "fill the second columns of all rows, then build indexes and constraints for them"
ABOUT = """Writes go on meanwhile. Each batch is a transaction of about --batch-ms; rows that others have locked are
left for later. May be stopped at any moment, and goes on where it stopped."""
EXAMPLES = [
    ("snowredis migrate backfill postgresql://host/db#orders.id", ""),
    ("snowredis migrate backfill sqlite:///a.db#a.id --rate 5000", "slower"),
]
# of lines where the output is no terminal
_LINE_EVERY_S = 10.0
_DRAW_EVERY_S = 0.2


def add_arguments(parser: Parser) -> None:
    add_source(parser)
    text = "how long a batch takes, and a write may wait for its rows (default: 50)"
    parser.add_argument("--batch-ms", type=positive, default=50, metavar="MS", help=text)
    parser.add_argument(
        "--rate", type=positive, metavar="N", help="rows a second, at most (default: no limit)"
    )


def run(args: argparse.Namespace) -> int:
    display = _Display()
    with interrupted_by_signals(), open_migration(args.source) as migration:
        migration.backfill(
            batch_ms=args.batch_ms, rows_per_s=args.rate, on_progress=display.progress, on_build=display.step
        )
    display.end()
    write([next_line("verify", args.source)])
    return ExitCode.OK


class _Display:
    """Progress on stderr: one line that is redrawn, or, where that is no terminal, a line now and then."""

    def __init__(self) -> None:
        self._terminal, self._last_s, self._drawn = is_terminal(sys.stderr), 0.0, False

    def progress(self, now: Progress) -> None:
        """Show how far the backfill is."""
        now_s = time.monotonic()
        if now_s - self._last_s < (_DRAW_EVERY_S if self._terminal else _LINE_EVERY_S):
            return
        self._last_s = now_s
        left = "" if now.left_s is None else f", {duration(now.left_s * 1000)} left"
        rate = compact(now.rows_per_s)
        self._show(f"{now.part:6.1%}  {now.table}: {compact(now.rows)} rows, {rate} rows/s{left}")

    def step(self, text: str) -> None:
        """Say which index or constraint is being built."""
        self.end()
        print(f"building {text}", file=sys.stderr)

    def end(self) -> None:
        """End the line that is redrawn."""
        if self._drawn:
            print(file=sys.stderr)
            self._drawn = False

    def _show(self, text: str) -> None:
        if self._terminal:
            print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)
            self._drawn = True
        else:
            print(text, file=sys.stderr, flush=True)
