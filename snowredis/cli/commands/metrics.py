"""`metrics`: a pool's metrics in the text format of Prometheus, once. Only reads."""

from __future__ import annotations

import argparse
import sys

from snowredis.cli.exit_codes import ExitCode
from snowredis.cli.options import Commands, Parser, add_command, add_redis, open_pool, settings


def add_to(commands: Commands[Parser]) -> None:
    parser = add_command(
        commands,
        "metrics",
        summary="print a pool's metrics for Prometheus",
        about="For node_exporter's textfile collector, or to read; `snowredis serve` has them at /metrics.",
        examples=[
            ("snowredis metrics --pool orders", "the text format"),
            ("snowredis metrics | sponge /var/node/orders.prom", "from cron"),
        ],
        run=_metrics,
    )
    add_redis(parser)


def _metrics(args: argparse.Namespace) -> int:
    from snowredis.monitor.pool_metrics import as_text, families_of

    url, options = settings(args)
    with open_pool(url, options.get("pool", "default")) as pool:
        families = families_of(pool)
    sys.stdout.write(as_text(families))
    # a pool that cannot be read has only the metric for that
    return ExitCode.OK if len(families) > 1 else ExitCode.REDIS_UNAVAILABLE
