"""Two shards of a game whose ids clash, for tests and scripts: every kind of foreign key, on any of the databases.

A row says in its text column which row it is, so that what it refers to can be compared before and after a merge.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from snowredis.core.layout import Layout
from snowredis.core.presets import resolve_layout

# 2026-01-01
FIRST_TICK = 365 * 86_400_000
# what the command line says of what the catalog does not: --reference, --id, --match
PART_OF_KEY, SAME = "quest.id", "kind"
# the second is a foreign key, which SQLite does not add to a table
BY_HAND = ["audit.player=player.id", "player.guild=guild.id"]
# keys that the database does not number, and whose values are also in other tables
INDEPENDENT = ("player.id", "guild.id", "item.id", "quest.id", "progress.step")
METADATA = sa.MetaData()


def _id(name: str = "id", *arguments: Any, **options: Any) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, *arguments, autoincrement=False, **options)


def _player(name: str, **options: Any) -> sa.Column[int]:
    return _id(name, sa.ForeignKey("player.id"), **options)


# a table of both databases whose rows are the same
KIND = sa.Table("kind", METADATA, _id(primary_key=True), sa.Column("name", sa.String(40), nullable=False))
PLAYER = sa.Table(
    "player",
    METADATA,
    _id(primary_key=True),
    sa.Column("name", sa.String(40), nullable=False, unique=True),
    # to itself
    _player("mentor", index=True),
    # in a circle with guild.leader
    _id("guild", sa.ForeignKey("guild.id", name="player_guild", use_alter=True), index=True),
    sa.Column("seen", sa.DateTime),
)
sa.Table(
    "guild",
    METADATA,
    _id(primary_key=True),
    sa.Column("name", sa.String(40), nullable=False),
    _player("leader", nullable=False, index=True),
)
sa.Table(
    "item",
    METADATA,
    _id(primary_key=True),
    _player("owner", nullable=False, index=True),
    _id("kind", sa.ForeignKey("kind.id"), nullable=False, index=True),
    sa.Column("text", sa.String(40), nullable=False),
)
# a key that is a foreign key
sa.Table("vip", METADATA, _player("player", primary_key=True), sa.Column("text", sa.String(40)))
# many to many, of a table with itself
sa.Table("friend", METADATA, _player("one", primary_key=True), _player("other", primary_key=True, index=True))
# composite keys
sa.Table(
    "quest",
    METADATA,
    _id(primary_key=True),
    sa.Column("step", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("text", sa.String(40)),
)
sa.Table(
    "progress",
    METADATA,
    _player("player", primary_key=True),
    _id("quest", primary_key=True),
    sa.Column("step", sa.Integer, primary_key=True, autoincrement=False),
    sa.ForeignKeyConstraint(["quest", "step"], ["quest.id", "quest.step"]),
    sa.Index("progress_quest", "quest", "step"),
)
# no constraint, no key
sa.Table("audit", METADATA, _id("player", index=True), sa.Column("text", sa.String(40)))

LAYOUT: Layout = resolve_layout(None)


def fill(url: str, shard: str, players: int, *, counters: bool, seed: int) -> None:
    """Make the tables of one shard and fill them.

    Args:
        shard: its name, which is part of all texts.
        counters: ids are 1, 2, 3, … in each table; else ids of the default layout, of which a third clash with those
            of another shard with the same seed.
    """
    engine = sa.create_engine(url)
    METADATA.create_all(engine)
    # the same for both shards: ticks and sequences; worker ids differ for two of three
    common, own = random.Random(seed), random.Random(f"{shard}{seed}")
    ids = {table: list(_ids(table, players, shard, common, counters=counters)) for table in ("player", "guild", "item")}
    player, guild, item = ids["player"], ids["guild"][: max(1, players // 5)], ids["item"]
    quests = [(number, step) for number in range(1, 9) for step in range(3)]
    rows: dict[str, list[dict[str, Any]]] = {
        "kind": [{"id": number, "name": f"kind {number}"} for number in range(1, 5)],
        "player": [
            {"id": an_id, "name": f"{shard} {at}", "mentor": None, "guild": None, "seen": None}
            for at, an_id in enumerate(player)
        ],
        "guild": [
            {"id": an_id, "name": f"{shard} guild {at}", "leader": own.choice(player)} for at, an_id in enumerate(guild)
        ],
        "item": [
            {"id": an_id, "owner": own.choice(player), "kind": own.randint(1, 4), "text": f"{shard} item {at}"}
            for at, an_id in enumerate(item)
        ],
        "vip": [{"player": an_id, "text": f"{shard} vip {at}"} for at, an_id in enumerate(player) if at % 7 == 0],
        "friend": [
            {"one": one, "other": other}
            for one, other in {(own.choice(player), own.choice(player)) for _ in range(2 * players)}
        ],
        "quest": [{"id": number, "step": step, "text": f"{shard} quest {number}"} for number, step in quests],
        "progress": [
            {"player": an_id, "quest": number, "step": step}
            for an_id, (number, step) in {(own.choice(player), own.choice(quests)) for _ in range(players)}
        ],
        "audit": [{"player": own.choice(player), "text": f"{shard} audit {at}"} for at in range(players)],
    }
    with engine.begin() as connection:
        for table, values in rows.items():
            for at in range(0, len(values), 2000):
                connection.execute(sa.insert(METADATA.tables[table]), values[at : at + 2000])
        later = [{"of": an_id, "m": own.choice([None, *player]), "g": own.choice([None, *guild])} for an_id in player]
        for at in range(0, len(later), 2000):
            connection.execute(
                sa.update(PLAYER)
                .where(PLAYER.c.id == sa.bindparam("of"))
                .values(mentor=sa.bindparam("m"), guild=sa.bindparam("g")),
                later[at : at + 2000],
            )
    engine.dispose()


def _ids(table: str, players: int, shard: str, common: random.Random, *, counters: bool) -> Iterator[int]:
    count = 3 * players if table == "item" else players
    if counters:
        yield from range(1, count + 1)
        return
    tick = FIRST_TICK
    for at in range(count):
        tick += common.choice([0, 0, 1, 5000])
        # a third on the same worker id of both shards
        worker = 1 if at % 3 == 0 else 2 if shard == "a" else 3
        yield LAYOUT.compose(tick=tick, worker=worker, sequence=at % LAYOUT.sequences)


def story(url: str) -> dict[str, list[tuple[Any, ...]]]:
    """Return all rows with names in place of ids, sorted: the same before and after ids change."""
    engine = sa.create_engine(url)
    tables = METADATA.tables
    with engine.connect() as connection:
        names = dict(map(tuple, connection.execute(sa.select(PLAYER.c.id, PLAYER.c.name))))
        guilds = dict(map(tuple, connection.execute(sa.select(tables["guild"].c.id, tables["guild"].c.name))))
        quests = dict(map(tuple, connection.execute(sa.select(tables["quest"].c.id, tables["quest"].c.text))))

        def row_of(table: sa.Table, row: Any) -> tuple[Any, ...]:
            values = []
            for column in table.c:
                value = getattr(row, column.name)
                refers = {key.column.table.name for key in column.foreign_keys} | (
                    {"player"} if (table.name, column.name) == ("audit", "player") else set()
                )
                if "player" in refers:
                    value = None if value is None else names[value]
                elif "guild" in refers:
                    value = None if value is None else guilds[value]
                elif (table.name, column.name) in (("quest", "id"), ("progress", "quest")):
                    value = quests[value]
                elif column.name == "id" and table.name in ("player", "guild", "item"):
                    continue
                values.append(value)
            return tuple(values)

        found = {
            name: sorted((row_of(table, row) for row in connection.execute(sa.select(table))), key=repr)
            for name, table in tables.items()
        }
    engine.dispose()
    return found


def contents(url: str) -> dict[str, list[tuple[Any, ...]]]:
    """Return all rows as they are, sorted."""
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        found = {
            name: sorted((tuple(row) for row in connection.execute(sa.select(table))), key=repr)
            for name, table in METADATA.tables.items()
        }
    engine.dispose()
    return found
