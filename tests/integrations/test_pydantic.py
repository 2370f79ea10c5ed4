"""Ids in pydantic models, and in FastAPI's paths, queries, bodies and responses."""

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from starlette.testclient import TestClient

import snowredis
from snowredis.integrations.pydantic import PATTERN, JsonSnowflakeId
from snowredis.testing import memory_pool

ID = 249734652741287937
Ask = Callable[..., Any]
adapter: TypeAdapter[int] = TypeAdapter(JsonSnowflakeId)


class Order(BaseModel):
    id: JsonSnowflakeId
    parent: JsonSnowflakeId | None = None
    items: list[JsonSnowflakeId] = []
    counts: dict[JsonSnowflakeId, int] = {}


@pytest.mark.parametrize("value", [1, ID, 2**63 - 1])
def test_an_int_or_its_digits_are_read_from_python_and_from_json(value: int) -> None:
    for given in (value, str(value)):
        for read in (adapter.validate_python(given), adapter.validate_json(json.dumps(given))):
            assert read == value
            assert type(read) is int
    assert adapter.validate_strings(str(value)) == value


@pytest.mark.parametrize(
    "bad",
    [0, -1, 2**63, 10**400, True, False, 1.0, float(ID), 1e300, None, [], {}]
    + ["", "0", "007", "-1", "+1", " 1", "1 ", "1\n", "1_000", "1.0", "1e3", "0x10", "abc", "٣", "9" * 19, "1" * 20],
)  # fmt: skip
def test_what_is_no_id_is_refused_from_python_and_from_json(bad: Any) -> None:
    with pytest.raises(ValidationError):
        adapter.validate_python(bad)
    with pytest.raises(ValidationError):
        adapter.validate_json(json.dumps(bad))


@pytest.mark.parametrize("bad", [Decimal(1), b"1", ID + 0j, object()])
def test_numbers_of_other_types_are_refused(bad: Any) -> None:
    with pytest.raises(ValidationError):
        adapter.validate_python(bad)


def test_the_error_says_what_is_wanted_once() -> None:
    with pytest.raises(ValidationError) as caught:
        Order.model_validate({"id": "12a"})
    [error] = caught.value.errors()
    assert error["msg"] == "Input should be an id: an integer, or its decimal digits as a string"
    assert error["loc"] == ("id",)


def test_ids_are_ints_in_python_and_strings_in_json() -> None:
    order = Order(id=ID, items=[1, ID], counts={ID: 3})
    assert order.model_dump() == {"id": ID, "parent": None, "items": [1, ID], "counts": {ID: 3}}
    text = order.model_dump_json()
    assert json.loads(text) == {"id": str(ID), "parent": None, "items": ["1", str(ID)], "counts": {str(ID): 3}}
    assert order.model_dump(mode="json") == json.loads(text)
    assert Order.model_validate_json(text) == order


def test_a_new_id_as_default_and_further_limits_are_possible() -> None:
    ids = snowredis.connect(memory_pool())

    class Event(BaseModel):
        id: JsonSnowflakeId = Field(default_factory=ids.next_id)
        late: Annotated[JsonSnowflakeId, Field(gt=100)] = 101

    assert Event().id < Event().id
    with pytest.raises(ValidationError, match="greater than 100"):
        Event(late=100)
    ids.close()


def test_the_json_schema_is_that_of_a_string() -> None:
    for mode in ("validation", "serialization"):
        schema = Order.model_json_schema(mode=mode)["properties"]
        assert (schema["id"]["type"], schema["id"]["pattern"]) == ("string", PATTERN)
        assert schema["items"]["items"]["type"] == "string"


@pytest.fixture(scope="module")
def ask() -> Ask:
    """Send a request to an application with ids in its paths, queries, bodies and responses."""
    # here, since it takes long
    from fastapi import FastAPI

    app = FastAPI()

    @app.get("/orders/{order_id}")
    def read(order_id: JsonSnowflakeId, after: JsonSnowflakeId | None = None) -> Order:
        return Order(id=order_id, parent=after)

    @app.post("/orders")
    def write(order: Order) -> dict[str, Any]:
        return {"type": type(order.id).__name__, "order": order}

    return TestClient(app).request


def test_fastapi_reads_ids_from_path_query_and_body_and_answers_with_strings(ask: Ask) -> None:
    assert ask("GET", f"/orders/{ID}?after=7").json() == {"id": str(ID), "parent": "7", "items": [], "counts": {}}
    for given in (ID, str(ID)):
        answer = ask("POST", "/orders", json={"id": given}).json()
        assert (answer["type"], answer["order"]["id"]) == ("int", str(ID))


@pytest.mark.parametrize("path", ["0", "1.0", "x", "1?after=-1", "9223372036854775808"])
def test_fastapi_refuses_a_path_query_or_body_that_is_no_id(ask: Ask, path: str) -> None:
    assert ask("GET", f"/orders/{path}").status_code == 422
    assert ask("POST", "/orders", json={"id": path}).status_code == 422
