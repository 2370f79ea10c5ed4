"""`doctor`: check this host, Redis and its pools for known problems, with advice. Only reads."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from snowredis.cli.exit_codes import ExitCode
from snowredis.cli.options import Commands, Parser, add_command, add_redis, settings
from snowredis.cli.output import MAX_FOREIGN, Line, printable, terminal_width, write

if TYPE_CHECKING:
    from snowredis.monitor.health.finding import Finding

_STYLES = {"ok": "good", "unknown": "dim", "warning": "warn", "error": "bad"}


def add_to(commands: Commands[Parser]) -> None:
    parser = add_command(
        commands,
        "doctor",
        summary="check for known problems, and say how to fix them",
        about=(
            "Checks this host, Redis and its pools; changes nothing. Exits with 0 if it finds no problem, with 1 if "
            "there are warnings, with 4 if Redis does not answer, and with 9 if there are other errors."
        ),
        examples=[
            ("snowredis doctor", "the Redis of SNOWREDIS_URL and all its pools"),
            ("snowredis doctor --pool orders", "of the pools, only this one"),
            ("snowredis doctor --json", "for programs"),
        ],
        run=_doctor,
    )
    add_redis(parser)
    parser.add_argument("--json", action="store_true", help="one object")


def _doctor(args: argparse.Namespace) -> int:
    from snowredis.monitor.health.diagnosis import diagnose
    from snowredis.monitor.health.finding import worst

    url, options = settings(args)
    findings = diagnose(url, options.get("pool"))
    severity = worst(findings)
    if args.json:
        print(json.dumps({"severity": severity, "findings": [asdict(finding) for finding in findings]}))
    else:
        write(_as_lines(findings))
    if any(finding.check == "redis" and finding.severity == "error" for finding in findings):
        return ExitCode.REDIS_UNAVAILABLE
    return {"error": ExitCode.FOUND_ERRORS, "warning": ExitCode.ERROR}.get(severity, ExitCode.OK)


def _as_lines(findings: list[Finding]) -> list[Line]:
    import textwrap

    lines: list[Line] = []
    widest = max(len(printable(finding.check, MAX_FOREIGN)) for finding in findings)
    width = max(40, (terminal_width() or 120) - widest - 11)
    for finding in findings:
        head: Line = [(f"{finding.severity:<9}", _STYLES[finding.severity])]
        head.append((f"{printable(finding.check, MAX_FOREIGN):<{widest}}  ", "strong"))
        for number, part in enumerate(textwrap.wrap(printable(finding.text, 1000), width) or [""]):
            lines.append([*(head if not number else [(" " * (widest + 11), "")]), (part, "")])
        for number, part in enumerate(textwrap.wrap(printable(finding.advice, 1000), width - 2)):
            lines.append([(" " * (widest + 11) + ("→ " if not number else "  "), "dim"), (part, "note")])
    counts = [
        f"{sum(finding.severity == severity for finding in findings)} {severity}"
        for severity in ("error", "warning", "unknown", "ok")
    ]
    return [*lines, [], [(", ".join(counts), "dim")]]
