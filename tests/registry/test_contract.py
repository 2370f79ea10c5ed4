"""Contract of a registry of shard numbers, on fakeredis and on a real Redis."""

from __future__ import annotations

import fakeredis
import pytest

from snowredis.embedded.fake import install_info
from snowredis.errors import ShardNumberRefused, SnowredisError
from snowredis.registry.registration import confirm_pools
from snowredis.registry.registry import NumberPlace, RedisRegistry, RegistryStatus
from snowredis.snowflake.protocol import PoolConfig, pool_keys
from tests.registry.conftest import LAYOUT, PLACE, RegistryUnderTest


@pytest.fixture
def made(place: RegistryUnderTest) -> RegistryUnderTest:
    assert place.registry.create(first=1).status is RegistryStatus.CREATED
    return place


def test_numbers_are_given_in_order_and_the_same_pool_gets_the_same(made: RegistryUnderTest) -> None:
    replies = [made.take(f"shard-{i}") for i in (1, 2, 1, 3)]
    assert [(reply.status, reply.fields) for reply in replies] == [
        (RegistryStatus.TAKEN, ("1",)),
        (RegistryStatus.TAKEN, ("2",)),
        (RegistryStatus.TAKEN, ("1",)),
        (RegistryStatus.TAKEN, ("3",)),
    ]
    assert made.registry.create(first=1).status is RegistryStatus.EXISTS
    assert made.take("shard-4").fields == ("4",)


def test_nothing_is_given_where_no_registry_exists(place: RegistryUnderTest) -> None:
    assert place.take("a").status is RegistryStatus.MISSING
    assert place.registry.open().status is RegistryStatus.MISSING
    assert place.registry.free(1, confirmed_ms=0).status is RegistryStatus.MISSING
    assert place.registry.find("a") is None
    assert place.registry.read() is None


def test_a_full_registry_says_so_and_a_freed_number_is_given_only_by_name(made: RegistryUnderTest) -> None:
    for number in range(1, 8):
        assert made.take(f"shard-{number}").fields == (str(number),)
    assert made.take("one-more").status is RegistryStatus.FULL
    assert made.registry.free(5, confirmed_ms=0).fields == ("shard-5",)
    assert made.registry.free(5, confirmed_ms=0).status is RegistryStatus.UNKNOWN
    assert made.take("one-more").status is RegistryStatus.FULL
    assert made.take("one-more", wanted=5).fields == ("5",)
    assert made.take("another", wanted=5).fields == ("one-more",)


def test_an_unconfirmed_number_follows_the_name_and_a_confirmed_one_its_registration(made: RegistryUnderTest) -> None:
    assert made.take("a", "aa").fields == ("1",)
    assert made.take("a", "bb").fields == ("1",)
    assert made.confirm("a", 1, "bb").status is RegistryStatus.CONFIRMED
    # a pool of the same name in another Redis
    for reply in (made.take("a", "aa"), made.take("a", "aa", wanted=1), made.take("a", "bb", wanted=2)):
        assert (reply.status, reply.fields) == (RegistryStatus.NAMED, ("1", "here"))
    conflict = made.confirm("a", 1, "aa", first=False)
    assert (conflict.status, conflict.fields) == (RegistryStatus.CONFLICT, ("1", "a"))
    assert made.take("a", "bb").status is RegistryStatus.TAKEN


def test_a_confirmed_number_stays_with_its_pool_until_a_person_frees_it(made: RegistryUnderTest) -> None:
    made.take("a", "aa")
    made.confirm("a", 1, "aa")
    assert made.take("b").fields == ("2",)
    # asked for again, it stays confirmed
    assert made.take("a", "aa").fields == ("1",)
    for wanted in (None, 1):
        assert made.take("a", "cc", wanted=wanted).status is RegistryStatus.NAMED
    assert made.take("b2", wanted=1).status is RegistryStatus.USED
    # a person who looked before it was confirmed does not free it
    assert made.registry.free(1, confirmed_ms=0).status is RegistryStatus.CONFIRMED
    record = made.registry.find("a")
    assert record is not None
    assert made.registry.free(1, confirmed_ms=record[1].confirmed_ms).fields == ("a",)
    assert made.take("a", "cc", wanted=1).fields == ("1",)
    assert made.confirm("a", 1, "cc").status is RegistryStatus.CONFIRMED


def test_after_a_wipe_holders_take_up_their_numbers_and_nobody_gets_a_new_one(made: RegistryUnderTest) -> None:
    for pool in ("a", "b", "c"):
        number = int(made.take(pool).fields[0])
        made.confirm(pool, number)
    made.wipe()
    assert made.take("d").status is RegistryStatus.MISSING
    taken_up = made.confirm("b", 2, highest=3, first=False)
    assert (taken_up.status, taken_up.closed, taken_up.highest) == (RegistryStatus.CONFIRMED, "no-registry", 3)
    assert made.take("d").status is RegistryStatus.CLOSED
    assert made.take("x", wanted=2).fields == ("b",)
    assert made.registry.open().closed == ""
    # a person names the number that it had
    assert made.take("a", wanted=1).fields == ("1",)
    assert made.take("d").fields == ("4",)
    assert made.registry.open(5).status is RegistryStatus.OPENED
    assert made.take("e").fields == ("6",)


