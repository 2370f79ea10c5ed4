"""Run a merge by a map: one transaction of the first database, which copies, proves and marks; the second is only read.

The second database is read in one snapshot. Before the first row, everything that stands in the way is found. After
the last row, the rows that came are compared, by hashes, with the rules applied to the second database, and the number
of rows of every table with what it was. The mark in the first database is part of the same transaction: after a kill at
COMMIT a second run is refused, or nothing has come.
"""

from __future__ import annotations

import csv
import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from snowredis.core.values import iso_text
from snowredis.errors import shown
from snowredis.merge import MergeError
from snowredis.merge.databases import MARK, ROWID, ForeignKey, Progress, database_errors, parents_first, url_of, whole
from snowredis.merge.dialects import Database, transaction, two_databases
from snowredis.merge.draft import Case, Draft, Tables
from snowredis.merge.evidence import LOOKED, Evidence
from snowredis.merge.map_file import Move, families, load_map, problems_of, refuse
from snowredis.merge.translation import MANY, Translation, choose_offsets, clashes, unfit_values

_MARK_TABLE = (
    f"CREATE TABLE IF NOT EXISTS {MARK} (second VARCHAR(32) PRIMARY KEY, merged_at VARCHAR(32), ids_plus BIGINT, "
    "offsets TEXT, map VARCHAR(32), rows_seen TEXT)"
)
# rows of each table by which a second database is known again
_SEEN = 50


# a word and a text each
_Findings = list[tuple[str, str]]


class MergeResult(NamedTuple):
    """Result of a merge.

    Attributes:
        offsets: of each group of columns; of all others under an empty name.
        verdict: what was done, and what to look at again: a word and a text each.
    """

    offsets: dict[str, int]
    verdict: _Findings


def merge(
    path: Path,
    urls: tuple[str, str],
    progress: Progress,
    *,
    commits: bool = True,
    pairs: Path | None = None,
    pause: Callable[[str], None] = lambda _: None,
) -> MergeResult:
    """Merge the second database into the first.

    Args:
        commits: False: do everything, and roll it back.
        pairs: file for values that changed by more than an offset.
        pause: called at each step, for tests that end the process there.

    Raises:
        MergeError: refused, or rolled back.
    """
    the_map, moved_back = load_map(path), list[str]()
    try:
        with two_databases(*urls, writes=True) as (first, second):
            progress.start("reading tables and foreign keys")
            engine = first.engine
            if not first.take_lock(MARK):
                raise MergeError(
                    f"another process merges into {url_of(engine)}. Nothing was changed by this one; wait for the "
                    "other, or stop it, and run the same command again."
                )
            refuse(list(problems_of(the_map, first.tables, second.tables, first.kind)))
            translation = Translation(the_map, first, second, progress)
            run = _Run(translation, pause)
            run.prepare()
            if first.ends_by_ddl:
                # counters of MariaDB are in no transaction
                counters = (counter for counter in first.counters if counter.table in translation.names)
                moved_back += [first.raised(counter, counter.last) for counter in counters]
            run.copy()
            rows, changed = run.prove(), _write_pairs(translation, pairs if commits else None)
            verdict = list(run.verdict(rows, changed, pairs, commits=commits))
            pause("proved")
            if commits:
                run.mark()
                if not first.ends_by_ddl:
                    run.raise_counters()
                pause("COMMIT")
                first.run("COMMIT")
                moved_back.clear()
                pause("committed")
                if first.ends_by_ddl:
                    with database_errors(engine, "The merge is complete; only a counter was not raised"):
                        run.raise_counters()
    finally:
        if moved_back:
            with transaction(engine, writes=True) as again:
                for statement in moved_back:
                    again.run(statement)
    return MergeResult(translation.offsets, verdict)


