"""`snowredis merge draft`: a map with a guess for every table and column, the reason, and `ask` where it is open.

The same guesses, compared with a finished map, say in a run where the evidence speaks against it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from snowredis.errors import shown
from snowredis.merge.databases import (
    AMOUNT_NAME,
    LISTED_NAME,
    ROLE_NAME,
    ROWID,
    Table,
    TableColumn,
    checksum,
    is_named_like_an_id,
    stem,
    whole,
)
from snowredis.merge.evidence import LARGE, Evidence, Lead, Where, share_of
from snowredis.merge.map_file import UNDECIDED, Map, TableMap, families, family_of


class Guess(NamedTuple):
    """Guess of the rule of a column.

    Attributes:
        rule: a word of a map; "sql": ids are in a part of it; empty: it is left out.
        why: the evidence.
        of: the column whose ids it has, so that both must move alike.
        is_strong: nothing speaks against it.
    """

    rule: str
    why: str = ""
    of: Where | None = None
    is_strong: bool = False


@dataclass
class Tables:
    """Facts about the tables, known before their columns are judged.

    Attributes:
        fixed: rows of which the ids stay.
        same: tables of these whose rows are nearly all the same in both, with all that they refer to.
        matched: the columns that name a row, by the id of tables whose rows are in both.
        alike: tables with many rows that are the same in both; which ids these have is not known.
    """

    fixed: set[str] = field(default_factory=set)
    same: set[str] = field(default_factory=set)
    matched: dict[Where, list[str]] = field(default_factory=dict)
    alike: set[str] = field(default_factory=set)


class Case:
    """A column that is judged: the first of its detectors that has a guess decides.

    Attributes:
        is_key, is_named: it is called as a column that numbers rows; and as an id.
        is_counted: the database numbers it, as it seems.
        sides, values: of each database, and of both.
        leads, size: columns with these ids, the likeliest first; and how many different numbers it has.
        are_numbers: its values are integers, also as floats or texts.
        path: columns whose foreign keys lead here.
    """

    def __init__(
        self, evidence: Evidence, tables: Tables, table: Table, column: TableColumn, path: tuple[Where, ...] = ()
    ) -> None:
        self.evidence, self.tables, self.table, self.column, self.path = evidence, tables, table, column, path
        self.name, self.where = column.name, (table.name, column.name)
        self.sets = evidence.numbers[self.where]
        self.size = max(map(len, self.sets))
        self.sides = [sample.values(self.name) for sample in evidence.samples[table.name]]
        self.values = [value for side in self.sides for value in side]
        texts = {value for value in self.values if isinstance(value, str)} - {"", "0"}
        are_whole = len(whole(texts)) == len(texts) and all(isinstance(each, int | str | None) for each in self.values)
        self.are_numbers = column.kind == "int" or (column.kind in ("float", "text") and are_whole)
        self.is_key = self.name.lower() in {name.lower() for _, name in evidence.ids} - {"id", ROWID}
        self.is_named = self.is_key or is_named_like_an_id(self.name)
        known = evidence.leads_of[self.where]
        self.leads = [lead for lead in known if self.is_named or lead.where[0] not in tables.alike]
        self.is_listed = bool(LISTED_NAME.search(stem(self.name)))
        # SQLite numbers each INTEGER PRIMARY KEY, also one that has ids or places of something outside
        first = evidence.databases[0]
        is_sure = first.kind != "sqlite" or table.name in {each.table for each in first.counters}
        self.is_counted = column.is_counter and is_sure

    def guess(self) -> Guess:
        """Return what the column seems to be."""
        found = (detector(self) for detector in _DETECTORS)
        return next((guess for guess in found if guess), Guess("keep"))

    # --- what the catalog says ---------------------------------------------------------------------

    def of_the_catalog(self) -> Guess | None:
        """Judge a rowid, and both ends of foreign keys."""
        if self.column.type == ROWID:
            known = (where for where, leads in self.evidence.leads_of.items() if leads and leads[0].where == self.where)
            columns = [".".join(where) for where in known if where not in self.evidence.ids and where[1] != ROWID]
            if self.table.name in self.tables.fixed or not columns:
                return Guess("")
            return Guess("id", f"the rowid of SQLite: {columns[0]} leads to it")
        for key in self.table.foreign_keys:
            if self.name in key.columns:
                return self._foreign_key(key.parent, key.target(self.name))
        return Guess("keep") if self.table.name in self.tables.same else None

    def _foreign_key(self, parent: str, target: str) -> Guess:
        if (parent, target) in self.tables.matched:
            return Guess("of", f"foreign key to {parent}", (parent, target), is_strong=True)
        its, path = self.evidence.tables[parent], (*self.path, self.where)
        parents = Case(self.evidence, self.tables, its, its.columns[target], path)
        # a circle of keys comes back to a column
        guess = Guess("id") if parents.where in path else parents.guess()
        why = "" if guess.rule == "keep" else f"foreign key to {parent}"
        return Guess(guess.rule, why, (parent, target), is_strong=guess.rule == "id")

    # --- ids inside of values ----------------------------------------------------------------------

    def inside(self) -> Guess | None:
        """Judge a column that is not of numbers: of texts, bytes, JSON, an array, or another type."""
        if self.are_numbers or (self.column.kind == "other" and self.size):
            return None
        if self.column.kind != "float" and (found := self.evidence.parts(*self.where)):
            place, lead, example = found
            return Guess("sql", f"ids of {lead} inside ({place}), as in {example}")
        # only numbers that are at one place of all values were found
        why = "bytes: are there ids in them?" if self.column.kind == "bytes" and any(self.values) else ""
        return None if self.column.kind == "other" else Guess("keep", why)

    def _rule_of(self, where: Where) -> str:
        """Return the rule of ids, and of all that lead to them."""
        rules = {each.rule for each in self.evidence.ids.get(where, ())}
        return next((rule for rule in ("flake", "sql") if rule in rules), "id")

    def _like(self, lead: Lead, why: str = "ids", *, is_strong: bool = False) -> Guess:
        """Return the guess that it has the ids of another column, and moves as they do."""
        rule = "of" if lead.where in self.tables.matched else self._rule_of(lead.where)
        return Guess(rule, f"{why} of {lead}", lead.where, is_strong)

    # --- numbers that no catalog explains ----------------------------------------------------------

    def counted(self) -> Guess | None:
        """Judge what is no number, what a counter numbers, and columns without numbers."""
        table, evidence = self.table, self.evidence
        is_key = self.column.is_counter or table.primary == [self.name]
        is_fixed = is_key and table.name in self.tables.fixed
        if not (self.are_numbers or self.column.kind == "other") or is_fixed:
            return Guess("keep")
        is_part = self.name in table.primary and table.primary != [self.name]
        is_called = self._best and self._best.near == 3
        if is_part and all(0 in each for each in self.sides) and not (is_called or self.is_key):
            return Guess("keep", "a number within its parent: 0 is among them")
        rule = self._rule_of(self.where)
        if rule == "flake":
            return Guess(rule, "ids of a layout: equal ones get new ids", is_strong=True)
        if rule == "sql":
            return Guess(rule, "its numbers have a mark in high bits, which an offset would change")
        if self.is_counted or (self.are_numbers and self.where in self.tables.matched):
            return Guess("id", f"counted{', inside of a key' * (len(table.primary) > 1)}", is_strong=True)
        if self.size:
            return None
        # a column of a family, item0 to item9, without values until now
        same = (each for each in table.written if family_of(each.name) == family_of(self.name))
        if other := next((each for each in same if any(evidence.numbers[table.name, each.name])), None):
            return Case(evidence, self.tables, table, other).guess()
        are_empty = self.are_numbers or all(value in (None, "", "0", "-1", 0, -1) for value in self.values)
        return Guess("none" if self.is_named and are_empty else "keep")

    @cached_property
    def _best(self) -> Lead | None:
        """The likeliest of them whose ids move."""
        return next((lead for lead in self.leads if lead.where[0] not in self.tables.fixed), None)

    def typed(self) -> Guess | None:
        """Judge a column beside one that names the tables of its ids, as item_type does of item_id."""
        found = self.evidence.named_tables(*self.where) if self.is_named and self.size else None
        if not found:
            return None
        kind, names, are_all = found
        keys = [where for where in self.evidence.ids if where[0] in names and where[1] != ROWID]
        rules = {"keep" if key[0] in self.tables.fixed else self._like(Lead(key)).rule for key in keys}
        rule = rules.pop() if are_all and len(rules) == 1 and "of" not in rules else "sql"
        return Guess(rule, f"ids of {', '.join(sorted(names))}, as {kind} says")

    def key(self) -> Guess | None:
        """Judge a key by itself, and an id of the table within its key."""
        table, best = self.evidence.called[self.table.name], self._best
        mine, its = stem(self.name), stem(table)
        # charId of characters, but not accountId of account_tutorial
        is_own = mine in ("", "u", its) or (its.startswith(mine) and "_" not in table)
        if self.table.primary != [self.name] and not (is_own and self.where in self.evidence.ids):
            return None
        if is_own or (best and (best.ends or (best.near and self.is_named))):
            return self._like(best) if best and not is_own else Guess("id", "key")
        return Guess("ask", "a key by itself: an id of this table, or of something outside?")

    def named(self) -> Guess | None:
        """Judge a column that is called an id, or as a table, and whose numbers are ids of tables that stay or move."""
        # as many tables, an amount may be called
        is_amount = AMOUNT_NAME.search(self.name) or self.name.endswith("s")
        is_called = self.is_named or (self._best and self._best.near == 3 and not is_amount)
        if not (is_called and self.leads):
            return None
        if not self.leads[0].near and self.is_listed:
            return Guess("keep", "named after a list of the application, which no table here has")
        if self.name.lower() == "id" and self.name in self.table.primary:
            if self.name != self.table.primary[0]:
                return Guess("keep", "a number within its parent, by its place in the key")
            return Guess("ask", f"called id, and not the id of a row: of {self.leads[0]}, or of a list outside?")
        # if tables are named as the column is, its numbers are of one of them
        nearest = [lead for lead in self.leads if lead.near == self.leads[0].near]
        staying = [lead for lead in nearest if lead.where[0] in self.tables.fixed]
        moving = [lead for lead in nearest if lead not in staying]
        if not moving:
            return Guess("keep", f"ids of {staying[0]}, which stay")
        best = moving[0]
        if staying and best.near:
            return Guess("ask", f"ids of {staying[0]}, which stay, or of {best}, which move?")
        guess = self._like(best, is_strong=best.fills)
        # numbers of something outside seldom reach nearly all of the range of ids in both databases
        is_meant = best.near or best.reach > 0.9 or ROLE_NAME.search(stem(self.name))
        # a table of a few rows is never filled; a table that has no key may be called as something else
        is_of_it = self.evidence.is_named_after(self.name, best.where[0]) and best.where[1] != ROWID
        is_sure = is_of_it or (is_meant and (best.fills or self.is_key))
        if is_sure and (guess.rule != "of" or best.near):
            return guess
        is_open = self.size >= 3 or best.near == 3
        return Guess("ask", f"named like an id; are its values ids of {best}?") if is_open else None

    def filling(self) -> Guess | None:
        """Judge numbers that fill the ids of a table, and those that number the rows of their own."""
        best = self._best
        if best and best.fills:
            is_plain = not AMOUNT_NAME.search(self.name) and (best.near or not self.is_listed)
            least = 5 if min(map(min, self.sets)) > LARGE else 12
            if best.ends or (is_plain and self.size >= least):
                return Guess("ask", f"its values fill {best}, and its name does not say it")
        return None

    def partly(self) -> Guess | None:
        """Judge numbers that are ids in some rows, or halves of ids."""
        evidence = self.evidence
        found = evidence.by_kind(*self.where) if self.size >= 8 else None
        kinds = f", all where {found[0]} is {', '.join(map(str, found[1][:5]))}" if found else ""
        part = evidence.share_of_any(self.sets) if self.is_named and self.size >= 8 else 0
        if part >= 0.4:
            return Guess("sql", f"{part:.0%} of its values are ids{kinds}")
        if kinds:
            return Guess("sql", f"ids{kinds}, else not")
        names = [each.name for each in self.table.written if each.kind == "int"]
        for low, high in (pair for one in pairwise(names) for pair in (one, one[::-1]) if self.name in one):
            if whose := evidence.halves(self.table.name, low, high):
                return Guess("sql", f"{low} and {high} are the low and high 16 bits of ids of {'.'.join(whose)}")
        return None

    def elsewhere(self) -> Guess | None:
        """Judge a column that is called as an id, of a table that does not have all of its numbers, or of none."""
        evidence, stays = self.evidence, self.tables.fixed
        for name in (name for name in evidence.tables if self.size and name not in stays):
            ids = [where for where in evidence.ids if where[0] == name and where[1] != ROWID]
            share = max((share_of(self.sets, evidence.ids[where]) for where in ids), default=0.0)
            is_of_it = evidence.is_named_after(self.name, name)
            if is_of_it or (self.is_key and share >= 0.5 and self.name in (column for _, column in ids)):
                word = "ask" if share >= 0.2 or not any(each.rows for each in evidence.samples[name]) else "keep"
                return Guess(word, f"named like an id of {name}, and {share:.0%} of its values are there")
        if self.is_named:
            return Guess("keep", "named like an id, but leads nowhere: of another database?")
        return None

    def top(self) -> Guess | None:
        """Judge a number that seems to be the next one of a counter."""
        where = self.evidence.counted_by(self.table, self.name) if self.are_numbers else None
        return Guess("top", f"the next number of {'.'.join(where)} (top), or an amount?") if where else None


_DETECTORS: tuple[Callable[[Case], Guess | None], ...] = (
    *(Case.of_the_catalog, Case.inside, Case.counted),
    *(Case.typed, Case.key, Case.named, Case.filling, Case.partly, Case.top, Case.elsewhere),
)


# --- the draft -------------------------------------------------------------------------------------------


class Draft:
    """Drafts a map.

    Attributes:
        notes: the evidence by table.
        about: notes about several tables.
    """

    def __init__(self, evidence: Evidence) -> None:
        self.evidence, self.catalog, self.tables = evidence, evidence.tables, Tables()
        self.notes: dict[str, list[str]] = defaultdict(list)
        self.about: list[str] = []

    def map(self) -> Map:
        """Return the map."""
        # which rows stay is known before columns are judged
        rows = {name: self.judge_rows(table) for name, table in self.catalog.items()}
        found = {name: self._draft_table(table, rows[name]) for name, table in self.catalog.items()}
        orphans = [text for name, said in found.items() for text in self._orphans(name, said)]
        self.about += [f"orphans, which need no answer: {'; '.join(orphans)}"] * bool(orphans)
        for name in self.evidence.databases[1].tables.keys() - self.catalog.keys():
            self.notes[name], found[name] = ["only in the second database: create it, or skip"], TableMap(UNDECIDED)
        for group in self.evidence.generators():
            names = ", ".join(map(".".join, group))
            self.about.append(f"one generator for {names}? No number is in two of them: they need one offset, no own")
        return Map({"reviewed": False, "schema": checksum(self.catalog)}, found)

    def _orphans(self, name: str, said: TableMap) -> Iterator[str]:
        """Yield the columns of a table with numbers that lead to no row."""
        table, evidence = self.catalog[name], self.evidence
        for column in (*said.lists.get("id", []), *said.texts.get("of", {})):
            where = (name, column)
            targets = [(key.parent, key.target(column)) for key in table.foreign_keys if column in key.columns]
            if not targets and where not in evidence.ids:
                targets = [lead.where for lead in evidence.leads_of[where]]
            if targets and table.columns[column].kind == "int":
                counts = [evidence.orphans(side, where, targets[0]) for side in (0, 1)]
                if any(counts):
                    yield f"{'.'.join(where)} to {'.'.join(targets[0])}: {counts[0]:,} and {counts[1]:,} rows"

    def judge_rows(self, table: Table) -> str:
        """Return the word for the rows of a table, and note which tables are in both databases."""
        (first, second), notes = self.evidence.samples[table.name], self.notes[table.name]
        notes += ["no rows in the second database"] * (not second.rows)
        same = len(set(map(repr, first.rows)) & set(map(repr, second.rows)))
        if same >= max(2, 0.5 * min(len(first.rows), len(second.rows))):
            if word := self._judge_same(table, same):
                return word
        elif same and any(column.kind != "int" for column in table.written):
            notes.append(f"{same:,} rows are the same in both databases, and would be there twice")
        return self._judge_names(table) or "copy"

    def _judge_same(self, table: Table, same: int) -> str:
        """Judge a table of which many rows are the same in both databases; return the word for its rows."""
        first, second = self.evidence.samples[table.name]
        text = f"{same:,} of {len(second.rows):,} rows are the same in both databases"
        keys = table.primary or [column.name for column in table.written]
        content = [c.name for c in table.written if c.name not in table.primary and not is_named_like_an_id(c.name)]
        if not content:
            self.notes[table.name].append(f"{text}, but have only keys, and columns named like ids")
            return ""
        mine, its = ({tuple(row[s.at[key]] for key in keys if key in s.at) for row in s.rows} for s in (first, second))
        contents = {tuple(row[second.at[name]] for name in content) for row in second.rows}
        is_counted = any(self.evidence.numbers_rows(table, column) for column in table.columns.values())
        differ = len(mine & its) - same
        is_most = same >= 0.9 * max(len(first.rows), len(second.rows))
        # ids of others look the same in both, too: in a key, or if a row has nothing else
        evidence, leads = self.evidence, dict[str, list[Lead]]()
        for name in (*keys, *content):
            inside = evidence.parts(table.name, name)
            found = [inside[1]._replace(near=3)] if inside else evidence.leads_of[table.name, name][:1]
            stay = {table.name} if inside else {table.name, *self.tables.fixed}
            leads[name] = [lead for lead in found if lead.where[0] not in stay]
        are_ids = any(lead.near == 3 for name in keys for lead in leads[name])
        are_ids |= all(any(lead.fills for lead in leads[name]) for name in content)
        if not are_ids and (is_most or not differ) and (not is_counted or len(contents) > 0.5 * len(second.rows)):
            others = f"{differ:,} others have the key of one and stay away" if differ else "no other has the key of one"
            self.notes[table.name].append(f"{text}, and {others}: rows of the application or the world?")
            self.tables.fixed.add(table.name)
            if is_most and table.uniques:
                self.tables.same.add(table.name)
            return "first"
        self.tables.alike.add(table.name)
        what = (
            f'{text}, and {differ:,} others have the same key: rows of the application or the world ("first", "skip")'
        )
        self.notes[table.name].append(f'{what}, or rows that only look alike ("copy")?')
        return UNDECIDED

    def _judge_names(self, table: Table) -> str:
        """Return "?" if both databases have the same things, by their names."""
        samples, notes = self.evidence.samples[table.name], self.notes[table.name]
        key = next((c.name for c in table.columns.values() if self.evidence.numbers_rows(table, c)), "")
        for column in table.written if key else ():
            one, other = (sample.values(column.name) for sample in samples)
            are_names = column.kind == "text" and one and len(set(one)) == len(one) and len(set(other)) == len(other)
            both = {each for each in set(one) & set(other) if isinstance(each, str)} if are_names else set()
            if len(both) >= max(2, 0.1 * min(len(one), len(other))):
                ids = [dict(zip(s.values(column.name), s.values(key), strict=True)) for s in samples]
                same = sum(ids[0][name] == ids[1][name] for name in both)
                has_id = same == len(both) and all(str(ids[0][name]) in name for name in both)
                notes.append(
                    f"{len(both):,} of {len(other):,} rows have the same {column.name} in both databases, {same:,} of "
                    f'them under the same id{", which is in it" * has_id}: one thing under its id ("first"), one under '
                    'two ids (match), two things, or the world of the first ("skip")?'
                )
                if not has_id:
                    self.tables.matched[table.name, key] = [column.name]
                return UNDECIDED
            if self._are_places(table, key, column.name):
                what = f"most rows have the same {column.name} under the same id in both databases"
                notes.append(f'{what}: the world of the first ("skip"), or rows that only look alike ("copy")?')
                return UNDECIDED
            if len(both - {""}) > 1 and [column.name] not in table.uniques:
                what = f"{len(both):,} rows of each database with the same {column.name}, such as {shown(max(both))}"
                notes.append(f"{what}; no key forbids it: taken.{column.name} (what such a name becomes)?")
        return ""

    def _are_places(self, table: Table, key: str, column: str) -> bool:
        """Return whether a column has places of a world, which have no names: most are the same under the same id."""
        if key in (column, ROWID) or is_named_like_an_id(column) or self.evidence.leads_of[table.name, column]:
            return False
        samples = self.evidence.samples[table.name]
        pairs = (zip(sample.values(key), sample.values(column), strict=True) for sample in samples)
        one, other = ({pair for pair in side if _is_place(pair[1])} for side in pairs)
        first, second = (sample.values(column) for sample in samples)
        return len(set(first)) > 0.5 * len(first) and len(one & other) > 0.5 * len(second) > 1

    def _draft_table(self, table: Table, rows: str) -> TableMap:
        lists: dict[str, list[str]] = defaultdict(list)
        texts: dict[str, dict[str, str]] = defaultdict(dict)
        reasons: dict[str, list[str]] = defaultdict(list)
        for column in table.columns.values():
            guess = Guess("") if column.is_generated else Case(self.evidence, self.tables, table, column).guess()
            if guess.rule == "of" and guess.of:
                texts["of"][column.name] = guess.of[0]
            elif guess.rule:
                lists["ask" if guess.rule in ("sql", "top") else guess.rule].append(column.name)
            if guess.why:
                reasons[f"{guess.why}{'? Write sql' * (guess.rule == 'sql')}"].append(column.name)
        said = TableMap(rows, dict(lists), dict(texts))
        matched = (columns for (name, _), columns in self.tables.matched.items() if name == table.name)
        said.lists["match"] = next(matched, [])
        self.notes[table.name] += [f"{', '.join(families(columns))}: {why}" for why, columns in reasons.items()]
        if said.rows == "first" and not table.uniques:
            said.lists["key"] = [column.name for column in table.written]
        return said


def _is_place(value: object) -> bool:
    # a greater number is a time
    return isinstance(value, int | float) and 0 < abs(value) < 1 << 30
