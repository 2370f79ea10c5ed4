"""Part `rows`: what an id adds to a row, an object or a value in a framework, over a plain one.

Plain is a BIGINT whose default is `itertools.count()`, an int in a model, and json.dumps(). The two take turns.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import snowredis
from snowredis.cli.commands.bench import in_turns, quartiles
from snowredis.testing import memory_pool, use

# of a round: few enough that the ids of the default layout, 1,024 a ms, are never exhausted
COUNT = 500
AN_ID = 249734652741287937


def measure(*, quick: bool) -> dict[str, Any]:
    rounds = 3 if quick else 61
    rows, missing = [], {}
    with memory_pool().connect() as ids, use(ids):
        snowredis.next_id()
        for make in (_django, _sqlalchemy, _pydantic, _json):
            try:
                rows += [_compare(what, plain, ours, rounds) for what, plain, ours in make()]
            except ImportError as error:
                missing[make.__name__.strip("_")] = str(error)
    return {"rounds": rounds, "rows": rows, "missing": missing}


def _compare(what: str, plain: Callable[[], object], ours: Callable[[], object], rounds: int) -> dict[str, Any]:
    works, found = {"plain": plain, "ours": ours}, {"plain": list[float](), "ours": list[float]()}
    for name in in_turns(list(works), rounds + 1):
        began = time.perf_counter()
        works[name]()
        found[name].append((time.perf_counter() - began) / COUNT * 1e6)
    # the first call of each imports and compiles
    figures = {name: us[1:] for name, us in found.items()}
    more = [ours - plain for ours, plain in zip(figures["ours"], figures["plain"], strict=True)]
    return {
        "what": what,
        "plain_us": quartiles(figures["plain"]),
        "ours_us": quartiles(figures["ours"]),
        "more_us": quartiles(more),
    }


Cases = Iterator[tuple[str, Callable[[], object], Callable[[], object]]]


def _django() -> Cases:
    import django
    from django.conf import settings

    settings.configure(
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        INSTALLED_APPS=["snowredis.integrations.django"],
    )
    django.setup()
    from django.db import connection, models

    from snowredis.integrations.django import SnowflakeField

    def model(name: str, key: Any) -> Any:
        names = {"id": key, "name": models.TextField(default=""), "__module__": __name__}
        made = type(name, (models.Model,), names | {"Meta": type("Meta", (), {"app_label": "bench"})})
        with connection.schema_editor() as editor:
            editor.create_model(made)
        return made

    count = itertools.count(1)
    plain = model("Plain", models.BigIntegerField(primary_key=True, default=lambda: next(count)))
    ours = model("Ours", SnowflakeField(primary_key=True))
    eager = model("Eager", SnowflakeField(primary_key=True, lazy=False))

    def objects(kind: Any) -> Callable[[], object]:
        return lambda: [kind() for _ in range(COUNT)]

    def bulk(kind: Any) -> Callable[[], object]:
        return lambda: kind.objects.bulk_create([kind() for _ in range(COUNT)])

    yield "Django: an object, `Order()`, with `lazy=False`", objects(plain), objects(eager)
    yield f"Django: a row of `bulk_create()` with {COUNT}", bulk(plain), bulk(ours)


def _sqlalchemy() -> Cases:
    import sqlalchemy as sa

    from snowredis.integrations.sqlalchemy import SnowflakeId

    count = itertools.count(1)
    metadata = sa.MetaData()
    keys = {
        "plain": sa.Column("id", sa.BigInteger, primary_key=True, default=lambda: next(count)),
        "ours": sa.Column("id", SnowflakeId, primary_key=True),
    }
    tables = {name: sa.Table(name, metadata, key, sa.Column("name", sa.Text)) for name, key in keys.items()}
    connection = sa.create_engine("sqlite://").connect()
    metadata.create_all(connection)

    def many(table: sa.Table) -> Callable[[], object]:
        return lambda: connection.execute(sa.insert(table), [{"name": "a"}] * COUNT)

    def single(table: sa.Table) -> Callable[[], object]:
        statement, row = sa.insert(table), {"name": "a"}
        return lambda: [connection.execute(statement, row) for _ in range(COUNT)]

    yield "SQLAlchemy: an insert of one row", single(tables["plain"]), single(tables["ours"])
    yield f"SQLAlchemy: a row of an insert with {COUNT}", many(tables["plain"]), many(tables["ours"])


def _pydantic() -> Cases:
    from pydantic import create_model

    from snowredis.integrations.pydantic import SnowflakeId

    plain, ours = create_model("Plain", id=(int, ...)), create_model("Ours", id=(SnowflakeId, ...))

    def validate(model: Any, value: int | str) -> Callable[[], object]:
        values = {"id": value}
        return lambda: [model.model_validate(values) for _ in range(COUNT)]

    def dump(model: Any) -> Callable[[], object]:
        order = model(id=AN_ID)
        return lambda: [order.model_dump_json() for _ in range(COUNT)]

    yield "pydantic: a model from an int", validate(plain, AN_ID), validate(ours, AN_ID)
    yield "pydantic: a model from text", validate(plain, str(AN_ID)), validate(ours, str(AN_ID))
    yield "pydantic: a model to JSON", dump(plain), dump(ours)


def _json() -> Cases:
    from snowredis.integrations import json as ours

    rows = [{"id": AN_ID, "name": "a", "paid": True} for _ in range(COUNT)]
    yield f"JSON: an object in a list of {COUNT}", lambda: json.dumps(rows), lambda: ours.dumps(rows)
