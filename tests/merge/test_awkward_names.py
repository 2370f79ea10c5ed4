"""Names with spaces, quotes, capitals and reserved words: all that is printed to be pasted is pasted as it is."""

from __future__ import annotations

import re
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from snowredis.cli.exit_codes import ExitCode
from tests.support.statements import execute, rows_of

Cli = Callable[..., Any]
# an option and one word of a shell
OPTION = re.compile(r"""--(?:reference|match|id) (?:'[^']*'|"[^"]*"|[^\s'"])+""")
# every kind of database has its quotes: «a b» becomes "a b" or `a b`
TABLES = """
CREATE TABLE «My User» («Select» int PRIMARY KEY, «it's "name"» varchar(40) NOT NULL UNIQUE);
CREATE TABLE «Order's» («an id» int PRIMARY KEY, «My User» int, «50% off» varchar(40) NOT NULL,
    CONSTRAINT «a key; of %s» FOREIGN KEY («My User») REFERENCES «My User» («Select»));
CREATE TABLE «group» («Id» int PRIMARY KEY, «MyUserId» int, «About What» varchar(40), «about :id» int,
    «text» varchar(40));
CREATE TABLE «a.Tag» («Id» int PRIMARY KEY, «the "Name"» varchar(40) NOT NULL UNIQUE);
CREATE TABLE «Tagged» («tag» int NOT NULL, «group» int NOT NULL, PRIMARY KEY («tag», «group»),
    FOREIGN KEY («tag») REFERENCES «a.Tag» («Id»), FOREIGN KEY («group») REFERENCES «group» («Id»))
"""
ROWS = """
INSERT INTO «My User» VALUES (41, '{0} ann'), (57, '{0} bob'), (73, '{0} eve');
INSERT INTO «Order's» VALUES (301, 41, '{0} first'), (305, 57, '{0} second'), (309, 57, '{0} third');
INSERT INTO «group» VALUES (900, 41, 'My User', 73, '{0} a'), (907, 73, 'Order''s', 305, '{0} b'),
    (911, 57, 'Order''s', 301, '{0} c'), (919, 57, NULL, NULL, '{0} d');
INSERT INTO «a.Tag» VALUES (5, '{0}'), (9, 'both'), (13, 'O''Hara "x"');
INSERT INTO «Tagged» VALUES (5, 900), (9, 907), (13, 907), (13, 919)
"""
RELATIONS = """
SELECT g.«text», u.«it's "name"», g.«About What», COALESCE(a.«it's "name"», o.«50% off»), t.«the "Name"»,
    b.«it's "name"» FROM «group» g
    LEFT JOIN «My User» u ON u.«Select» = g.«MyUserId»
    LEFT JOIN «My User» a ON g.«About What» = 'My User' AND a.«Select» = g.«about :id»
    LEFT JOIN «Order's» o ON g.«About What» = 'Order''s' AND o.«an id» = g.«about :id»
    LEFT JOIN «My User» b ON b.«Select» = o.«My User»
    LEFT JOIN «Tagged» d ON d.«group» = g.«Id»
    LEFT JOIN «a.Tag» t ON t.«Id» = d.«tag»
"""
LOST = "SELECT count(*) FROM «My User» UNION ALL SELECT count(*) FROM «Order's» UNION ALL SELECT count(*) FROM «a.Tag»"


def words_of(options: str) -> list[str]:
    """Return the words that sh makes of pasted *options*."""
    script = f"set -- {options}\nfor word; do printf '%s\\0' \"$word\"; done"
    done = subprocess.run(["sh", "-c", script], capture_output=True, check=True, text=True)
    return done.stdout.split("\0")[:-1]


@pytest.mark.parametrize("kind", ["postgresql", "mariadb", "sqlite"])
def test_what_is_printed_for_awkward_names_is_pasted_and_no_row_is_lost_or_wrong(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, offline: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def quoted(text: str) -> str:
        mark = "`" if kind == "mariadb" else '"'
        return re.sub("«(.*?)»", lambda name: mark + name[1].replace(mark, mark * 2) + mark, text)

    def run(url: str, text: str) -> None:
        percent = "%" if kind == "sqlite" else "%%"
        execute(url, *(part.replace("%", percent) for part in re.split(r";\n", quoted(text))))

    def joined(*urls: str) -> Counter[Any]:
        query = quoted(RELATIONS).replace(" :", " \\:")
        return Counter(tuple(row) for url in urls for row in rows_of(url, query))

    monkeypatch.setattr("snowredis.merge.obstacles.SMALL_TABLE", 3)
    server = request.getfixturevalue(f"{kind}_server")
    kept, changed = server.new_database(), server.new_database()
    for url, shard in ((kept, "x"), (changed, "y")):
        run(url, TABLES + ";\n" + ROWS.format(shard))
        if kind == "postgresql":
            run(url, "CREATE TABLE «a Part» («Id» int PRIMARY KEY, «at» int) PARTITION BY RANGE («Id»)")
            run(url, "CREATE TABLE «a Part 1» PARTITION OF «a Part» FOR VALUES FROM (0) TO (100)")
            run(url, f"INSERT INTO «a Part» VALUES (50, {-ord(shard)}), (60, {-2 * ord(shard)})")
    before, path = joined(kept, changed), tmp_path / "the merge's.plan"
    options: list[str] = []
    # what rows of other tables have may be found again with the next option
    for _ in range(4):
        done = offline("merge", "plan", kept, changed, "--out", str(path), *words_of(" ".join(options)))
        if done.code == ExitCode.OK:
            break
        findings = done.out.splitlines()
        assert findings, done.err
        for finding in findings:
            if statement := re.search(r"CREATE TABLE .*;$", finding):
                for url in (kept, changed):
                    run(url, statement[0].rstrip(";"))
                break
            pasted = OPTION.search(finding)
            assert pasted, finding
            options.append(pasted[0])
    assert done.code == ExitCode.OK, done.out + done.err
    statements = re.findall(r"Make one first: (.*?\));", " ".join(done.out.split()))
    assert statements
    for statement in statements:
        run(changed, statement)
    (command,) = re.findall(r"next: snowredis (.*) --dry-run", done.out)
    done = offline(*words_of(command), "--yes")
    assert done.code == ExitCode.OK, done.err
    (command,) = re.findall(r"next: snowredis (.*) --run", done.out)
    done = offline(*words_of(command))
    if kind == "sqlite":
        database = sqlite3.connect(str(sa.make_url(kept).database))
        database.executescript(done.out)
        database.close()
    else:
        copied = subprocess.run(["bash", "-c", done.out], capture_output=True, text=True, check=False)
        assert copied.returncode == 0, copied.stderr
    done = offline("merge", "check", "--copied", str(path))
    assert done.code == ExitCode.OK, done.out

    assert joined(kept) == before
    assert [row[0] for row in rows_of(kept, quoted(LOST))] == [6, 6, 4]
    assert offline("merge", "copy", str(path), "--run", "--yes").code == ExitCode.MERGE_REFUSED
    assert joined(kept) == before
