"""snowredis.next_id(): its settings, given in code by configure(), and another generator in the block of use()."""

import ast
import asyncio
import enum
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis

import snowredis
from snowredis import process_generator as module
from snowredis import testing
from snowredis.core.presets import resolve_layout
from snowredis.errors import ConfigError, GeneratorClosed
from snowredis.process_generator import effective_kind, effective_settings, process_generator
from snowredis.testing import MemoryPool, memory_pool, use
from tests.support.programs import finished


@pytest.fixture(autouse=True)
def unconfigured() -> Iterator[None]:
    yield
    snowredis.close()
    snowredis.configure()


def test_what_is_configured_is_used_before_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNOWREDIS_POOL", "of-the-environment")
    monkeypatch.setenv("SNOWREDIS_LABEL", "of-the-environment")
    snowredis.configure(url=memory_pool(), pool="of-the-code")
    assert snowredis.next_id() > 0
    assert process_generator().pool == "of-the-code"
    assert process_generator()._lease_manager._label == "of-the-environment"


def test_other_settings_are_refused_once_ids_are_made_and_the_same_are_not() -> None:
    pool = memory_pool()
    snowredis.configure(url=pool)
    snowredis.next_id()
    snowredis.configure(url=pool)
    with pytest.raises(ConfigError, match="already makes ids with other settings"):
        snowredis.configure(url=pool, label="web")
    snowredis.close()
    snowredis.configure(url=pool, label="web")


