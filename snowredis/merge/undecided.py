"""References that the catalog does not have: those of some rows, which are found, and those that a person must decide.

A column that refers to ids without a constraint would keep its old values, and its rows would lead to rows of the other
database. So the values of each column that the catalog does not explain are compared with the ids that change, in both
databases. If they are such ids, nothing is planned before a person says with --reference or --independent what the
column is. Its name is only a hint.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

import sqlalchemy as sa

from snowredis.errors import shown
from snowredis.merge.databases import count_rows, is_mysql
from snowredis.merge.pair import Work
from snowredis.merge.schema import ColumnName, Domain, Partial, TableName, is_rewritable, option, type_of
from snowredis.merge.workspace import LARGE

CONTENT_TYPES = TableName(None, "django_content_type")
# up to so many different values may be kinds that name tables; how many of a column a plan asks about at once
_MAX_KINDS, _LINES = 500, 20
# how many rows of a column are compared with the ids that change; of texts, which are parsed
_ROWS, _TEXTS = 10_000, 2_000
# characters of a text that are read
_LENGTH = 20_000
# the part of the values that are ids, from which a column may be a reference: rows that were deleted leave some behind
_MOST = 0.9
# about how many rows of a large table are looked at for kinds
_SAMPLED = 50_000
# numbers of a kind are no ids if those of kinds that are none are ids so often that this is the chance
_CHANCE = 0.05
# up to this many ids that count from 1 say nothing about another table
_FEW = 20
# what stands for no row, and for a number with decimals
_NONE = ("", "0", "-1")
_DECIMAL = 1 << 64
# a number, and numbers with something between them, as in {1,NULL,17} or /1/4/17/; 3.50 is a decimal
_NUMBER, _LIST = re.compile(r"0|[1-9]\d{0,18}"), re.compile(r"(?!\d+\.\d+$)(?:[\d\s,;|/.\"{}\[\]]|NULL)+")
# an id inside a text: a long number, or one behind a name, as in node/17, user:17, ?id=17, res.partner,17
_INSIDE = re.compile(r"(?<!\d)[1-9]\d{9,18}(?!\d)|(?<=[A-Za-z_][/:#=,])[1-9]\d{0,18}(?!\d)")


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A domain that values may refer to.

    Attributes:
        held: the part of the values that are its ids.
        hint: how well the name of the column, or of the kind, fits that of the table; 0: not.
    """

    domain: Domain
    held: float
    hint: int


def undecided(work: Work) -> list[str]:
    """Return findings about columns whose values are ids that change, with what to write for each."""
    schema, findings = work.changed_schema, list[str]()
    explained = {column for domain in schema.domains for column in domain.references} | work.counted
    explained |= {parent for key in schema.foreign_keys for parent in key.parents}
    explained |= {key for domain in schema.domains for key in domain.keys if not _may_refer(work, domain)}
    for table_name, table in schema.tables.items():
        names = (ColumnName(*table_name, column.name) for column in table.c if not _is_other(work, column))
        plain: dict[ColumnName, list[_Candidate]] = {}
        for name in names:
            if name not in explained:
                findings += _of_column(work, name, plain)
        findings += _of_plain(work, {name: of for name, of in plain.items() if name not in work.independent})
    return findings


def _is_other(work: Work, column: sa.Column[object]) -> bool:
    """Return whether the type says that a column holds no ids: a flag, a time, bytes."""
    others = (sa.Boolean, sa.Date, sa.DateTime, sa.Time, sa.Interval, sa.LargeBinary, sa.Uuid)
    is_flag = getattr(column.type, "display_width", None) == 1
    # MariaDB makes no text of a geometry
    is_geometry = isinstance(column.type, sa.types.NullType) and is_mysql(work.changed)
    return isinstance(column.type, others) or is_flag or is_geometry


def _may_refer(work: Work, domain: Domain) -> bool:
    """Return whether a key that the database does not count may hold ids of another table."""
    scan, (key, *_) = work.scans[domain.name], domain.keys
    # SQLite numbers the rows by itself
    names = {"id", f"{key.table}_id".lower(), f"{key.table.removesuffix('s')}_id".lower()}
    if work.support.kind == "sqlite" and key.column.lower() in names and scan.lowest < LARGE:
        return False
    if any(_hint(key, other) == 2 for other in work.changed_schema.domains if other is not domain):
        return True
    # 1, 2, 3 are ids of every table
    return scan.lowest > 1 or scan.changed > _FEW or scan.changed_highest - scan.lowest >= scan.changed


