"""`doctor` and `metrics`: check for known problems, and print a pool's metrics for Prometheus. Both only read."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from typing import TYPE_CHECKING

from snowredis.cli.exit_codes import ExitCode, code_of, print_error
from snowredis.cli.options import Command, Parser, open_pool, settings
from snowredis.cli.output import MAX_FOREIGN, Line, advised, print_json, printable, write

if TYPE_CHECKING:
    from snowredis.monitor.checks import Finding

# --- doctor -------------------------------------------------------------------------------------

_STYLES = {"ok": "good", "unknown": "dim", "warning": "warn", "error": "bad"}


def _add_doctor_arguments(parser: Parser) -> None:
    parser.add_redis()
    text = "the tag to check, of segments or of dated numbers (default: all)"
    parser.add_argument("--tag", metavar="NAME", help=text)
    text = "SQLAlchemy's URL of a database: check also whether readers could miss rows of its tables with a fence"
    parser.add_argument("--database", metavar="URL", help=text)
    parser.add_argument("--json", action="store_true", help="one object")


def _doctor(args: argparse.Namespace) -> int:
    from snowredis.monitor.checks import check_database, worst
    from snowredis.monitor.doctor import diagnose
    from snowredis.numbers.settings import SEGMENT_SETTINGS

    url, options = settings(args)
    if args.tag is not None:
        SEGMENT_SETTINGS["tag"].check(args.tag)
    # SNOWREDIS_POOL names no pool beside --tag
    findings = [_fast_path(), *diagnose(url, options.get("pool") if args.tag is None else args.pool, args.tag)]
    findings += check_database(args.database) if args.database else ()
    severity = worst(findings)
    if args.json:
        print_json({"severity": severity, "findings": findings})
    else:
        write(finding_lines(findings))
    if any(finding.check == "redis" and finding.severity == "error" for finding in findings):
        return ExitCode.REDIS_UNAVAILABLE
    return {"error": ExitCode.FOUND_ERRORS, "warning": ExitCode.ERROR}.get(severity, ExitCode.OK)


def _fast_path() -> Finding:
    """Return which implementation makes ids; both are complete, so neither is a problem."""
    from snowredis.monitor.checks import Finding, ok
    from snowredis.snowflake.fast_path import IMPLEMENTATION

    slow = "ids are made in Python, which is slower than C: a C compiler was missing when snowredis was installed, or "
    return Finding("fast path", *ok("ids are made in C" if IMPLEMENTATION == "c" else f"{slow}SNOWREDIS_PURE is set"))


def finding_lines(findings: list[Finding]) -> list[Line]:
    lines: list[Line] = []
    widest = max(len(printable(finding.check, MAX_FOREIGN)) for finding in findings)
    for finding in findings:
        check = f"{printable(finding.check, MAX_FOREIGN):<{widest}}  "
        head = [(f"{finding.severity:<9}", _STYLES[finding.severity]), (check, "strong")]
        lines += advised(head, printable(finding.text, 1000), printable(finding.advice, 1000))
    counts = Counter(finding.severity for finding in findings)
    summary = ", ".join(f"{counts[severity]} {severity}" for severity in ("error", "warning", "unknown", "ok"))
    return [*lines, [], [(summary, "dim")]]


DOCTOR = Command(
    "doctor",
    "check for known problems, and show how to fix them",
    """Checks this host, Redis, its pools and tags; changes nothing. Exits with 0 if it finds no problem, with 1 if
there are warnings, with 4 if Redis does not answer, and with 9 if there are other errors.""",
    [
        ("snowredis doctor", "host, Redis, its pools and tags"),
        ("snowredis doctor --pool orders", "this Redis, and only this pool"),
        ("snowredis doctor --tag invoices", "only this tag, and no pool"),
        ("snowredis doctor --database mysql:///shop", "also the fences of a database"),
        ("snowredis doctor --json", "for programs"),
    ],
    _add_doctor_arguments,
    _doctor,
)

# --- metrics ------------------------------------------------------------------------------------


def _metrics(args: argparse.Namespace) -> int:
    from snowredis.monitor.metric_values import as_text, families_of
    from snowredis.monitor.pool_monitor import PoolPoller

    with open_pool(args) as pool:
        reading = PoolPoller(pool).read()
    # that a pool cannot be read is a metric, too
    sys.stdout.write(as_text(families_of({pool.name: reading})))
    if reading.error is None:
        return ExitCode.OK
    print_error(reading.error)
    return code_of(reading.error)


METRICS = Command(
    "metrics",
    "print a pool's metrics for Prometheus",
    "For node_exporter's textfile collector, or to read; `snowredis serve` serves them at /metrics.",
    [
        ("snowredis metrics --pool orders", "the text format"),
        ("snowredis metrics | sponge /var/node/orders.prom", "from cron"),
    ],
    Parser.add_redis,
    _metrics,
)
