"""`metrics`: print a pool's metrics in the text format of Prometheus. Only reads."""

from __future__ import annotations

import argparse
import sys

from snowredis.cli.exit_codes import ExitCode
from snowredis.cli.options import Parser, add_redis, open_pool

SUMMARY = "print a pool's metrics for Prometheus"
ABOUT = "For node_exporter's textfile collector, or to read; `snowredis serve` serves them at /metrics."
EXAMPLES = [
    ("snowredis metrics --pool orders", "the text format"),
    ("snowredis metrics | sponge /var/node/orders.prom", "from cron"),
]


def add_arguments(parser: Parser) -> None:
    add_redis(parser)


def run(args: argparse.Namespace) -> int:
    from snowredis.monitor.pool_metrics import as_text, families_of

    with open_pool(args) as pool:
        families = families_of(pool)
    sys.stdout.write(as_text(families))
    # a pool that cannot be read has only the metric that says so
    return ExitCode.OK if len(families) > 1 else ExitCode.REDIS_UNAVAILABLE
