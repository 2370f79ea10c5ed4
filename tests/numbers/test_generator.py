"""SegmentGenerator: numbers, waits, coroutines, forks, losses, failed batches, several servers."""

import asyncio
import itertools
import signal
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from snowredis.errors import ConfigError, GeneratorClosed, StoreUnavailable
from snowredis.numbers import (
    NumbersClosed,
    NumbersExhausted,
    SegmentGenerator,
    create_tag,
    delete_tag,
    open_tag,
    show_tag,
)
from snowredis.numbers.buffer import Buffer
from snowredis.numbers.formats import MAX_NUMBER
from snowredis.numbers.masters import Steps
from snowredis.numbers.segments import open_generator
from snowredis.numbers.settings import servers_of
from snowredis.numbers.stores import tag_keys
from snowredis.testing import ManualClock, MemoryPool, memory_pool
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

_tags = (f"generator-{number}" for number in itertools.count())


def created(*servers: Any, maximum: int | None = None, **settings: Any) -> SegmentGenerator:
    """Return a generator of a new tag on servers, which hand out numbers between each other."""
    tag, urls = next(_tags), [server if isinstance(server, MemoryPool) else server.url for server in servers]
    for start, url in enumerate(urls, 1):
        create_tag(url, tag, start=start, stride=len(urls), maximum=maximum)
    return open_generator(urls if len(urls) > 1 else urls[0], tag=tag, **settings)


@pytest.fixture
def ids() -> Iterator[SegmentGenerator]:
    with open_generator(memory_pool(), tag="t", step=10, max_step=1000) as generator:
        yield generator


def test_numbers_are_in_sequence_and_only_the_first_caller_waits(ids: SegmentGenerator) -> None:
    assert [ids.next_id() for _ in range(5)] == [1, 2, 3, 4, 5]
    assert ids.next_ids(300) == list(range(6, 306))
    assert (ids.tag, ids.made) == ("t", 305)
    assert ids.counts.waits <= 3


def test_a_number_at_a_time_waits_for_the_first_segment_only() -> None:
    with open_generator(memory_pool(), tag="t", step=100, max_step=100) as ids:
        for number in range(1, 1000):
            assert ids.next_id() == number
            if number % 100 == 95:
                eventually(lambda: ids._buffer.ready)
        assert (ids.counts.waits, ids.counts.segments) == (1, 11)


def test_a_process_that_needs_few_numbers_fetches_one_segment() -> None:
    with open_generator(memory_pool(), tag="t", step=100) as ids:
        assert (ids.made, ids.remaining) == (0, None)
        assert ids.next_ids(10)[-1] == 10
        time.sleep(0.02)
        assert ids.counts.segments == 1
        assert (ids.made, ids.left, ids.remaining) == (10, 90, MAX_NUMBER - 100)
        ids.next_id()
        eventually(lambda: ids.left == 89 + 1000)
        assert (ids.made, ids.remaining, ids.counts.segments) == (11, MAX_NUMBER - 1100, 2)


def test_a_segment_is_fetched_when_none_is_ready_and_less_and_less_often_while_redis_is_away_until_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replies = [range(1, 11), None, range(11, 21), None, None, None]
    asked, slept = list[int](), list[float]()

    def fetch(wanted: int) -> range:
        asked.append(wanted)
        with pytest.raises(StoreUnavailable, match="a finalizer asked for a number"):
            buffer.wait(1.0, 1)
        if (reply := replies.pop(0)) is None:
            raise StoreUnavailable("memory", "away")
        return reply

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        # closed in the last pause
        buffer.is_void = not replies

    monkeypatch.setattr("snowredis.numbers.buffer.start_thread", lambda run, _: run())
    monkeypatch.setattr("snowredis.numbers.buffer.time", SimpleNamespace(sleep=sleep))
    buffer = Buffer(fetch, ManualClock())
    buffer.wait(1.0, 300)
    buffer.fetch_ahead()
    assert (asked, [*map(list, buffer.ready)]) == ([300], [[1], [*range(2, 11)]])
    buffer.ready.clear()
    buffer.fetch_ahead()
    assert (len(asked), len(buffer.ready), buffer.failures, buffer.error) == (3, 2, 1, None)
    buffer.ready.clear()
    buffer.fetch_ahead()
    assert (len(asked), buffer.failures) == (6, 4)
    assert slept == pytest.approx([0.05, 0.05, 0.1, 0.2])


