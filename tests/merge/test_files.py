"""Sources of ids: how they are written, every format of a file, and every file that is not what it seems to be."""

import contextlib
import gzip
import resource
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest

from snowredis.merge import MergeError
from snowredis.merge.databases import Progress, without_password
from snowredis.merge.sources import Workspace, ingest, parse_sources

IDS = [250017180000000000 + at for at in range(500)]
LINES = "".join(f"{an_id}\n" for an_id in IDS).encode()
CSV = b"name,id\n" + b"".join(b"x,%d\n" % an_id for an_id in IDS)


@pytest.fixture(scope="module")
def workspace() -> Iterator[Workspace]:
    with Workspace() as made:
        yield made


@pytest.fixture
def read(workspace: Workspace, tmp_path: Path) -> Callable[..., list[int | str]]:
    """Write a file, and return its ids, and as text the values that are none."""

    def run(name: str, content: bytes, column: str = "") -> list[int | str]:
        (tmp_path / name).write_bytes(content)
        return read_source(workspace, f"{tmp_path / name}{column}")

    return run


def read_source(workspace: Workspace, text: str) -> list[int | str]:
    ingest(workspace, parse_sources([text]), Progress())
    rows = workspace.rows("SELECT id, rejected FROM ids ORDER BY id, rejected")
    return [rejected if an_id is None else an_id for an_id, rejected in rows]


Read = Callable[..., list[int | str]]


@pytest.mark.parametrize(
    ("name", "content", "column"),
    [
        ("a.txt", LINES, ""),
        ("a.txt", LINES.replace(b"\n", b"\r\n"), ""),
        ("a.txt.gz", gzip.compress(LINES[:1000]) + gzip.compress(LINES[1000:]), ""),
        ("a.csv", CSV, ""),
        ("a.csv", CSV, "#ID"),
        ("a.txt.gz", gzip.compress(LINES), "#column0"),
        ("a.csv", CSV.partition(b"\n")[2], "#column1"),
        ("a.csv", LINES, ""),
        ("a.csv", b"\xef\xbb\xbf" + CSV.replace(b"name,id", b"id").replace(b"x,", b""), "#id"),
        ("a.csv", CSV.replace(b",", b";"), "#id"),
        ("a.csv", CSV.replace(b"x", b'"a\n,""b"'), "#id"),
        ("a.tsv", CSV.replace(b",", b"\t"), "#id"),
        ("a.csv.gz", gzip.compress(CSV), "#id"),
    ],
)
def test_ids_are_read_from_every_kind_of_text(read: Read, name: str, content: bytes, column: str) -> None:
    assert read(name, content, column) == IDS


