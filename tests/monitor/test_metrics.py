"""Metrics as Prometheus and OpenTelemetry read them."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import snowredis
from snowredis.monitor.metrics import POOL, PROCESS, SEGMENTS, SERVICE, ProcessTotals, Samples, samples_of
from snowredis.numbers import create_tag
from snowredis.snowflake.protocol.pool_config import PoolConfig
from snowredis.testing import memory_pool
from snowredis.worker_pool import WorkerPool
from tests.support import warm
from tests.support.pools import new_pool
from tests.support.prometheus import check_text
from tests.support.servers import RedisServer

prometheus_client = pytest.importorskip("prometheus_client")
ROOT = Path(__file__).parents[2]


@pytest.fixture
def pool(server: RedisServer, pool_name: str) -> str:
    WorkerPool(server.url, pool_name).create(PoolConfig(name=pool_name))
    return pool_name


def shown(registry: Any) -> dict[str, float]:
    """Return the metrics by name and labels, read from the text format."""
    text = prometheus_client.generate_latest(registry).decode()
    lines = [line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def named(samples: Samples) -> dict[tuple[str, str], Any]:
    """Return *samples* of one pool by the name of the metric and the value of its last label, if it has several."""
    return {(metric.name, "".join(labels[1:])): value for (metric, labels), value in samples.items()}


def test_prometheus_sees_generators_of_this_process_come_and_go(server: RedisServer, pool: str) -> None:
    from snowredis.integrations import prometheus

    registry = prometheus_client.CollectorRegistry()
    assert prometheus.register(registry) is prometheus.register(registry)
    label = f'{{pool="{pool}"}}'
    with snowredis.connect(server.url, pool=pool) as ids:
        # zeros before anything happens, so that the first increase is seen
        assert shown(registry)[f"snowredis_leases_lost_total{label}"] == 0
        ids.next_ids(100)
        ids._beat()
        before = shown(registry)
        assert before[f"snowredis_ids_total{label}"] == 100
        assert before[f"snowredis_leases{label}"] == 1
        # this is the end of the outage lane
        left_s = before[f"snowredis_lease_end_timestamp_seconds{label}"] - time.time()
        assert 86_000 < left_s <= 86_401
        assert before[f"snowredis_lease_ttl_seconds{label}"] == 30
        assert before[f"snowredis_heartbeat_seconds_total{label}"] > 0
        assert before[f'snowredis_waits_total{{pool="{pool}",reason="claim"}}'] == 1
        assert before[f'snowredis_wait_seconds_total{{pool="{pool}",reason="claim"}}'] > 0
        for reason in ("full", "mismatch", "clock", "unavailable"):
            assert before[f'snowredis_claims_refused_total{{pool="{pool}",reason="{reason}"}}'] == 0
    # unknown, not the last one
    assert f"snowredis_lease_end_timestamp_seconds{label}" not in shown(registry)
    del ids
    with snowredis.connect(server.url, pool=pool) as ids:
        ids.next_ids(5)
        # counters only grow
        assert shown(registry)[f"snowredis_ids_total{label}"] == 105
    assert not any("_created" in name for name in before)


def test_prometheus_sees_pools_and_two_exporters_agree(server: RedisServer, pool: str) -> None:
    from snowredis.integrations.prometheus import PoolCollector

    other = f"{pool}-2"
    WorkerPool(server.url, other).create(PoolConfig(name=other))
    registries = [prometheus_client.CollectorRegistry() for _ in range(2)]
    for registry in registries:
        registry.register(PoolCollector(server.url, pool, other))
        with pytest.raises(ValueError, match="Duplicated"):
            registry.register(PoolCollector(server.url, pool))
    label = f'{{pool="{pool}"}}'
    with snowredis.connect(server.url, pool=pool) as ids:
        ids.next_id()
        found, same = map(shown, registries)
    assert found[f"snowredis_pool_up{label}"] == 1
    assert (found[f"snowredis_pool_used{label}"], found[f"snowredis_pool_free{label}"]) == (1, 1023)
    assert found[f'snowredis_pool_used{{pool="{other}"}}'] == 0
    assert found[f'snowredis_pool_workers{{pool="{pool}",state="alive"}}'] == 1
    assert (found[f"snowredis_pool_claims_total{label}"], found[f"snowredis_pool_died_total{label}"]) == (1, 0)
    assert found[f"snowredis_pool_layout_left_seconds{label}"] > 60 * 365 * 86_400
    assert set(found) == set(same)
    assert [
        name for name in found if found[name] != same[name] and "heartbeat" not in name and "left" not in name
    ] == []


def test_refused_claims_are_counted_by_the_pool_and_by_the_process_and_none_that_waits(
    server: RedisServer, pool: str
) -> None:
    small, of_two = f"{pool}-small", {"layout": "41/0/2/1/19"}
    new_pool(server.url, small, **of_two)
    with contextlib.ExitStack() as stack:

        def connected(**options: Any) -> snowredis.SnowflakeGenerator:
            return stack.enter_context(contextlib.closing(snowredis.connect(server.url, pool=small, **options)))

        first, second = connected(**of_two), connected(**of_two)
        hasty, other, patient = connected(**of_two, claim_timeout=0.3), connected(), connected(**of_two)
        for ids in (first, second):
            ids.next_id()
        with pytest.raises(snowredis.PoolExhausted):
            hasty.next_id()
        with pytest.raises(snowredis.LayoutMismatch):
            other.next_id()
        leaving = threading.Timer(0.5, first.close)
        leaving.start()
        assert patient.next_id()
        leaving.join()
        assert WorkerPool(server.url, small).info().refused == 1
        totals = named(ProcessTotals(lambda: [hasty, other, patient]).samples())
    refused = {label: n for (name, label), n in totals.items() if name == "snowredis_claims_refused_total"}
    assert refused == {"full": 1, "mismatch": 1, "clock": 0, "unavailable": 0}


def test_a_redis_that_is_away_is_a_number_and_no_error(tmp_path: Path) -> None:
    from snowredis.integrations.prometheus import PoolCollector

    registry = prometheus_client.CollectorRegistry()
    # registering asks nobody
    registry.register(PoolCollector(f"unix://{tmp_path}/nobody.sock", "orders", "users"))
    found = shown(registry)
    for pool in ("orders", "users"):
        assert found[f'snowredis_pool_up{{pool="{pool}"}}'] == 0
        assert found[f'snowredis_pool_condition{{condition="redis-unavailable",pool="{pool}"}}'] == 1
        assert found[f'snowredis_pool_condition{{condition="pool-missing",pool="{pool}"}}'] == 0
    # the rest is unknown, and not 0
    assert {name.partition("{")[0] for name in found} == {
        f"snowredis_pool_{name}" for name in ("up", "level", "condition")
    }


def test_the_command_prints_what_the_collector_collects(
    server: RedisServer, pool: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    from snowredis.cli import main
    from snowredis.integrations.prometheus import PoolCollector

    assert main(["metrics", "--url", server.url, "--pool", pool]) == 0
    text = capsys.readouterr().out
    check_text(text)
    printed = {family.name: family for family in text_string_to_metric_families(text)}
    collected = {family.name: family for family in PoolCollector(server.url, pool).collect()}
    assert set(printed) == set(collected) == {metric.name.removesuffix("_total") for metric in POOL}
    for name, one in printed.items():
        assert (one.type, one.documentation) == (collected[name].type, collected[name].documentation)
        labels = [sample.labels for sample in one.samples]
        assert labels == [sample.labels for sample in collected[name].samples]


def test_the_command_says_which_pool_is_missing(server: RedisServer, capsys: pytest.CaptureFixture[str]) -> None:
    from snowredis.cli import main

    assert main(["metrics", "--url", server.url, "--pool", "nothing-here"]) == 5
    captured = capsys.readouterr()
    assert 'snowredis_pool_up{pool="nothing-here"} 0.0\n' in captured.out
    check_text(captured.out)
    assert "there is no pool 'nothing-here'" in captured.err
    assert main(["metrics", "--url", "unix:///nowhere.sock", "--pool", "nothing-here"]) == 4


IN_A_CHILD = """import os, sys, snowredis; from snowredis.integrations import prometheus
prometheus.register(every_s=0.05)
if os.fork() == 0:
    sys.exit(not snowredis.connect(sys.argv[1], pool=sys.argv[2]).next_ids(1000))
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))"""


def test_a_bad_directory_costs_the_metrics_and_neither_ids_nor_worker_ids(
    server: RedisServer, pool: str, tmp_path: Path
) -> None:
    env = os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path / "missing"), "PYTHONPATH": str(ROOT)}
    # nobody releases what it leaves
    env["SNOWREDIS_CRASH_RECORDS"] = "off"
    command = [sys.executable, "-W", "ignore", "-c", IN_A_CHILD, server.url, pool]
    done = warm.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    # once, in the parent; its child knows
    assert done.stderr.count("missing' is no directory that") == 1
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
    assert snowredis.WorkerPool(server.url, pool).workers() == []


@pytest.mark.parametrize("name", ["later", "file", ""])
def test_metrics_are_written_as_soon_as_the_directory_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    from snowredis.integrations import prometheus

    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path / name) if name else "")
    metrics = prometheus.MetricFiles(every_s=3600)
    written: list[int] = []
    monkeypatch.setattr(metrics, "_write_all", lambda: written.append(1))
    metrics.update()
    assert (written, caplog.text.count(f"{name}' is no directory that this process can write to")) == ([], 1)
    (tmp_path / "later").mkdir()
    metrics.update()
    assert written == [1] * (name == "later")
    metrics._stop.set()


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    # scripts/_setup.sh says why it is apart
    monkeypatch.syspath_prepend(f"{sys.prefix}/apart")
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
    pool += "-slow"
    # so long that its thread beats once at most
    WorkerPool(server.url, pool).create(PoolConfig(name=pool, ttl_ms=600_000))

    def points() -> dict[str, tuple[str, Any]]:
        """Return the unit and the point of each metric of the pool, and of the tag with its name."""
        return {
            metric.name: (metric.unit, point)
            for metric in reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics
            for point in metric.data.data_points
            if pool in (point.attributes.get("pool"), point.attributes.get("tag"))
        }

    with (
        snowredis.connect(server.url, pool=pool, ttl=600) as ids,
        snowredis.generator("segment", url=memory_pool(), tag=pool, step=10) as numbers,
    ):
        ids.next_ids(7)
        numbers.next_ids(25)
        ids._beat()
        found = points()
        ids._beat()
        at_least_s, later = ids.counts.heartbeat_s, points()
    assert {name: unit for name, (unit, _) in found.items()} == {
        metric.otel: metric.unit for metric in (*PROCESS, *SEGMENTS)
    }
    values = [found[f"snowredis.{name}"][1].value for name in ("ids", "leases", "segment_numbers")]
    assert values == [7, 1, 25]
    assert 0 < found["snowredis.heartbeat"][1].value < later["snowredis.heartbeat"][1].value
    # its thread may beat in between
    assert at_least_s <= later["snowredis.heartbeat"][1].value <= ids.counts.heartbeat_s
    # a closed generator leaves what it counted
    closed = {metric.otel for metric in SEGMENTS if metric.kind == "counter"}
    assert closed == points().keys() & {metric.otel for metric in SEGMENTS}


def test_what_generators_of_one_pool_counted_is_added_up() -> None:
    memory = memory_pool()
    one, two = memory.connect(pool="mine"), memory.connect(pool="mine")
    one.next_ids(3)
    two.next_ids(4)
    two.counts.clock_backs["namespace"] += 1
    two.counts.waited("ceiling", 0.25)
    one.counts.waited("ceiling", 300.0)
    totals = ProcessTotals(lambda: [one, two, object()])
    found = named(totals.samples())
    assert found["snowredis_ids_total", ""] == 7
    backs = [found["snowredis_clock_backs_total", step] for step in ("namespace", "refusal")]
    assert backs == [1, 0]
    assert found["snowredis_waits_total", "ceiling"] == 2
    assert found["snowredis_leases", ""] == 2
    assert found["snowredis_wait_seconds_total", "ceiling"] == 300.25
    again = named(totals.samples())
    assert [again[key] for key in found if key[0].endswith("_total")] == [
        value for key, value in found.items() if key[0].endswith("_total")
    ]


def test_the_catalog_names_what_the_code_counts() -> None:
    from snowredis.monitor.pool import COUNTERS
    from snowredis.snowflake.lease.context import CLAIM_REFUSALS, CLOCK_BACK_STEPS

    values = {metric.name: metric.values for metric in (*PROCESS, *POOL, *SERVICE)}
    assert values["snowredis_clock_backs_total"] == tuple(CLOCK_BACK_STEPS)
    assert values["snowredis_claims_refused_total"] == CLAIM_REFUSALS
    assert {f"snowredis_pool_{name}_total" for name in COUNTERS} <= set(values)
    counted = set(named(samples_of(PROCESS, "test", memory_pool().connect())))
    assert counted >= {
        (metric.name, value) for metric in PROCESS if metric.kind == "counter" for value in metric.values or ("",)
    }
    assert len(values) == len({*PROCESS, *POOL, *SERVICE})


def test_segments_are_counted_by_tag_also_when_they_are_closed() -> None:
    from snowredis.integrations.prometheus import ProcessMetrics

    registry, memory = prometheus_client.CollectorRegistry(), memory_pool()
    registry.register(ProcessMetrics())
    one, two = (snowredis.generator("segment", url=memory, tag="counted", step=10) for _ in range(2))
    one.next_ids(25)
    two.next_ids(5)

    def of_tag() -> dict[str, float]:
        found = {name.partition('{tag="counted"'): value for name, value in shown(registry).items()}
        return {name: value for (name, tag, _), value in found.items() if tag}

    found = of_tag()
    assert found["snowredis_segment_numbers_total"] == 30
    assert found["snowredis_segment_fetches_total"] >= 2
    assert found["snowredis_segment_step"] >= 10
    assert found["snowredis_segment_left"] > 0
    one.close()
    two.close()
    closed = of_tag()
    assert closed["snowredis_segment_numbers_total"] == 30
    assert closed.keys() == {metric.name for metric in SEGMENTS if metric.kind == "counter"}


def test_counters_of_several_processes_are_added_up_and_survive_the_death_of_a_worker(
    server: RedisServer, pool: str, tmp_path: Path
) -> None:
    from prometheus_client import multiprocess

    create_tag(server.url, pool)
    of_pool, of_tag = f'{{pool="{pool}"}}', f'{{tag="{pool}"}}'

    def metrics() -> tuple[dict[str, float], dict[str, float]]:
        """All, and those of the tag."""
        registry = prometheus_client.CollectorRegistry()
        multiprocess.MultiProcessCollector(registry, path=str(tmp_path))
        check_text(prometheus_client.generate_latest(registry).decode())
        found = shown(registry)
        return found, {name.removesuffix(of_tag): value for name, value in found.items() if name.endswith(of_tag)}

    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    with warm.Popen(
        [sys.executable, "-W", "ignore", str(ROOT / "tests/monitor/metrics_worker.py"), server.url, pool],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        assert worker.stdout.readline() == "open\n"
        found, segments = metrics()
        assert found[f"snowredis_ids_total{of_pool}"] == 2_000
        assert found[f'snowredis_waits_total{{pool="{pool}",reason="claim"}}'] == 2
        assert found[f'snowredis_claims_refused_total{{pool="{pool}",reason="full"}}'] == 0
        # the parent removed the gauges of the child that was killed, too
        assert not [name for name in found if name.startswith(("snowredis_leases{", "snowredis_lease_end"))]
        # each number once: a child does not count those that its parent made before
        assert segments["snowredis_segment_numbers_total"] == 500 + 700 + 800 + 1_000
        assert segments["snowredis_segment_waits_total"] >= 3
        assert segments["snowredis_segment_fetches_total"] >= 4
        # these are the parent's: the killed child has none any more
        assert 0 < segments["snowredis_segment_left"] <= 2_000
        assert segments["snowredis_segment_step"] == 1_000
        # what the first child had left when it was closed; the parent goes on with its own
        assert set(segments) <= {metric.name for metric in SEGMENTS}
        worker.stdin.write("\n")
        worker.stdin.flush()
        assert worker.stdout.readline() == "closed\n"
        _, closed = metrics()
        assert closed["snowredis_segment_numbers_total"] == 3_000
        assert (closed["snowredis_segment_left"], closed["snowredis_segment_step"]) == (0, 0)
        assert worker.communicate("\n", timeout=30) == ("", "")
        assert worker.returncode == 0
