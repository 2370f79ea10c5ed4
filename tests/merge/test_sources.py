"""Forms in which sources of ids are written: files, URLs and names."""

from pathlib import Path

import pytest

from snowredis.merge import MergeError
from snowredis.merge.sources import parse_sources, without_password


@pytest.mark.parametrize(
    ("text", "location", "place"),
    [
        ("a.parquet#id", "a.parquet", ("id",)),
        ("dir/a.csv.gz#player id", "dir/a.csv.gz", ("player id",)),
        ("ids.txt", "ids.txt", ("",)),
        ("postgresql://h/db#players.id", "postgresql://h/db", ("players", "id")),
        ("postgresql://h/db#game.players.id", "postgresql://h/db", ("game", "players", "id")),
        ('sqlite:///s.db#"odd.""table"."the id"', "sqlite:///s.db", ('odd."table', "the id")),
        ("mysql://h/db?charset=utf8#t.id", "mysql://h/db?charset=utf8", ("t", "id")),
    ],
)
def test_a_source_names_a_file_or_a_table(text: str, location: str, place: tuple[str, ...]) -> None:
    (source,) = parse_sources([text])
    assert (source.location, (*source.table, source.column)) == (location, place)


@pytest.mark.parametrize("text", ["postgresql://u:p#w@h/db", "postgresql://h/db", "mysql://h/db#a.b.c.d"])
def test_a_database_without_a_table_and_a_column_is_refused_with_advice(text: str) -> None:
    with pytest.raises(MergeError, match=r"names no table and column. Nothing was read; .+\."):
        parse_sources([text])


def test_a_file_that_exists_is_taken_by_its_whole_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a=b#1.csv").touch()
    named, column, new = (parse_sources([text])[0] for text in ("a=b#1.csv", "a=b#1.csv#id", "eu=x.csv#id"))
    assert (named.location, named.column) == ("a=b#1.csv", "")
    assert (column.location, column.column) == ("a=b#1.csv", "id")
    assert (new.name, new.location) == ("eu", "x.csv")


def test_names_are_given_or_those_of_files_and_tables_and_all_differ() -> None:
    texts = ["x/ids.txt", "other=y/ids.txt", "sqlite:///a.db#t.id", "parquet=a.parquet"]
    assert [source.name for source in parse_sources(texts)] == ["ids.txt", "other", "a.db.t", "parquet"]
    for same in (["a=x.csv", "a=y.csv"], ["x/ids.txt", "y/ids.txt"]):
        with pytest.raises(MergeError, match=r"two sources are named '(a|ids\.txt)'"):
            parse_sources(same)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://app:s3cret@h/db#t.id",
        "postgresql://app:s3/cr:et@h/db#t.id".replace("/cr", "cr"),
        "postgresql://app:s3cret@1@h/db#t.id",
        "postgresql://h/db?user=a&password=s3cret#t.id",
    ],
)
def test_a_password_is_never_shown(url: str) -> None:
    (source,) = parse_sources([url])
    for text in (source.shown, source.name, without_password(url)):
        assert "s3" not in text
        assert "cret" not in text
    with pytest.raises(MergeError) as caught:
        parse_sources([url.partition("#")[0]])
    assert "s3" not in str(caught.value)
