"""Requests made from the service's own description by schemathesis, good and bad ones: none may break it."""

from typing import Any

import hypothesis
import pytest

from tests.support.pools import new_pool
from tests.support.servers import RedisServer
from tests.web.conftest import TOKEN, client_of

# enough to reach every kind of parameter; more with: pytest tests/web/test_fuzz.py --hypothesis-seed=N
SETTINGS = hypothesis.settings(
    max_examples=8, derandomize=True, database=None, suppress_health_check=list(hypothesis.HealthCheck)
)
BEARER = {"Authorization": f"Bearer {TOKEN}"}


def test_no_request_that_the_description_leads_to_breaks_the_service(own_server: RedisServer) -> None:
    # here, since it takes long
    schemathesis: Any = pytest.importorskip("schemathesis")
    from snowredis.web.service import create_app

    # left out: what the description allows may be refused. A text may be no id in the form that is asked for
    refusals = [schemathesis.checks.positive_data_acceptance, schemathesis.checks.ignored_auth]
    sent: list[str] = []
    new_pool(own_server.url, "fuzzed")
    with client_of(create_app(own_server.url, pools=["fuzzed"], token=TOKEN)) as client:
        described = client.get("/openapi.json", headers=BEARER).json()
        schema = schemathesis.openapi.from_dict(described)

        def send(case: Any) -> None:
            request = case.as_transport_kwargs(base_url="http://127.0.0.1:8600", headers=BEARER)
            headers = {**request["headers"], "host": "127.0.0.1:8600"}
            response = client.request(request["method"], request["url"], params=request.get("params"), headers=headers)
            sent.append(case.path)
            case.validate_response(response, excluded_checks=refusals)

        for path, item in described["paths"].items():
            # nothing about a request without parameters can be wrong
            for mode in ("POSITIVE", "NEGATIVE") if item["get"]["parameters"] else ("POSITIVE",):
                cases = schema[path]["GET"].as_strategy(generation_mode=schemathesis.GenerationMode[mode])
                SETTINGS(hypothesis.given(case=cases)(send))()
    assert set(sent) == set(described["paths"])