class _Run:
    """The steps of one merge."""

    def __init__(self, translation: Translation, pause: Callable[[str], None]) -> None:
        self.translation, self.progress, self.pause = translation, translation.progress, pause
        self.map, self.names = translation.map, translation.names
        self.first, self.second = translation.first, translation.second
        self.seen = _rows_seen(translation)
        # the rows of each table of the first database, and their hash if the values do not say which rows came
        self.before: dict[str, tuple[int, int]] = {}
        self.coming = 0
        # the condition of a row that came; empty: none
        self.moved: dict[str, str] = {}
        # foreign keys by which a row may lead elsewhere, and how many rows lead nowhere by each
        self.orphans: list[tuple[str, ForeignKey, int]] = []
        self.findings: _Findings = []

    def prepare(self) -> None:
        """Find offsets and pairs, and what the verdict says of rows that do not come and of the rules.

        Raises:
            MergeError: with everything that stands in the way.
        """
        self._check_mark()
        translation = self.translation
        if self.names:
            self.first.lock([self.first.tables[name].sql for name in self.names])
        self.progress.start("comparing ids")
        problems = [*choose_offsets(translation), *unfit_values(translation), *_broken_expressions(translation)]
        for found in (translation.find_pairs, lambda: clashes(translation)):
            problems += [] if problems else found()
        evidence = Evidence((self.first, self.second), self.progress, reads_all=False)
        self.before = {name: (mine.count, 0) for name, (mine, _) in evidence.samples.items()}
        self.coming = sum(evidence.samples[name][1].count for name in self.names)
        doubts = list(_doubts(translation, evidence))
        refuse(problems + [text for text, is_strong in doubts if is_strong])
        self.findings += [("computed", text) for text in translation.computed()]
        for name, (rows, others) in translation.away.items():
            if rows or self.map.tables[name].match:
                text = f"{rows:,} rows of {name}, which the first database has; {others:,} of them differ in other"
                self.findings.append(("stayed away", f"{text} columns"))
        tables = self.second.tables
        counts = {name: self.second.count(tables[name].sql) for name in self.map.of("skip") if name in tables}
        if skipped := [f"{rows:,} rows of {name}" for name, rows in counts.items() if rows]:
            self.findings.append(("skipped", ", ".join(skipped)))
        self.findings += [("look again", text) for text, _ in doubts]
        if evidence.partly:
            which = f"{LOOKED:,} rows at most of {', '.join(evidence.partly)}"
            text = f"{which}: all over a key of integers, else the first rows. A draft looks at all rows"
            self.findings.append(("looked at", text))

    def verdict(self, rows: int, changed: int, pairs: Path | None, *, commits: bool) -> Iterator[tuple[str, str]]:
        """Yield the verdict: *rows* came; *changed* values moved otherwise than by an offset, and are in *pairs*."""
        text = f"{rows:,} rows of {len(self.names)} tables, each as the map says"
        word = "merged" if commits else "would be merged"
        yield word, f"{text}. The rows that were there are unchanged, and foreign keys hold"
        yield "ids", f"new id = old id + {self.translation.offsets['']:,}, also outside of the database"
        for group, offset in self.translation.offsets.items():
            if group:
                yield "ids", f"of own = {group}: old id + {offset:,}"
        if changed:
            yield "pairs", f"{changed:,} values are others: {pairs if commits else 'see a run without --dry-run'}"
        left, column = self.translation.merges_left
        if column:
            text = f"{'more than ' * (left >= MANY)}{left} more databases of this size fit; {column} is full first"
            yield "room", text
        yield from self.findings

    # --- rows --------------------------------------------------------------------------------------

    def copy(self) -> None:
        """Copy all rows that come, with triggers off and foreign keys that wait."""
        tables = self.first.tables
        for name in self.names:
            self.moved[name] = self._moved(name)
            if not self.moved[name]:
                self.before[name] = self._state(name)
            unsure = [key for key in tables[name].foreign_keys if not self._is_sure(name, key)]
            self.orphans += [(name, key, self._orphans(self.first, name, key)) for key in unsure]
        ordered, late = parents_first(tables, self.names)
        before, after = self.first.quiet([tables[name] for name in self.names], late)
        for statement in before:
            self.first.run(statement)
        self.progress.start("copying", self.coming)
        for name in ordered:
            self.pause(name)
            self.translation.copy(name, tables[name].sql, self.translation.columns(name), [])
        for name in self.names:
            self._raise_tops(name)
        for statement in after:
            self.first.run(statement)

    def _moved(self, name: str) -> str:
        """Return the condition that a row came: an id moved above all of before in each; empty: there is none."""
        table, said = self.first.tables[name], self.map.tables[name]
        for column in said.lists.get("id", []):
            known, value = table.columns[column], self.translation.column(column)
            # any column of SQLite may hold a text, but for those that it counts
            is_first = column in table.primary[:1] and self.first.kind != "sqlite"
            is_key = known.kind == "int" and (known.is_counter or known.type == ROWID or is_first)
            if is_key and not self.translation.count(name, f"({value} IS NULL OR {value} <= 0)"):
                return f"{value} > {self.translation.offsets[said.text('own', column)]}"
        return ""

    def _is_sure(self, name: str, key: ForeignKey) -> bool:
        """Return whether a row leads where it led: all rows of the parent come, and both ends move as the map says."""
        said, its = self.map.tables[name], self.map.tables[key.parent]
        rules = {*map(said.rule, key.columns), *map(its.rule, key.parents)}
        return its.rows == "copy" and not its.match and "sql" not in rules

    def _orphans(self, database: Database, name: str, key: ForeignKey) -> int:
        given = " AND ".join(f"c.{database.quote(column)} IS NOT NULL" for column in key.columns)
        parent, same = database.tables[key.parent].sql, database.same("p", key.parents, "c", key.columns)
        rows = f"{database.tables[name].sql} c WHERE {given} AND NOT EXISTS (SELECT 1 FROM {parent} p WHERE {same})"
        return database.count(rows)

    def _raise_tops(self, name: str) -> None:
        """Raise the counters that rows of the first database hold above those of the second."""
        tops, first, value = self.map.tables[name].lists.get("top", []), self.first, self.translation.value
        if not tops:
            return
        key, table = self.translation.first_key(name), first.tables[name]
        values = [*(value(name, column) for column in tops), *(first.text(value(name, column)) for column in key)]
        for row in self.second.rows(f"SELECT {', '.join(values)} FROM {self.second.tables[name].sql} y"):
            pairs = zip(map(first.quote, key), row[len(tops) :], strict=True)
            same = [f"{first.text(column)} = {first.literal(str(each))}" for column, each in pairs]
            numbers = zip(tops, map(whole, zip(row)), strict=False)
            for column, number in ((column, number) for column, found in numbers for number in found):
                there = f"COALESCE({first.digits(table.columns[column], first.quote(column))}, 0)"
                where = " AND ".join([*same, f"{there} < {number}"])
                first.run(f"UPDATE {table.sql} SET {first.quote(column)} = {number} WHERE {where}")

    # --- proof -------------------------------------------------------------------------------------

    def prove(self) -> int:
        """Compare what is there now with the rules and with what was there; return how many rows came.

        Raises:
            MergeError: it is not that.
        """
        wrong, total = list[str](), 0
        self.progress.start("comparing rows", len(self.before))
        for name, (count, hashed) in self.before.items():
            came, its = self._state(name, of_second=True) if name in self.names else (0, 0)
            now, found = self._state(name)
            if now != count + came:
                wrong.append(f"[{name}] has {now:,} rows instead of {count:,} + {came:,}")
            elif found != hashed + its:
                wrong.append(f"[{name}] the rows that came are not those that the rules make of the second database")
            total += came
            self.progress.add(1)
        for name, key, before in self.orphans:
            new = self._orphans(self.first, name, key) - before
            is_there = new > 0 and key.parent in self.second.tables
            if new > (self._orphans(self.second, name, key) if is_there else 0):
                columns = ", ".join(key.columns)
                wrong.append(f"[{name}] {new:,} rows came whose {columns} leads to no row of {key.parent}")
        if wrong:
            raise MergeError("the proof failed, and everything was rolled back", wrong)
        return total

    def _state(self, name: str, *, of_second: bool = False) -> tuple[int, int]:
        """Return how many rows a table has, and the hash of those that came, or of all if none can be told.

        Args:
            of_second: what the rules make of the rows of the second database.
        """
        tops, translation = self.map.tables[name].lists.get("top", []), self.translation
        names = [column for column in translation.columns(name) if column not in tops and name in self.names]
        columns = [self.first.tables[name].columns[column] for column in names]
        database = self.second if of_second else self.first
        values = [translation.value(name, each) if of_second else translation.column(each) for each in names]
        rows = translation.rows(name) if of_second else f"FROM {self.first.tables[name].sql} y"
        hashed = database.row_hash(columns, values) if columns else "0"
        if not of_second and self.moved.get(name):
            hashed = f"CASE WHEN {self.moved[name]} THEN {hashed} END"
        count, total = database.one(f"SELECT COUNT(*), SUM({hashed}) {rows}")
        return int(count), int(total or 0)

    # --- counters and mark -------------------------------------------------------------------------

    def raise_counters(self) -> None:
        """Move counters above the numbers that came, and above those that the second database has given."""
        last = {(each.table, each.column, each.name): each.last for each in self.second.counters}
        for counter in self.first.counters:
            said, column = self.map.tables.get(counter.table or ""), counter.column or ""
            if said is None or said.rows != "skip":
                above = last.get((counter.table, counter.column, counter.name), 0)
                offset = self.translation.offsets[said.text("own", column) if said else ""]
                is_moved = above and (not said or said.rule(column) == "id")
                if statement := self.first.raised(counter, above + offset if is_moved else -1):
                    self.first.run(statement)

    def _check_mark(self) -> None:
        if not self.first.has(MARK):
            return
        for second, at, plus, seen in self.first.rows(f"SELECT second, merged_at, ids_plus, rows_seen FROM {MARK}"):
            there = json.loads(seen)
            both = there.keys() & self.seen.keys()
            same = sum(there[name] == self.seen[name] for name in both)
            if same and same * 2 >= len(both):
                raise MergeError(
                    f"this second database was merged at {at}, its ids + {plus:,}: the first rows of {same} of "
                    f"{len(both)} tables are the same. Nothing was written, since a second run would bring every row "
                    f"again. If it is another database: DELETE FROM {MARK} WHERE second = '{second}'"
                )

    def mark(self) -> None:
        """Write, as a part of the transaction, that this second database was merged."""
        if self.first.ends_by_ddl:
            with transaction(self.first.engine, writes=True) as other:
                other.run(_MARK_TABLE)
        else:
            self.first.run(_MARK_TABLE)
        offsets, seen = json.dumps(self.translation.offsets), json.dumps(self.seen)
        now = iso_text(time.time_ns() // 1_000_000)
        second = hashlib.blake2b(f"{now}{seen}".encode(), digest_size=8).hexdigest()
        row = (second, now, self.translation.offsets[""], offsets, self.map.checksum, seen)
        self.first.insert(f"INSERT INTO {MARK}", len(row), [row])


def _broken_expressions(translation: Translation) -> Iterator[str]:
    """Yield the expressions of the map that are no SQL of the second database."""
    second = translation.second
    for name in translation.names:
        texts = translation.map.tables[name].texts
        for word, column, text in ((by, *each) for by in ("sql", "taken") for each in texts.get(by, {}).items()):
            second.run("SAVEPOINT expression")
            try:
                second.rows(f"SELECT {translation.expression(text)} FROM {second.tables[name].sql} y LIMIT 0")
            except second.engine.dialect.loaded_dbapi.Error as error:
                second.run("ROLLBACK TO SAVEPOINT expression")
                yield f"[{name}] {word}.{column}: {str(error).splitlines()[0]}. Write an expression of this database"


def _rows_seen(translation: Translation) -> dict[str, str]:
    """Return a hash of the first rows of each table of the second database, by which it is known again."""
    found: dict[str, str] = {}
    second = translation.second
    # a table without such ids counts only if there is no other: its rows are sorted by all columns
    for has_id in (True, False):
        for name in translation.map.of("copy") if has_id or not found else ():
            table, rules = second.tables[name], translation.map.tables[name].rules
            key = [c for c in table.primary if rules.get(c) in ("id", "flake")][:1]
            if bool(key) == has_id:
                columns = [second.quote(column.name) for column in table.written]
                order = second.names(key) or ", ".join(map(second.text, columns))
                rows = second.rows(f"SELECT {', '.join(columns)} FROM {table.sql} ORDER BY {order} LIMIT {_SEEN}")
                if rows:
                    found[name] = hashlib.blake2b(repr(rows).encode("utf-8", "replace"), digest_size=8).hexdigest()
    return found


def _write_pairs(translation: Translation, path: Path | None) -> int:
    """Write the values that changed by more than an offset, if there is a *path*; return how many."""
    rows = list(translation.changed_values())
    if path is None or not rows:
        return len(rows)
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("where", "old", "new"), *rows])
    except OSError as error:
        raise MergeError(
            f"{shown(str(path))} cannot be written: {error.strerror}. Everything was rolled back. Copy the "
            "map to a folder that can be written."
        ) from error
    return len(rows)


