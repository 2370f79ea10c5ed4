"""Two servers of a game, with a row of every kind that a map has a word for, on three kinds of databases."""

from collections.abc import Iterator
from pathlib import Path

from snowredis.cli import main
from tests.support.statements import Tables, create_tables, execute

# ids of the layout "default", of which the first two are made by both servers
FLAKES = (7_300_000_000_000_001, 7_300_000_000_000_002, 7_300_000_000_000_500)
TYPES = {
    "sqlite": {"int": "INTEGER", "serial": "INTEGER PRIMARY KEY AUTOINCREMENT", "tiny": "INTEGER", "big": "INTEGER"},
    "postgresql": {"int": "integer", "serial": "serial PRIMARY KEY", "tiny": "smallint", "big": "bigint"},
    "mariadb": {"int": "INT", "serial": "INT AUTO_INCREMENT PRIMARY KEY", "tiny": "TINYINT UNSIGNED", "big": "BIGINT"},
}
TABLES = ("accounts", "guilds", "characters", "kinds", "items", "ranks", "members", "notes", "counters", "houses")
JOIN = {"mariadb": "CONCAT(name, '-2')"}
# the map of a person, without its checksum
MAP = """
reviewed = true
schema = "SCHEMA"
[accounts]
rows = "first"
keep = ["id", "name", "email"]
[guilds]
rows = "copy"
id = ["id", "leader"]
keep = ["title"]
[characters]
rows = "copy"
id = ["id", "partner", "guild_id"]
keep = ["account_id", "name", "level"]
none = ["mount_id"]
flake = ["flake"]
sure = ["level", "account_id"]
taken.name = "TAKEN"
[kinds]
rows = "copy"
match = ["name"]
id = ["id"]
keep = ["name"]
[items]
rows = "copy"
id = ["id"]
flake = ["made_by"]
of.kind = "kinds"
keep = ["place"]
sql.owner_id = "CASE WHEN place = 'SHOP' THEN owner_id ELSE owner_id + :offset END"
[ranks]
rows = "copy"
id = ["id"]
own.id = "ranks"
keep = ["title"]
[members]
rows = "copy"
id = ["character_id", "rank_id"]
own.rank_id = "ranks"
[notes]
rows = "copy"
id = ["about"]
sql.body = "BODY"
[counters]
rows = "first"
top = ["next_id"]
keep = ["name"]
[houses]
rows = "skip"
"""
BODY = {
    "sqlite": "'about ' || CAST(substr(body, 7) + :offset AS TEXT)",
    "postgresql": "'about ' || CAST(CAST(substr(body, 7) AS bigint) + :offset AS text)",
    "mariadb": "CONCAT('about ', SUBSTR(body, 7) + :offset)",
}


def tables_of(kind: str, size: int) -> Tables:
    """Return the tables with the rows of each server, which has *size* characters; kinds have other ids on each."""
    types, characters = TYPES[kind], range(1, size + 1)

    def characters_of(side: str) -> Iterator[str]:
        for i in characters:
            name = "Bob" if i == 1 else f"{side}{'xyz'[i % 3]}{i}"
            flake = FLAKES[i - 1] + (side == "B" and i == 3) if i <= 3 else "NULL"
            guild = i % 3 + 1 if i % 2 else "NULL"
            yield f"{i}, {i}, {i % size + 1}, {guild}, '{name}', {i % 7 * 1000}, 0, {flake}"

    def items_of(_: str) -> Iterator[str]:
        for i in range(1, 2 * size + 1):
            owner, place = (i % size + 1, "BAG") if i % 4 else (9, "SHOP")
            yield f"{i}, {owner}, '{place}', {i % 2 + 1}, {FLAKES[i % 2]}"

    found: Tables = {
        "accounts (id {int} PRIMARY KEY, name VARCHAR(40) NOT NULL UNIQUE, email VARCHAR(40))": lambda s: (
            f"{i}, 'player{i}', '{s if i == 2 else ''}p{i}@x'" for i in characters
        ),
        "guilds (id {serial}, leader {int}, title VARCHAR(40) NOT NULL)": lambda s: (
            f"{i}, {i}, '{s} guild {i}'" for i in (1, 2, 3)
        ),
        "characters (id {serial}, account_id {int} NOT NULL, partner {int}, guild_id {int}, name VARCHAR(40) NOT NULL, "
        "level {int} NOT NULL, mount_id {int}, flake {big} UNIQUE, "
        "CONSTRAINT of_account FOREIGN KEY (account_id) REFERENCES accounts (id), "
        "CONSTRAINT of_guild FOREIGN KEY (guild_id) REFERENCES guilds (id), "
        "CONSTRAINT of_name UNIQUE (name))": characters_of,
        "kinds (id {serial}, name VARCHAR(40) NOT NULL UNIQUE)": lambda s: (
            ["1, 'sword'", "2, 'bow'"] if s == "A" else ["1, 'bow'", "2, 'axe'"]
        ),
        "items (id {serial}, owner_id {int} NOT NULL, place VARCHAR(10) NOT NULL, kind {int} NOT NULL, made_by {big}, "
        "CONSTRAINT of_kind FOREIGN KEY (kind) REFERENCES kinds (id))": items_of,
        "ranks (id {tiny} PRIMARY KEY, title VARCHAR(40))": lambda s: (f"{i}, '{s} rank {i}'" for i in range(1, 6)),
        "members (character_id {int} NOT NULL, rank_id {tiny} NOT NULL, "
        "PRIMARY KEY (character_id, rank_id))": lambda _: (f"{i}, {i % 5 + 1}" for i in characters),
        "notes (about VARCHAR(20), body VARCHAR(60))": lambda _: (f"'{i}', 'about {i}'" for i in characters),
        "counters (name VARCHAR(20) PRIMARY KEY, next_id {big} NOT NULL)": lambda s: [
            f"'items', {2 * size + (1 if s == 'A' else 50)}"
        ],
        "houses (id {int} PRIMARY KEY, street VARCHAR(40))": lambda s: (f"{i}, '{s} street {i}'" for i in range(1, 20)),
    }  # fmt: skip
    return {table.format(**types): rows for table, rows in found.items()}


def fill(url: str, kind: str, side: str, size: int) -> None:
    """Make the tables of one server."""
    create_tables(url, tables_of(kind, size), side)
    if kind == "postgresql":
        counted = ("guilds", "characters", "kinds", "items")
        execute(url, *(f"SELECT setval('{name}_id_seq', (SELECT max(id) FROM {name}))" for name in counted))


def write_map(path: Path, kind: str, schema: str, text: str = MAP) -> Path:
    """Write the map of a person for a kind of database."""
    taken = JOIN.get(kind, "name || '-2'")
    path.write_text(text.replace("SCHEMA", schema).replace("TAKEN", taken).replace("BODY", BODY[kind]))
    return path


def run(path: Path, first: str, second: str, *options: str) -> int:
    """Run the command; return its exit code."""
    return main(["merge", "run", str(path), first, second, *options])
