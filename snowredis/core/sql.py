"""Write ids in SQL: functions, partitions by time, and fences for readers. Pure text, nothing is connected.

Every function is one expression over the constants of a layout: shifts, masks and integer divisions, so a query
can use it in any place, and its result is that of Layout.decode(), Layout.id_range() and encode() for every id.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple

from snowredis.core.layout import Layout, layout_spec
from snowredis.core.text import DIGITS
from snowredis.core.values import MAX_ID, utc_from_ms
from snowredis.errors import ConfigError, shown

__all__ = ["CLOCK_US", "DIALECTS", "FENCE", "FENCE_BODY", "PERIODS"]
__all__ += ["fence", "fence_condition", "functions", "partitions", "quoted"]

# letters, digits and underscores; a table may have a schema in front
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,40}")
# PostgreSQL slows down, and MariaDB refuses more than 8,192
MAX_PARTITIONS = 4_000
PERIODS = ("day", "month")
# names of functions begin with it
_PREFIX = "snowredis"


class Dialect(NamedTuple):
    """SQL of one kind of database.

    Attributes:
        function: definition of a function of one argument.
        time: a time made of ms since 1970.
        us: microseconds since 1970 of a time.
        id_type, time_type, text_type: types of its arguments and results; "": none is written.
        argument: how a body names its argument.
        divide: a division of whole numbers, whose first is 0 or more.
        digit: the character of an alphabet at a place, counted from 1.
        right, left, both: bits moved to the right or left, and bits that two numbers have.
        quote: the character around names.
    """

    function: str
    time: str
    us: str
    id_type: str = ""
    time_type: str = ""
    text_type: str = ""
    argument: str = "{0}"
    divide: str = "(({0}) / {1})"
    digit: str = "substr('{0}', {1}, 1)"
    right: str = "({0} >> {1})"
    left: str = "{0} << {1}"
    both: str = "{0} & {1}"
    quote: str = '"'


_MARIADB = Dialect(
    "CREATE OR REPLACE FUNCTION {name}({argument} {takes}) RETURNS {returns} DETERMINISTIC NO SQL\n    RETURN {body};",
    "TIMESTAMPADD(MICROSECOND, ({0}) * 1000, TIMESTAMP'1970-01-01 00:00:00.000000')",
    "TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00.000000', {0})",
    "BIGINT",
    "DATETIME(6)",
    "CHAR(16) CHARACTER SET ascii COLLATE ascii_bin",
    divide="(({0}) DIV {1})",
    quote="`",
)
DIALECTS = {
    "postgresql": Dialect(
        "CREATE OR REPLACE FUNCTION {name}({argument} {takes}) RETURNS {returns}\n"
        "    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$\n    SELECT {body} $$;",
        # to_timestamp() computes in floats, which are off by a microsecond from the year 2500 on
        "timestamptz 'epoch' + ({0}) * interval '1 millisecond'",
        "trunc(extract(epoch FROM {0})::numeric * 1000000)",
        "bigint",
        "timestamptz",
        "text",
        divide="div({0}, {1})",
        digit="substr('{0}', ({1})::int, 1)",
    ),
    "mariadb": _MARIADB,
    # it replaces no function
    "mysql": _MARIADB._replace(
        function="DROP FUNCTION IF EXISTS {name};\n\n" + _MARIADB.function.replace("CREATE OR REPLACE", "CREATE")
    ),
    "sqlite": Dialect(
        "SELECT {body} AS {name};",
        "strftime('%Y-%m-%d %H:%M:%S', ({0}) / 1000, 'unixepoch') || printf('.%03d', ({0}) % 1000)",
        "(CAST(round((julianday({0}) - 2440587.5) * 86400000) AS INTEGER) * 1000)",
        argument=":{0}",
    ),
    "duckdb": Dialect(
        "CREATE OR REPLACE MACRO {name}({argument}) AS\n    {body};",
        "make_timestamp(({0}) * 1000)",
        "epoch_us({0})",
        divide="(({0}) // {1})",
    ),
    "bigquery": Dialect(
        "CREATE TEMP FUNCTION {name}({argument} {takes}) RETURNS {returns} AS (\n    {body}\n);",
        "TIMESTAMP_MILLIS({0})",
        "UNIX_MICROS({0})",
        "INT64",
        "TIMESTAMP",
        "STRING",
        divide="DIV({0}, {1})",
        quote="`",
    ),
    # ids are Int64, and times DateTime64, which end in 2299
    "clickhouse": Dialect(
        "CREATE OR REPLACE FUNCTION {name} AS ({argument}) ->\n    {body};",
        "fromUnixTimestamp64Milli(toInt64({0}), 'UTC')",
        "toUnixTimestamp64Micro(toDateTime64({0}, 6, 'UTC'))",
        divide="intDiv({0}, {1})",
        digit="substring('{0}', {1}, 1)",
        right="bitShiftRight({0}, {1})",
        left="toInt64(bitShiftLeft({0}, {1}))",
        both="bitAnd({0}, {1})",
    ),
}


def functions(dialect: str, layout: Layout) -> Iterator[str]:
    """Return the SQL of the functions snowredis_time, _first_id, _worker and _text, which is base62.

    ``_time`` is the start of an id's tick. ``_first_id`` is the first id of a time, for ``WHERE id >= … AND id < …``;
    before the epoch it is 0, and past the end of the layout one more than its last id, 2**63 - 1 at most. Times
    without a zone are in UTC.

    Args:
        dialect: one of DIALECTS.

    Raises:
        ConfigError: unknown dialect.
    """
    sql = _dialect(dialect)

    def define(name: str, argument: str, returns: str, body: str, takes: str = "") -> list[str]:
        takes = takes or (sql.id_type if argument == "id" else sql.time_type)
        name = f"{_PREFIX}_{name}"
        text = sql.function.format(name=name, argument=argument, takes=takes, returns=returns, body=body)
        return text.split("\n\n")

    an_id = sql.argument.format("id")
    ms = f"{sql.right.format(an_id, layout.timestamp_shift)} * {layout.tick_ms} + {layout.epoch_ms}"
    yield f"-- ids of the layout {layout_spec(layout)}"
    yield from define("time", "id", sql.time_type, sql.time.format(ms))
    yield from define("first_id", "moment", sql.id_type, _first_id(sql, layout))
    worker = sql.both.format(sql.right.format(an_id, layout.worker_shift), layout.workers - 1)
    yield from define("worker", "id", sql.id_type, worker)
    yield from define("text", "id", sql.text_type, _text(sql, an_id))
    if dialect == "postgresql":
        encoder, decoder = (f"p_time_{name} => '{_PREFIX}_time_{name}'" for name in ("encoder", "decoder"))
        yield f"-- for pg_partman: {encoder}, {decoder}"
        yield from define("time_encoder", "moment", "bigint", f"{_PREFIX}_first_id(moment)")
        yield from define("time_decoder", "id", "timestamptz", f"{_PREFIX}_time(id)")
        yield from define("time_decoder", "id", "timestamptz", f"{_PREFIX}_time(id::bigint)", "text")


def _first_id(sql: Dialect, layout: Layout) -> str:
    us, tick_us = sql.us.format(sql.argument.format("moment")), layout.tick_ms * 1000
    since = f"{us} - {layout.epoch_ms * 1000}"
    tick = sql.divide.format(f"{since} + {tick_us - 1}", tick_us)
    last_us, past = layout.max_tick * tick_us, min(layout.max_tick + 1 << layout.timestamp_shift, MAX_ID)
    cast = f"{tick}::bigint" if sql.id_type == "bigint" else tick
    return (
        f"CASE WHEN {since} <= 0 THEN 0 WHEN {since} > {last_us} THEN {past}\n"
        f"    ELSE {sql.left.format(cast, layout.timestamp_shift)} END"
    )


def _text(sql: Dialect, an_id: str) -> str:
    alphabet, width = DIGITS["base62"]
    base, digits = len(alphabet), []
    for place in reversed(range(width)):
        rest = sql.divide.format(an_id, base**place)
        value = f"MOD({rest}, {base})" if sql.id_type == "INT64" else f"{rest} % {base}"
        digits.append(sql.digit.format(alphabet, f"{value} + 1"))
    return f"CONCAT({', '.join(digits)})" if sql.quote == "`" else " || ".join(digits)


def partitions(
    dialect: str, layout: Layout, table: str, column: str = "id", *, by: str, start_ms: int, count: int
) -> Iterator[str]:
    """Return the SQL that divides *table* by the time of its ids: one partition for each day or month in UTC.

    The bounds are those of Layout.id_range(), so an id is in the partition of its decoded time. In PostgreSQL the
    table is partitioned by range of *column* already; MariaDB's first partition also has all earlier ids.

    Args:
        by: one of PERIODS.
        start_ms: ms since 1970 in the first of them.
        count: how many.

    Raises:
        ConfigError: a dialect without such partitions, a name that is not letters, digits and underscores, a count
            that is not 1 .. MAX_PARTITIONS, or a period that has no ids of *layout*.
    """
    sql = _dialect(dialect)
    if dialect not in ("postgresql", "mariadb", "mysql"):
        raise ConfigError(f"{dialect} has no partitions by ranges of a number. Use postgresql, mariadb or mysql.")
    whole = quoted(dialect, table, column)
    if by not in PERIODS or not 1 <= count <= MAX_PARTITIONS:
        raise ConfigError(f"give 1 to {MAX_PARTITIONS} partitions, by {' or '.join(PERIODS)}")
    bounds = list(_bounds(layout, by, start_ms, count))
    if dialect == "postgresql":
        for label, low, high in bounds:
            part = f"{whole[:-1]}_p{label}{sql.quote}"
            yield f"CREATE TABLE {part} PARTITION OF {whole} FOR VALUES FROM ({low}) TO ({_limit(high)});"
        return
    parts = [f"    PARTITION p{label} VALUES LESS THAN ({_limit(high)})" for label, _, high in bounds]
    listed = ",\n".join(parts)
    yield f"ALTER TABLE {whole} PARTITION BY RANGE ({sql.quote}{column}{sql.quote}) (\n{listed}\n);"


# microseconds since 1970 when the expression is evaluated, not when its transaction or statement began
CLOCK_US = "(date_part('epoch', clock_timestamp()) * 1000000)::bigint"
# the trigger and its function
FENCE = "snowredis_fence"
# a fence of a day lets readers see no row of today
MAX_LAG_MS = 86_400_000
# An UPDATE that moves a row to another partition deletes it and inserts it: an id that its transaction deleted may come
# again. The name of a column is unknown after the column was renamed: then nothing old is let through
FENCE_BODY = """ DECLARE
    an_id text := to_jsonb(coalesce(NEW, OLD)) ->> TG_ARGV[1];
    deleted text := pg_partition_root(TG_RELID)::oid || ' ' || TG_ARGV[3] || ' ' || an_id;
