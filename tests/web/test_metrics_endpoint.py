"""/metrics of the service as a process: what a real Prometheus reads from it."""

from pathlib import Path

import pytest

from tests.support.pools import new_pool
from tests.support.programs import ROOT
from tests.support.prometheus import check_text, prometheus
from tests.support.servers import RedisServer
from tests.support.waiting import eventually
from tests.web.conftest import Serve

pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")


def test_a_real_prometheus_scrapes_the_service_and_evaluates_the_alerts(
    serve: Serve, server: RedisServer, pool_name: str, tmp_path: Path
) -> None:
    pools = [f"{pool_name}-{number}" for number in range(3)]
    for pool in pools:
        new_pool(server.url, pool)
    served = serve(*(f"--pool={pool}" for pool in pools), url=server.url)
    # one family with the samples of all pools
    check_text(served.ask("/metrics")[2].decode())
    rules = (ROOT / "docs" / "alerts.yml").read_text("utf-8")
    with prometheus(tmp_path / "prometheus", served.port, rules) as watching:
        found = eventually(lambda: watching.query("snowredis_pool_up == 1"), "a scrape", 30)
        assert sorted(series["metric"]["pool"] for series in found) == pools
        (target,) = watching.ask("targets")["activeTargets"]
        assert (target["health"], target["lastError"]) == ("up", "")
        (group,) = watching.ask("rules")["groups"]
        assert len(group["rules"]) == rules.count("- alert: ")
        # a rule that was not evaluated yet is "unknown"
        assert {rule["health"] for rule in group["rules"]} <= {"ok", "unknown"}, group