def test_the_numbers_of_a_batch_that_failed_are_used_next(
    ids: SegmentGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ids.next_id() == 1
    waits, wait = list[int](), ids._wait

    def fail_at_the_second(wanted: int) -> None:
        waits.append(wanted)
        if len(waits) == 2:
            eventually(lambda: ids._buffer.ready)
            raise StoreUnavailable("memory", "away")
        wait(wanted)

    monkeypatch.setattr(ids, "_wait", fail_at_the_second)
    with pytest.raises(StoreUnavailable):
        ids.next_ids(12)
    assert (waits, ids.made) == ([12, 3], 1)
    monkeypatch.undo()
    assert ids.next_ids(12) == list(range(2, 14))


def test_a_call_after_one_that_failed_asks_again() -> None:
    def refuse(_: int) -> range:
        raise StoreUnavailable("memory", "away")

    with open_generator(memory_pool(), tag="t", step=1, max_step=1) as ids, pytest.MonkeyPatch.context() as patch:
        patch.setattr(ids._buffer, "_fetch", refuse)
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="away"):
                ids.next_id()
        patch.undo()
        assert ids.next_id() == 1


def test_the_step_follows_the_consumption() -> None:
    steps = Steps(100, 50_000)
    assert steps.next_size(0.0) == 100
    sizes = []
    for now_s in (1.0, 2.0, 3.0, 4.0):
        steps.fetched(steps.next_size(now_s), now_s)
        sizes.append(steps.size)
    assert sizes == [100, 1000, 10_000, 50_000]
    # 50,000 in 900 s is as wished; in 3600 s too much
    assert steps.next_size(904.0) == 50_000
    assert steps.next_size(3604.0) == 25_000
    steps.fetched(100, 10_000.0)
    assert steps.next_size(100_000.0) == 100
    for step, max_step in [(0, 1), (5, 4), (1.5, 2)]:
        with pytest.raises(ConfigError):
            open_generator(memory_pool(), tag="t", step=step, max_step=max_step)


def test_a_forked_child_has_nothing_of_its_parent_and_counts_anew(ids: SegmentGenerator) -> None:
    ids.next_ids(200)
    eventually(lambda: ids._buffer.ready)
    assert ids.steps.size > 10
    ids._after_fork()
    assert (ids.counts.segments, ids.made, ids.left, ids.steps.size) == (0, 0, 0, 10)


def test_suspend_drops_what_a_clone_would_have(ids: SegmentGenerator) -> None:
    first = ids.next_ids(200)[-1]
    eventually(lambda: ids._buffer.ready)
    ids.resume()
    assert ids.next_id() == first + 1
    numbers, _ = ids._block
    ids.suspend()
    # a call that was about to take one has none, either
    assert list(numbers) == []
    with pytest.raises(GeneratorClosed) as caught:
        ids.next_id()
    assert caught.value.suspended
    assert (ids.left, ids.steps.size) == (0, 10)
    ids.resume()
    assert ids.next_id() > first + 1


def test_numbers_go_on_while_redis_is_away_to_the_end_of_the_segments(own_server: RedisServer) -> None:
    ids = created(own_server, step=100, max_step=100)
    numbers = [ids.next_id() for _ in range(50)]
    eventually(lambda: ids._buffer.ready)
    own_server.save()
    own_server.kill()
    numbers += [ids.next_id() for _ in range(150)]
    with pytest.raises(StoreUnavailable):
        ids.next_id()
    assert numbers == list(range(1, 201))
    own_server.start()
    with pytest.raises(NumbersClosed, match="restarted, failed over or replaced"):
        eventually(ids.next_id, ignored=(StoreUnavailable,))
    open_tag(own_server.url, ids.tag, 201)
    assert eventually(ids.next_id, ignored=(NumbersClosed,)) == 201
    ids.close()


def test_a_forked_child_has_a_tag_in_memory_even_if_another_thread_of_the_parent_used_it() -> None:
    pool = memory_pool()
    with created(pool) as ids:
        tag = pool.tag_store(ids.tag)
        other = threading.Thread(target=tag._lock.acquire)
        other.start()
        other.join()
        ids._after_fork()
        assert ids.next_id() == 1


def test_several_servers_hand_out_numbers_in_turn_and_any_may_be_away(
    server: RedisServer, own_server: RedisServer
) -> None:
    with (
        created(server, own_server, step=5, max_step=5) as ids,
        open_generator([own_server.url, server.url], tag=ids.tag, step=4, max_step=4) as other,
    ):
        numbers = [each.next_id() for _ in range(100) for each in (ids, other)]
        assert {number % 2 for number in numbers} == {0, 1}
        own_server.kill()
        numbers += [each.next_id() for _ in range(100) for each in (ids, other)]
        assert len(set(numbers)) == 400
        assert [number % 2 for number in numbers[-100:]] == [1] * 100