BEGIN
    IF TG_OP = 'INSERT' AND (deleted = current_setting('snowredis.deleted', true)) IS NOT TRUE THEN
        RAISE EXCEPTION '% of %: an id older than % ms, which readers may have passed',
            an_id, TG_TABLE_NAME, TG_ARGV[0] USING ERRCODE = 'check_violation',
            DETAIL = 'A fence that replaced another one refuses what that one refused at that moment, too.'; END IF;
    PERFORM set_config('snowredis.deleted', CASE TG_OP WHEN 'DELETE' THEN deleted ELSE '' END, true);
    RETURN NULL; END """


def fence_condition(row: str, layout: Layout, column: str, lag_ms: int, lowest: str) -> str:
    """Return the condition of a fence: the id of *row*, new or old, is older than *lag_ms*, or is below *lowest*.

    Raises:
        ConfigError: a lag that is not 1 .. MAX_LAG_MS.
    """
    if not 1 <= lag_ms <= MAX_LAG_MS:
        raise ConfigError(f"a lag of {lag_ms} ms is not 1 ms to 1 day")
    tick = f"({CLOCK_US} / 1000 - {layout.epoch_ms + lag_ms}) / {layout.tick_ms}"
    bound = f"LEAST(GREATEST({tick}, 0), {layout.max_tick}) << {layout.timestamp_shift}"
    return f'{row}."{column}" < GREATEST({bound}, {lowest})'


def fence(dialect: str, layout: Layout, table: str, column: str = "id", *, lag_ms: int) -> str:
    """Return the SQL of a trigger on *table* that refuses a row whose id is older than *lag_ms* when it is inserted.

    Readers rely on it: see snowredis.readers. PostgreSQL 14 or later. A fence that is there is replaced, and the new
    one, if it is of the same layout and column, refuses what the old one refused at that moment: then a longer lag lets
    no id in that readers have passed.

    Raises:
        ConfigError: another dialect, a lag that is not 1 .. MAX_LAG_MS, or names as for partitions().
    """
    if dialect != "postgresql":
        raise ConfigError(f"{shown(dialect)} has no fence that holds always. Readers are for postgresql alone.")
    whole = quoted(dialect, table, column)
    arguments = f"('{lag_ms}', '{column}', '{layout_spec(layout)}', '{table}', %s)"
    # AFTER, so that the transaction has its number before the clock is read: also the one that makes the fence. WHEN is
    # cheaper than plpgsql
    return f"""CREATE OR REPLACE FUNCTION {FENCE}() RETURNS trigger LANGUAGE plpgsql AS $${FENCE_BODY}$$;
