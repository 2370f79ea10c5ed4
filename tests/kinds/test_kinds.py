"""Every kind of ids has some things in common, and declares others."""

import asyncio
import itertools
import pickle
import threading
import time
import tomllib
import uuid
from typing import Any

import pytest

import snowredis
from snowredis.kinds.lookup import GROUP, OUR_KINDS, find_kind
from tests.support.programs import ROOT, run


def test_ids_of_every_kind_are_what_its_description_says(kind: str, settings: dict[str, Any]) -> None:
    with snowredis.generator(kind, **settings) as ids:
        assert isinstance(ids, snowredis.IdGenerator)
        described = ids.description
        assert described == find_kind(kind).describe(settings)
        made = [ids.next_id(), *ids.next_ids(200), next(ids), next(iter(ids))]
        assert {type(an_id) for an_id in made} == {described.type}
        assert len(set(made)) == 203
        assert all(len(str(an_id)) <= described.text_length for an_id in made)
        assert described.kind == kind
        if described.is_number:
            assert described.bits is not None
            assert max(made).bit_length() <= described.bits
        assert ids.next_ids(0) == []
        with pytest.raises(snowredis.ConfigError, match=r"next_ids\(-1\)"):
            ids.next_ids(-1)
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            pickle.dumps(ids)


def test_ids_that_are_called_sortable_sort_by_the_time_at_which_they_were_made(
    kind: str, settings: dict[str, Any]
) -> None:
    with snowredis.generator(kind, **settings) as ids:
        # ObjectIds count in seconds, the others in ms
        step = 1.001 if kind == "objectid" else 0.003
        made = []
        for _ in range(2 if kind == "objectid" else 8):
            made.append(ids.next_id())
            time.sleep(step)
        assert (made == sorted(made)) == ids.description.sortable


def test_no_kind_makes_an_id_after_close(kind: str, settings: dict[str, Any]) -> None:
    ids = snowredis.generator(kind, **settings)
    ids.next_id()
    ids.close()
    ids.close()
    assert ids.closed
    for make in (ids.next_id, lambda: ids.next_ids(2), lambda: asyncio.run(ids.anext_id())):
        with pytest.raises(snowredis.GeneratorClosed) as raised:
            make()
        assert raised.value.kind == kind
        assert f"the {kind} generator" in str(raised.value) or kind == "snowflake"


def test_coroutines_that_wait_for_a_server_are_one_thread(kind: str, settings: dict[str, Any]) -> None:
    if kind == "segment":
        pytest.skip("fetches in a thread of its own")
    most = 0

    async def use(ids: Any) -> list[Any]:
        async def one() -> Any:
            nonlocal most
            an_id = await ids.anext_id()
            most = max(most, sum(thread.name == "snowredis-async" for thread in threading.enumerate()))
            return an_id

        return await asyncio.gather(*(one() for _ in range(300)))

    with snowredis.generator(kind, **settings) as ids:
        assert len(set(asyncio.run(use(ids)))) == 300
    assert most <= 2


def test_threads_and_coroutines_share_a_generator_of_every_kind(kind: str, settings: dict[str, Any]) -> None:
    with snowredis.generator(kind, **settings) as ids:
        made: list[list[Any]] = [[] for _ in range(4)]

        def make(mine: list[Any]) -> None:
            for _ in range(300):
                mine.append(ids.next_id())
                mine += ids.next_ids(3)

        async def make_async() -> list[Any]:
            return [*await asyncio.gather(*(ids.anext_id() for _ in range(300))), *await ids.anext_ids(300)]

        threads = [threading.Thread(target=make, args=(mine,)) for mine in made]
        for thread in threads:
            thread.start()
        others = asyncio.run(make_async())
        for thread in threads:
            thread.join()
        assert len({*others, *itertools.chain(*made)}) == 4 * 1200 + 600
        # numbers that are random in a millisecond have no order
        assert kind not in ("snowflake", "segment", "dated") or all(mine == sorted(mine) for mine in made)