def _of_column(work: Work, name: ColumnName, plain: dict[ColumnName, list[_Candidate]]) -> Iterator[str]:
    """Yield findings about places that apply does not rewrite; add to *plain* what the whole values may refer to."""
    is_plain = is_rewritable(work.changed_schema.column(name))
    if is_plain:
        plain[name] = []
    for place, found in _numbers_of(work, name):
        candidates = _candidates(work, name, place, found)
        if is_plain and not place:
            plain[name] = candidates
        elif candidates:
            text = f"{name}{place.removeprefix('$')}: {_share(candidates)}, which apply does not change: rewrite them "
            text += "between apply and copy"
            if name in work.independent:
                work.notes.append(text)
            else:
                yield f"{text}; then {option('independent', name)}"


def _share(candidates: list[_Candidate]) -> str:
    names = ", ".join(dict.fromkeys(str(candidate.domain.table_name) for candidate in candidates))
    return f"{max(candidate.held for candidate in candidates):.0%} of its values are ids of {names}"


def _of_plain(work: Work, plain: Mapping[ColumnName, list[_Candidate]]) -> Iterator[str]:
    """Yield findings about the columns of a table that apply can rewrite."""
    of_kinds = _of_kinds(work, plain) if plain and _changing(work) else {}
    for name, candidates in plain.items():
        if name in of_kinds:
            # the others are asked about the next time, when these are decided
            yield from (_finding(work, part, found) for part, found in islice(of_kinds[name].items(), _LINES))
        elif candidates:
            # what is left of a column of which some rows are decided is of some kind, too
            kind = next((part.kind for part in _decided(work, name)), "")
            yield _finding(work, Partial(name, kind, kind and "VALUE", is_text=False), candidates)


def _finding(work: Work, part: Partial, candidates: list[_Candidate]) -> str:
    best, where = candidates[0], f" where {part.kind} is {shown(part.value)}" if part.kind else ""
    is_clear = sum(candidate.hint == best.hint for candidate in candidates) == 1
    is_clear &= bool(best.hint) or work.scans[best.domain.name].lowest >= LARGE
    text = f"{part.column}{where}: {_share(candidates)}: {part.to(best.domain.name if is_clear else 'TABLE.COLUMN')}"
    if work.changed_schema.column(part.column).primary_key and work.domain_of(part.column) is None:
        text += f" or {option('id', part.column)} for new numbers"
    return f"{text} or {option('independent', part.column)}"


# --- ids in the rows of some kinds -----------------------------------------------------------------------

_Kinds = dict[Partial, list[_Candidate]]


