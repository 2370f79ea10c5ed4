"""Effects of a person, a crash of Redis or a failed batch on numbers, on a real redis-server."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Iterator

import pytest

from snowredis.numbers import NumbersClosed, NumbersExhausted, create_tag, delete_tag, open_tag, show_tag
from snowredis.numbers.segments import open_generator
from snowredis.numbers.stores import tag_keys
from snowredis.testing import memory_pool
from tests.support.servers import RedisServer
from tests.support.waiting import eventually


def test_another_replication_id_of_the_same_process_is_named_as_the_reason(own_server: RedisServer, tag: str) -> None:
    create_tag(own_server.url, tag)
    with open_generator(own_server.url, tag=tag) as ids:
        for master in (("127.0.0.1", "1"), ("NO", "ONE")):
            own_server.client().execute_command("REPLICAOF", *master)
        reason = "a replica was connected or Redis was promoted, so that Redis has another replication id"
        with pytest.raises(NumbersClosed, match=reason):
            ids.next_id()


# --- batches and single numbers -----------------------------------------------------------------------


def test_a_batch_that_fails_leaves_its_numbers_and_changes_no_segment(server: RedisServer, tag: str) -> None:
    create_tag(server.url, tag, maximum=500)
    with open_generator(server.url, tag=tag, step=10, max_step=50) as ids:
        with pytest.raises(NumbersExhausted):
            ids.next_ids(501)
        assert sorted(ids.next_ids(500)) == list(range(1, 501))
    other = f"{tag}-other"
    create_tag(server.url, other)
    with open_generator(server.url, tag=other, step=10, max_step=50) as ids:
        ids.next_ids(200)
        assert ids.steps.size <= 50
        server.client().hset(tag_keys(other)[0], "identity", "0")
        with pytest.raises(NumbersClosed):
            ids.next_ids(100_000)
        open_tag(server.url, other, 300)
        eventually(ids.next_id, ignored=(NumbersClosed,))
        # fewer are handed out than the batch that failed asked for
        info = show_tag(server.url, other)
        assert info is not None
        assert info.next_number < 600


def test_canceled_coroutines_repeat_no_number(server: RedisServer, tag: str) -> None:
    create_tag(server.url, tag)

    async def cancel() -> list[int]:
        with open_generator(server.url, tag=tag, step=100, max_step=100) as ids:
            for wait_s in (0, 0.001, 0.005, 0.02, 0.05):
                task = asyncio.create_task(ids.anext_ids(2000))
                await asyncio.sleep(wait_s)
                task.cancel()
                try:
                    made.extend(await task)
                except asyncio.CancelledError:
                    canceled.append(wait_s)
            return made + await ids.anext_ids(3000)

    made: list[int] = []
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


# --- who waits ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def hung(server: RedisServer) -> Iterator[None]:
    """Stop a redis-server for the length of the block."""
    server.kill(signal.SIGSTOP)
    yield
    server.kill(signal.SIGCONT)


def test_a_server_that_hangs_delays_callers_of_the_others_once(
    server: RedisServer, own_server: RedisServer, tag: str
) -> None:
    urls = [server.url, own_server.url]
    for start, url in enumerate(urls, 1):
        create_tag(url, tag, start=start, stride=2)
    with open_generator(urls, tag=tag, step=1, max_step=1) as ids, hung(own_server):
        for _ in range(20):
            ids.next_id()
        assert ids.counts.failures == 1


def test_it_counts_that_the_tag_is_closed_though_no_caller_waits(server: RedisServer, tag: str) -> None:
    create_tag(server.url, tag)
    with open_generator(server.url, tag=tag, step=100) as ids:
        assert ids.next_id() == 1
        delete_tag(server.url, tag)
        # the next segment is needed when a tenth is used
        ids.next_ids(20)
        eventually(lambda: ids.counts.closed > 2)
