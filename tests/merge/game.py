"""Two servers of a game, with a row of every kind that a map has a word for, on three kinds of databases."""

from pathlib import Path

from snowredis.cli import main
from tests.support.statements import execute

# ids of the layout "default", of which the first two are made by both servers
FLAKES = (7_300_000_000_000_001, 7_300_000_000_000_002, 7_300_000_000_000_500)
_TABLES = """
CREATE TABLE accounts (id {int} PRIMARY KEY, name VARCHAR(40) NOT NULL UNIQUE, email VARCHAR(40));
CREATE TABLE guilds (id {serial}, leader {int}, title VARCHAR(40) NOT NULL);
CREATE TABLE characters (id {serial}, account_id {int} NOT NULL, partner {int}, guild_id {int},
    name VARCHAR(40) NOT NULL, level {int} NOT NULL, mount_id {int}, flake {big} UNIQUE,
    CONSTRAINT of_account FOREIGN KEY (account_id) REFERENCES accounts (id),
    CONSTRAINT of_guild FOREIGN KEY (guild_id) REFERENCES guilds (id), CONSTRAINT of_name UNIQUE (name));
CREATE TABLE kinds (id {serial}, name VARCHAR(40) NOT NULL UNIQUE);
CREATE TABLE items (id {serial}, owner_id {int} NOT NULL, place VARCHAR(10) NOT NULL, kind {int} NOT NULL,
    made_by {big},
    CONSTRAINT of_kind FOREIGN KEY (kind) REFERENCES kinds (id));
CREATE TABLE ranks (id {tiny} PRIMARY KEY, title VARCHAR(40));
CREATE TABLE members (character_id {int} NOT NULL, rank_id {tiny} NOT NULL, PRIMARY KEY (character_id, rank_id));
CREATE TABLE notes (about VARCHAR(20), body VARCHAR(60));
CREATE TABLE counters (name VARCHAR(20) PRIMARY KEY, next_id {big} NOT NULL);
CREATE TABLE houses (id {int} PRIMARY KEY, street VARCHAR(40))
"""
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


def fill(url: str, kind: str, side: str, size: int) -> None:
    """Make the tables of one server, with *size* characters; kinds have other ids on each."""
    kinds = ["sword", "bow"] if side == "A" else ["bow", "axe"]
    rows = [
        f"INSERT INTO accounts VALUES ({i}, 'player{i}', '{side if i == 2 else ''}p{i}@x')" for i in range(1, size + 1)
    ]
    rows += [f"INSERT INTO guilds (id, leader, title) VALUES ({i}, {i}, '{side} guild {i}')" for i in (1, 2, 3)]
    for i in range(1, size + 1):
        name = "Bob" if i == 1 else f"{side}{'xyz'[i % 3]}{i}"
        flake = FLAKES[i - 1] + (side == "B" and i == 3) if i <= 3 else "NULL"
        values = f"{i}, {i}, {i % size + 1}, {i % 3 + 1 if i % 2 else 'NULL'}, '{name}', {i % 7 * 1000}, 0, {flake}"
        rows.append(
            "INSERT INTO characters (id, account_id, partner, guild_id, name, level, mount_id, flake) "
            f"VALUES ({values})"
        )
    rows += [f"INSERT INTO kinds (id, name) VALUES ({at}, '{name}')" for at, name in enumerate(kinds, 1)]
    for i in range(1, 2 * size + 1):
        owner, place = (i % size + 1, "BAG") if i % 4 else (9, "SHOP")
        rows.append(
            "INSERT INTO items (id, owner_id, place, kind, made_by) VALUES "
            f"({i}, {owner}, '{place}', {i % 2 + 1}, {FLAKES[i % 2]})"
        )
    rows += [f"INSERT INTO ranks VALUES ({i}, '{side} rank {i}')" for i in range(1, 6)]
    rows += [f"INSERT INTO members VALUES ({i}, {i % 5 + 1})" for i in range(1, size + 1)]
    rows += [f"INSERT INTO notes VALUES ('{i}', 'about {i}')" for i in range(1, size + 1)]
    rows += [f"INSERT INTO counters VALUES ('items', {2 * size + (1 if side == 'A' else 50)})"]
    rows += [f"INSERT INTO houses VALUES ({i}, '{side} street {i}')" for i in range(1, 20)]
    if kind == "postgresql":
        rows += [
            f"SELECT setval('{name}_id_seq', (SELECT max(id) FROM {name}))"
            for name in ("guilds", "characters", "kinds", "items")
        ]
    execute(url, *_TABLES.format(**TYPES[kind]).split(";"), *rows)


def write_map(path: Path, kind: str, schema: str, text: str = MAP) -> Path:
    """Write the map of a person for a kind of database."""
    taken = JOIN.get(kind, "name || '-2'")
    path.write_text(text.replace("SCHEMA", schema).replace("TAKEN", taken).replace("BODY", BODY[kind]))
    return path


def run(path: Path, first: str, second: str, *options: str) -> int:
    """Run the command; return its exit code."""
    return main(["merge", "run", str(path), first, second, *options])