@pytest.mark.parametrize("kind", ["BIGINT", "UBIGINT", "DECIMAL(20,0)", "VARCHAR"])
def test_ids_are_read_from_every_whole_type_of_parquet(workspace: Workspace, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.parquet"
    duckdb.sql(f"COPY (SELECT 'x' AS name, 42::{kind} AS id UNION ALL SELECT 'y', NULL) TO '{path}'")
    assert read_source(workspace, f"{path}#id") == [42, ""]


def test_a_number_that_no_signed_column_holds_is_rejected_as_it_stands(workspace: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    duckdb.sql(f"COPY (SELECT unnest([{2**63}, 7])::UBIGINT AS id) TO '{path}'")
    assert read_source(workspace, str(path)) == [7, str(2**63)]


def test_no_line_is_taken_for_a_preamble_a_comment_or_a_header(read: Read) -> None:
    assert read("a.csv", b"id,n\n1,a\n#x,b\n5,c\n", "#id") == [1, 5, "#x"]
    assert read("b.txt", b"5\nabc\n7\n") == [5, 7, "abc"]
    assert read("a.csv", b"n,id\n" + b"x,1\n" * 21_000 + b'"a,b",7\n', "#id")[-1] == 7
    assert read("b.txt", b"1.5e17\n5\n") == [5, "1.5e17"]
    assert read("c.csv", b"id\n# exported\n5\n6\n7;8\n", "#id") == [5, 6, "# exported", "7;8"]


def test_values_that_are_no_ids_are_kept_as_text_and_the_others_are_read(read: Read) -> None:
    values = ["12", "", "1.0", "1e3", "0x10", "1_0", "+5", " 6 ", "007", "-8", "abc", "٣", "9" * 40]
    content = "id,n\n" + "".join(f"{value},x\n" for value in values)
    assert read("a.csv", content.encode(), "#id") == sorted([12, 6, 7, -8]) + sorted(
        ["", "1.0", "1e3", "0x10", "1_0", "+5", "abc", "٣", "9" * 40]
    )


@pytest.mark.parametrize(
    ("name", "content", "column", "says"),
    [
        ("a.csv", b"", "#id", "is empty, it has 0 bytes"),
        ("a.csv.gz", gzip.compress(CSV)[:-20], "#id", "is damaged or truncated"),
        ("a.csv.gz", CSV, "#id", "Not a gzipped file"),
        ("a.csv.gz", gzip.compress(b"", mtime=0), "", "it has no content"),
        ("a.txt.gz", gzip.compress(LINES)[:60] + b"\1\1\1" + gzip.compress(LINES)[63:], "", "cannot be read: "),
        ("a.parquet", CSV, "#id", "cannot be read: .*magic bytes"),
        ("a.csv", CSV, "#player_id", "has no column 'player_id'; it has 'name', 'id'"),
        ("a.csv", CSV.partition(b"\n")[2], "#id", "Columns without a header are column0"),
        ("a.csv", CSV, "#name", "#name holds no ids, but 'x', 'x', 'x'"),
        ("a.csv", b"id\n1.5e17\n2.5e17\n", "#id", "holds no ids, but '1.5e17'.* decimal point"),
        ("a.csv", CSV + b"x,1,2\n", "#id", "has no column 'id'; it has 'name,id'"),
        ("a.csv", CSV.decode().encode("utf-16"), "#id", "has no column 'id'|cannot be read"),
        ("a.csv", b"id\n\xe4\n", "", "Invalid unicode"),
        ("a.txt", b"hello\nworld\n", "", "holds no ids, but 'world'"),
    ],
)
def test_a_file_that_cannot_be_right_is_refused_with_the_reason(
    read: Read, name: str, content: bytes, column: str, says: str
) -> None:
    with pytest.raises(MergeError, match=says) as caught:
        read(name, content, column)
    text = str(caught.value)
    assert text.startswith(f"{name}: ")
    assert "Nothing was read" in text or "None of its" in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("value", "says"), [("5::DOUBLE", r"'5\.0'.* have lost their last digits"), ("DATE '2026-01-02'", "'2026-01-02'")]
)
def test_a_column_of_another_type_is_refused(workspace: Workspace, tmp_path: Path, value: str, says: str) -> None:
    path = tmp_path / "a.parquet"
    duckdb.sql(f"COPY (SELECT {value} AS id) TO '{path}'")
    with pytest.raises(MergeError, match=f"holds no ids, but {says}"):
        read_source(workspace, str(path))


def test_a_path_that_is_missing_is_found_before_anything_is_read(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(LINES)
    sources = parse_sources([f"{tmp_path}/a.txt", f"{tmp_path}/b*.txt"])
    with pytest.raises(MergeError, match=r"there is no file .*b\*\.txt"):
        ingest(workspace, sources, Progress())
    assert workspace.rows("SELECT count(*) FROM ids") == [(0,)]


def test_only_the_file_that_is_named_is_read_whatever_its_name_and_directory_are_called(
    workspace: Workspace, tmp_path: Path
) -> None:
    (tmp_path / "year=2026").mkdir()
    for number, name in enumerate(("a[1].txt", "a1.txt", "b?.txt", "bc.txt", "year=2026/c.txt")):
        (tmp_path / name).write_text(f"{number}\n")
    for number, name in ((0, "a[1].txt"), (2, "b?.txt"), (4, "year=2026/c.txt")):
        assert read_source(workspace, f"{tmp_path / name}") == [number]


def test_what_is_no_file_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    for text, says in ((str(tmp_path), "or it is a directory"), ("", "no file"), ("x" * 300, "no file")):
        with pytest.raises(MergeError, match=says):
            read_source(workspace, text)


def test_a_disk_that_is_full_is_no_unexpected_error(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "a.db")) as database, database:
        database.execute("CREATE TABLE t (id INTEGER)")
        database.executemany("INSERT INTO t VALUES (?)", [(at * 0x9E3779B97F4A7C15 % 2**63,) for at in range(60_000)])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8000, limits[1]))
        with pytest.raises(MergeError, match=r"no ids can be stored: .*Nothing was read; .*TMPDIR"):
            Workspace()
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
        with pytest.raises(MergeError, match=r"t\.id cannot be read: .*None of its ids .*TMPDIR"), Workspace() as small:
            read_source(small, f"sqlite:///{tmp_path}/a.db#t.id")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_names_of_files_and_columns_are_no_sql(workspace: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "it's; DROP TABLE ids.parquet"
    duckdb.sql('SELECT 1::BIGINT AS "x""; DROP TABLE ids"').write_parquet(str(path))
    assert read_source(workspace, f'{path}#x"; DROP TABLE ids') == [1]


def test_a_column_of_a_database_is_read_and_one_that_it_does_not_have_is_refused(
    workspace: Workspace, tmp_path: Path
) -> None:
    with sqlite3.connect(tmp_path / "shop.db") as shop:
        shop.execute('CREATE TABLE "my orders" (id, name TEXT)')
        shop.executemany('INSERT INTO "my orders" VALUES (?, ?)', [(5, "a"), ("6", "b"), (7.5, "c"), (None, "d")])
    shop.close()
    source = f'sqlite:///{tmp_path}/shop.db#"my orders"'
    assert read_source(workspace, f"{source}.id") == [5, 6, "", "7.5"]
    with pytest.raises(MergeError, match=r"no such column: t\.none"):
        read_source(workspace, f"{source}.none")
    with pytest.raises(MergeError, match="there is no SQLite file"):
        read_source(workspace, "sqlite:///nowhere.db#t.id")


# --- how sources are written --------------------------------------------------------------------------


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
        "postgresql://app:s3cret@127.0.0.1:1/db",
        "postgresql://app:s3/c:r ?et@127.0.0.1:1/db",
        "postgresql://app:s3cret@1@127.0.0.1:1/db",
        "postgresql://127.0.0.1:1/db?user=a&password=s3cret",
        "mysql://app:s3cret@127.0.0.1:port/db",
    ],
)
def test_a_password_is_never_shown(url: str, workspace: Workspace) -> None:
    (source,) = parse_sources([f"{url}#t.id"])
    said = [source.shown, source.name, without_password(url)]
    # one names no table, and the other cannot be opened
    for text in (url, f"{url}#t.id"):
        with pytest.raises(MergeError) as caught:
            read_source(workspace, text)
        said.append(str(caught.value))
    for text in said:
        assert "s3" not in text
        assert "et@" not in text