@pytest.mark.parametrize("pids", [[], ["the same"]], ids=["", "in namespaces of their own"])
@pytest.mark.parametrize("local_kind", ["uuid7", "uuid4", "ulid", "objectid"])
def test_forked_children_repeat_no_id_of_each_other(local_kind: str, pids: list[str]) -> None:
    made = run("tests.kinds.programs.forked_ids", local_kind, *pids).split()
    # the random part alone: the time may differ by chance. An ObjectId's begins after 8 digits
    random_parts = {an_id[8:] if local_kind == "objectid" else an_id[-14:] for an_id in made}
    assert (len(made), len(random_parts)) == (180, 180)


@pytest.mark.parametrize(
    ("local_kind", "form", "kind_of_id", "length"),
    [
        ("uuid7", "uuid", uuid.UUID, 36),
        ("uuid7", "text", str, 36),
        ("uuid7", "bytes", bytes, 16),
        ("uuid4", "uuid", uuid.UUID, 36),
        ("uuid4", "text", str, 36),
        ("uuid4", "bytes", bytes, 16),
        ("ulid", "text", str, 26),
        ("ulid", "uuid", uuid.UUID, 36),
        ("ulid", "bytes", bytes, 16),
        ("objectid", "text", str, 24),
        ("objectid", "bytes", bytes, 12),
    ],
)
def test_an_id_has_the_type_of_its_form(local_kind: str, form: str, kind_of_id: type, length: int) -> None:
    ids = snowredis.generator(local_kind, form=form)
    an_id = ids.next_id()
    assert type(an_id) is ids.description.type is kind_of_id
    assert len(an_id if isinstance(an_id, bytes) else str(an_id)) == length
    assert (ids.description.bits or 0) >= 8 * length or not isinstance(an_id, bytes)
    if local_kind.startswith("uuid"):
        as_uuid = uuid.UUID(bytes=an_id) if isinstance(an_id, bytes) else uuid.UUID(str(an_id))
        assert (as_uuid.version, as_uuid.variant) == (int(local_kind[-1]), uuid.RFC_4122)


def test_ids_that_carry_the_time_carry_the_right_one() -> None:
    before_ms = time.time_ns() // 1_000_000
    uuid7 = snowredis.generator("uuid7").next_id()
    ulid = snowredis.generator("ulid", form="bytes").next_id()
    objectid = snowredis.generator("objectid", form="bytes").next_id()
    after_ms = time.time_ns() // 1_000_000
    assert before_ms <= uuid7.int >> 80 <= after_ms
    assert before_ms <= int.from_bytes(ulid[:6]) <= after_ms
    assert before_ms // 1000 <= int.from_bytes(objectid[:4]) <= after_ms // 1000


def test_our_kinds_are_entry_points_too() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][GROUP]
    assert declared == OUR_KINDS
    for name in OUR_KINDS:
        assert find_kind(name).name == name


def test_the_extra_of_every_kind_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {kind.extra for kind in map(find_kind, OUR_KINDS)} - {None} <= extras.keys()


def test_the_type_of_a_generator_follows_from_its_kind() -> None:
    # checked by mypy
    numbers: snowredis.SnowflakeGenerator = snowredis.generator("snowflake", url=snowredis.testing.memory_pool())
    uuids: snowredis.IdGenerator[uuid.UUID] = snowredis.generator("uuid7")
    texts: list[snowredis.IdGenerator[str]] = [
        snowredis.generator("uuid4", form="text"),
        snowredis.generator("ulid"),
        snowredis.generator("objectid"),
    ]
    raw: snowredis.IdGenerator[bytes] = snowredis.generator("objectid", form="bytes")
    all_kinds: list[snowredis.IdGenerator[Any]] = [numbers, uuids, *texts, raw]
    assert [type(ids.next_id()) for ids in all_kinds] == [int, uuid.UUID, str, str, str, bytes]
