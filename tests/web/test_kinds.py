"""Ids of other kinds over HTTP: by kind and by tag, in every form, and what is refused."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

import snowredis
from snowredis.numbers.administration import create_tag
from snowredis.web.service import create_app
from tests.support.servers import redis_server
from tests.web.conftest import client_of

KINDS = ["uuid7", "ulid", "segment:?tag=web-invoices", "segment:?tag=web-unknown", "dated:?tag=web-orders&period=year"]


@pytest.fixture(scope="module")
def kinds_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with redis_server(tmp_path_factory.mktemp("r")) as server:
        create_tag(server.url, "web-invoices")
        app = create_app(server.url, pools=["kinds"], create=True, ttl=0.5, kinds=KINDS)
        create_tag(server.url, "web-orders", period="year")
        with client_of(app) as client:
            yield client


def get(client: TestClient, path: str, accept: str = "application/json") -> Any:
    return client.get(path, headers={"accept": accept})


def test_ids_of_a_kind_or_a_tag_are_served_in_every_form(kinds_client: TestClient) -> None:
    assert uuid.UUID(get(kinds_client, "/id?kind=uuid7").json()["id"]).version == 7
    assert len(get(kinds_client, "/ids?kind=ulid&count=3").json()["ids"][2]) == 26
    assert get(kinds_client, "/ids?tag=web-invoices&count=3").json() == {"ids": ["1", "2", "3"]}
    assert get(kinds_client, "/id?tag=web-invoices", "text/plain").text == "4\n"
    assert (
        get(kinds_client, "/id?kind=segment&tag=web-invoices", "application/octet-stream").content == bytes(7) + b"\5"
    )
    packed = get(kinds_client, "/ids?kind=uuid7&count=2", "application/octet-stream").content
    assert [uuid.UUID(bytes=packed[at : at + 16]).version for at in (0, 16)] == [7, 7]
    first, second = get(kinds_client, "/ids?tag=web-orders&count=2", "text/plain").text.split()
    assert (first[4:], second[4:]) == ("-000001", "-000002")
    # pools as before
    assert int(get(kinds_client, "/id").json()["id"]) > 2**40


@pytest.mark.parametrize(
    ("path", "status", "error", "words"),
    [
        (
            "/id?kind=uuid4",
            404,
            "KindNotFound",
            "this service has no kind 'uuid4'; it has kind=uuid7, kind=ulid, kind=",
        ),
        ("/id?tag=x", 404, "KindNotFound", "no tag 'x'; it has"),
        ("/id?kind=uuid7&tag=web-invoices", 404, "KindNotFound", "no kind 'uuid7', tag 'web-invoices'"),
        ("/id?kind=segment", 400, "BadQuery", "several: kind=uuid7, "),
        ("/id?kind=uuid7&pool=kinds", 400, "BadQuery", "name a pool, or a kind or a tag"),
        ("/ids?kind=uuid7", 400, "BadCount", "count must be"),
        # these got ids of the first pool, and one id in place of three
        ("/ids?count=2&poool=kinds", 400, "BadQuery", "'poool' is unknown; this path has pool, kind, tag, count"),
        ("/id?count=3", 400, "BadQuery", "'count' is unknown; this path has pool, kind, tag"),
        ("/workers?pol=kinds", 400, "BadQuery", "'pol' is unknown; this path has pool, filter, limit"),
        ("/decode/1?Form=hex", 400, "BadQuery", "'Form' is unknown; this path has pool, form"),
        ("/id?tag=web-unknown", 503, "NumbersClosed", "this Redis does not know the tag"),
    ],
)
def test_what_is_not_served_is_refused_with_a_reason(
    kinds_client: TestClient, path: str, status: int, error: str, words: str
) -> None:
    response = get(kinds_client, path)
    assert (response.status_code, response.json()["error"]) == (status, error)
    assert words in response.json()["detail"]


def test_text_cannot_be_packed_and_no_number_is_made_for_it(kinds_client: TestClient) -> None:
    before = get(kinds_client, "/id?tag=web-orders").json()["id"]
    for path in ("/id?kind=ulid", "/id?tag=web-orders", "/ids?tag=web-orders&count=1000"):
        response = get(kinds_client, path, "application/octet-stream")
        assert (response.status_code, response.json()["error"]) == (406, "NotAcceptable")
        assert get(kinds_client, path, "image/png").status_code == 406
    after = get(kinds_client, "/id?tag=web-orders").json()["id"]
    assert int(after.partition("-")[2]) == int(before.partition("-")[2]) + 1


def test_ids_of_kinds_are_counted(kinds_client: TestClient) -> None:
    get(kinds_client, "/ids?tag=web-invoices&count=2")
    assert 'snowredis_served_ids_total{pool="segment:web-invoices"}' in kinds_client.get("/metrics").text


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        (["snowflake"], "Snowflakes are served by pool"),
        (["uuid7", "uuid7"], "is served twice"),
        (["uuid9"], "unknown kind of ids 'uuid9'"),
    ],
)
def test_kinds_that_cannot_be_served_are_refused_at_the_start(kinds: list[str], words: str) -> None:
    with pytest.raises(snowredis.ConfigError, match=words):
        create_app("redis://127.0.0.1:1/0", pools=["p"], kinds=kinds)
