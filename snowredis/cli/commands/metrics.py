"""`metrics`: print a pool's metrics in the text format of Prometheus. Only reads."""

from __future__ import annotations

import argparse
import sys

from snowredis.cli.exit_codes import ExitCode, code_of, print_error
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
    from snowredis.monitor.metric_values import PoolsReader, families_of
    from snowredis.monitor.metrics import as_text

    with open_pool(args) as pool:
        readings = PoolsReader([pool]).read()
    # also of a pool that cannot be read, since that is a metric
    sys.stdout.write(as_text(families_of(readings)))
    error = readings[pool.name].error
    if error is None:
        return ExitCode.OK
    print_error(error)
    return code_of(error)
