"""Metrics as Prometheus and OpenTelemetry read them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import snowredis
from snowredis.lease.model import PoolConfig
from snowredis.monitor.process_metrics import TotalsTracker, counters_of
from snowredis.monitor.worker_pool import WorkerPool
from snowredis.testing import memory_pool
from tests.support.servers import RedisServer

prometheus_client = pytest.importorskip("prometheus_client")
ROOT = Path(__file__).parents[2]


@pytest.fixture
def pool(server: RedisServer) -> str:
    name = f"x-{uuid.uuid4().hex[:10]}"
    WorkerPool(server.url, name).create(PoolConfig(name=name))
    return name


def shown(registry: Any) -> dict[str, float]:
    """Return the metrics by name and labels, read from the text format."""
    text = prometheus_client.generate_latest(registry).decode()
    lines = [line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def test_prometheus_sees_generators_of_this_process_come_and_go(server: RedisServer, pool: str) -> None:
    from snowredis.integrations import prometheus

    registry = prometheus_client.CollectorRegistry()
    assert prometheus.register(registry) is prometheus.register(registry)
    label = f'{{pool="{pool}"}}'
    with snowredis.connect(server.url, pool=pool) as ids:
        ids.next_ids(100)
        before = shown(registry)
        assert before[f"snowredis_ids_total{label}"] == 100
        assert before[f"snowredis_leases{label}"] == 1
        assert 20 < before[f"snowredis_lease_left_seconds{label}"] <= 30
    del ids
    with snowredis.connect(server.url, pool=pool) as ids:
        ids.next_ids(5)
        # counters only grow
        assert shown(registry)[f"snowredis_ids_total{label}"] == 105
    assert not any("_created" in name for name in before)


def test_prometheus_sees_the_pool(server: RedisServer, pool: str) -> None:
    from snowredis.integrations.prometheus import PoolCollector

    registry = prometheus_client.CollectorRegistry()
    registry.register(PoolCollector(server.url, pool))
    label = f'{{pool="{pool}"}}'
    with snowredis.connect(server.url, pool=pool) as ids:
        ids.next_id()
        found = shown(registry)
    assert found[f"snowredis_pool_up{label}"] == 1
    assert (found[f"snowredis_pool_used{label}"], found[f"snowredis_pool_free{label}"]) == (1, 1023)
    assert found[f'snowredis_pool_workers{{pool="{pool}",state="healthy"}}'] == 1
    assert found[f"snowredis_pool_claims_total{label}"] == 1
    assert found[f"snowredis_pool_layout_left_seconds{label}"] > 60 * 365 * 86_400


def test_a_redis_that_is_away_is_a_number_and_no_error(tmp_path: Path) -> None:
    from snowredis.integrations.prometheus import PoolCollector

    registry = prometheus_client.CollectorRegistry()
    # registering asks nobody
    registry.register(PoolCollector(f"unix://{tmp_path}/nobody.sock", "orders"))
    assert shown(registry) == {'snowredis_pool_up{pool="orders"}': 0.0}


def test_the_command_prints_what_the_collector_collects(
    server: RedisServer, pool: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    from snowredis.cli import main
    from snowredis.integrations.prometheus import PoolCollector

    assert main(["metrics", "--url", server.url, "--pool", pool]) == 0
    printed = {family.name: family for family in text_string_to_metric_families(capsys.readouterr().out)}
    collected = {family.name: family for family in PoolCollector(server.url, pool).collect()}
    assert set(printed) == set(collected)
    for name, one in printed.items():
        assert (one.type, one.documentation) == (
            collected[name].type,
            collected[name].documentation,
        )
    assert main(["metrics", "--url", server.url, "--pool", "nothing-here"]) == 4
    assert capsys.readouterr().out.endswith('snowredis_pool_up{pool="nothing-here"} 0\n')


def test_every_metric_that_alerts_and_dashboard_ask_for_exists(server: RedisServer, pool: str) -> None:
    import re

    from snowredis.integrations import prometheus

    registry = prometheus_client.CollectorRegistry()
    prometheus.register(registry)
    text = prometheus_client.generate_latest(registry).decode()
    known = set(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE))
    known |= {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in prometheus.PoolCollector(server.url, pool).collect()
    }
    for name in ("alerts.yml", "grafana-dashboard.json"):
        page = (ROOT / "docs" / name).read_text("utf-8")
        if name.endswith(".json"):
            assert json.loads(page)["panels"]
        asked = set(re.findall(r"\b(snowredis_[a-z_]+)\b", page))
        assert asked
        assert asked - known == set()


WORKER = """
import os, signal, sys
import snowredis
from snowredis.integrations import prometheus

url, pool, ending = sys.argv[1:]
metrics = prometheus.register(every_s=0.05)
if os.fork() == 0:
    # a preloaded application: the child counts for itself
    ids = snowredis.connect(url, pool=pool)
    ids.next_ids(1000)
    if ending == "kill":
        metrics.update()
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit()
os.wait()
"""


def test_with_several_processes_counters_survive_the_death_of_a_worker(
    server: RedisServer, pool: str, tmp_path: Path
) -> None:
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    for ending in ("exit", "kill"):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", WORKER, server.url, pool, ending],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")
    from prometheus_client import multiprocess

    registry = prometheus_client.CollectorRegistry()
    multiprocess.MultiProcessCollector(registry, path=str(tmp_path))
    assert shown(registry)[f'snowredis_ids_total{{pool="{pool}"}}'] == 2_000


@pytest.fixture
def reader() -> Iterator[Any]:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    from snowredis.integrations import opentelemetry

    made = InMemoryMetricReader()
    provider = MeterProvider([made])
    opentelemetry.instrument(provider)
    yield made
    provider.shutdown()


def test_opentelemetry_observes_the_same_numbers(reader: Any, server: RedisServer, pool: str) -> None:
    with snowredis.connect(server.url, pool=pool) as ids:
        ids.next_ids(7)
        data = reader.get_metrics_data()
    points = {
        metric.name: point.value
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        for point in metric.data.data_points
        if point.attributes["pool"] == pool
    }
    assert (points["snowredis.ids"], points["snowredis.leases"]) == (7, 1)
    assert 20 < points["snowredis.lease.left"] <= 30


def test_what_generators_of_one_pool_counted_is_added_up() -> None:
    memory = memory_pool()
    one, two = memory.connect(pool="mine"), memory.connect(pool="mine")
    one.next_ids(3)
    two.next_ids(4)
    two.counts.clock_back("namespace")
    two.counts.ceiling_waits += 2
    two.counts.round_trip_s = 0.25
    totals = TotalsTracker(lambda: [one, two, object()])
    found = totals.by_pool()["mine"]
    assert found.totals["ids"] == 7
    assert (found.totals["clock_backs:namespace"], found.totals["clock_backs:refusal"]) == (1, 0)
    assert (found.totals["ceiling_hits"], found.totals["waits:ceiling"]) == (2, 2)
    assert (found.leases, found.heartbeat_s) == (2, 0.25)
    assert totals.by_pool()["mine"].totals == found.totals


def test_the_steps_are_those_of_the_runtime() -> None:
    from snowredis.runtime.counts import CLOCK_BACK_STEPS

    totals = counters_of(memory_pool().connect()).totals
    steps = [name.partition(":")[2] for name in totals if name.startswith("clock_backs:")]
    assert steps == list(CLOCK_BACK_STEPS)
