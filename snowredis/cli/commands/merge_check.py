"""`merge check`: say which ids exist twice in several files and tables, and which cannot be right."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

from snowredis.cli.exit_codes import CommandError, ExitCode, interrupted_by_signals, missing_extra
from snowredis.cli.options import Parser
from snowredis.cli.output import printable, write

SUMMARY = "say which ids exist twice in files and tables, and which cannot be right"
ABOUT = """SOURCE is [NAME=]LOCATION[#COLUMN]: a file (csv, tsv or txt, each also with .gz or .zst, or parquet), or
the URL of a database, such as postgresql://host/db#table.column. Nothing is changed in any source.

Exits with 10 if ids exist twice, with 9 if there are other ids that cannot be right, and with 0 if all is well; worker
ids that two sources share, so that their next ids can clash, are a warning."""
EXAMPLES = [
    ("snowredis merge check a.parquet#id b.csv#player_id", "two files"),
    ("snowredis merge check mysql://db1/game#players.id b.csv#id", "a table, a file"),
    ("snowredis merge check a.csv#id b.csv#id --html report.html", "with a picture"),
    ("snowredis merge check a.csv#id b.csv#id --emit-sql spark", "for larger engines"),
]
DIALECTS = ("spark", "trino", "clickhouse", "bigquery", "duckdb", "postgres", "mysql", "sqlite")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def add_arguments(parser: Parser) -> None:
    add = parser.add_argument
    add("sources", nargs="+", metavar="SOURCE", help="[NAME=]LOCATION[#COLUMN]")
    text = "layout of the ids, or NAME=LAYOUT for one source; may be repeated (default: 'default')"
    add("--layout", action="append", default=[], metavar="L", help=text)
    text = "keep what was read in DIR: the same command goes on after a stop"
    add("--state", type=Path, metavar="DIR", help=text)
    text = "what the process may take at its peak, such as 768M or 4G (default: 1G)"
    add("--memory", type=_bytes, default=_UNITS["G"], metavar="SIZE", help=text)
    add("--json", action="store_true", help="the report as one object; ids are strings in it")
    add("--html", type=Path, metavar="FILE", help="write the report as one page, with a picture")
    text = "write all repeated ids to a .csv or .parquet file"
    add("--duplicates", type=Path, metavar="FILE", help=text)
    text = f"print the check as SQL, and read nothing: {', '.join(DIALECTS)}"
    add("--emit-sql", choices=DIALECTS, metavar="DIALECT", help=text)
    add("--quiet", action="store_true", help="show no progress")


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d{1,12})([KMG]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise argparse.ArgumentTypeError(
            f"{printable(text, 40)!r} is not an amount of memory, such as 768M or 4G"
        )
    return int(match[1]) * _UNITS[match[2].upper()]


def run(args: argparse.Namespace) -> int:
    from snowredis.merge.sources import parse_sources

    sources = parse_sources(args.sources, args.layout)
    try:
        if args.emit_sql:
            from snowredis.merge.dialects import check_as_sql

            print(check_as_sql(sources, args.emit_sql))
            return ExitCode.OK
        from snowredis.cli.merge_progress import ProgressLines
        from snowredis.merge.check import Check
    except ImportError as error:
        if (error.name or "").startswith("snowredis"):
            raise
        raise missing_extra(error, "merge") from error
    _check_outputs(args)
    lines = ProgressLines(quiet=args.quiet)
    try:
        with (
            interrupted_by_signals(),
            lines,
            Check(sources, state=args.state, memory_bytes=args.memory) as check,
        ):
            result = check.run(lines.report)
            if args.duplicates:
                check.export_duplicates(args.duplicates)
            if args.html:
                from snowredis.merge.report.page import as_page

                _write(args.html, as_page(result, check.picture()))
    except KeyboardInterrupt:
        if args.state:
            text = "What was read completely is kept; run the same command to go on."
        else:
            text = "Nothing is kept; with --state DIR the same command goes on after a stop."
        raise CommandError(ExitCode.INTERRUPTED, f"interrupted. {text}") from None
    if args.json:
        from snowredis.merge.report.as_json import as_json

        print(json.dumps(as_json(result)))
    else:
        from snowredis.cli.merge_report import as_lines

        write(as_lines(result))
    if result.repeated_ids:
        return ExitCode.FOUND_CLASHES
    return ExitCode.FOUND_ERRORS if result.errors else ExitCode.OK


def _check_outputs(args: argparse.Namespace) -> None:
    """Refuse files that cannot be written before hours of reading."""
    from snowredis.merge.check.export import check_path

    if args.duplicates:
        check_path(args.duplicates)
    if args.html and not args.html.absolute().parent.is_dir():
        raise CommandError(
            ExitCode.USAGE, f"--html {args.html} is in a directory that does not exist. Nothing was read."
        )


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(ExitCode.ERROR, f"{path} could not be written: {error.strerror}") from error
