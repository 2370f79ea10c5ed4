"""`snowredis merge draft`: a map with a guess for every table and column, the reason, and `ask` where it is open.

The same guesses, compared with a finished map, say where the evidence speaks against it: doubts().
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from snowredis.errors import shown
from snowredis.merge.catalog import ROWID, Catalog, Table, TableColumn
from snowredis.merge.evidence import Evidence, Two, is_named_like_an_amount, is_named_like_an_id, is_near, stem
from snowredis.merge.map_file import UNDECIDED, Map, TableMap

# tables of migration tools: each database has its own
_TOOLS = ("alembic_version", "django_migrations", "schema_migrations", "ar_internal_metadata", "flyway_schema_history")
_PLAIN_ID = re.compile(r"(\w*_)?(id|guid)", re.IGNORECASE)
TOP = (
    'rows: "copy", "first" (a row whose key the first database has stays away, and ids stay), or "skip"',
    "id: positive numbers get the offset.  of: id of a table with match.  sql: an expression; :offset, :of(TABLE, x)",
    "keep: stays.  none: named like an id, without values in both databases; run refuses when there are some",
    "ask: undecided.  Read every line, move columns until it is right, then write reviewed = true",
)


class Guess(NamedTuple):
    """Guess of the rule of a column.

    Attributes:
        rule: a word of a map; "of" with *target*; empty: it is left out.
        why: the evidence.
        is_strong: nothing speaks against it.
    """

    rule: str
    why: str = ""
    target: str = ""
    is_strong: bool = False


class Doubt(NamedTuple):
    """A column whose rule the evidence speaks against; refused before the first row if it *is_strong*."""

    table: str
    column: str
    text: str
    is_strong: bool


@dataclass
class _Tables:
    """Facts about the tables, known before their columns are judged.

    Attributes:
        fixed: rows of which the ids stay.
        matched: the id and the columns that name a row, of tables whose rows are in both.
        alike: many rows are the same in both; which ids these have is not known.
    """

    fixed: set[str] = field(default_factory=set)
    matched: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    alike: set[str] = field(default_factory=set)


class Judge:
    """Judges columns."""

    def __init__(self, evidence: Evidence, tables: _Tables) -> None:
        self.evidence, self.tables = evidence, tables
        self.catalog: Catalog = evidence.catalogs[0]
        self._names = {column.lower() for _, column in evidence.ids} - {"id", ROWID}

    def guess(self, table: Table, column: TableColumn) -> Guess:
        """Return what a column seems to be."""
        where, sets = (table.name, column.name), self.evidence.numbers(table.name, column.name)
        if column.name == ROWID:
            return self._rowid(where)
        for key in table.foreign_keys:
            if column.name in key.columns:
                return self._by_catalog(column, key.parent, key.parents[key.columns.index(column.name)])
        if column.kind in ("text", "bytes", "json", "array"):
            return self._inside(where, column, sets)
        if column.kind not in ("int", "other") or (table.name in self.tables.fixed and self._numbers(table, column)):
            return Guess("keep")
        if self._is_line_number(table, column):
            return Guess("keep", "a number within its parent: 0 is among them")
        if self._is_of_a_layout((table.name, column.name)):
            return Guess("flake", "ids of a layout: equal ones get new ids", is_strong=True)
        if column.is_counter or self.tables.matched.get(table.name, ("",))[0] == column.name:
            more = ", inside of a key" if len(table.primary) > 1 else ""
            return Guess("id", f"counted{more}", is_strong=True)
        return self._number(table, column, sets)

    def _numbers(self, table: Table, column: TableColumn) -> bool:
        return column.is_counter or table.primary == [column.name]

    def _rowid(self, where: tuple[str, str]) -> Guess:
        mine = self.evidence.ids.get(where)
        if mine is None or where[0] in self.tables.fixed:
            return Guess("")
        for name, table in self.catalog.tables.items():
            for column in table.columns.values():
                if column.kind == "int" and column.name != ROWID and (name, column.name) not in self.evidence.ids:
                    sets = self.evidence.numbers(name, column.name)
                    score, whose = self.evidence.lead(sets, column.name)
                    if score and whose == where:
                        return Guess("id", f"the rowid of SQLite: {name}.{column.name} leads to it")
        return Guess("")

    def _by_catalog(self, column: TableColumn, parent: str, target: str) -> Guess:
        if self.tables.matched.get(parent, ("",))[0] == target:
            return Guess("of", f"foreign key to {parent}", parent, is_strong=True)
        if parent in self.tables.fixed:
            return Guess("keep", f"foreign key to {parent}, whose ids stay")
        moves = column.kind == "int" and self._moves(parent, target)
        return Guess("id" if moves else "keep", f"foreign key to {parent}" if moves else "", is_strong=moves)

    def _moves(self, parent: str, target: str) -> bool:
        """Return whether the column that a foreign key leads to moves, over any number of steps."""
        seen = {(parent, target)}
        while parent not in self.tables.fixed:
            keys = (k for k in self.catalog.tables[parent].foreign_keys if target in k.columns and k.parent != parent)
            key = next(keys, None)
            if key is None or (key.parent, target) in seen:
                return self.catalog.tables[parent].columns[target].kind == "int"
            parent, target = key.parent, key.parents[key.columns.index(target)]
            seen.add((parent, target))
        return False

    def _inside(self, where: tuple[str, str], column: TableColumn, sets: Two) -> Guess:
        """Judge a column of texts, bytes, JSON or an array."""
        values = [value for sample in self.evidence.samples[where[0]] for value in sample.values(column.name)]
        are_digits = all(
            value is None or not str(value) or (isinstance(value, str) and value.isdigit()) for value in values
        )
        if are_digits and max(map(len, sets)) >= 5:
            score, whose = self.evidence.lead(sets, column.name, where)
            is_asked = whose and (score >= 2 or is_named_like_an_id(column.name))
            return Guess("ask", f"digits: ids of {_name(whose)}?") if whose and is_asked else Guess("keep")
        if found := self.evidence.parts(*where):
            place, whose, example = found
            return Guess("ask", f"ids of {_name(whose)} inside ({place}), as in {example}? Write sql.{column.name}")
        return Guess("keep")

    def _is_line_number(self, table: Table, column: TableColumn) -> bool:
        values = [value for sample in self.evidence.samples[table.name] for value in sample.values(column.name)]
        both = all(0 in sample.values(column.name) for sample in self.evidence.samples[table.name])
        is_small = all(not isinstance(value, int) or value < 256 for value in values)
        return len(table.primary) > 1 and column.name in table.primary and both and is_small

    def _number(self, table: Table, column: TableColumn, sets: Two) -> Guess:
        """Judge a column of numbers that no catalog explains."""
        where, evidence = (table.name, column.name), self.evidence
        name = 2 if column.name.lower() in self._names else int(is_named_like_an_id(column.name))
        # what is not called like an id of another table is none of a wider type; or of what may be the same in both
        limit, left_out = (0, set[str]()) if name == 2 else (column.limit, set() if name else self.tables.alike)
        score, whose = evidence.lead(sets, column.name, where, left_out, limit)
        size = max(map(len, sets))
        if table.primary == [column.name] and any(sets):
            return self._key(table, column, name, score, whose)
        if not any(sets):
            return Guess("none" if name else "keep")
        if whose and name and whose[0] in self.tables.fixed:
            return self._of_fixed(where, sets, whose)
        if whose and self._is_of_a_layout(whose):
            return Guess("flake", f"ids of a layout, of {_name(whose)}", is_strong=score >= 2)
        if whose and name and whose[0] in self.tables.matched and whose[1] != ROWID:
            is_of = score >= 2 or name == 2
            return (
                Guess("of", f"its values and its name: {whose[0]}", whose[0])
                if is_of
                else Guess("ask", f"of {whose[0]}?")
            )
        if whose and name and (score >= 2 or name == 2):
            return Guess("id", f"ids of {_name(whose)}", is_strong=score >= 2)
        if whose and name and size >= 3:
            return Guess("ask", f"named like an id; its values are in {_name(whose)}, but do not fill it")
        if (
            score >= 2
            and whose
            and (
                score == 3
                or whose[0] in self.tables.matched
                or (size >= 20 and not is_named_like_an_amount(column.name))
            )
        ):
            return Guess("ask", f"its values fill {_name(whose)}, and its name does not say it")
        if (numbered := evidence.ids.get(where)) and whose is None and name and any(each.count for each in numbered):
            return Guess("ask", "a number of each row: an id of this table?")
        return self._partly(table, column, sets, name)

    def _of_fixed(self, where: tuple[str, str], sets: Two, whose: tuple[str, str]) -> Guess:
        """Judge numbers that are ids which stay; they may be those of another table, too, which move."""
        _, other = self.evidence.lead(sets, where[1], where, self.tables.fixed)
        nearer = is_near(where[1], whose), other is not None and is_near(where[1], other)
        if other and other[1] != ROWID and nearer == (False, True):
            return Guess("id", f"ids of {_name(other)}")
        if other and other[1] != ROWID and nearer != (True, False):
            return Guess("ask", f"ids of {_name(whose)}, which stay, or of {_name(other)}, which move?")
        return Guess("keep", f"ids of {_name(whose)}, which stay")

    def _is_of_a_layout(self, where: tuple[str, str]) -> bool:
        return any(each.are_of_a_layout for each in self.evidence.ids.get(where, ()))

    def _key(self, table: Table, column: TableColumn, name: int, score: int, whose: tuple[str, str] | None) -> Guess:
        is_own = column.name.lower() in ("id", "guid", "uid") or stem(column.name) in table.name.lower().replace(
            "_", ""
        )
        if whose and whose[0] in self.tables.fixed and name and not is_own:
            return Guess("keep", f"ids of {_name(whose)}, which stay")
        if (
            (score and (name or score >= 2))
            or (name == 2 and score)
            or (is_own and (name or _PLAIN_ID.fullmatch(column.name)))
        ):
            of = f"ids of {_name(whose)}" if whose and score else "key"
            return Guess("id", of, is_strong=score >= 2)
        return Guess("ask", "a key by itself: an id of this table, or of something outside?")

    def _partly(self, table: Table, column: TableColumn, sets: Two, name: int) -> Guess:
        """Judge numbers that are ids in some rows, or in some bits."""
        where, evidence, size = (table.name, column.name), self.evidence, max(map(len, sets))
        if name and size >= 3:
            part = evidence.share_of_any(sets, where)
            if part >= 0.95 and evidence.all_large:
                return Guess("id", "named like an id; its values are ids of several tables")
            if part >= 0.4 and size >= 8 and part > 1.5 * evidence.by_chance(sets, where):
                return Guess("ask", f"{part:.0%} of its values are ids{self._kinds(*where)}? Write sql.{column.name}")
        for shift, bits in ((0, "low"), (32, "high")):
            some = tuple({number >> shift & 0xFFFFFFFF for number in side if number >> 32} for side in sets)
            if all(some) and max(map(len, some)) >= 5:
                score, whose = evidence.lead((some[0], some[1]))
                if score and whose:
                    return Guess("ask", f"its {bits} 32 bits are ids of {_name(whose)}? Write sql.{column.name}")
        if size >= 8 and (kinds := self._kinds(*where)):
            return Guess("ask", f"ids{kinds}, else not? Write sql.{column.name}")
        if half := self._half(table, column):
            return Guess("ask", half)
        return Guess("keep", "named like an id, but leads nowhere: of another database?" if name == 2 else "")

    def _kinds(self, table: str, column: str) -> str:
        found = self.evidence.by_kind(table, column)
        return f", all where {found[0]} is {', '.join(map(str, found[1][:5]))}" if found else ""

    def _half(self, table: Table, column: TableColumn) -> str:
        names = [each.name for each in table.written if each.kind == "int"]
        at = names.index(column.name) if column.name in names else -1
        for low, high in ((at, at + 1), (at - 1, at), (at + 1, at), (at, at - 1)) if at >= 0 else ():
            is_pair = min(low, high) >= 0 and max(low, high) < len(names)
            if is_pair and (whose := self.evidence.halves(table.name, names[low], names[high])):
                both = f"{names[low]} and {names[high]}"
                return f"{both} are the low and high 16 bits of ids of {_name(whose)}? Write sql"
        return ""


def _name(whose: tuple[str, str] | None) -> str:
    return ".".join(whose) if whose else ""


# --- the draft -------------------------------------------------------------------------------------------


class Draft:
    """Drafts a map.

    Attributes:
        notes: the evidence by table.
        about: notes about several tables.
    """

    def __init__(self, evidence: Evidence) -> None:
        self.evidence, self.catalog, self.tables = evidence, evidence.catalogs[0], _Tables()
        self.notes: dict[str, list[str]] = defaultdict(list)
        self.about: list[str] = []
        self._rows: dict[str, str] = {}

    def map(self) -> Map:
        """Return the map."""
        # a table of nothing but ids is judged after those that they lead to
        for table in sorted(self.catalog.tables.values(), key=lambda t: all(c.name in t.primary for c in t.written)):
            self._rows[table.name] = self._judge_rows(table)
        judge, found = Judge(self.evidence, self.tables), {}
        for name, table in self.catalog.tables.items():
            found[name] = self._draft_table(judge, table)
        orphans = [text for name, said in found.items() for text in self._orphans(name, said)]
        self.about += [f"orphans, which need no answer: {'; '.join(orphans)}"] * bool(orphans)
        for name in evidence_only(self.evidence):
            self.notes[name].append('only in the second database: create it in the first one, or "skip"')
            found[name] = TableMap(UNDECIDED)
        for group in self.evidence.generators():
            names = ", ".join(map(_name, group))
            self.about.append(f"one generator for {names}? No number is in two of them: they need one offset, no own")
        head = {"reviewed": False, "schema": self.catalog.checksum()}
        return Map(head, found)

    def _orphans(self, name: str, said: TableMap) -> Iterator[str]:
        """Yield the columns of a table with numbers that lead to no row."""
        table, evidence = self.catalog.tables[name], self.evidence
        for column in (*said.lists.get("id", []), *said.texts.get("of", {})):
            where = (name, column)
            key = next((key for key in table.foreign_keys if column in key.columns), None)
            if key is not None:
                target: tuple[str, str] | None = (key.parent, key.parents[key.columns.index(column)])
            else:
                target = evidence.lead(evidence.numbers(*where), column, where)[1]
            if target and table.columns[column].kind == "int" and (key or where not in evidence.ids):
                counts = [evidence.orphans(side, where, target) for side in (0, 1)]
                if any(counts):
                    yield f"{_name(where)} to {_name(target)}: {counts[0]:,} and {counts[1]:,} rows"

    def _judge_rows(self, table: Table) -> str:
        """Return the word for the rows of a table, and note which tables are in both databases."""
        first, second = self.evidence.samples[table.name]
        notes = self.notes[table.name]
        if table.name in _TOOLS:
            notes.append("of a migration tool: each database has its own")
            self.tables.fixed.add(table.name)
            return "skip"
        if not second.rows:
            notes.append("no rows in the second database")
            return "copy"
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
        parents = [key.parent for key in table.foreign_keys]
        content = [c.name for c in table.written if c.name not in table.primary and not is_named_like_an_id(c.name)]
        keys = table.primary or [column.name for column in table.written]
        mine, its = (
            {tuple(row[s.at[key]] for key in keys) for row in s.rows} if all(key in s.at for key in keys) else set()
            for s in (first, second)
        )
        contents = {tuple(row[second.at[name]] for name in content) for row in second.rows}
        is_counted = any(self.evidence.numbers_rows(table, column) for column in table.columns.values())
        if not content and not (parents and all(parent in self.tables.fixed for parent in parents)):
            self.notes[table.name].append(f"{text}, but they are numbers only")
            return ""
        if len(mine & its) == same and (not is_counted or len(contents) > 0.5 * len(second.rows)):
            self.notes[table.name].append(
                f"{text}, and no other has the key of one: rows of the application or the world?"
            )
            self.tables.fixed.add(table.name)
            return "first"
        differ = len(mine & its) - same
        self.tables.alike.add(table.name)
        self.notes[table.name].append(
            f'{text}, and {differ:,} others have the same key: rows of the application or the world ("first", "skip"), '
            'or rows that only look alike ("copy")?'
        )
        return UNDECIDED

    def _judge_names(self, table: Table) -> str:
        """Return "?" if both databases have the same things, by their names."""
        samples = self.evidence.samples[table.name]
        key = next((c.name for c in table.columns.values() if self.evidence.numbers_rows(table, c)), None)
        for column in table.written if key else ():
            one, other = (sample.values(column.name) for sample in samples)
            are_names = column.kind == "text" and one and len(set(one)) == len(one) and len(set(other)) == len(other)
            both = set(one) & set(other) - {None} if are_names else set()
            if key and len(both) >= max(2, 0.1 * min(len(one), len(other))):
                ids = [dict(zip(s.values(column.name), s.values(key), strict=True)) for s in samples]
                same = sum(ids[0][name] == ids[1][name] for name in both)
                self.notes[table.name].append(
                    f"{len(both):,} of {len(other):,} rows have the same {column.name} in both databases, {same:,} of "
                    'them under the same id: one thing under its id ("first"), one under two ids (match), two things, '
                    'or the world of the first ("skip")?'
                )
                self.tables.matched[table.name] = (key, [column.name])
                is_plain = [column.name] in table.uniques or len(table.written) <= 3
                return "copy" if is_plain and not same else UNDECIDED
        return ""

    def _draft_table(self, judge: Judge, table: Table) -> TableMap:
        lists: dict[str, list[str]] = defaultdict(list)
        texts: dict[str, dict[str, str]] = defaultdict(dict)
        reasons: dict[str, list[str]] = defaultdict(list)
        for column in table.columns.values():
            guess = Guess("") if column.is_generated else judge.guess(table, column)
            if guess.rule == "of":
                texts["of"][column.name] = guess.target
            elif guess.rule:
                lists[guess.rule].append(column.name)
            if guess.why:
                reasons[guess.why].append(column.name)
        said = TableMap(self._rows[table.name], dict(lists), dict(texts))
        self._top(table, said)
        if table.name in self.tables.matched:
            said.lists["match"] = self.tables.matched[table.name][1]
        self.notes[table.name] += [f"{', '.join(families(columns))}: {why}" for why, columns in reasons.items()]
        if said.rows == "copy" and table.name not in self.tables.matched:
            self._clashes(table, said)
        if said.rows == "first" and not table.uniques:
            said.lists["key"] = [column.name for column in table.written]
        return said

    def _top(self, table: Table, said: TableMap) -> None:
        """Ask about a number that seems to be the next one of a counter: in a table of one row."""
        samples = self.evidence.samples[table.name]
        if any(sample.count != 1 for sample in samples) or not self.evidence.ids:
            return
        for column in (c for c in table.written if c.kind == "int" and c.name in said.lists.get("keep", [])):
            values = [sample.values(column.name)[0] or 0 for sample in samples]
            for where, ids in self.evidence.ids.items():
                is_above = all(each.high <= value <= each.high * 2 for each, value in zip(ids, values, strict=True))
                if where[0] != table.name and is_above and all(each.count > 1 for each in ids):
                    said.lists["keep"].remove(column.name)
                    said.lists.setdefault("ask", []).append(column.name)
                    self.notes[table.name].append(
                        f"{column.name}: the next number of {_name(where)} (top), or an amount?"
                    )
                    break

    def _clashes(self, table: Table, said: TableMap) -> None:
        """Ask about keys without an id that both databases have."""
        samples = self.evidence.samples[table.name]
        for key in table.uniques:
            if any(said.rule(column) not in ("keep", "none") or column not in samples[1].at for column in key):
                continue
            one, other = (
                {
                    tuple(str(row[s.at[column]]).casefold() for column in key)
                    for row in s.rows
                    if row[s.at[key[0]]] is not None
                }
                for s in samples
            )
            if not (both := one & other):
                continue
            text = f"{len(both):,} rows have the same {', '.join(key)} in both databases, such as {shown(min(both)[0])}"
            moves = any(rule not in ("keep", "none") for rule in said.rules.values())
            if len(key) == 1 and table.columns[key[0]].kind == "text" and len(table.written) > 2 and moves:
                said.texts.setdefault("taken", {})[key[0]] = UNDECIDED
                self.notes[table.name].append(f"{text}: taken.{key[0]} (what such a name becomes), or match (one row)?")
            else:
                said.rows = UNDECIDED
                self.notes[table.name].append(
                    f'{text}: "first" (these stay away), "skip", match, or is a column an id?'
                )


def evidence_only(evidence: Evidence) -> list[str]:
    """Return the tables that only the second database has."""
    first, second = evidence.catalogs
    return [name for name in second.tables if name not in first.tables]


def families(columns: Iterable[str]) -> list[str]:
    """Return names with those that differ only in a number at their end as one: item0 to item18."""
    groups: dict[str, list[str]] = defaultdict(list)
    for column in columns:
        groups[re.sub(r"\d+$", "#", column)].append(column)
    return [f"{names[0]} to {names[-1]}" if len(names) > 2 else ", ".join(names) for names in groups.values()]


def undecided(the_map: Map) -> int:
    """Return how many things of a map are open, a family of columns as one."""
    count = 0
    for said in the_map.tables.values():
        count += len(families(said.lists.get("ask", []))) + (said.rows == UNDECIDED)
        count += list(said.texts.get("taken", {}).values()).count(UNDECIDED)
    return count


# --- a second look ---------------------------------------------------------------------------------------


def doubts(the_map: Map, evidence: Evidence) -> Iterator[Doubt]:
    """Yield the columns whose rule in a finished map the evidence speaks against, unless they are sure."""
    catalog = evidence.catalogs[0]
    matched = {
        name: (str(the_map.id_of(name, catalog)), said.match) for name, said in the_map.tables.items() if said.match
    }
    judge = Judge(evidence, _Tables(set(the_map.of("first", "skip")), matched))
    for name in the_map.of("copy"):
        said = the_map.tables[name]
        for column in catalog.tables[name].written:
            if column.name in said.lists.get("sure", []) or any(
                column.name in key.columns for key in catalog.tables[name].foreign_keys
            ):
                continue
            rule, guess = said.rule(column.name), judge.guess(catalog.tables[name], column)
            if rule == "keep" and guess.rule in ("id", "of", "ask"):
                text = f'{column.name} is in keep, and {guess.why}: move it to id, or write sure = ["{column.name}"]'
                yield Doubt(name, column.name, text, guess.is_strong)
            elif rule in ("id", "of") and guess.rule == "keep":
                why = guess.why or "its values are ids of no table"
                text = f'{column.name} is in {rule}, and {why}: move it to keep, or write sure = ["{column.name}"]'
                yield Doubt(name, column.name, text, is_strong=False)