# --- a second look ---------------------------------------------------------------------------------------


def _doubts(translation: Translation, evidence: Evidence) -> Iterator[tuple[str, bool]]:
    """Yield where the evidence speaks against the rules of a finished map, but for columns that are sure.

    Each is a text, and whether it is refused before the first row.
    """
    the_map = translation.map
    matched = {(name, str(the_map.ids[name])): said.match for name, said in the_map.tables.items() if said.match}
    tables, draft = Tables(fixed=set(the_map.of("first", "skip")), matched=matched), Draft(evidence)
    for name in the_map.of("copy", "first"):
        said, table = the_map.tables[name], evidence.tables[name]
        left_out = {*said.lists.get("sure", []), *(column for key in table.foreign_keys for column in key.columns)}
        found: dict[bool, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for column in (column for column in table.written if column.name not in left_out):
            if against := _against(translation, Case(evidence, tables, table, column)):
                reason, is_strong = against
                found[is_strong][f"in {said.rule(column.name)}, and {reason}"].append(column.name)
        for is_strong, reasons in found.items():
            parts = (f"{', '.join(families(of))} {'are' if of[1:] else 'is'} {why}" for why, of in reasons.items())
            columns = json.dumps([column for of in reasons.values() for column in of], ensure_ascii=False)
            yield f"[{name}] {'; '.join(parts)}, or write sure = {columns}", is_strong
        if said.rows == "copy" and not said.match and draft.judge_rows(table) == "first":
            yield f'[{name}] rows is "copy", and {draft.notes[name][-1]}', False


def _against(translation: Translation, case: Case) -> tuple[str, bool] | None:
    """Return what speaks against the rule of a column, with what to do, and whether nothing speaks for it."""
    the_map, (name, column) = translation.map, case.where
    rule, mine, guess = the_map.tables[name].rule(column), the_map.move(name, column), case.guess()
    its = the_map.move(*guess.of) if guess.of else Move(guess.rule)
    if its == mine == Move("keep"):
        # it may have ids of another column than the likeliest one
        its = Move(guess.rule)
    for target, key in case.tables.matched if mine.rule in ("id", "keep") else ():
        kind, is_called = case.evidence.tables[target].columns[key].kind, case.evidence.is_named_after(column, target)
        is_like = kind != "int" and kind == case.column.kind and (name, column) != (target, key)
        may_be = rule == "id" and not guess.of and (target, key) in [lead.where for lead in case.leads]
        is_meant = is_like or is_called or may_be or its == Move("of", target)
        if is_meant and (number := translation.matched_in(name, column, target)):
            why = f"{number:,} of its values are ids of rows of {target} that stay away (match)"
            return f'{why}: write of.{column} = "{target}"', is_like or is_called
    is_settled = rule in ("sql", "top", "none") or (name, column) in case.tables.matched
    if is_settled or its == mine or its.rule in ("none", "") or (its.rule, rule) == ("ask", "id"):
        return None
    cure = f"write {its.written(column)}" if its.by else f"move it to {'id or sql' if its.rule == 'ask' else its.rule}"
    why = guess.why or "nothing says of which table its values are ids"
    return f"{why}: {cure}", rule == "keep" and guess.is_strong
