"""The lease on a real server: loss, rollback, tampering, refusals, and what is seen of it.

The steps (grant, extend, lose, adopt) are those of the scripts. Tests that only add a pool share one server; those that
kill, configure or fill a server have one of their own. One file, since all of them check the same few things: what is
stored, which events were written, and what a holder got as a reply.
"""

import contextlib
import json
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis

from scripts._docs.lua import lua_of
from snowredis import WorkerPool
from snowredis.core.layout import Layout
from snowredis.errors import LayoutMismatch, StoreUnavailable
from snowredis.servers.scripts import Script
from snowredis.snowflake.protocol import messages
from snowredis.snowflake.protocol.administration import POOL_SCRIPTS
from snowredis.snowflake.protocol.pool_config import PoolConfig, pool_keys
from snowredis.snowflake.protocol.record import FloorReason, LeaseRecord
from snowredis.snowflake.protocol.redis_store import RedisStore, load
from tests.snowflake.protocol.conftest import holder, new_pool, really_wait, wall_ms
from tests.support.holder import Holder, create, fresh_hex
from tests.support.ports import free_port
from tests.support.records import change_record, record_of
from tests.support.servers import RedisServer, replicated
from tests.support.waiting import eventually

LAYOUT = Layout(timestamp_bits=41, backup_bits=1, worker_bits=4, sequence_bits=10)
# over before a test gets bored
SHORT = PoolConfig(name="short", layout=LAYOUT, ttl_ms=240)
# survives the restart of a server on a busy machine
LONG = PoolConfig(name="long", layout=LAYOUT, ttl_ms=3_000, max_clock_lead_ms=60, failover_slack_ms=60)
PAIR = replace(LONG, layout=Layout(timestamp_bits=41, backup_bits=1, worker_bits=1, sequence_bits=10))


def stored(server: RedisServer, name: str) -> list[Any]:
    """Return all that a pool has in Redis. Not by DUMP: a hash table that is being resized changes its order."""
    client: Any = server.client()
    read = {
        "hash": client.hgetall,
        "zset": lambda key: client.zrange(key, 0, -1, withscores=True),
        "stream": client.xrange,
        "string": client.get,
        "none": lambda key: None,
    }
    return [read[client.type(key)](key) for key in pool_keys(name)]


def events(server: RedisServer, name: str) -> list[dict[str, str]]:
    entries: Any = server.client().xrange(pool_keys(name)[2])
    return [fields for _, fields in entries]


def named(happened: list[dict[str, str]], what: str) -> list[dict[str, str]]:
    return [fields for fields in happened if fields["event"] == what]


def lease_ends(server: RedisServer, name: str) -> dict[str, int]:
    """Return {worker id: lease end} from the hash, which the index has to equal."""
    fields: Any = server.client().hgetall(pool_keys(name)[0])
    records = {field[2:]: LeaseRecord.parse(text) for field, text in fields.items() if field.startswith("w:")}
    return {worker: record.lease_end_ms for worker, record in records.items() if record}


def index(server: RedisServer, name: str) -> dict[str, int]:
    pairs: Any = server.client().zrange(pool_keys(name)[1], 0, -1, withscores=True)
    return {worker: int(end) for worker, end in pairs}


def pass_floor(server: RedisServer, store: RedisStore) -> None:
    """Let the floor of the pool have passed, as if its last loss was noticed long ago."""
    before_ms = wall_ms() - store.config.floor_ms
    server.client().hset(pool_keys(store.config.name)[0], "lost_at", before_ms)


# --- step 3 (lose): a server that went back in place -----------------------------------------------