def _of_kinds(work: Work, plain: Mapping[ColumnName, list[_Candidate]]) -> dict[ColumnName, _Kinds]:
    """Return the columns that hold ids in the rows of some kinds only, or ids of another table for each kind.

    A column of the table says the kind, as the model of an object, or the attribute of a value. If all values of a
    column are ids (*plain* has candidates), each kind has to name their table.
    """
    found: dict[ColumnName, _Kinds] = {}
    texts = _some_rows(work, list(plain))
    different = {name: set(values) for name, values in texts.items()}
    kinds = [name for name, values in different.items() if len(values) <= max(_MAX_KINDS, len(texts[name]) // 2)]
    few = [kind for kind in kinds if len(different[kind]) <= _MAX_KINDS]
    named = {kind: {value: _named(work, kind, value) for value in different[kind]} for kind in few}
    for name, candidates in plain.items():
        numbers, most = _undecided_numbers(work, name, texts), 0
        ids_of = _ids_of(work, name, "changed", set(numbers) - {0})
        for kind in kinds if ids_of else ():
            keys_of = named.get(kind, {})
            if kind == name or (candidates and not any(keys_of.values())):
                continue
            numbers_of: dict[str, set[int]] = {}
            for value, number in zip(texts[kind], numbers, strict=True):
                if number:
                    numbers_of.setdefault(value, set()).add(number)
            parts = _of_each(numbers_of, ids_of, keys_of, bool(candidates))
            # the column that explains most values is the likeliest to say the kind
            if (explained := sum(len(numbers_of[value]) for value in parts)) > most:
                most = explained
                found[name] = {Partial(name, kind.column, of, is_text=False): one for of, one in parts.items()}
    return found


def _some_rows(work: Work, names: list[ColumnName]) -> dict[ColumnName, list[str]]:
    """Return texts of some columns of a table and of those that may say the kind, in rows from all over the table."""
    table, types = work.changed_schema.tables[names[0].table_name], sa.String | sa.Integer | sa.Boolean | sa.Date
    kinds = [column.name for column in table.c if isinstance(type_of(column), types)]
    decided = [part.kind_column.column for name in names for part in _decided(work, name)]
    both = list(dict.fromkeys([*kinds, *(name.column for name in names), *decided]))
    query = sa.select(*(sa.func.coalesce(sa.cast(table.c[name], sa.String(200)), "") for name in both))
    step = count_rows(work.changed, table) // _SAMPLED
    if step > 1:
        query = query.where(work.support.row_hash(list(table.primary_key.columns) or list(table.c)) % step == 0)
    rows = work.changed.execute(query).all()
    return {ColumnName(*names[0].table_name, name): [row[at] for row in rows] for at, name in enumerate(both)}


def _undecided_numbers(work: Work, name: ColumnName, texts: Mapping[ColumnName, list[str]]) -> list[int]:
    """Return the numbers of a column in these rows; 0 where there is none, or it is known what it refers to."""
    numbers = [int(text) if _NUMBER.fullmatch(text) and int(text) < 1 << 63 else 0 for text in texts[name]]
    for part in _decided(work, name):
        kinds = texts[part.kind_column] if part.kind else [part.value] * len(numbers)
        numbers = [0 if kind == part.value else number for kind, number in zip(kinds, numbers, strict=True)]
    return numbers


def _of_each(
    numbers_of: dict[str, set[int]], ids_of: dict[Domain, set[int]], keys_of: dict[str, set[ColumnName]], is_whole: bool
) -> dict[str, list[_Candidate]]:
    """Return, for each kind, the domains whose ids its numbers are: named ones, or not by chance.

    Args:
        is_whole: all numbers of the column are ids; then each kind has to name the table.
    """
    found: dict[str, list[_Candidate]] = {}
    for domain, ids in ids_of.items():
        held_of = {value: len(numbers & ids) for value, numbers in numbers_of.items()}
        # those of kinds that are no ids say how often a number is an id by chance
        others = [value for value, held in held_of.items() if held < _MOST * len(numbers_of[value])]
        chance = (sum(held_of[value] for value in others) + 1) / (sum(len(numbers_of[value]) for value in others) + 2)
        for value, held in held_of.items():
            size, is_named = len(numbers_of[value]), not keys_of.get(value, set()).isdisjoint(domain.columns)
            by_chance = held < _MOST * size or chance**size * len(numbers_of) > _CHANCE
            if (is_named and 2 * held >= size) or not by_chance:
                found.setdefault(value, []).append(_Candidate(domain, held / size, 2 * is_named))
    parts = {value: _likeliest(candidates) for value, candidates in sorted(found.items())}
    every = set[int]().union(*ids_of.values())
    if all(value in parts and parts[value][0].hint for value, numbers in numbers_of.items() if numbers & every):
        return parts
    # some kinds may be called like a table by chance
    return {} if is_whole else {value: one for value, one in parts.items() if one[0].held >= _MOST}


def _named(work: Work, kind: ColumnName, text: str) -> set[ColumnName]:
    """Return the keys of the tables that a kind may mean: sale.order, Admin::BlogEntry, or a content type of Django."""
    types, domain = work.changed_schema.tables.get(CONTENT_TYPES), work.domain_of(kind)
    if text and types is not None and domain is not None and domain.table_name == CONTENT_TYPES:
        query = sa.select(types.c.app_label, types.c.model).where(types.c.id == int(text))
        text = "_".join(work.changed.execute(query).one_or_none() or ())
    words = [re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", word).lower() for word in re.split(r"::|[.:/\\]", text)]
    stems = ("_".join(words), words[-1])
    plurals = (plural for stem in stems for plural in (f"{stem}s", f"{stem[:-1]}ies", f"{stem}es", stem))
    named = {TableName(kind.schema, table) for table in (text, *plurals)} & work.changed_schema.tables.keys()
    return {ColumnName(*table, c.name) for table in named for c in work.changed_schema.tables[table].primary_key}


# --- values ----------------------------------------------------------------------------------------------


def _numbers_of(work: Work, name: ColumnName) -> Iterator[tuple[str, list[list[int]]]]:
    """Yield the numbers in a column, of each database, by the place where they are: empty, or inside of the value.

    Rows that are decided are left out.
    """
    decided = _decided(work, name)
    sides: list[dict[str, list[int]]] = []
    for connection, schema in work.sides:
        places: dict[str, list[int]] = {}
        sides.append(places)
        if decided and connection is work.kept:
            # there, the same kind may have another number
            continue
        column = schema.column(name)
        plain = isinstance(column.type, sa.Integer | sa.Numeric)
        text = sa.func.substr(sa.cast(column, sa.Text), 1, _LENGTH)
        # rows that were there before the column have what stands for no row: they may be the first of a large table
        is_given = text.not_in(_NONE)
        query = sa.select(sa.type_coerce(column if plain else text, sa.types.NULLTYPE)).where(is_given)
        query = query.where(*(~part.applies(schema.tables[name.table_name].c) for part in decided))
        for value in connection.scalars(query.limit(_ROWS if plain else _TEXTS)):
            for place, number in _numbers_in(value):
                places.setdefault(place, []).append(number)
        if _DECIMAL in places.get("", ()):
            # an amount, and so are the others
            del places[""]
    for places in sides:
        # one number is a short list if others are longer
        if any("[*]" in other for other in sides):
            places.setdefault("[*]", []).extend(places.pop("", []))
    for place in sorted({*sides[0], *sides[1]}):
        yield place, [places.get(place, []) for places in sides]


def _decided(work: Work, name: ColumnName) -> list[Partial]:
    """Return the rows of which it is known what a column refers to."""
    return [part for domain in work.changed_schema.domains for part in domain.partials if part.column == name]


def _numbers_in(value: object) -> Iterator[tuple[str, int]]:
    """Yield places and numbers that may be ids: whole numbers, digits, lists, JSON, numbers in a text."""
    text = str(value).strip()
    if not isinstance(value, str | bytes):
        number, _, decimals = text.partition(".")
        yield "", int(number) if number.lstrip("-").isdigit() and not decimals.strip("0") else _DECIMAL
    elif _NUMBER.fullmatch(text):
        yield "", int(text)
    elif _LIST.fullmatch(text):
        yield from (("[*]", int(number)) for number in re.findall(r"(?<!\d)\d{1,19}(?!\d)", text))
    else:
        try:
            yield from _numbers_in_json(json.loads(text), "$")
        except (ValueError, RecursionError):
            yield from ((" (inside a text)", int(number)) for number in _INSIDE.findall(text))


def _numbers_in_json(value: object, place: str) -> Iterator[tuple[str, int]]:
    if isinstance(value, dict):
        for key, of_key in value.items():
            if _NUMBER.fullmatch(key):
                yield f"{place} (its keys)", int(key)
            yield from _numbers_in_json(of_key, f"{place}.{key}" if not _NUMBER.fullmatch(key) else f"{place}.*")
    elif isinstance(value, list):
        for item in value:
            yield from _numbers_in_json(item, f"{place}[*]")
    elif not isinstance(value, bool | float | None) and _NUMBER.fullmatch(str(value)):
        yield place, int(str(value))


def _changing(work: Work) -> list[Domain]:
    domains = work.changed_schema.domains
    return [domain for domain in domains if work.scans[domain.name].clashes or work.is_matched(domain)]


def _ids_of(work: Work, name: ColumnName, side: str, numbers: set[int]) -> dict[Domain, set[int]]:
    """Return which numbers are ids of each domain that changes, and that a column may refer to."""
    domains = {work.scans[domain.name].number: domain for domain in _changing(work) if name not in domain.columns}
    return {domains[at]: ids for at, ids in work.store.domains_of(side, numbers, domains).items()}


def _candidates(work: Work, name: ColumnName, place: str, found: list[list[int]]) -> list[_Candidate]:
    """Return the domains that change, and whose ids the values are; the likeliest first."""
    held: dict[Domain, float] = {}
    most = 0.0
    for side, numbers in zip(("kept", "changed"), found, strict=True):
        # 0 and -1 stand for no row
        distinct = {number for number in numbers if number not in (0, -1) and -(1 << 63) <= number < 1 << 63}
        if not distinct or not found[1]:
            continue
        ids_of = _ids_of(work, name, side, distinct)
        either = len(set().union(*ids_of.values()))
        certain = either if max(distinct) >= LARGE and not place else 0
        most = max(most, either / len(distinct), float(bool(certain)))
        for domain, ids in ids_of.items():
            held[domain] = max(held.get(domain, 0.0), len(ids) / len(distinct))
    likely = _likeliest(_Candidate(domain, part, _hint(name, domain)) for domain, part in held.items())
    if most >= _MOST:
        return [one for one in likely if one.held >= _MOST] or likely
    return [one for one in likely if one.hint > 1 and not place]


def _likeliest(candidates: Iterable[_Candidate]) -> list[_Candidate]:
    return sorted(candidates, key=lambda one: (-one.hint, -one.held, one.domain.name))


def _hint(name: ColumnName, domain: Domain) -> int:
    """Return how well a column STEM or STEM_id is called like a table: 2 by its name, 1 by a similar one."""
    column, table = (
        re.sub(r"(?<=[a-z0-9])(?=[A-Z])|\W", "_", text).lower() for text in (name.column, domain.keys[0].table)
    )
    stem = column.removesuffix("id").removesuffix("_")
    singulars = {table, table.removesuffix("s"), table.removesuffix("es"), re.sub("ies$", "y", table)} - {""}
    if stem in singulars:
        return 2
    if stem == "parent" and name.table_name == domain.table_name:
        return 1
    return int(any(stem.endswith(f"_{one}") or (stem and one.endswith(f"_{stem}")) for one in singulars))
