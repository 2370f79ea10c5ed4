"""Findings of a check, compared with plain Python."""

import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from snowredis.core.layout import Layout
from snowredis.core.presets import layouts
from snowredis.merge import MergeError
from snowredis.merge.check import CheckResult, ProblemKind, check_sources, export_duplicates
from snowredis.merge.databases import Progress, open_database
from snowredis.merge.dialects import transaction
from snowredis.merge.sources import Workspace, parse_sources

LAYOUT = layouts["twitter"]
# 2026-01-01
NOW_MS = 1_767_225_600_000


def an_id(seconds_ago: float, worker: int = 0, sequence: int = 0, datacenter: int = 0) -> int:
    tick = LAYOUT.tick_at(NOW_MS - round(seconds_ago * 1000))
    return LAYOUT.compose(tick=tick, worker=worker, sequence=sequence, datacenter=datacenter)


def write(directory: Path, sources: Mapping[str, Sequence[object]]) -> list[str]:
    """Write a file for each source, of another kind each; return how they are named on the command line."""
    texts = []
    for at, (name, values) in enumerate(sources.items()):
        lines = ["" if value is None else str(value) for value in values]
        if at % 2:
            path = directory / f"{name}.csv"
            path.write_text("\n".join(["name;id", *(f"x;{line}" for line in lines), ""]))
            texts.append(f"{name}={path}#id")
        else:
            path = directory / f"{name}.txt"
            path.write_text("\n".join([*lines, ""]))
            texts.append(f"{name}={path}")
    return texts


def check(texts: Sequence[str], layout: Layout = LAYOUT, export: Path | None = None) -> CheckResult:
    sources = parse_sources(texts)
    with Workspace() as workspace:
        result = check_sources(workspace, sources, layout, Progress(), now_ms=NOW_MS)
        if export is not None:
            export_duplicates(workspace, export)
    return result


SOME_IDS = st.one_of(
    st.builds(an_id, st.integers(1, 50), st.integers(0, 5), st.integers(0, 3)),
    st.sampled_from(
        [0, 1, -1, -(2**63), 2**63 - 1, an_id(-3600), an_id(100), LAYOUT.compose(tick=3_600_000) - 1]
        + [LAYOUT.compose(tick=3_600_000), "12.5", "1e18", "x", "", 2**63, -(2**63) - 1, 10**30, " 77 ", "0077", "+5"]
    ),
)


def whole(value: object) -> int | None:
    """Return the number that a value of a file is, by the rules of the documentation."""
    text = str(value).strip()
    try:
        number = int(text)
    except ValueError:
        return None
    plain = text == str(number) or text.isdigit()
    return number if plain and -(2**63) <= number < 2**63 else None


def kind_of(number: int | None) -> ProblemKind | None:
    if number is None:
        return "no-number"
    time_ms = LAYOUT.decode(number).timestamp_ms if number >= 0 else 0
    if number < 0 or time_ms >= NOW_MS + 60_000:
        return "other-layout"
    return "counter" if time_ms < LAYOUT.epoch_ms + 3_600_000 else None


@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(SOME_IDS, min_size=1, max_size=30), min_size=1, max_size=3))
def test_the_verdict_is_that_of_plain_python(values: list[list[object]]) -> None:
    # an id first: a column that begins without one is refused
    named = {f"s{at}": [an_id(7, 31), *column] for at, column in enumerate(values)}
    # blank lines of a plain text are no values
    named = {
        name: [value for value in column if at % 2 or str(value).strip()]
        for at, (name, column) in enumerate(named.items())
    }
    with tempfile.TemporaryDirectory() as directory:
        result = check(write(Path(directory), named))
    times: dict[int, Counter[str]] = defaultdict(Counter)
    problems: Counter[tuple[str, ProblemKind]] = Counter()
    for name, column in named.items():
        for value in column:
            number = whole(value)
            if number is not None:
                times[number][name] += 1
            if kind := kind_of(number):
                problems[name, kind] += 1
    repeated = {number: places for number, places in times.items() if places.total() > 1}
    assert result.ids == sum(places.total() for places in times.values())
    assert (result.repeated_ids, result.repeated_rows) == (
        len(repeated),
        sum(places.total() for places in repeated.values()),
    )
    by_sources: dict[tuple[str, ...], list[int]] = defaultdict(lambda: [0, 0])
    for places in repeated.values():
        by_sources[tuple(sorted(places))][0] += 1
        by_sources[tuple(sorted(places))][1] += places.total()
    assert {part.sources: [part.ids, part.rows] for part in result.duplicates} == by_sources
    smallest = {tuple(sorted(repeated[an_id])): an_id for an_id in sorted(repeated, reverse=True)}
    assert {part.sources: part.smallest for part in result.duplicates} == smallest
    assert {(problem.source, problem.kind): problem.count for problem in result.problems} == problems


def test_an_id_with_more_bits_than_its_layout_is_a_problem(tmp_path: Path) -> None:
    safe = layouts["js-safe"]
    good = safe.compose(tick=safe.tick_at(NOW_MS - 5000), worker=3)
    result = check(write(tmp_path, {"a": [good, 1 << 53, (1 << 53) - 1]}), safe)
    assert [(each.kind, each.count, each.examples) for each in result.problems] == [
        ("other-layout", 2, [str((1 << 53) - 1), str(1 << 53)])
    ]


# --- the workspace ---------------------------------------------------------------------------------------


def test_duckdb_prints_no_progress_of_its_own_into_the_report() -> None:
    with Workspace() as workspace:
        assert workspace.rows("SELECT current_setting('enable_progress_bar')") == [(False,)]


def test_nothing_is_left_of_a_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    check(write(tmp_path, {"a": [an_id(5)]}))
    assert list((tmp_path / "tmp").iterdir()) == []
    with pytest.raises(MergeError):
        check(write(tmp_path, {"a": ["x", "y"]}))
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_signal_that_comes_while_rows_are_fetched_is_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    # what DuckDB raises in place of the error of the handler
    fetched = Mock(fetchall=Mock(side_effect=RuntimeError("Query interrupted")))
    with Workspace() as workspace, monkeypatch.context() as patched:
        patched.setattr(workspace, "_connection", Mock(execute=Mock(return_value=fetched)))
        with pytest.raises(KeyboardInterrupt):
            workspace.rows("SELECT 1")


def test_a_signal_that_comes_while_sqlite_adds_up_rows_is_an_interrupt(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("snowredis.merge.dialects._hash", Mock(side_effect=KeyboardInterrupt))
    (tmp_path / "a.db").touch()
    engine = open_database(f"sqlite:///{tmp_path}/a.db")
    with pytest.raises(KeyboardInterrupt), transaction(engine) as session:
        session.run("SELECT snowredis_hash(1)")


def test_several_files_can_be_one_source(tmp_path: Path) -> None:
    for at in range(3):
        (tmp_path / f"part-{at}.txt").write_text(f"{an_id(5)}\n{an_id(6 + at)}\n")
    result = check([f"all={tmp_path}/part-*.txt"])
    assert [source.ids for source in result.sources] == [6]
    assert [(part.sources, part.ids, part.rows) for part in result.duplicates] == [(("all",), 1, 3)]


def test_duplicates_are_exported(tmp_path: Path) -> None:
    ids = [an_id(second) for second in (5, 6, 7)]
    check(write(tmp_path, {"a": ids, "b": [ids[1], ids[1]]}), export=tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text().splitlines() == ["id,source,times", f"{ids[1]},a,1", f"{ids[1]},b,2"]
