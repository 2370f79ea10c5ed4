"""`snowredis merge check`: which ids of several files and tables are repeated, which cannot be right, which will clash.

The path of an id: sources.py says where it is and reads it into the workspace, where this file finds those that are
there twice. findings.py says what that means, and as_lines() shows it in a terminal.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb
import numpy as np

from snowredis.cli.output import Column, Line, advised, printable, table, time_of
from snowredis.core.layout import Layout
from snowredis.core.values import duration
from snowredis.errors import ConfigError
from snowredis.merge import SourceError
from snowredis.merge.databases import text_literal
from snowredis.merge.findings import CheckResult, Findings, SharedWorkers
from snowredis.merge.progress import Progress
from snowredis.merge.sources import Source, ingest
from snowredis.merge.workspace import MIB, Workspace

# sources of an id are a set of bits in 127 bits of a HUGEINT; several files can be one source
MAX_SOURCES = 100
# endings by which DuckDB knows the format
_EXPORTS = (".csv", ".parquet")


def check_sources(
    workspace: Workspace, sources: Sequence[Source], layout: Layout, progress: Progress, *, now_ms: int | None = None
) -> CheckResult:
    """Read and compare all ids of all sources.

    Args:
        workspace: stores the ids.
        sources: columns of ids, from parse_sources().
        layout: of all ids.
        now_ms: ids of later times are from the future; None: the clock of this host.

    Raises:
        SourceError: too many sources, one that cannot be read, or the disk or the memory is too small.
    """
    if len(sources) > MAX_SOURCES:
        raise SourceError(
            f"{len(sources)} sources are more than {MAX_SOURCES}. Nothing was read; several files can be one "
            "source: write a pattern in quotes, such as 'shard1=dumps/*.csv#id'."
        )
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    with _errors(workspace):
        started_s = time.monotonic()
        ingest(workspace, sources, progress)
        read_s = time.monotonic() - started_s
        _find_repeated(workspace, progress)
        return Findings(workspace.rows, sources, layout, now_ms).result(read_s, started_s + read_s)


def _find_repeated(workspace: Workspace, progress: Progress) -> None:
    """Fill the table ``duplicates``: id, source, and how often it is there.

    The ids are sorted in as many parts as the memory needs: equal ones are neighbors then. Sources are nearly always in
    the order of their ids, and a stable sort only merges what is in order: a fifth of the time of DuckDB's GROUP BY.
    """
    # the number of ids in a part varies: the limit has a margin
    rows, most = workspace.rows, workspace.ids_at_once * 5 // 4
    rows("CREATE OR REPLACE TABLE duplicates (id BIGINT, source USMALLINT, times BIGINT)")
    rows("CREATE OR REPLACE TEMP TABLE repeated (id BIGINT)")
    parts = _parts(workspace, rows("SELECT count(id) FROM ids")[0][0])
    progress.start("comparing", len(parts))
    for mine in parts:
        ids = workspace.column(f"SELECT id FROM ids WHERE {mine} LIMIT {most}")
        if len(ids) < most:
            ids.sort(kind="stable")
            workspace.insert("repeated", "id", {"id": np.unique(ids[1:][ids[1:] == ids[:-1]])})
        else:
            # one id is there more often than fits
            del ids
            rows(f"INSERT INTO repeated SELECT id FROM ids WHERE {mine} GROUP BY id HAVING count(*) > 1")
        progress.add(1)
    # repeated ids are few, so one more pass over all sources counts them; each is there at least twice
    if count := rows("SELECT count(*) FROM repeated")[0][0]:
        for mine in _parts(workspace, 2 * count):
            found = f"SELECT id, source, count(*) FROM ids SEMI JOIN repeated USING (id) WHERE {mine} GROUP BY ALL"
            rows(f"INSERT INTO duplicates {found}")


def _parts(workspace: Workspace, ids: int) -> list[str]:
    """Return conditions that divide so many ids into parts that can be sorted at once."""
    count = max(1, -(-ids // workspace.ids_at_once))
    return [f"id IS NOT NULL AND hash(id) % {count} = {part}" for part in range(count)]


def export_duplicates(workspace: Workspace, sources: Sequence[Source], path: Path) -> None:
    """Write all repeated ids to a .csv or .parquet file: id, source, times; after check_sources()."""
    names = " ".join(f"WHEN {number} THEN {text_literal(source.name)}" for number, source in enumerate(sources))
    query = f"SELECT id, CASE source {names} END AS source, times FROM duplicates ORDER BY id, duplicates.source"
    with _errors(workspace):
        workspace.rows(f"COPY ({query}) TO {text_literal(str(path))}")


@contextlib.contextmanager
def _errors(workspace: Workspace) -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:
        raise SourceError(
            f"DuckDB cannot go on: {str(error).splitlines()[0]}. The check was stopped; if memory is missing, give it "
            f"more with --memory (now {workspace.duckdb_bytes // MIB} MiB for DuckDB); if it is disk space, free some "
            f"at {workspace.directory}, or set TMPDIR to another place."
        ) from error


def check_export_path(path: Path) -> None:
    """Raise ConfigError if *path* is not a file that export_duplicates() can write."""
    if path.suffix not in _EXPORTS or not path.absolute().parent.is_dir():
        raise ConfigError(
            f"{path} cannot be written: it must end in {' or '.join(_EXPORTS)}, in a directory that exists. Nothing "
            "was read; name another file with --duplicates."
        )


# --- the result in a terminal: names of sources and values of columns are untrusted -------------------------

# rows of a table in a terminal
_MAX_ROWS = 10
_MAX_CELL = 80
_MAX_EXAMPLE = 60


def _sources(result: CheckResult) -> list[Line]:
    """Return the table of what was read."""
    columns = [Column("SOURCE", shrinks=True), _number("IDS"), _number("WORKERS"), Column("FIRST"), Column("LAST")]
    rows = [
        [source.name, f"{source.ids:,}", f"{source.workers:,}", _time(source.first_ms), _time(source.last_ms)]
        + [source.location]
        for source in result.sources
    ]
    return _lines([*columns, Column("READ FROM", shrinks=True, optional=True)], rows)


def _repeated(result: CheckResult) -> list[Line]:
    """Return the tables of the repeated ids."""
    rows = [
        [" and ".join(part.sources) if part.sources[1:] else f"{part.sources[0]} alone"]
        + [f"{part.ids:,}", f"{part.rows:,}"]
        for part in result.duplicates
    ]
    lines = [[], *_lines([Column("REPEATED IN", shrinks=True), _number("IDS"), _number("ROWS")], rows)]
    rows = [[str(example.an_id), example.source, f"{example.times:,}"] for example in result.examples]
    return [*lines, [], *_lines([Column("ID"), Column("IN", shrinks=True), _number("TIMES")], rows)]


def _number(title: str) -> Column:
    return Column(title, right=True)


def _time(time_ms: int | None) -> str:
    return "-" if time_ms is None else time_of(time_ms)


def as_lines(result: CheckResult) -> list[Line]:
    """Return the whole report."""
    severity, text = _verdict(result)
    advice = _ADVICE_REPEATED if result.repeated_ids else ""
    lines: list[Line] = [*_sources(result), [], *advised(_head(severity), text, advice, "strong")]
    lines += _repeated(result) if result.repeated_ids else []
    for severity, text, advice in _notices(result):
        lines += [[], *advised(_head(severity), printable(text), advice)]
    text = f"read in {duration(result.read_s * 1000)}, compared in {duration(result.compare_s * 1000)}"
    return [*lines, [], [(text, "dim")]]


def _head(severity: str) -> Line:
    return [(f"{severity:<8}", {"error": "bad", "warning": "warn", "ok": "good"}[severity])]


def _lines(columns: list[Column], rows: list[list[str]]) -> list[Line]:
    """Return a table of the most important rows, which come first."""
    shown = [[printable(cell, _MAX_CELL) for cell in row] for row in rows[:_MAX_ROWS]]
    lines = table(columns, shown)
    if len(rows) > _MAX_ROWS:
        lines.append([(f"and {len(rows) - _MAX_ROWS:,} more, see --json", "dim")])
    return lines


_ADVICE_REPEATED = (
    "Copy no rows by hand: snowredis merge draft and run give those of one database new ids. --duplicates writes all "
    "of these ids to a file."
)
_ADVICE_SHARED = (
    "If both go on making ids, give each its own datacenter or its own pool before they are merged, or let one of them "
    "end."
)


def _verdict(result: CheckResult) -> tuple[str, str]:
    """Return the severity, ``error``, ``warning`` or ``ok``, and one sentence."""
    compared = f"among {result.ids:,} in {_count(len(result.sources), 'source')}"
    if result.repeated_ids:
        rows = f"{result.repeated_rows:,} rows, {compared}"
        ids = "1 id is" if result.repeated_ids == 1 else f"{result.repeated_ids:,} ids are"
        return "error", f"{ids} used by more than one row: {rows}."
    none = f"No id is used by more than one row {compared}"
    if result.errors:
        return "error", f"{none}, but some values cannot be right."
    if result.shared_workers:
        return "warning", f"{none}, but worker ids are used on both sides: ids can clash later."
    if result.problems:
        return "warning", f"{none}; see the warnings."
    return "ok", f"{none}."


def _notices(result: CheckResult) -> Iterator[tuple[str, str, str]]:
    """Yield severity, text and advice for values that cannot be right, and for worker ids that are shared."""
    for problem in result.problems:
        count = f"{_count(problem.count, 'value')} " if problem.count else ""
        text = f"{problem.source}: {count}{problem.text}."
        if problem.examples:
            text += f" For example {', '.join(example[:_MAX_EXAMPLE] for example in problem.examples)}."
        yield "error" if problem.is_error else "warning", text, ""
    for shared in result.shared_workers:
        yield "warning", _shared_text(shared), _ADVICE_SHARED


def _shared_text(shared: SharedWorkers) -> str:
    """Return what is wrong with worker ids that two sources share."""
    one, other = shared.sources
    at_once = {0: "none", shared.workers: "all"}.get(shared.at_once, f"{shared.at_once:,}")
    ranges = f"{shared.first}" if shared.workers == 1 else f"from {shared.first} to {shared.last}"
    where = f" in datacenter {shared.datacenter}" if shared.datacenter else ""
    noun = "worker id is" if shared.workers == 1 else "worker ids are"
    return (
        f"{one} and {other}: {shared.workers:,} {noun} used by both{where}, {at_once} of them at the same time: "
        f"{ranges}. Their next ids can be equal."
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