def test_a_server_that_hangs_delays_callers_of_the_others_once(server: RedisServer, own_server: RedisServer) -> None:
    with created(server, own_server, step=1, max_step=1) as ids:
        own_server.kill(signal.SIGSTOP)
        for _ in range(20):
            ids.next_id()
        assert ids.counts.failures == 1
        own_server.kill(signal.SIGCONT)


@pytest.mark.parametrize("stride", [1, 2])
def test_servers_that_hand_out_the_same_numbers_are_refused(
    server: RedisServer, own_server: RedisServer, stride: int
) -> None:
    tag = next(_tags)
    for each in (server, own_server):
        create_tag(each.url, tag, stride=stride)
    with (
        open_generator([server.url, own_server.url], tag=tag, step=1, max_step=1) as ids,
        pytest.raises(ConfigError, match=r"the 2 servers of the tag .* hand out the same numbers"),
    ):
        assert [ids.next_id() for _ in range(3)] == []


def test_spaces_separate_the_servers_of_a_tag() -> None:
    assert servers_of("redis://a:1 redis://b:2") == ["redis://a:1", "redis://b:2"]
    assert servers_of("unix:///a path/x.sock") == ["unix:///a path/x.sock"]
    with pytest.raises(ConfigError, match="names a server twice"):
        open_generator("redis://a:1 redis://a:1")


# --- losses, and calls that fail ----------------------------------------------------------------------


def test_another_replication_id_of_the_same_process_is_named_as_the_reason(own_server: RedisServer) -> None:
    with created(own_server) as ids:
        for master in (("127.0.0.1", "1"), ("NO", "ONE")):
            own_server.client().execute_command("REPLICAOF", *master)
        reason = "a replica was connected or Redis was promoted, so that Redis has another replication id"
        with pytest.raises(NumbersClosed, match=reason):
            ids.next_id()


def test_it_counts_that_the_tag_is_closed_though_no_caller_waits(server: RedisServer) -> None:
    with created(server, step=100) as ids:
        assert ids.next_id() == 1
        delete_tag(server.url, ids.tag)
        # the next segment is needed when a tenth is used
        ids.next_ids(20)
        eventually(lambda: ids.counts.closed > 2)


def test_a_batch_that_fails_leaves_its_numbers_and_changes_no_segment(server: RedisServer) -> None:
    with created(server, maximum=500, step=10, max_step=50) as ids:
        with pytest.raises(NumbersExhausted):
            ids.next_ids(501)
        assert sorted(ids.next_ids(500)) == list(range(1, 501))
    with created(server, step=10, max_step=50) as ids:
        ids.next_ids(200)
        assert ids.steps.size <= 50
        server.client().hset(tag_keys(ids.tag)[0], "identity", "0")
        with pytest.raises(NumbersClosed):
            ids.next_ids(100_000)
        open_tag(server.url, ids.tag, 300)
        eventually(ids.next_id, ignored=(NumbersClosed,))
        # fewer are handed out than the batch that failed asked for
        info = show_tag(server.url, ids.tag)
        assert info is not None
        assert info.next_number < 600


def test_canceled_coroutines_repeat_no_number(server: RedisServer) -> None:
    async def cancel() -> list[int]:
        made: list[int] = []
        with created(server, step=100, max_step=100) as ids:
            for wait_s in (0, 0.001, 0.005, 0.02, 0.05):
                task = asyncio.create_task(ids.anext_ids(2000))
                await asyncio.sleep(wait_s)
                task.cancel()
                try:
                    made += await task
                except asyncio.CancelledError:
                    canceled.append(wait_s)
            return made + await ids.anext_ids(3000)

    canceled: list[float] = []
    everything = asyncio.run(cancel())
    assert canceled
    assert len(everything) == len(set(everything)) >= 3000


def test_with_max_step_1_a_process_takes_no_number_that_it_does_not_make() -> None:
    pool, made = memory_pool(), []
    for _ in range(4):
        with open_generator(pool, tag="t", step=1, max_step=1) as ids:
            made += [ids.next_id() for _ in range(5)]
            time.sleep(0.03)
    assert made == list(range(1, 21))
