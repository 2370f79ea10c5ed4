"""The plugin for pytest, in runs of pytest of its own."""

import os
import re

import pytest

from tests.support.programs import ROOT

pytest_plugins = ["pytester"]

# by name, and not by the entry point of an installed snowredis
PLUGIN = ("-p", "snowredis.integrations.pytest", "-p", "no:cacheprovider")


@pytest.fixture
def inner(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    # those of other packages take longer to load than the tests take
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for name in list(os.environ):
        if name.startswith("SNOWREDIS_"):
            monkeypatch.delenv(name)
    return pytester


# settings that only a server of its own fulfills
PRODUCTION = (("MIN_REPLICAS", "2"), ("DATACENTER", "auto"))


def test_ids_are_the_same_in_every_test_and_every_run(inner: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    inner.makepyfile(
        """
        import snowredis, pytest

        @pytest.mark.parametrize("time", [1, 2])
        def test_ids(snowredis_ids, time):
            assert isinstance(snowredis_ids, snowredis.SnowflakeGenerator)
            first = snowredis_ids.next_id()
            parts = snowredis_ids.decode(first)
            assert (parts.worker, parts.sequence) == (0, 0)
            assert snowredis.next_id() == first + 1
            snowredis_ids.clock.advance(1000)
            later = snowredis.next_ids(3)
            assert (snowredis_ids.decode(later[0]).time - parts.time).total_seconds() == 1
            print("made", first, *later)
        """
    )
    said = []
    for harmful in ((), (("URL", "redis://192.0.2.1:1"), ("SEQUENCE_START", "spread"), *PRODUCTION)):
        for name, value in harmful:
            monkeypatch.setenv(f"SNOWREDIS_{name}", value)
        result = inner.runpytest_subprocess(*PLUGIN, "-s")
        result.assert_outcomes(passed=2)
        said += re.findall(r"made ([\d ]+)", result.stdout.str())
    assert len(said) == 4
    # worker id 0 of the default layout, 2026-01-01
    assert {numbers.split()[0] for numbers in said} == {"132271570944000000"}
    assert len(set(said)) == 1


def test_the_generator_of_the_process_is_restored(inner: pytest.Pytester) -> None:
    inner.makepyfile(
        """
        import snowredis
        from snowredis.process_generator import effective_settings, process_generator
        from snowredis.testing import memory_pool

        snowredis.configure(url=memory_pool(), layout="twitter", label="program")
        before = process_generator()
        first = before.next_id()

        def test_the_layout_is_that_of_the_program(snowredis_ids):
            assert snowredis_ids is process_generator() is not before
            assert snowredis_ids.layout == before.layout
            # a program that is started in the test, and ended
            snowredis.close()
            snowredis.configure(url="redis://192.0.2.1:1", pool="orders")
            again = snowredis.next_id()
            assert snowredis_ids.closed
            assert again > 0

        def test_a_program_may_configure_at_its_start(snowredis_ids, monkeypatch):
            monkeypatch.undo()
            snowredis.configure(url="redis://192.0.2.1:1", pool="orders")
            assert snowredis.next_id() < snowredis_ids.next_id()

        def test_afterwards():
            assert process_generator() is before
            assert effective_settings()["label"] == "program"
            assert before.next_id() > first
            assert not hasattr(before, "clock")
        """
    )
    inner.runpytest_subprocess(*PLUGIN).assert_outcomes(passed=3)


def test_a_pool_is_on_a_redis_of_its_own_and_ends_with_the_run(
    inner: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in PRODUCTION:
        monkeypatch.setenv(f"SNOWREDIS_{name}", value)
    inner.makepyfile(
        """
        import os, subprocess, sys
        import pytest, redis, snowredis

        pools = []

        @pytest.fixture
        def snowredis_settings():
            return {"layout": "js-safe"}

        def test_settings_may_be_said(snowredis_ids):
            assert snowredis.next_id() < 2**53

        def test_two_generators(snowredis_pool):
            ids, others = snowredis_pool.connect(), snowredis_pool.connect(label="others")
            made = ids.next_ids(100) + others.next_ids(100)
            assert len(set(made)) == 200
            assert max(made) < 2**53
            workers = snowredis.WorkerPool(snowredis_pool.url, snowredis_pool.name).workers()
            assert [worker.label for worker in workers] == ["", "others"]
            assert redis.Redis.from_url(snowredis_pool.redis_url).ping()
            pools.append((snowredis_pool, ids))
            print("directory", snowredis_pool.url.removeprefix("embedded://"))

        def test_another(snowredis_pool):
            before, ids = pools[0]
            assert ids.closed
            assert snowredis.WorkerPool(before.url, before.name).workers() == []
            assert before.url == snowredis_pool.url
            assert before.name != snowredis_pool.name
            program = "import sys, snowredis; print(snowredis.connect(sys.argv[1], pool='other').next_id())"
            named = {name: text for name, text in os.environ.items() if not name.startswith("SNOWREDIS_")}
            assert int(subprocess.check_output([sys.executable, "-c", program, before.url], env=named)) > 0
        """
    )
    result = inner.runpytest_subprocess(*PLUGIN, "-s")
    result.assert_outcomes(passed=3)
    (directory,) = re.findall(r"directory (\S+)", result.stdout.str())
    assert not os.path.exists(directory)
    assert not os.path.exists(f"{directory}.lock")


def test_without_a_server_the_test_is_skipped_and_says_why(
    inner: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    inner.makepyfile(
        """
        import importlib.util, pytest

        def test_pool(snowredis_pool, monkeypatch):
            pytest.fail("it is there")

        @pytest.fixture(scope="session", autouse=True)
        def no_fakeredis():
            find = importlib.util.find_spec
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(importlib.util, "find_spec", lambda name: None if name == "fakeredis" else find(name))
                yield
        """
    )
    result = inner.runpytest_subprocess(*PLUGIN, "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.re_match_lines([r"SKIPPED.*this machine has no redis-server"])


def test_a_run_that_asks_for_no_fixture_loads_little_of_snowredis_and_no_redis(inner: pytest.Pytester) -> None:
    inner.makepyfile(
        """
        import sys

        def test_modules():
            ours = {name for name in sys.modules if name.partition(".")[0] in ("snowredis", "redis")}
            assert ours == {
                "snowredis", "snowredis.errors", "snowredis.process", "snowredis.process.clock",
                "snowredis.process.threads", "snowredis.integrations", "snowredis.integrations.pytest",
            }
        """
    )
    inner.runpytest_subprocess(*PLUGIN).assert_outcomes(passed=1)
