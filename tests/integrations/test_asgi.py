"""The lifespan helper under FastAPI, and a response where there is no id; test_hosts.py has the real servers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import flask
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.testclient import TestClient

import snowredis
from snowredis.integrations import asgi, unavailable
from snowredis.integrations.asgi import lifespan
from snowredis.testing import ManualClock, memory_pool, use
from tests.support.pools import new_pool
from tests.support.servers import RedisServer
from tests.support.waiting import eventually


@pytest.fixture
def here(server: RedisServer) -> dict[str, Any]:
    """Settings of a pool for this test alone."""
    new_pool(server.url, "asgi")
    return {"url": server.url, "pool": "asgi"}


def leased(here: dict[str, Any]) -> int:
    return len(snowredis.WorkerPool(here["url"], here["pool"]).workers())


def app_with(**options: Any) -> Any:
    # here, since it takes long
    from fastapi import FastAPI

    app = FastAPI(**options)

    @app.get("/id")
    async def an_id(request: Request) -> dict[str, Any]:
        ids = request.state.ids
        return {"claimed": ids.lease is not None, "id": str(await ids.anext_id())}

    return app


def test_a_lifespan_of_ones_own_goes_within(here: dict[str, Any]) -> None:
    order: list[str] = []

    @contextlib.asynccontextmanager
    async def mine(app: Any) -> AsyncIterator[dict[str, Any]]:
        order.append(f"begin, {leased(here)} leased")
        yield {"mine": "kept"}
        order.append(f"end, {leased(here)} leased")

    app = app_with(lifespan=lifespan(**here, within=mine))

    @app.get("/mine")
    async def state(request: Request) -> str:
        return str(request.state.mine)

    with TestClient(app) as client:
        assert client.get("/mine").json() == "kept"
    assert order == ["begin, 1 leased", "end, 1 leased"]
    assert leased(here) == 0


def test_without_settings_it_is_the_generator_of_the_process(here: dict[str, Any]) -> None:
    with use(lambda: snowredis.connect(**here)), TestClient(app_with(lifespan=lifespan())) as client:
        assert int(client.get("/id").json()["id"]) < snowredis.next_id()
        assert leased(here) == 1
    assert leased(here) == 0


def test_a_start_without_a_worker_id_serves_says_so_once_and_goes_on_trying(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(asgi, "CLAIM_TIMEOUT_S", 0.5)
    pool, layout = memory_pool(), "41/0/2/0/10"
    app = app_with(lifespan=lifespan(pool, layout=layout, claim_timeout=0))

    @app.exception_handler(snowredis.SnowredisError)
    async def no_ids(request: Request, error: snowredis.SnowredisError) -> JSONResponse:
        return JSONResponse({"error": type(error).__name__}, 503)

    @app.get("/ready")
    async def ready(request: Request) -> bool:
        return bool(request.state.ids.ready)

    with snowredis.connect(pool, layout=layout) as other:
        other.next_id()
        with TestClient(app) as client:
            refused = client.get("/id")
            assert (refused.status_code, refused.json()) == (503, {"error": "PoolExhausted"})
            assert client.get("/ready").json() is False
            other.close()
            # without a request for an id
            eventually(lambda: client.get("/ready").json(), "a worker id", 10)
            assert client.get("/id").json()["claimed"]
    said = [record.getMessage() for record in caplog.records if record.name == "snowredis"]
    assert sum("starts without a worker id" in line for line in said) == 1
    assert sum("has worker id 0 now" in line for line in said) == 1


def test_a_refusal_that_does_not_pass_delays_no_start(here: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    with TestClient(app_with(lifespan=lifespan(**here, ttl=60))) as client, pytest.raises(snowredis.LayoutMismatch):
        client.get("/id")
    (line,) = [record.getMessage() for record in caplog.records if "starts without a worker id" in record.message]
    assert "60 s here" in line


def test_a_state_of_the_application_that_is_a_mapping_has_the_generator_too() -> None:
    # as Litestar's, which takes none from a lifespan
    app = SimpleNamespace(state={})

    async def run() -> None:
        async with lifespan(memory_pool())(app) as state:
            assert state is not None
            assert app.state["ids"] is state["ids"]
            assert await app.state["ids"].anext_id() > 0

    asyncio.run(run())


# --- servers that start the application again and again, and tests ---------------------------------


def test_a_lease_outlives_the_lifespans_of_an_adapter_for_serverless(here: dict[str, Any]) -> None:
    app, made = app_with(lifespan=lifespan(**here)), []
    for _ in range(5):
        with TestClient(app) as client:
            made.append(int(client.get("/id").json()["id"]))
    assert len(set(made)) == 5
    pool = snowredis.WorkerPool(here["url"], here["pool"])
    # the first end cannot know that there is a second start
    assert (pool.info().claims, leased(here)) == (2, 1)


def test_the_ids_of_a_test_are_those_of_the_application_whatever_its_settings_are() -> None:
    app = app_with(lifespan=lifespan("redis://127.0.0.1:1/0", pool="orders"))
    with use(snowredis.connect(memory_pool(clock=ManualClock()))):
        made = []
        for _ in range(2):
            with TestClient(app) as client:
                made.append(client.get("/id").json()["id"])
        assert snowredis.next_id() == int(made[1]) + 1 == int(made[0]) + 2


_ERRORS = {"away": snowredis.StoreUnavailable("h", "r"), "wrong": snowredis.ConfigError("x")}


def fail(name: str) -> str:
    raise _ERRORS[name]


def of_starlette() -> Callable[[str], Any]:
    app = app_with()
    app.add_exception_handler(snowredis.SnowredisError, unavailable.starlette)
    app.add_api_route("/{name}", fail)
    return TestClient(app, raise_server_exceptions=False).get


def of_flask() -> Callable[[str], Any]:
    app = flask.Flask(__name__)
    app.register_error_handler(snowredis.SnowredisError, unavailable.flask)
    app.add_url_rule("/<name>", view_func=fail)
    return app.test_client().get


@pytest.mark.parametrize("application", [of_starlette, of_flask])
def test_no_ids_are_a_503_and_a_wrong_setting_is_an_error(application: Callable[[], Callable[[str], Any]]) -> None:
    get = application()
    refused = get("/away")
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")
    assert get("/wrong").status_code == 500
