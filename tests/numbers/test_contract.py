"""Contract of the store of segments on a real redis-server, and what the store in memory does of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import pytest

from snowredis.errors import ConfigError
from snowredis.numbers import tag_store as replies
from snowredis.numbers.fetcher import TagClient
from snowredis.numbers.settings import TagConfig, parse_signature, with_defaults
from snowredis.numbers.stores import MemoryTagStore, RedisTagStore, open_stores, tag_keys
from snowredis.numbers.tag_store import ClosedReason, NumbersBroken, OpenRequest, TakeRequest
from snowredis.testing import memory_pool
from tests.support.servers import RedisServer


@dataclass
class Place:
    """A tag and what can be done to it. *make* returns another store of the same tag."""

    store: Any
    make: Callable[..., Any]
    wipe: Callable[[], object]

    def client(self, store: Any = None) -> TagClient:
        return TagClient(store or self.store, lambda: uuid4().hex, '{"host":"h"}')

    def create(self) -> Place:
        assert self.store.open(OpenRequest("create")).changed
        return self

    def word(self, position: int) -> Any:
        return self.store.open(OpenRequest("word", position))


def place_of(request: pytest.FixtureRequest, **settings: Any) -> Place:
    config = TagConfig(tag=request.getfixturevalue("tag"), **settings)
    server: RedisServer = request.getfixturevalue("server")
    return Place(
        RedisTagStore(server.url, config),
        lambda **more: RedisTagStore(server.url, replace(config, **more)),
        lambda: server.client().delete(*tag_keys(config.tag)),
    )


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    found = place_of(request)
    yield found
    found.store.close()


def positions(reply: Any) -> tuple[int, int]:
    assert isinstance(reply, replies.GrantedNumbers), reply
    return reply.from_position, reply.until_position


def test_a_tag_that_nobody_created_hands_out_nothing(place: Place) -> None:
    reply = place.client().ask(10)
    assert isinstance(reply, replies.Closed)
    assert reply.reason is ClosedReason.NO_TAG
    place.create()
    assert isinstance(place.store.open(OpenRequest("create")), replies.NotNew)


def test_segments_follow_each_other_whoever_asks(place: Place) -> None:
    place.create()
    one, other = place.client(), place.client()
    got = [positions(client.ask(size)) for client, size in ((one, 10), (other, 5), (one, 1), (other, 100))]
    assert got == [(0, 10), (10, 15), (15, 16), (16, 116)]
    assert isinstance(one.ask(0), replies.Noted)
    assert positions(one.ask(4)) == (116, 120)


def test_a_repeated_request_gets_the_same_segment_and_a_late_one_none(place: Place) -> None:
    place.create()
    first = TakeRequest("aa", 0, "01", (), "", 0, 10, "{}")
    granted = place.store.take(first)
    assert positions(place.store.take(first)) == positions(granted) == (0, 10)
    second = first._replace(received=1, request_id="02", segments=((0, 10),), incarnation=granted.incarnation)
    assert positions(place.store.take(second)) == (10, 20)
    assert isinstance(place.store.take(first._replace(request_id="03")), replies.CopiedClient)
    third = second._replace(received=2, request_id="04", segments=((0, 10), (10, 20)))
    assert positions(place.store.take(third)) == (20, 30)
    # late, or of a copy of the process
    assert isinstance(place.store.take(first), replies.CopiedClient)
    assert isinstance(place.store.take(second._replace(request_id="05")), replies.CopiedClient)
    assert positions(place.store.take(third)) == (20, 30)


def test_a_copied_client_goes_on_under_another_name(place: Place) -> None:
    place.create()
    one = place.client()
    one.ask(10)
    copy = place.client()
    vars(copy).update({**vars(one), "store": copy.store})
    assert positions(one.ask(10)) == (10, 20)
    copy._request_id = "0a"
    assert isinstance(copy.ask(10), replies.CopiedClient)
    assert positions(copy.ask(10)) == (20, 30)
    assert positions(one.ask(10)) == (30, 40)


def test_what_a_process_reports_after_a_loss_is_not_handed_out_again(place: Place) -> None:
    place.create()
    client, silent = place.client(), place.client()
    client.ask(10)
    silent.ask(1000)
    client.ask(10)
    place.wipe()
    assert isinstance(silent.ask(0), replies.Closed)
    reply = client.ask(10)
    assert isinstance(reply, replies.Closed)
    assert (reply.next, reply.alarm) == (1020, None)
    assert isinstance(place.store.open(OpenRequest("create")), replies.NotNew)
    # a word that is too low
    assert place.word(50).changed
    assert positions(client.ask(10)) == (1020, 1030)
    assert positions(silent.ask(10)) == (1030, 1040)


def test_a_word_moves_an_open_tag_on_but_never_back(place: Place) -> None:
    place.create()
    client = place.client()
    client.ask(10)
    assert place.word(100).changed
    assert not place.word(7).changed
    assert positions(client.ask(10)) == (100, 110)


def test_a_wrong_word_closes_the_tag_as_soon_as_it_shows_and_names_the_numbers(place: Place) -> None:
    place.create()
    absent, other = place.client(), place.client()
    absent.ask(100)
    place.wipe()
    # nobody has reported, and it is wrong
    assert place.word(20).changed
    assert positions(other.ask(50)) == (20, 70)
    reply = absent.ask(0)
    assert isinstance(reply, replies.Closed)
    assert reply.reason is ClosedReason.ROLLED_BACK
    assert reply.next == 100
    assert reply.alarm is not None
    assert reply.alarm[0] <= 20
    assert reply.alarm[1] == 70
    place.word(0)
    assert positions(absent.ask(10)) == (100, 110)


def test_the_store_in_memory_hands_out_segments() -> None:
    store = MemoryTagStore(TagConfig(tag="t", maximum=30), lambda: 1_000_000)
    place = Place(store, lambda **_: store, lambda: None)
    one, other = place.client(), place.client()
    assert [positions(one.ask(5)), positions(other.ask(15))] == [(0, 5), (5, 20)]
    assert isinstance(other.ask(0), replies.Noted)
    assert [positions(one.ask(8)), positions(one.ask(8))] == [(20, 28), (28, 30)]
    assert isinstance(one.ask(8), replies.Exhausted)


def test_memory_that_was_rolled_back_is_noticed_and_the_numbers_are_named(
    request: pytest.FixtureRequest, server: RedisServer
) -> None:
    place = place_of(request).create()
    key, redis = tag_keys(place.store.config.tag)[0], server.client()
    one, two, three = place.client(), place.client(), place.client()
    one.ask(10)
    before: Any = redis.hgetall(key)
    one.ask(10)
    redis.delete(key)
    redis.hset(key, mapping=before)
    assert positions(two.ask(15)) == (10, 25)
    reply = one.ask(0)
    assert isinstance(reply, replies.Closed)
    assert (reply.reason, reply.alarm, reply.next) == (ClosedReason.ROLLED_BACK, (10, 20), 25)
    assert str(redis.hget(key, "alarm")).startswith("10 20 ")
    assert isinstance(two.ask(5), replies.Closed)
    place.word(0)
    assert [positions(client.ask(5)) for client in (one, two, three)] == [(25, 30), (30, 35), (35, 40)]


def test_a_restart_closes_the_tag_unless_it_is_assured(own_server: RedisServer) -> None:
    settings_of: dict[str, dict[str, Any]] = {"plain": {}, "assured": {"durability": "assured"}}
    made = {
        name: Place(RedisTagStore(own_server.url, TagConfig(tag=name, **settings)), lambda: None, lambda: None)
        for name, settings in settings_of.items()
    }
    clients = {name: place.create().client() for name, place in made.items()}
    for client in clients.values():
        assert positions(client.ask(10)) == (0, 10)
    own_server.save()
    own_server.restart()
    for place in made.values():
        place.store.reconnect()
    closed = clients["plain"].ask(10)
    assert isinstance(closed, replies.Closed)
    assert closed.reason is ClosedReason.OTHER_SERVER
    made["plain"].word(0)
    assert positions(clients["plain"].ask(10)) == (10, 20)
    assert positions(clients["assured"].ask(10)) == (10, 20)


def test_a_value_that_no_script_wrote_is_refused(request: pytest.FixtureRequest, server: RedisServer) -> None:
    place = place_of(request).create()
    server.client().hset(tag_keys(place.store.config.tag)[0], "next", "-7")
    with pytest.raises(NumbersBroken, match=r"field 'next' holds '-7'.*snowredis numbers delete"):
        place.client().ask(1)


@pytest.mark.parametrize("share", [(0, 1), (1, 3)])
def test_positions_and_numbers_belong_to_each_other(share: tuple[int, int]) -> None:
    config = TagConfig(tag="t", start=10, maximum=100, share=share)
    numbers = [config.number_at(position) for position in range(config.size)]
    assert numbers == list(range(10 + share[0], 101, share[1]))
    for number in range(5, 101):
        position = config.position_from(number)
        assert position == sum(each < number for each in numbers)
    assert parse_signature("t", config.signature) == config


@pytest.mark.parametrize(
    "settings",
    [
        {"tag": "a b"},
        {"tag": ""},
        {"tag": "t", "start": -1},
        {"tag": "t", "start": 5, "maximum": 4},
        {"tag": "t", "maximum": 2**63},
        {"tag": "t", "start": 1, "maximum": 2, "share": "1/3"},
        {"tag": "t", "share": "3/2"},
        {"tag": "t", "failover_slack": -1},
    ],
)
def test_constants_that_cannot_work_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        open_stores(memory_pool(), with_defaults(settings))