def test_a_closed_registry_only_takes_up_what_was_used(made: RegistryUnderTest) -> None:
    made.take("a", "aa")
    # it forgot that the number was confirmed, perhaps
    assert made.confirm("old", 5, first=False).closed == "rolled-back"
    for pool, wanted in (("a", None), ("a", 1), ("b", None), ("b", 7)):
        assert made.take(pool, "bb", wanted=wanted).status is RegistryStatus.CLOSED
    # nor does it confirm for the first time
    assert made.confirm("a", 1, "aa").status is RegistryStatus.CLOSED
    assert made.confirm("a", 1, "aa", first=False).status is RegistryStatus.CONFIRMED
    # the reply to the first confirmation was lost, perhaps
    assert made.confirm("a", 1, "aa").status is RegistryStatus.CONFIRMED
    made.registry.open()
    assert made.take("a", "bb").status is RegistryStatus.NAMED


def test_a_registry_that_forgot_more_since_a_person_looked_stays_closed(made: RegistryUnderTest) -> None:
    state = made.registry.read()
    assert state is not None
    for number, pool in enumerate(("a", "b"), 1):
        made.take(pool)
        made.confirm(pool, number)
    made.wipe()
    made.confirm("a", 1, first=False)
    assert made.registry.open(read=state.incarnation).closed == "no-registry"
    assert made.take("c").status is RegistryStatus.CLOSED
    state = made.registry.read()
    assert state is not None
    assert made.registry.open(2, read=state.incarnation).status is RegistryStatus.OPENED
    assert made.take("c").fields == ("3",)


def test_a_number_that_was_given_twice_belongs_to_whoever_confirmed_it(made: RegistryUnderTest) -> None:
    made.take("slow", "aa")
    made.wipe()
    made.registry.create(first=1)
    # forgotten before it was confirmed: perhaps another pool of this name has it by now
    assert made.confirm("slow", 1, "aa", first=True).fields == ("1", "")
    assert made.registry.open().closed == ""
    assert made.take("new", "bb", wanted=1).fields == ("1",)
    # neither was confirmed, so neither was used: the first who confirms has it; the other one is refused
    assert made.confirm("slow", 1, "aa", first=True).status is RegistryStatus.CONFLICT
    assert made.confirm("new", 1, "bb", first=True).status is RegistryStatus.CONFIRMED
    # one that was used stays with its holder, since the other never was
    assert made.take("newer", "cc").fields == ("2",)
    assert made.confirm("old", 2, "dd", first=False).status is RegistryStatus.CONFIRMED
    assert made.confirm("newer", 2, "cc", first=True).status is RegistryStatus.CONFLICT
    state = made.registry.read()
    assert state is not None
    assert {number: record.pool for number, record in state.records.items()} == {1: "new", 2: "old"}
    assert state.conflicts == 3


@pytest.mark.parametrize(("number", "highest"), [(4, -1), (1, 4)])
def test_a_registry_that_never_gave_a_number_that_a_pool_knows_is_closed(
    made: RegistryUnderTest, number: int, highest: int
) -> None:
    made.take("a")
    made.confirm("a", 1)
    # numbers below the next one are given to no other pool, so nothing was lost that matters
    assert made.confirm("old", 0, first=False, highest=1).closed == ""
    pool = "a" if number == 1 else "b"
    confirmed = made.confirm(pool, number, first=False, highest=highest)
    assert (confirmed.status, confirmed.closed, confirmed.highest) == (RegistryStatus.CONFIRMED, "rolled-back", 4)
    assert made.take("c").status is RegistryStatus.CLOSED
    assert made.registry.open().closed == ""
    assert made.take("c").fields == ("5",)


def test_a_pool_cannot_confirm_two_numbers(made: RegistryUnderTest) -> None:
    made.take("a", "aa")
    made.confirm("a", 1, "aa")
    reply = made.confirm("a", 2, "bb")
    assert (reply.status, reply.fields, reply.closed) == (RegistryStatus.CONFLICT, ("1", "a"), "rolled-back")
    assert made.registry.open().status is RegistryStatus.OPENED
    assert made.take("b").fields == ("3",)


def test_ids_have_their_number_in_one_place(made: RegistryUnderTest) -> None:
    for other in (NumberPlace(3, 20), NumberPlace(4, 19)):
        with pytest.raises(ShardNumberRefused, match=r"numbers are"):
            made.another(other).take("a", "aa", wanted=None, where="")
    assert made.another(None).open().status is RegistryStatus.OPENED


def test_a_registry_is_not_created_without_a_place_for_its_numbers(place: RegistryUnderTest) -> None:
    with pytest.raises(SnowredisError, match="the script refused place"):
        place.another(None).create(first=1)
    assert place.registry.read() is None


@pytest.mark.parametrize("name", ["world", "other"])
def test_of_all_pools_of_a_server_those_of_the_registry_are_confirmed(name: str) -> None:
    install_info()
    server = fakeredis.FakeRedis()
    registry = RedisRegistry(server, "world", PLACE)
    registry.create(first=1)
    config = PoolConfig(name="a", layout=LAYOUT, datacenter=3, registry=name, registration="aa")
    server.hset(pool_keys("a")[0], mapping={"signature": config.signature, "highest_number": 3})
    lines = list(confirm_pools(server, registry))
    assert lines == ["a: number 3 confirmed"] * (name == "world")
    state = registry.read()
    assert state is not None
    assert list(state.records) == [3] * (name == "world")


def test_what_was_given_can_be_read(made: RegistryUnderTest) -> None:
    made.take("a", "aa")
    made.confirm("a", 1, "aa")
    found = made.registry.find("a")
    assert found is not None
    number, record = found
    assert (number, record.id, record.pool, record.where) == (1, "aa", "a", "here")
    assert made.registry.find("b") is None
    state = made.registry.read()
    assert state is not None
    assert (state.place, state.next_number, state.closed) == (NumberPlace(3, 19), 2, "")
    assert state.records == {1: record}
    assert 0 < record.taken_ms <= record.confirmed_ms <= state.now_ms