def test_the_kind_of_ids_of_the_process_is_a_setting_in_code(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("uuid_utils")
    pytest.importorskip("ulid_transform")
    made: list[Any] = []
    with testing.use(memory_pool().connect()):
        made.append(snowredis.next_id())
    snowredis.configure("uuid7")
    assert effective_settings() == {}
    made += [snowredis.next_id(), *snowredis.next_ids(1), asyncio.run(snowredis.anext_id())]
    snowredis.close()
    snowredis.configure("ulid", form="bytes")
    made += [snowredis.next_id(), snowredis.next_id()]
    assert [type(an_id).__name__ for an_id in made] == ["int", *["UUID"] * 3, *["bytes"] * 2]
    snowredis.close()
    snowredis.configure("snowflake:?pool=of-the-url", url=memory_pool())
    monkeypatch.setenv("SNOWREDIS_POOL", "of-the-environment")
    assert snowredis.next_id() > 0
    assert process_generator().pool == "of-the-url"
    with pytest.raises(ConfigError, match="unknown setting 'pool' of uuid4 generators"):
        snowredis.configure("uuid4", pool="orders")


def test_the_kind_of_ids_of_the_process_is_a_setting_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNOWREDIS_KIND", "uuid4")
    monkeypatch.setenv("SNOWREDIS_FORM", "text")
    with pytest.raises(ConfigError, match="unknown setting 'pool' of uuid4 generators"):
        snowredis.configure(pool="orders")
    an_id: Any = snowredis.next_id()
    assert len(an_id) == 36
    process_generator().close()
    with pytest.raises(snowredis.GeneratorClosed, match="the uuid4 generator is closed"):
        snowredis.next_id()


def test_another_generator_takes_the_settings_of_the_process_that_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNOWREDIS_TTL", "7")
    monkeypatch.setenv("SNOWREDIS_LABEL", "of-the-environment")
    snowredis.configure(url="redis://h/0", pool="orders", label="of-the-code")
    kind, settings = effective_kind("snowflake:?pool=users")
    assert kind.name == "snowflake"
    assert settings == {"url": "redis://h/0", "pool": "users", "ttl": 7.0, "label": "of-the-code"}
    assert effective_kind("uuid7").settings == {}


# what a process prints that has no settings but those of the one that started it
_SETTINGS_OF_CHILD = "from snowredis.process_generator import effective_settings; print(effective_settings())"


def settings_of_child() -> Any:
    """Return the settings of a process that this one starts, or the last line of its error."""
    child = finished("-c", _SETTINGS_OF_CHILD)
    return ast.literal_eval(child.stdout) if child.returncode == 0 else child.stderr.strip().splitlines()[-1]


class Named(str, enum.Enum):  # noqa: UP042 - of a StrEnum, str() is the value
    POOL = "shop"


def test_processes_that_this_one_starts_have_what_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SNOWREDIS_URL", "SNOWREDIS_POOL"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("SNOWREDIS_TTL", "7")
    layout = snowredis.Layout(worker_bits=9, sequence_bits=11, tick_ms=2)
    snowredis.configure(url="redis://h/0", pool="orders", ttl=9, layout=layout, fields={"a": 1, "b": 2})
    child = settings_of_child()
    assert resolve_layout(child.pop("layout")) == layout
    assert child == {"url": "redis://h/0", "pool": "orders", "ttl": 9.0, "fields": {"a": 1, "b": 2}}
    snowredis.configure(url="redis://h/1", pool=Named.POOL)
    assert settings_of_child() == {"url": "redis://h/1", "pool": "shop", "ttl": 7.0}
    snowredis.configure(url="redis://h/1")
    with testing.use(memory_pool().connect()):
        snowredis.configure(pool="inner")
        assert settings_of_child() == {"pool": "inner", "ttl": 7.0}
    assert settings_of_child() == {"url": "redis://h/1", "ttl": 7.0}
    snowredis.configure()
    assert settings_of_child() == {"ttl": 7.0}


def test_an_object_that_is_configured_is_refused_by_processes_that_this_one_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SNOWREDIS_URL", "redis://h/3")
    for settings in ({"url": redis.Redis()}, {"url": "redis://h/0", "clock": testing.ManualClock()}):
        snowredis.configure(**settings, pool="orders")
        # a spawned child runs the line again that made the client
        assert redis.Redis.from_url(os.environ["SNOWREDIS_URL"]).get_connection_kwargs()["db"] == 3
        assert "SNOWREDIS_URL is a" in settings_of_child()
        with pytest.raises(ConfigError, match="no other process and no other generator can have"):
            snowredis.connect(pool="another")
        assert process_generator().pool == "orders"
        snowredis.close()


def test_another_kind_that_is_configured_is_that_of_processes_that_this_one_starts() -> None:
    pytest.importorskip("uuid_utils")
    code = "import snowredis; print(len(snowredis.next_id()))"
    snowredis.configure("uuid4", form="text")
    assert finished("-c", code).stdout == "36\n"
    snowredis.configure(pool="orders")
    assert effective_settings()["pool"] == "orders"


# --- use(): another generator of the process, in a block -------------------------------------------


def test_ids_are_made_with_the_generator_until_the_block_ends(pool: MemoryPool) -> None:
    ids, own = pool.connect(), pool.connect()
    with use(own):
        first = snowredis.next_id()
        with use(ids):
            an_id = snowredis.next_id()
            assert ids.decode(an_id).worker == ids.decode(snowredis.next_ids(2)[1]).worker
            assert asyncio.run(snowredis.anext_id()) > an_id
            assert process_generator() is ids
        assert process_generator() is own
        assert own.decode(snowredis.next_id()).worker == own.decode(first).worker != own.decode(an_id).worker
    assert not ids.closed
    assert not own.closed


def test_the_block_holds_for_all_threads_and_ends_with_an_error_too(pool: MemoryPool) -> None:
    ids, seen = pool.connect(), []
    thread = threading.Thread(target=lambda: seen.append(process_generator()))

    def failing() -> None:
        with use(ids):
            thread.start()
            thread.join()
            raise KeyError

    with pytest.raises(KeyError):
        failing()
    assert seen == [ids]
    with use(pool.connect):
        assert process_generator() is not ids


def test_blocks_of_threads_may_overlap(pool: MemoryPool) -> None:
    first, second = pool.connect(), pool.connect()
    outer, inner = use(first), use(second)
    outer.__enter__()
    inner.__enter__()
    outer.__exit__(None, None, None)
    assert process_generator() is second
    inner.__exit__(None, None, None)
    with use(pool.connect):
        assert process_generator() not in (first, second)


def test_a_generator_that_was_closed_is_refused_with_its_pool(pool: MemoryPool) -> None:
    ids = pool.connect()
    with use(ids):
        snowredis.next_id()
        ids.close()
        with pytest.raises(GeneratorClosed, match="'test'"):
            snowredis.next_id()
    with use(ids), pytest.raises(GeneratorClosed, match="'test'"):
        snowredis.next_id()
    ids = pool.connect()
    with use(ids):
        snowredis.next_id()
        snowredis.close()
        assert ids.closed
        with pytest.raises(GeneratorClosed, match="'test'"):
            snowredis.next_id()


def test_a_function_makes_a_generator_at_the_first_id_and_after_close(pool: MemoryPool) -> None:
    made = []

    def make() -> snowredis.SnowflakeGenerator:
        made.append(pool.connect())
        return made[-1]

    with use(make):
        assert made == []
        snowredis.next_id()
        snowredis.close()
        snowredis.next_id()
        assert [ids.closed for ids in made] == [True, False]
    assert [ids.closed for ids in made] == [True, True]


@pytest.mark.parametrize("at", [1, 2])
def test_next_id_uses_the_generator_again_after_an_interruption(
    pool: MemoryPool, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """A signal handler raises while the generator is created, or closed."""

    def interrupted() -> None:
        raise InterruptedError

    with use(pool.connect):
        if at == 2:
            snowredis.next_id()
        monkeypatch.setattr(module, "_bind", interrupted)
        with pytest.raises(InterruptedError):
            snowredis.next_id() if at == 1 else snowredis.close()
        monkeypatch.undo()
        an_id = snowredis.next_id()
        ids = process_generator()
        assert ids.decode(an_id).worker == ids.decode(ids.next_id()).worker
        # the function that creates the generator is not called
        monkeypatch.setattr(module, "_first_id", interrupted)
        monkeypatch.setattr(module, "process_generator", interrupted)
        assert snowredis.next_id() > an_id
        monkeypatch.undo()


def test_what_is_configured_in_the_block_is_forgotten_with_it(pool: MemoryPool) -> None:
    before = effective_settings()
    with use(pool.connect):
        snowredis.configure(url="redis://192.0.2.1:1", pool="orders")
        assert snowredis.next_id() > 0
    assert effective_settings() == before
