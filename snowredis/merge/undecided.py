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

import sqlalchemy as sa

from snowredis.errors import shown
from snowredis.merge import MergeError
from snowredis.merge.databases import is_mysql
from snowredis.merge.pair import Work
from snowredis.merge.schema import ColumnName, Domain, Partial, Schema, TableName, is_integer, is_rewritable, option

CONTENT_TYPES = TableName(None, "django_content_type")
# kinds of one reference; each is a statement of its own
_MAX_KINDS = 500
# how many rows of a column are compared with the ids that change; of texts, which are parsed
_ROWS, _TEXTS = 10_000, 2_000
# characters of a text that are read
_LENGTH = 20_000
# the part of the values that are ids, from which a column may be a reference: rows that were deleted leave some behind
_MOST = 0.9
# how many rows of each kind are compared, and the characters of a kind
_OF_KIND, _KIND = 200, 200
# numbers of a kind are no ids if those of kinds that are none are ids so often that this is the chance
_CHANCE = 0.05
# ids of every layout are above this after its first hour or so; numbers of counters, and amounts, are below
LARGE = 1 << 32
# up to this many ids that count from 1 say nothing about another table
_FEW = 20
# a number, and numbers with something between them, as in {1,NULL,17} or /1/4/17/; 3.50 is a decimal
_NUMBER, _LIST = re.compile(r"0|[1-9]\d{0,18}"), re.compile(r"(?!\d+\.\d+$)(?:[\d\s,;|/.\"{}\[\]]|NULL)+")
# an id inside a text: a long number, or one behind a name, as in node/17, user:17, ?id=17, res.partner,17
_INSIDE = re.compile(r"(?<!\d)[1-9]\d{9,18}(?!\d)|(?<=[A-Za-z_][/:#=,])[1-9]\d{0,18}(?!\d)")


def find_partials(
    connection: sa.Connection, schema: Schema, independent: set[ColumnName]
) -> tuple[list[tuple[Partial, ColumnName]], list[tuple[ColumnName, str]]]:
    """Return references of some rows, and findings about columns whose table is unknown.

    Found are Django's generic foreign keys (content_type_id and object_id) and Rails' polymorphic associations
    (owner_type and owner_id).
    """
    known = {(partial.column, partial.kind, partial.value) for partial, _ in schema.partials}
    referring = {column for domain in schema.domains for column in domain.columns}
    for column, kind, _ in known:
        if kind and (column in referring or (column, "", "") in known):
            raise MergeError(
                f"--reference: {column} has one of all rows, too. Nothing was planned; say WHERE {kind}= in each."
            )
    found: list[tuple[Partial, ColumnName]] = []
    findings: list[tuple[ColumnName, str]] = []
    for column, kind, targets in _pairs(connection, schema):
        if column in referring:
            continue
        for value, candidates in targets.items():
            table = next((name for name in candidates if name in schema.tables), None)
            part = Partial(column, kind, value, is_text=not is_integer(schema.column(column)))
            if (column, kind, value) in known:
                continue
            if table is None:
                texts = _values(connection, schema.column(column), part.applies(schema.tables[column.table_name].c))
                if column not in independent and any(map(str.isdigit, texts)):
                    text = f"{column} where {kind} is {shown(value)}: there is no table {candidates[0]}: "
                    findings.append((column, f"{text}{part.to('TABLE.id')} or {option('independent', column)}"))
                continue
            key = list(schema.tables[table].primary_key.columns)
            if len(key) == 1 and is_integer(key[0]):
                found.append((part, ColumnName(*table, key[0].name)))
    return found, findings


