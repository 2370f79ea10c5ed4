"""Lines of docs/how-to/javascript.md, layer by layer: each function returns the JSON of one id.

Local classes: each function is read as one example. The packages that are shown are loaded one by one.
"""

import json
from typing import Any

from snowredis import connect
from snowredis.integrations.json import SnowflakeEncoder, dumps, flask_provider, stringify
from snowredis.integrations.pydantic import JsonSnowflakeId
from snowredis.integrations.sqlalchemy import SnowflakeId
from snowredis.testing import memory_pool, use

ID = 249734652741287937
data = {"id": ID, "lines": [{"id": ID}]}


def plain() -> str:
    return dumps(data)


def stringified() -> str:
    import orjson

    return orjson.dumps(stringify(data)).decode()


def without_a_model() -> str:
    from fastapi import FastAPI
    from starlette.responses import JSONResponse

    app = FastAPI()

    @app.get("/")
    def get() -> dict[str, Any]:
        return stringify(data)

    response = JSONResponse(stringify(data))
    assert json.loads(response.body) == json.loads(_get(app))
    return _get(app)


def flask() -> str:
    import flask_restful
    import flask_restx
    from flask import Blueprint, Flask, jsonify, render_template_string

    app = Flask("orders")
    app.json = flask_provider(app)
    for number, package in enumerate((flask_restful, flask_restx)):
        blueprint = Blueprint(package.__name__, package.__name__)
        resource = type("Order", (package.Resource,), {"get": lambda _: data})
        package.Api(blueprint).add_resource(resource, f"/{number}")
        app.register_blueprint(blueprint)
    for path in ("/0", "/1"):
        assert json.loads(app.test_client().get(path).text)["id"] == str(ID)
    with app.test_request_context():
        assert json.loads(render_template_string("{{ data | tojson }}", data=data)) == jsonify(data).json
        return jsonify(data).get_data(True)


def sqlmodel() -> str:
    from fastapi import FastAPI
    from sqlmodel import Field, Session, SQLModel, create_engine

    class Parent(SQLModel, table=True):
        id: JsonSnowflakeId | None = Field(default=None, primary_key=True, sa_type=SnowflakeId)

    class Child(SQLModel, table=True):
        id: JsonSnowflakeId | None = Field(default=None, primary_key=True, sa_type=SnowflakeId)
        parent_id: JsonSnowflakeId | None = Field(default=None, foreign_key="parent.id")

    app = FastAPI()

    @app.get("/")
    def get() -> Child:
        return made

    engine = create_engine("sqlite://")
    SQLModel.metadata.create_all(engine)
    with use(connect(memory_pool())), Session(engine, expire_on_commit=False) as session:
        session.add(Parent(id=ID))
        session.commit()
        session.add(filled := Child(parent_id=ID))
        session.commit()
        assert filled.id > 2**53
        made = Child(id=ID, parent_id=ID)
    properties = app.openapi()["components"]["schemas"]["Child"]["properties"]
    assert {item["type"] for one in properties.values() for item in one["anyOf"]} == {"string", "null"}, properties
    assert json.loads(_get(app)) == {"id": str(ID), "parent_id": str(ID)}
    return _get(app)


def msgspec() -> str:
    import msgspec

    class Order(msgspec.Struct):
        id: int
        lines: list[dict[str, int]]

    order = Order(**data)
    text = msgspec.json.encode(stringify(msgspec.to_builtins(order))).decode()
    assert msgspec.json.decode(text, type=Order, strict=False) == order
    return text


def graphene_sqlalchemy() -> str:
    import graphene
    from graphene_sqlalchemy import SQLAlchemyObjectType

    class Item(SQLAlchemyObjectType):
        class Meta:
            model = _model()

    class Query(graphene.ObjectType):
        item = graphene.Field(Item)

    row = Item._meta.model(id=ID, parent_id=ID)
    got = graphene.Schema(Query).execute("{ item { id parentId } }", root_value={"item": row})
    assert got.data["item"]["parentId"] == str(ID), got
    return json.dumps(got.data["item"])


def strawberry_sqlalchemy() -> str:
    import strawberry
    from strawberry_sqlalchemy_mapper import StrawberrySQLAlchemyMapper

    mapper = StrawberrySQLAlchemyMapper(extra_sqlalchemy_type_to_strawberry_type_map={SnowflakeId: strawberry.ID})
    model = _model()
    item = mapper.type(model)(type("Item", (), {}))
    mapper.finalize()

    def get() -> item:
        return model(id=ID, parent_id=ID)

    query = strawberry.type(type("Query", (), {"item": strawberry.field(get)}))
    got = strawberry.Schema(query, types=list(mapper.mapped_types.values())).execute_sync("{ item { id parentId } }")
    assert got.data["item"]["parentId"] == str(ID), got
    return json.dumps(got.data["item"])


def structlog() -> str:
    import structlog

    return structlog.processors.JSONRenderer(serializer=dumps)(None, "info", dict(data))


def json_logger() -> str:
    import logging

    from pythonjsonlogger.json import JsonFormatter

    record = logging.makeLogRecord({"msg": "sold", **data})
    return JsonFormatter(json_encoder=SnowflakeEncoder).format(record)


def _model() -> Any:
    from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

    class Base(DeclarativeBase):
        pass

    class Item(Base):
        __tablename__ = "items"
        id: Mapped[int] = mapped_column(SnowflakeId, primary_key=True)
        parent_id: Mapped[int] = mapped_column(SnowflakeId)

    return Item


def _get(app: Any) -> str:
    """Return the body of GET /."""
    from starlette.testclient import TestClient

    return TestClient(app).get("/").text


# the first cell of a row of the page -> what makes JSON as the row says
LAYERS = {
    "`json`": plain,
    "orjson, ujson, websockets": stringified,
    "Flask, `tojson` in its templates, Flask-RESTful, Flask-RESTX": flask,
    "structlog": structlog,
    "python-json-logger": json_logger,
    "graphene-sqlalchemy": graphene_sqlalchemy,
    "strawberry-sqlalchemy-mapper": strawberry_sqlalchemy,
    "FastAPI and Starlette, without a model": without_a_model,
    "SQLModel, with FastAPI": sqlmodel,
    "msgspec": msgspec,
}