def end_lease(server: RedisServer, name: str, worker: int) -> None:
    """Let a lease look as if its holder had not renewed it for a ttl."""
    client = server.client()
    seconds, micros = client.time()
    change_record(client, name, worker, lease_end_ms=seconds * 1000 + micros // 1000)


@contextlib.contextmanager
def rolled_back(server: RedisServer, name: str) -> Iterator[None]:
    """Undo at the end of the block all that happened in it, in the same server process: as a memory snapshot does."""
    client, key = redis.Redis.from_url(server.url), pool_keys(name)[0]
    dump = client.dump(key)
    assert isinstance(dump, bytes)
    yield
    client.delete(key)
    client.restore(key, 0, dump)


def test_a_client_that_saw_more_than_the_pool_knows_raises_the_floor_and_an_alarm(server: RedisServer) -> None:
    store = new_pool(server, LONG)
    name = store.config.name
    witness = holder(store).claim()
    last = int(server.client().hget(pool_keys(name)[0], "last") or 0)
    with rolled_back(server, name):
        for _ in range(3):
            witness.ask_renew()
    before = witness.seen
    answer = witness.ask_renew()
    assert answer.alarm == messages.Alarm(messages.AlarmReason.IDS_MAY_REPEAT, last, answer.floor_ms)
    assert answer.seen.incarnation != before.incarnation
    assert answer.floor_ms == answer.redis_ms + LONG.floor_ms
    # its reservation reaches far enough ahead to be taken up again
    assert isinstance(answer, messages.Renewed)
    assert answer.adopted
    happened = events(server, name)
    alarms = [(fields["reason"], fields["from"], fields["until"]) for fields in named(happened, "alarm")]
    assert alarms == [(messages.AlarmReason.IDS_MAY_REPEAT, str(last), str(answer.floor_ms))]
    assert named(happened, "floor")[-1]["reason"] == FloorReason.ROLLED_BACK
    info = WorkerPool(server.url, name).info()
    assert (info.alarms, info.alarm_from_ms, info.alarm_until_ms) == (1, last, answer.floor_ms)
    assert info.floor_reason == FloorReason.ROLLED_BACK
    # said once, to who found out
    assert witness.ask_renew().alarm is None


def test_a_claim_that_a_rollback_forgot_and_another_process_repeated_raises_an_alarm(server: RedisServer) -> None:
    """The version has caught up by then, and both leases begin at the same marks."""
    store = new_pool(server, LONG)
    forgotten, other = holder(store), holder(store)
    with rolled_back(server, store.config.name):
        forgotten.claim()
    other.claim()
    assert (other.worker, other.lanes_ms) == (forgotten.worker, forgotten.lanes_ms)
    assert other.seen == forgotten.seen
    assert forgotten.ask_renew().alarm is not None
    assert isinstance(holder(store).ask_claim(), messages.Settling)
    assert [isinstance(each.ask_renew(), messages.Renewed) for each in (forgotten, other)].count(True) == 1


def test_a_holder_that_is_adopted_never_lowers_a_mark(server: RedisServer) -> None:
    store = new_pool(server, LONG)
    living = holder(store).claim()
    first_ms, second_ms = living.lanes_ms
    server.client().hset(pool_keys(store.config.name)[0], "run_id", "0")
    until_ms = living.until_ms
    living.set(lanes_ms=(first_ms - 5, second_ms + 5), until_ms=until_ms - 5)
    assert living.ask_renew().adopted
    record = record_of(server.client(), store.config.name, living.worker)
    assert record.lanes_ms == (first_ms, second_ms + 5)
    assert record.until_ms >= until_ms


def test_the_pool_keeps_the_tokens_of_living_leases_only(server: RedisServer) -> None:
    store = new_pool(server, PAIR)
    name = store.config.name
    before, ended = holder(store).claim(), holder(store).claim()
    end_lease(server, name, ended.worker)
    with rolled_back(server, name):
        before.release()
        # takes what was released, and the pool forgets that it did
        heir = holder(store).claim()
        heir.ask_renew()
    assert heir.worker == before.worker
    assert heir.ask_renew().adopted
    pass_floor(server, store)
    assert holder(store).claim().worker == ended.worker
    fields = stored(server, name)[0]
    tokens = {field.removeprefix("t:"): worker for field, worker in fields.items() if field.startswith("t:")}
    assert tokens == {record_of(server.client(), name, worker).token_hash: str(worker) for worker in (0, 1)}


# --- the index is only an index --------------------------------------------------------------------


def test_stray_members_of_the_index_are_thrown_out(server: RedisServer) -> None:
    store = new_pool(server, LONG)
    name = store.config.name
    leases = pool_keys(name)[1]
    holders = [holder(store).claim() for _ in range(2)]
    server.client().zadd(leases, {"01": 0, "9": 1, "nobody": 2, "-1": 3, "1e0": 4})
    holders += [holder(store).claim() for _ in range(2)]
    # as many members as there are records, but not the same
    server.client().zrem(leases, "2")
    server.client().zadd(leases, {"nobody": 5})
    holders += [holder(store).claim() for _ in range(2)]
    assert [each.worker for each in holders] == list(range(6))
    assert index(server, name) == lease_ends(server, name)


def test_a_living_lease_that_the_index_calls_ended_is_not_given_away(server: RedisServer) -> None:
    store = new_pool(server, LONG)
    name = store.config.name
    holders = [holder(store).claim() for _ in range(3)]
    server.client().zadd(pool_keys(name)[1], {"0": 1, "1": 2, "2": 3})
    assert holder(store).claim().worker == 3
    assert index(server, name) == lease_ends(server, name)
    for each in holders:
        assert isinstance(each.ask_renew(), messages.Renewed)


def test_a_lost_hash_is_a_lost_pool_whatever_the_index_says(server: RedisServer) -> None:
    store = new_pool(server, LONG)
    name = store.config.name
    holders = [holder(store).claim() for _ in range(3)]
    server.client().delete(pool_keys(name)[0])
    newcomer = holder(store)
    assert newcomer.settling().floor_ms > max(each.until_ms for each in holders)
    assert holders[0].ask_renew().adopted
    # counted as well, or the index would be made anew at every look
    assert server.client().hget(pool_keys(name)[0], "records") == "1"
    pass_floor(server, store)
    assert newcomer.claim().worker != holders[0].worker
    assert index(server, name) == lease_ends(server, name)


def test_a_key_of_another_type_in_place_of_the_index_stops_everything_and_changes_nothing(server: RedisServer) -> None:
    store = new_pool(server, LONG)
    name = store.config.name
    living = holder(store).claim()
    server.client().set(pool_keys(name)[1], "mine")
    before = stored(server, name)
    for call in (holder(store).ask_claim, living.ask_renew, living.release):
        with pytest.raises(StoreUnavailable, match="another program uses a key of this pool or tag"):
            call()
    assert stored(server, name) == before
    server.client().delete(pool_keys(name)[1])
    assert isinstance(living.ask_renew(), messages.Renewed)


def test_a_key_of_another_type_in_place_of_the_events_costs_only_the_events(server: RedisServer) -> None:
    store = RedisStore(server.url, replace(LONG, name="noevents"))
    server.client().set(pool_keys("noevents")[2], "mine")
    assert isinstance(create(store, wall_ms()), messages.Created)
    living = holder(store).claim()
    assert isinstance(living.ask_renew(), messages.Renewed)
    assert living.release()
    assert isinstance(holder(store).ask_claim(), messages.Granted)
    assert server.client().get(pool_keys("noevents")[2]) == "mine"


# --- the signature ---------------------------------------------------------------------------------

WITH_SITES = replace(
    LONG,
    layout=Layout(timestamp_bits=41, datacenter_bits=2, backup_bits=1, worker_bits=4, sequence_bits=10),
    failover_slack_ms=5,
)


@pytest.mark.parametrize(
    "other",
    [
        {"layout": replace(WITH_SITES.layout, sequence_bits=11)},
        {"layout": replace(WITH_SITES.layout, epoch_ms=WITH_SITES.layout.epoch_ms + 1)},
        {"datacenter": 1},
        {"durability": "assured"},
        {"durability": "none"},
        {"ttl_ms": 3_001},
        {"max_clock_lead_ms": 61},
        {"failover_slack_ms": 6},
    ],
    ids="-".join,
)
def test_a_constant_that_differs_is_refused_by_every_script_and_changes_nothing(
    server: RedisServer, other: dict[str, Any]
) -> None:
    store = new_pool(server, WITH_SITES)
    name = store.config.name
    living = holder(store).claim()
    before = stored(server, name)
    stranger = RedisStore(server.url, replace(store.config, **other))
    living.store = stranger
    calls: list[Callable[[], object]] = [
        holder(stranger).ask_claim,
        lambda: create(stranger, wall_ms()),
        living.ask_renew,
        living.release,
    ]
    for call in calls:
        with pytest.raises(LayoutMismatch) as caught:
            call()
        assert caught.value.stored == store.config.signature
        assert caught.value.given == stranger.config.signature
    after = stored(server, name)
    for noted in ("mismatches", "mismatch"):
        del after[0][noted]
    assert after == before


# --- hostile arguments -----------------------------------------------------------------------------

# as many arguments as all scripts of a pool have in common
COMMON = 4
# later than any time that is taken from a client
LATE = str(9 * 10**13 + 1)
HOSTILE = ("", "-1", "0x10", "1e3", "nan", "9" * 18, "1" + "0" * 14, LATE, "x|y", "\n", "1\n", "1\0", "1" * 2000)
# what looks odd and is fine: short hex is a token, and so is a long number
HEX = {"1e3", "9" * 18, "1" + "0" * 14, LATE}
LEGAL: dict[str, set[str]] = {
    # a client that saw nothing yet
    "seen": {""},
    "options": {""},
    "nonce": HEX,
    "token": HEX,
    "pending": HEX,
    "release.pending": HEX | {""},
    # which lanes were opened is not known, or for more lanes than there are
    "opened": {"", "1" + "0" * 14},
    # shown to people, never computed with
    "stats": {"-1", "9" * 18, "1" + "0" * 14, LATE},
}
LEASES = (
    # worker ids, lanes and incarnations that a pool with this layout does not have
    "16,0,0,1-ab,ab,0,0",
    "4194304,0,0,1-ab,ab,0,0",
    "-1,0,0,1-ab,ab,0,0",
    "0,0,0,1-ab,ab,0",
    "0,0,0,1-ab,ab,0,0,0,0",
    f"0,{LATE},0,1-ab,ab,0,0",
    f"0,0,{LATE},1-ab,ab,0,0",
    f"0,0,0,1-ab,ab,0,{LATE}",
    "0,0,-1,1-ab,ab,0,0",
    "0,0,,1-ab,ab,0,0",
    "0,0,0,,ab,0,0",
    "0,0,0,1-xy,ab,0,0",
    f"0,0,0,{10**14}-ab,ab,0,0",
    "0,0,0,1-ab,,0,0",
    "0,0,0,1-ab,xy,0,0",
    f"0,0,0,1-ab,{'a' * 1400},0,0",
)
SEEN = ("1", "1@", "@1-ab", "1@ab", "1@1", f"{10**14}@1-ab", f"1@{10**14}-ab", "1@1-xy")
# signatures in another order, with something missing, something more, or values that cannot work
_OWN = LONG.signature
SIGNATURES = (
    "format=2" + _OWN.removeprefix("format=1"),
    _OWN.replace(" ttl_ms=", " skew_ms=1 ttl_ms="),
    _OWN.replace(" datacenter=0", ""),
    _OWN.replace("datacenter=0", "datacenter=zero"),
    _OWN.replace("ttl_ms=", "ttl_ms=0 ttl_ms="),
    re.sub(r" ttl_ms=\d+", " ttl_ms=0", _OWN),
    re.sub(r" ttl_ms=\d+", " ttl_ms=86400001", _OWN),
    re.sub(r"tick_ms=\d+", "tick_ms=0", _OWN),
    re.sub(r"layout=(\d+)/0/\d/", r"layout=\1/0/7/", _OWN),
    re.sub(r"layout=(\d+)/0/(\d)/\d+/", r"layout=\1/0/\2/23/", _OWN),
    re.sub(r"durability=\w+", "durability=perhaps", _OWN),
    re.sub(r"layout=(\d+)/0/\d/", r"layout=\1/0/0/", re.sub(r"outage_reserve_ms=\d+", "outage_reserve_ms=60000", _OWN)),
    _OWN + " ",
    _OWN + "x" * 400,
)
OWNERS = ("{", "[1]", '{"host":"\x1b[31m"}', '{"host":"\x7f"}', '{"host":"a\0b"}', '{"host":"%s"}' % ("x" * 1000))


class RecordingStore(RedisStore):
    """A RedisStore that keeps the arguments of the last call of each script."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.calls: dict[str, tuple[str, ...]] = {}

    def run(self, script: Script, keys: Any, args: Any) -> Any:
        self.calls[script.name] = tuple(map(str, args))
        return super().run(script, keys, args)


def argument_names(script: str) -> list[str]:
    """Return the names of the script's arguments from the headers; ARGV[1] is the first."""
    return re.findall(
        r"^-- ARGV\[\d+\] (\w+)", lua_of("arguments") + "\n" + lua_of("pool") + "\n" + lua_of(script), re.MULTILINE
    )


def legal_arguments(store: RecordingStore, server: RedisServer, script: str) -> list[str]:
    """Make the pool of *store* anew, with one lease, and return arguments that *script* takes."""
    config = store.config
    server.client().delete(*pool_keys(config.name))
    create(store, wall_ms())
    living = holder(store).claim()
    living.ask_renew()
    good = [*store.calls.get(script, ())]
    common = store.calls["renew"][:4]
    match script:
        case "claim":
            good[4] = fresh_hex()
        case "renew":
            good[6:8] = [str(living.terms), fresh_hex()]
        case "delete":
            good = [*common, "0"]
        case "release":
            good = [*common, living.token, str(living.terms), "", "00", "0,0,0,0,0"]
    return good


@pytest.mark.parametrize(
    ("script", "place", "name"),
    [(script, place, name) for script in POOL_SCRIPTS for place, name in enumerate(argument_names(script))],
)
def test_a_hostile_argument_is_refused_and_changes_nothing(
    server: RedisServer, script: str, place: int, name: str
) -> None:
    config = replace(LONG, name=f"hostile{fresh_hex()[-6:]}")
    store = RecordingStore(server.url, config)
    assert isinstance(store, RecordingStore)
    client = server.client()
    legal = LEGAL.get(f"{script}.{name}", LEGAL.get(name, ()))
    wrong = []
    good: list[str] = []
    special = {"owner": OWNERS, "lease": LEASES, "seen": SEEN, "signature": SIGNATURES, "options": ("oo" * 3, "x")}
    for text in (*HOSTILE, *special.get(name, ())):
        # what is refused leaves the pool as it was
        good = good or legal_arguments(store, server, script)
        before = stored(server, config.name)
        if place < COMMON:
            with pytest.raises(redis.ResponseError, match="SNOWREDIS bad argument "):
                client.eval(load(script).source, 3, *pool_keys(config.name), *good[:place])
            assert stored(server, config.name) == before
        try:
            reply = client.eval(
                load(script).source, 3, *pool_keys(config.name), *good[:place], text, *good[place + 1 :]
            )
        except redis.ResponseError as error:
            if f"SNOWREDIS bad argument {name}" not in str(error) or stored(server, config.name) != before:
                wrong.append((text, str(error)))
            if text in legal:
                wrong.append((text, "is legal"))
        else:
            good = []
            if text not in legal:
                wrong.append((text, str(reply)))
            if name == "signature" and stored(server, config.name) != before:
                wrong.append((text, "changed something"))
            if not isinstance(holder(store).ask_claim(), messages.Granted | messages.Settling):
                wrong.append((text, "spoilt the pool"))
    assert wrong == []


@pytest.mark.parametrize("seen", [f"{9 * 10**13}-ffff", f"{10**14 - 1}-ffff"])
def test_an_incarnation_that_no_server_made_does_not_spoil_the_pool(server: RedisServer, seen: str) -> None:
    store = new_pool(server, LONG)
    liar = holder(store)
    liar.seen = messages.Seen(seen, 0)
    assert liar.ask_claim().alarm
    pass_floor(server, store)
    witness = holder(store).claim()
    assert re.fullmatch(r"90000000000001-[0-9a-f]{16}", witness.seen.incarnation)
    server.client().hset(pool_keys(store.config.name)[0], "run_id", "0")
    assert witness.ask_renew().adopted
    assert witness.seen.incarnation.startswith("90000000000002-")
    assert isinstance(witness.ask_renew(), messages.Renewed)


# --- a server that refuses, or is not there --------------------------------------------------------


def test_a_server_that_forgot_its_scripts_is_given_them_again(server: RedisServer) -> None:
    store = new_pool(server, LONG)
    living = holder(store)
    for call in (living.claim, living.ask_renew, living.release, lambda: create(store, wall_ms())):
        server.client().script_flush()
        call()
    assert living.seen.version > 1


# one that accepts writes would lease worker ids that its master leases to others
@pytest.mark.parametrize("read_only", ["yes", "no"])
def test_a_replica_is_said_to_be_one_and_can_be_looked_at(tmp_path: Path, read_only: str) -> None:
    with replicated(tmp_path) as (master, replica):
        replica.client().config_set("replica-read-only", read_only)
        living = holder(new_pool(master, LONG)).claim()
        name = living.store.config.name
        eventually(lambda: replica.client().exists(pool_keys(name)[0]), "a copy on the replica", 20)
        assert master.client().wait(1, 5_000) == 1
        store = RedisStore(replica.url, living.store.config)
        strays = Holder(store, wall_ms), replace(living, store=store)
        for call in (strays[0].ask_claim, strays[1].ask_renew, strays[1].release):
            with pytest.raises(StoreUnavailable, match="Connect to the master") as caught:
                call()
            assert caught.value.is_read_only
        assert [info.worker for info in WorkerPool(replica.url, name).workers()] == [living.worker]


def test_a_wrong_password_is_refused_and_not_shown(own_server: RedisServer) -> None:
    own_server.client().config_set("requirepass", "right")
    wrong = f"unix://:wrong@{own_server.socket}"
    for url, text in ((own_server.url, "requires a password"), (wrong, "refused the user name or the password")):
        store = RedisStore(url, LONG)
        with pytest.raises(StoreUnavailable, match=text) as caught:
            create(store, wall_ms())
        assert "wrong@" not in str(caught.value)
    assert isinstance(create(RedisStore(f"unix://:right@{own_server.socket}", LONG), wall_ms()), messages.Created)


# the bound: without it a caller would hang for as long as TCP does
@pytest.mark.timeout(20)
def test_a_server_that_is_away_or_says_nothing_is_given_up_on(tmp_path: Path) -> None:
    store = RedisStore(f"unix://{tmp_path}/nobody.sock", LONG)
    with pytest.raises(StoreUnavailable, match=r"nobody\.sock cannot be used"):
        create(store, wall_ms())
    store = RedisStore(f"redis://127.0.0.1:{free_port()}/3", LONG)
    with pytest.raises(StoreUnavailable, match=r":\d+/3 cannot be used.*that the URL is correct"):
        create(store, wall_ms())
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = RedisStore(f"redis://127.0.0.1:{silent.getsockname()[1]}", LONG)
        with pytest.raises(StoreUnavailable, match="cannot be used"):
            create(store, wall_ms())


# --- events ----------------------------------------------------------------------------------------


def test_every_kind_of_event_appears_once_with_who_and_which_ticks(server: RedisServer) -> None:
    store = new_pool(server, PAIR)
    name = store.config.name
    first = holder(store).claim()
    assert first.release()
    second = holder(store).claim()
    renew(second, stats=messages.WorkerStats(9, 3, -2, 1, 1))
    third = holder(store).claim()
    end_lease(server, name, third.worker)
    heir = holder(store).claim()
    assert heir.worker == third.worker == 0
    assert isinstance(third.ask_renew(), messages.Lost)
    # the heir has the same name, and dies in a later millisecond
    really_wait(2)
    end_lease(server, name, heir.worker)
    ended_ms = heir.ask_renew().redis_ms
    assert heir.release("", reclaimed=True)
    with rolled_back(server, name):
        renew(second, stats=messages.WorkerStats(9, 3, -2, 1, 1))
        renew(second, stats=messages.WorkerStats(9, 3, -2, 1, 1))
    alarmed = renew(second, stats=messages.WorkerStats(9, 3, -2, 1, 1))
    assert alarmed.alarm

    happened = events(server, name)
    counts = Counter(fields["event"] for fields in happened)
    once = ("released", "died", "returned", "adopted", "lost", "alarm", "clock-back")
    assert counts == {"claimed": 4, "expired": 2, "floor": 2, **dict.fromkeys(once, 1)}
    # one when the pool was made, one with the alarm
    assert [(e["worker"], e["from"], e["reason"]) for e in named(happened, "floor")] == [
        ("-1", str(first.lanes_ms[0]), FloorReason.NO_POOL),
        ("-1", str(alarmed.floor_ms), FloorReason.ROLLED_BACK),
    ]
    claimed, adopted = named(happened, "claimed"), named(happened, "adopted")[0]
    assert [fields["worker"] for fields in claimed] == ["0", "1", "0", "0"]
    assert claimed[0]["until"] == str(first.until_ms)
    assert [fields["from"] for fields in claimed] == [str(each.lanes_ms[0]) for each in (first, second, third, heir)]
    assert (adopted["worker"], adopted["until"]) == ("1", str(alarmed.terms.until_ms))
    assert named(happened, "expired")[0]["until"] == str(third.until_ms)
    assert named(happened, "expired")[0]["claimed"] <= named(happened, "expired")[0]["at"]
    (returned,) = named(happened, "returned")
    assert returned["ended"] == named(happened, "expired")[1]["at"] <= str(ended_ms)
    assert named(happened, "clock-back")[0]["stats"] == "9,3,-2,1,1"
    for fields in happened:
        assert fields["worker"] == "-1" or json.loads(fields["owner"]) == {"host": "h"}
        assert int(fields["from"]) <= int(fields["until"]) or fields["event"] == "floor"
        assert abs(int(fields["at"]) - wall_ms()) < 60_000
    seen = WorkerPool(server.url, name)
    info = seen.info()
    assert (info.claims, info.releases, info.expired, info.died, info.returned) == (4, 1, 2, 1, 1)
    # a process that calls again is not dead
    assert [each.state for each in seen.snapshot().ended] == ["died"]


def renew(living: Holder, *, stats: messages.WorkerStats) -> messages.Renewed:
    """Call Holder.ask_renew() with other *stats*."""
    pending = fresh_hex()
    request = messages.RenewRequest(living.seen, wall_ms(), living.token, living.owner, living.terms, pending, stats)
    answer = living.store.ask(request)
    assert isinstance(answer, messages.Renewed)
    living.terms, living.seen = answer.terms, answer.seen
    return answer


def test_the_event_stream_is_trimmed_around_its_length(server: RedisServer) -> None:
    store = new_pool(server, LONG)
    # 20,000 events would take long
    store._scripts = {
        name: Script(name, [script.source.replace("MAX_EVENTS = 20000", "MAX_EVENTS = 200")])
        for name, script in store._scripts.items()
    }
    for _ in range(400):
        holder(store).claim().release()
    # whole nodes of 100 entries are dropped at a time
    assert 200 <= server.client().xlen(pool_keys(store.config.name)[2]) <= 300


# --- looking at a pool -----------------------------------------------------------------------------


def test_a_lost_index_does_not_change_what_is_shown(server: RedisServer) -> None:
    store = new_pool(server, LONG)
    name = store.config.name
    holders = [holder(store).claim() for _ in range(3)]
    holders[1].release()
    seen = WorkerPool(server.url, name)
    server.client().delete(pool_keys(name)[1])
    assert [info.worker for info in seen.workers()] == [0, 2]
    assert len(seen.workers(alive_only=False)) == 3
    info = seen.info()
    assert (info.used, info.free) == (2, 14)

    class Stuttering(redis.Redis):
        """Return the same field twice, as a scan may while the hash grows."""

        def hscan_iter(self, *args: Any, **options: Any) -> Iterator[Any]:
            for pair in super().hscan_iter(*args, **options):
                yield from (pair, pair)

    twice = WorkerPool(Stuttering(unix_socket_path=str(server.socket)), name)
    assert [info.worker for info in twice.workers()] == [0, 2]


def test_adopted_leases_count_for_the_peak(server: RedisServer) -> None:
    store = RedisStore(server.url, replace(LONG, name="peak"))
    create(store, wall_ms())
    living = [holder(store).claim() for _ in range(3)]
    server.client().delete(*pool_keys("peak"))
    assert all(isinstance(each.ask_renew(), messages.Renewed) for each in living)
    info = WorkerPool(server.url, "peak").info()
    assert (info.adopted, info.used, info.peak) == (3, 3, 3)