def _pairs(
    connection: sa.Connection, schema: Schema
) -> Iterator[tuple[ColumnName, str, Mapping[str, list[TableName]]]]:
    """Yield a column of ids, the column that says their kind, and for each kind the tables that it may mean."""
    models: dict[str, str] = {}
    if CONTENT_TYPES in schema.tables and {"id", "app_label", "model"} <= set(schema.tables[CONTENT_TYPES].c.keys()):
        table = schema.tables[CONTENT_TYPES]
        rows = connection.execute(sa.select(table.c.id, table.c.app_label, table.c.model))
        models = {str(row[0]): f"{row[1]}_{row[2]}" for row in rows}
    to_types = {
        column
        for domain in schema.domains
        if any(key.table_name == CONTENT_TYPES for key in domain.keys)
        for column in domain.references
    }
    for name, table in schema.tables.items():
        for kind in table.c:
            prefix = re.sub(r"(content_type|ctype|ct|type)(_id)?$", "", kind.name)
            if is_django := ColumnName(*name, kind.name) in to_types:
                names = [f"{prefix}object_id", f"{prefix}object_pk", f"{prefix}id"]
            else:
                is_rails = kind.name.endswith("_type") and isinstance(kind.type, sa.String)
                names = [f"{prefix}id"] if is_rails else []
            # a permission is of a content type, and of no row
            given = (c for c in names if c in table.c and not (is_django and table.c[c].primary_key))
            if column := next(given, None):
                kinds = _values(connection, kind)
                if len(kinds) > _MAX_KINDS:
                    raise MergeError(
                        f"{name}.{kind.name} has more than {_MAX_KINDS} kinds of references. Nothing was planned; "
                        "--exclude the table."
                    )
                tables = {
                    value: [TableName(name.schema, models.get(value, f"{value}_?"))]
                    if is_django
                    else _tables_of_class(name.schema, value)
                    for value in kinds
                }
                yield ColumnName(*name, column), kind.name, tables


def _values(connection: sa.Connection, column: sa.Column[object], *where: sa.ColumnElement[bool]) -> list[str]:
    """Return different values of a column as texts, sorted; at most one more than the kinds that are allowed."""
    query = sa.select(column).where(column.is_not(None), *where).distinct().limit(_MAX_KINDS + 1)
    return sorted(map(str, connection.scalars(query)))


