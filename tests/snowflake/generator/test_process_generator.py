"""snowredis.testing.use(): replace the generator of the process."""

import asyncio
import threading

import pytest

import snowredis
from snowredis import process_generator as module
from snowredis.errors import GeneratorClosed
from snowredis.process_generator import effective_settings, process_generator
from snowredis.testing import MemoryPool, use


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
