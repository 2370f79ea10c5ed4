"""Values that are not ids, and ids whose fields cannot be right: how many, examples, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from snowredis.core.layout import Layout, utc_text
from snowredis.merge.check.query import Query
from snowredis.merge.check.result import Problem, ProblemKind
from snowredis.merge.field_sql import ID_LIMIT, Bounds
from snowredis.merge.sources import Source

__all__ = ["find_problems"]

_EXAMPLES = 3
# the kind of a value that is no 64-bit integer, in the column ``rejected``
_KIND_OF_REJECTED = rf"""CASE
    WHEN lower(trim(rejected)) IN ('', 'null', '\n', 'none', 'na', 'nan') THEN '{ProblemKind.MISSING}'
    WHEN regexp_full_match(trim(rejected), '[+-]?[0-9]+') THEN CASE
        WHEN trim(rejected)[1] = '-' AND length(trim(rejected)) < 20 THEN '{ProblemKind.NEGATIVE}'
        WHEN length(trim(rejected)) < 19 THEN '{ProblemKind.TEXT}'
        ELSE '{ProblemKind.TOO_LARGE}' END
    WHEN regexp_full_match(trim(rejected), '[+-]?([0-9]+[.,]?[0-9]*|[.,][0-9]+)(e[+-]?[0-9]+)?', 'i')
        THEN '{ProblemKind.DECIMAL}'
    ELSE '{ProblemKind.TEXT}' END"""

_LEFT_OUT = "Not compared"
_TEXTS = {
    ProblemKind.MISSING: f"without a number (NULL or empty). {_LEFT_OUT}; rows without an id cannot be merged, so give "
    "them one",
    ProblemKind.DECIMAL: f"with a decimal point or an exponent. {_LEFT_OUT}; a spreadsheet or JavaScript has rounded "
    "them: export the column again as text or as 64-bit integers",
    ProblemKind.TEXT: f"of text. {_LEFT_OUT}; see whether this is the right column",
    ProblemKind.TOO_LARGE: f"beyond 64 bits with a sign, as ids have. {_LEFT_OUT}; the greatest id is 2**63 - 1",
    ProblemKind.NEGATIVE: "below 0, before the epoch of every layout. An overflow makes such numbers, or "
    "a column without "
    "a sign that was read with one",
}


def find_problems(query: Query, sources: Sequence[Source], bounds: Sequence[Bounds]) -> list[Problem]:
    """Return the problems of all sources, in their order."""
    problems = [
        problem
        for number, source in enumerate(sources)
        for problem in _of_source(query, number, source, bounds[number])
    ]
    if len({source.layout for source in sources}) > 1:
        problems.append(
            Problem(
                "",
                ProblemKind.LAYOUTS_DIFFER,
                0,
                [],
                "the sources have different layouts, so their worker ids mean different bits: whether ids of different "
                "layouts can be equal later is not said here",
                is_error=False,
            )
        )
    return problems


def _of_source(query: Query, number: int, source: Source, bounds: Bounds) -> Iterator[Problem]:
    kinds = query.rows(
        f"SELECT {_KIND_OF_REJECTED} AS kind, count(*) FROM ids WHERE source = ? AND rejected IS NOT NULL GROUP BY 1",
        number,
    )
    rejected = {ProblemKind(kind): count for kind, count in kinds}
    conditions = _conditions(bounds)
    counts = query.rows(
        f"SELECT count(*), {', '.join(f'count(*) FILTER ({condition})' for condition in conditions.values())} "
        "FROM ids WHERE source = ?",
        number,
    )[0]
    if not counts[0]:
        text = "there are no ids in it. See whether it is the right one"
        yield Problem(source.name, ProblemKind.NO_IDS, 0, [], text, is_error=False)
    outside = dict(zip(conditions, counts[1:], strict=True))
    for kind in ProblemKind:
        count = rejected.get(kind, 0) + outside.get(kind, 0)
        if not count:
            continue
        examples = []
        if rejected.get(kind) and kind is not ProblemKind.MISSING:
            examples += query.rows(
                f"SELECT DISTINCT rejected FROM (SELECT rejected FROM ids WHERE source = ? AND {_KIND_OF_REJECTED} = ? "
                f"AND rejected IS NOT NULL LIMIT {_EXAMPLES})",
                number,
                str(kind),
            )
        if outside.get(kind):
            examples += query.rows(
                f"SELECT id::VARCHAR FROM ids WHERE source = ? AND {conditions[kind]} LIMIT {_EXAMPLES}",
                number,
            )
        text = _TEXTS.get(kind) or _text(kind, source.layout)
        # counters are usual in a table that had ids before it had snowredis'
        is_error = kind is not ProblemKind.COUNTER
        yield Problem(source.name, kind, count, [text for (text,) in examples[:_EXAMPLES]], text, is_error)


def _conditions(bounds: Bounds) -> dict[ProblemKind, str]:
    conditions = {
        ProblemKind.NEGATIVE: "id < 0",
        ProblemKind.FUTURE: f"id BETWEEN {bounds.future} AND {bounds.limit - 1}",
        ProblemKind.COUNTER: f"id BETWEEN 0 AND {bounds.first - 1}",
    }
    if bounds.limit < ID_LIMIT:
        conditions[ProblemKind.TOO_WIDE] = f"id >= {bounds.limit}"
    return conditions


def _text(kind: ProblemKind, layout: Layout) -> str:
    if kind is ProblemKind.TOO_WIDE:
        return (
            f"of more than the {layout.total_bits} bits of the layout {layout}. Probably made with "
            "another one; name it "
            "with --layout"
        )
    if kind is ProblemKind.FUTURE:
        return (
            "with a time in the future. Probably made with another layout, or on a host whose clock was ahead; see "
            "whether --layout is right"
        )
    return (
        f"with a time in the first hour of the layout, from {utc_text(layout.epoch_ms)} on. Probably numbers of a "
        "counter, such as an auto-increment, or of another layout"
    )