def _tables_of_class(schema: str | None, name: str) -> list[TableName]:
    """Return the tables that Rails may keep a class in: Admin::BlogEntry is in admin_blog_entries or blog_entries."""
    words = [re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", part).lower() for part in re.split(r"::|[.:/\\]", name)]
    return [
        TableName(schema, plural)
        for stem in dict.fromkeys(("_".join(words), words[-1]))
        for plural in (f"{stem}s", f"{stem[:-1]}ies", f"{stem}es", stem)
    ]


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A domain that values may refer to.

    Attributes:
        held: the part of the values that are its ids.
        hint: how well the name of the column fits that of the table; 0: not.
    """

    domain: Domain
    held: float
    hint: int


def undecided(work: Work, asked: set[ColumnName]) -> list[str]:
    """Return findings about columns whose values are ids that change, with what to write for each.

    Args:
        asked: columns that have a finding already.
    """
    schema, findings = work.changed_schema, list[str]()
    explained = {column for domain in schema.domains for column in domain.references} | work.counted | asked
    explained |= {parent for key in schema.foreign_keys for parent in key.parents}
    explained |= {key for domain in schema.domains for key in domain.keys if not _may_refer(work, domain)}
    for table_name, table in schema.tables.items():
        names = (ColumnName(*table_name, column.name) for column in table.c if not _is_other(work, column))
        plain: dict[ColumnName, list[_Candidate]] = {}
        for name in names:
            if name not in explained:
                findings += _of_column(work, name, plain)
        if plain:
            findings += _of_plain(work, table_name, plain)
    return findings


def _is_other(work: Work, column: sa.Column[object]) -> bool:
    """Return whether the type says that a column holds no ids: a flag, an amount, a time, bytes."""
    others = (sa.Boolean, sa.Date, sa.DateTime, sa.Time, sa.Interval, sa.LargeBinary, sa.Uuid, sa.Float)
    is_flag = getattr(column.type, "display_width", None) == 1
    # MariaDB makes no text of a geometry
    is_geometry = isinstance(column.type, sa.types.NullType) and is_mysql(work.changed)
    return isinstance(column.type, others) or is_flag or is_geometry or bool(getattr(column.type, "scale", None))


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
    is_decided, is_plain = name in work.independent, is_rewritable(work.changed_schema.column(name))
    if is_plain and not is_decided:
        plain[name] = []
    for place, found in _numbers_of(work, name):
        candidates = _candidates(work, name, place, found)
        if is_plain and not place:
            if not is_decided:
                plain[name] = candidates
        elif candidates:
            text = f"{name}{place.removeprefix('$')}: {_share(candidates)}, which apply does not change: rewrite them "
            text += "between apply and copy"
            if is_decided:
                work.notes.append(text)
            else:
                yield f"{text}; then {option('independent', name)}"


def _share(candidates: list[_Candidate]) -> str:
    names = ", ".join(dict.fromkeys(str(candidate.domain.table_name) for candidate in candidates))
    return f"{max(candidate.held for candidate in candidates):.0%} of its values are ids of {names}"


def _of_plain(work: Work, table: TableName, plain: Mapping[ColumnName, list[_Candidate]]) -> Iterator[str]:
    """Yield findings about the columns of a table that apply can rewrite."""
    unnamed = {name: candidates for name, candidates in plain.items() if not (candidates and candidates[0].hint)}
    of_kinds = _of_kinds(work, table, unnamed) if unnamed else {}
    for name, candidates in plain.items():
        if name in of_kinds:
            # decided rows are left out the next time
            yield from (_finding(work, part, found) for part, found in [*of_kinds[name].items()][:_FEW])
        elif candidates:
            # what is left of a column of which some rows are decided is of some kind, too
            kind = next((part.kind for part in _decided(work, name)), "")
            yield _finding(work, Partial(name, kind, kind and "VALUE", is_text=False), candidates)


def _finding(work: Work, part: Partial, candidates: list[_Candidate]) -> str:
    best, where = candidates[0], f" where {part.kind} is {shown(part.value)}" if part.kind else ""
    is_clear = sum(candidate.hint == best.hint for candidate in candidates) == 1
    is_clear &= bool(best.hint) or work.scans[best.domain.name].lowest >= LARGE
    text = f"{part.column}{where}: {_share(candidates)}: {part.to(best.domain.name if is_clear else 'TABLE.COLUMN')}"
    return f"{text} or {option('independent', part.column)}"


# --- ids in the rows of some kinds -----------------------------------------------------------------------

_Kinds = dict[Partial, list[_Candidate]]


def _of_kinds(work: Work, table: TableName, plain: Mapping[ColumnName, list[_Candidate]]) -> dict[ColumnName, _Kinds]:
    """Return the columns that hold ids in the rows of some kinds only, or ids of another table for each kind.

    A column of the table says the kind, as the model of an object, or the attribute of a value. If all values are ids
    (*plain* has candidates), each kind has to name the table of its ids.
    """
    found: dict[ColumnName, _Kinds] = {}
    most: dict[ColumnName, int] = {}
    for kind in _kinds(work, table):
        for name, numbers_of in _numbers_of_kinds(work, kind, list(plain)).items():
            parts = _of_each(work, numbers_of)
            if plain[name] and not (len(parts) == len(numbers_of) and all(one[0].hint for one in parts.values())):
                continue
            # the column that explains most values is the likeliest to say the kind
            explained = sum(len(numbers_of[part]) for part in parts)
            if explained > most.get(name, 0):
                found[name], most[name] = parts, explained
    return found


def _kinds(work: Work, table: TableName) -> list[ColumnName]:
    """Return the columns of a table that have few values in its first rows."""
    names = [
        ColumnName(*table, column.name)
        for column in work.changed_schema.tables[table].c
        if isinstance(getattr(column.type, "data_type", column.type), sa.String | sa.Integer | sa.Boolean)
    ]
    seen: dict[ColumnName, set[str]] = {name: set() for name in names}
    texts = [sa.cast(work.changed_schema.column(name), sa.String(_KIND)) for name in names]
    for row in work.changed.execute(sa.select(*texts).limit(_ROWS)) if names else ():
        for name, value in zip(names, row, strict=True):
            seen[name].add(value)
    return [name for name in names if len(seen[name]) <= _MAX_KINDS]


def _numbers_of_kinds(
    work: Work, kind: ColumnName, names: list[ColumnName]
) -> dict[ColumnName, dict[Partial, set[int]]]:
    """Return the numbers in rows of each kind that are not decided; of no column if there are too many kinds."""
    table = work.changed_schema.tables[kind.table_name]
    of = sa.func.coalesce(sa.cast(table.c[kind.column], sa.String(_KIND)), "")
    nth = sa.func.row_number().over(partition_by=of).label("nth")
    values = []
    for name in names:
        is_left = sa.and_(sa.true(), *(~part.applies(table.c) for part in _decided(work, name)))
        values.append(sa.case((is_left, sa.cast(table.c[name.column], sa.String(20)))))
    rows = sa.select(of, nth, *values).subquery()
    query = sa.select(rows).where(rows.c.nth <= _OF_KIND).limit(_MAX_KINDS * _OF_KIND)
    numbers: dict[ColumnName, dict[Partial, set[int]]] = {}
    kinds = set[str]()
    for value, _, *texts in work.changed.execute(query):
        kinds.add(value)
        for name, text in zip(names, texts, strict=True):
            if name != kind and text is not None and _NUMBER.fullmatch(text) and 0 < int(text) < 1 << 63:
                part = Partial(name, kind.column, value, is_text=False)
                numbers.setdefault(name, {}).setdefault(part, set()).add(int(text))
    return numbers if len(kinds) < _MAX_KINDS else {}


def _of_each(work: Work, numbers_of: Mapping[Partial, set[int]]) -> _Kinds:
    """Return, for each kind, the domains whose ids its numbers are: those whose table it names, or not by chance."""
    domains, found = _domains(work, next(iter(numbers_of)).column), _Kinds()
    for number, ids in work.store.domains_of("changed", set().union(*numbers_of.values()), domains).items():
        held_of = {part: len(numbers & ids) for part, numbers in numbers_of.items()}
        others = [part for part, held in held_of.items() if held < _MOST * len(numbers_of[part])]
        chance = (sum(held_of[part] for part in others) + 1) / (sum(len(numbers_of[part]) for part in others) + 2)
        for part in held_of.keys() - others:
            held, size, table = held_of[part], len(numbers_of[part]), domains[number].table_name
            is_named = table in (TableName(table.schema, part.value), *_tables_of_class(table.schema, part.value))
            if is_named or chance**size * len(numbers_of) <= _CHANCE:
                found.setdefault(part, []).append(_Candidate(domains[number], held / size, 2 * is_named))
    return {part: _likeliest(candidates) for part, candidates in sorted(found.items())}


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
        column, table = schema.column(name), schema.tables[name.table_name]
        plain = isinstance(column.type, sa.Integer | sa.Numeric)
        text = sa.func.substr(sa.cast(column, sa.Text), 1, _LENGTH)
        # rows that were there before the column have what stands for no row: they may be the first of a large table
        is_given = text.not_in(("", "0", "-1"))
        query = sa.select(sa.type_coerce(column if plain else text, sa.types.NULLTYPE)).where(is_given)
        query = query.where(*(~part.applies(table.c) for part in decided))
        for value in connection.scalars(query.limit(_ROWS if plain else _TEXTS)):
            for place, number in _numbers_in(value):
                places.setdefault(place, []).append(number)
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
        if float(text) == int(float(text)):
            yield "", int(text.partition(".")[0])
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


def _domains(work: Work, name: ColumnName) -> dict[int, Domain]:
    """Return the domains that change, and that a column may refer to, by their numbers."""
    return {
        work.scans[domain.name].number: domain
        for domain in work.changed_schema.domains
        if (work.scans[domain.name].clashes or work.is_matched(domain)) and name not in domain.columns
    }


def _candidates(work: Work, name: ColumnName, place: str, found: list[list[int]]) -> list[_Candidate]:
    """Return the domains that change, and whose ids the values are; the likeliest first."""
    domains = _domains(work, name)
    held: dict[int, float] = {}
    most = 0.0
    for side, numbers in zip(("kept", "changed"), found, strict=True):
        # 0 and -1 stand for no row
        distinct = {number for number in numbers if 0 < number < 1 << 63}
        if not distinct or not found[1]:
            continue
        ids_of = work.store.domains_of(side, distinct, domains)
        either = len(set().union(*ids_of.values()))
        certain = either if max(distinct) >= LARGE and not place else 0
        most = max(most, either / len(distinct), float(bool(certain)))
        for number, ids in ids_of.items():
            held[number] = max(held.get(number, 0.0), len(ids) / len(distinct))
    likely = _likeliest(_Candidate(domains[one], part, _hint(name, domains[one])) for one, part in held.items())
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
