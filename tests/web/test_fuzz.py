"""Requests made from the service's own description by schemathesis, good and bad ones: none may break it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
from starlette.testclient import TestClient

from tests.support.pools import new_pool
from tests.support.servers import redis_server
from tests.web.conftest import TOKEN, client_of

# enough to reach every kind of parameter; more with: pytest tests/web/test_fuzz.py --hypothesis-seed=N
EXAMPLES = 8
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, Any]]:
    """Yield a client of a service on a Redis of its own, and the schema that it describes itself by."""
    # here, since it takes long
    schemathesis: Any = pytest.importorskip("schemathesis")
    from snowredis.web.service import create_app

    with redis_server(tmp_path_factory.mktemp("f")) as server:
        new_pool(server.url, "fuzzed")
        app = create_app(server.url, pools=["fuzzed"], token=TOKEN)
        with client_of(app) as client:
            yield client, schemathesis.openapi.from_dict(client.get("/openapi.json", headers=BEARER).json())


# nothing about a request without parameters can be wrong
BARE = ["/pools", "/healthz", "/metrics", "/openapi.json"]
PATHS = ["/id", "/ids", "/decode/{text}", "/whois/{text}", "/workers", "/events", "/readyz"]


@pytest.mark.parametrize(
    ("path", "mode"),
    [(path, mode) for path in PATHS for mode in ("POSITIVE", "NEGATIVE")] + [(path, "POSITIVE") for path in BARE],
)
def test_no_request_that_the_description_leads_to_breaks_the_service(
    fuzzed: tuple[TestClient, Any], path: str, mode: str
) -> None:
    import schemathesis

    # left out: what the description allows may be refused. A text may be no id in the form that is asked for
    refusals = [schemathesis.checks.positive_data_acceptance, schemathesis.checks.ignored_auth]
    client, schema = fuzzed
    sent: list[int] = []

    @hypothesis.settings(
        max_examples=EXAMPLES, derandomize=True, database=None, suppress_health_check=list(hypothesis.HealthCheck)
    )
    @hypothesis.given(case=schema[path]["GET"].as_strategy(generation_mode=schemathesis.GenerationMode[mode]))
    def send(case: Any) -> None:
        request = case.as_transport_kwargs(base_url="http://127.0.0.1:8600", headers=BEARER)
        response = client.request(
            request["method"],
            request["url"],
            params=request.get("params"),
            headers={**request["headers"], "host": "127.0.0.1:8600"},
        )
        sent.append(response.status_code)
        case.validate_response(response, excluded_checks=refusals)

    send()
    assert sent