DO $do$ DECLARE definition text; since text; lowest bigint := 0; BEGIN
    PERFORM pg_current_xact_id();
    LOCK TABLE {whole} IN SHARE ROW EXCLUSIVE MODE;
    SELECT pg_get_triggerdef(oid) INTO definition FROM pg_trigger
        WHERE tgrelid = '{whole}'::regclass AND tgname = '{FENCE}' AND tgenabled IN ('O', 'A')
        AND pg_get_triggerdef(oid) ~ ' AFTER INSERT ON .* WHEN [(][(]new[.]"?{column}"? < '
        AND strpos(pg_get_triggerdef(oid), ', ''{layout_spec(layout)}'', ') > 0;
    IF definition IS NULL THEN since := quote_literal({CLOCK_US});
    ELSE since := substring(definition FROM '(''[0-9]+'')[)]$');
        EXECUTE 'SELECT ' || substring(definition FROM ' < (.*)[)][)] EXECUTE FUNCTION ') INTO lowest; END IF;
    EXECUTE format($$CREATE OR REPLACE TRIGGER {FENCE} AFTER INSERT ON {whole} FOR EACH ROW
        WHEN ({fence_condition("new", layout, column, lag_ms, "%s")})
        EXECUTE FUNCTION {FENCE}{arguments}$$, lowest, since);
    IF EXISTS (SELECT FROM pg_partition_tree('{whole}')
        WHERE pg_get_partkeydef(relid) NOT LIKE '% ({column})') THEN
        EXECUTE format($$CREATE OR REPLACE TRIGGER {FENCE}_deleted AFTER DELETE ON {whole} FOR EACH ROW
            WHEN ({fence_condition("old", layout, column, max(1, lag_ms // 2), "%s")})
            EXECUTE FUNCTION {FENCE}{arguments}$$, lowest, since); END IF; END $do$;"""


def quoted(dialect: str, table: str, column: str) -> str:
    """Return the quoted name of *table*; check both names."""
    if not all(map(_NAME.fullmatch, [*table.split("."), column])) or table.count(".") > 1:
        raise ConfigError(f"{shown(table)}.{shown(column)} is not a name of letters, digits and underscores")
    quote = _dialect(dialect).quote
    return ".".join(f"{quote}{part}{quote}" for part in table.split("."))


def _limit(high: int) -> str:
    return str(high) if high < MAX_ID else "MAXVALUE"


def _bounds(layout: Layout, period: str, start_ms: int, count: int) -> Iterator[tuple[str, int, int]]:
    """Return the name of each period, its first id, and the first id after it."""
    begin = utc_from_ms(start_ms).replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "month":
        begin = begin.replace(day=1)
    for _ in range(count):
        try:
            end = begin + timedelta(days=1 if period == "day" else 32)
        except OverflowError:
            raise ConfigError(f"the {period} of {begin:%Y-%m-%d} is the last one that can be computed") from None
        if period == "month":
            end = end.replace(day=1)
        low, high = layout.id_range(begin, end)
        if low == high:
            raise ConfigError(f"no id of the layout {layout} is of the {period} of {begin:%Y-%m-%d}")
        yield f"{begin:%Y%m%d}" if period == "day" else f"{begin:%Y%m}", low, high
        begin = end


def _dialect(name: str) -> Dialect:
    if name not in DIALECTS:
        raise ConfigError(f"unknown database {shown(name)}. Use one of {', '.join(DIALECTS)}.")
    return DIALECTS[name]
