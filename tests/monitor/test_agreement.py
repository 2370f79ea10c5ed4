"""Every view says what the core knows: until when a process makes ids, whether Redis takes writes, and who died."""

import contextlib
import gc
import itertools
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import snowredis
from snowredis.core.as_json import to_json
from snowredis.core.layout import Layout
from snowredis.errors import ClockSkewed, StoreUnavailable
from snowredis.monitor.conditions import answers, silent_together, status_of
from snowredis.monitor.doctor import diagnose
from snowredis.monitor.lease import Lease, Owner, parse_owner
from snowredis.monitor.pool import Refusal, Snapshot
from snowredis.process.names import owner_text
from snowredis.servers.scripts import text_of
from snowredis.snowflake.generator import SnowflakeGenerator
from snowredis.snowflake.protocol.messages import ids_until_ms
from snowredis.snowflake.protocol.pool_config import PoolConfig, pool_keys
from snowredis.snowflake.protocol.record import EventKind, LeaseRecord
from snowredis.snowflake.protocol.redis_store import RedisStore
from snowredis.testing import ManualClock, memory_pool
from snowredis.worker_pool import WorkerPool
from tests.monitor.conftest import Scripted
from tests.monitor.test_status import FLEET, HOUR_MS, NOW_MS, TTL_MS, expired, info
from tests.support.fake_pool import FakePool
from tests.support.holder import create
from tests.support.pools import new_pool
from tests.support.records import change_record
from tests.support.servers import RedisServer
from tests.support.waiting import eventually
from tests.web.conftest import client_of

RESERVE_MS = 600_000
LAYOUT_OF_TWO = Layout(timestamp_bits=41, backup_bits=2, worker_bits=1, sequence_bits=12)


# --- until when it makes ids -----------------------------------------------------------------------


def test_the_end_of_the_layout_is_the_end_of_ids(clock: ManualClock, fake: FakePool) -> None:
    layout = snowredis.Layout(timestamp_bits=30, sequence_bits=10, epoch_ms=clock.server_time_ms() - (1 << 30) + 9_000)
    ids = fake.connect(layout=layout)
    ids.next_id()
    assert ids.lasts_until_ms == layout.end_ms
    (seen,) = fake.view.workers()
    assert seen.ids_until_ms == layout.end_ms


class Watched(FakePool):
    """A generator on the scripts, on a test clock; its Redis can be away from it, and is there for those who look."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        super().__init__(monkeypatch)
        self.away = False
        constants = {"ttl_ms": TTL_MS, "outage_reserve_ms": RESERVE_MS} | settings
        self.config = PoolConfig(name="test", layout=LAYOUT_OF_TWO, **constants)
        self.store = RedisStore(self.client, self.config)
        self.ids = self.generator()

    def generator(self) -> SnowflakeGenerator:
        store: Any = RedisStore(self.client, self.config)
        run = store.run

        def or_refuse(*args: Any) -> Any:
            if self.away:
                raise StoreUnavailable("test", "it is away")
            return run(*args)

        store.run = or_refuse
        return SnowflakeGenerator(store, clock=self.clock)

    def create(self) -> None:
        create(self.store, self.clock.server_time_ms())

    def beat(self, ms: int) -> None:
        for _ in range(ms // 20_000):
            self.clock.advance(20_000)
            self.ids._beat()

    def lose(self) -> None:
        """Let Redis lose the pool while it is away from the generator, and wait for the floor."""
        self.away = True
        self.clock.advance(4 * TTL_MS)
        self.client.flushall()
        self.away = False
        self.beat(60_000)

    def said(self) -> dict[str, int]:
        """Return until when the generator makes ids, by itself and by all who look; 0: it makes none."""
        now_ms, ids = self.clock.server_time_ms(), self.ids
        offset_ms = ids.clock_reading.now_ms - now_ms
        said = {"generator": ids.lasts_until_ms and ids.lasts_until_ms - offset_ms}
        snapshot = self.view.snapshot()
        held = ids._lease_manager.held
        if held is None:
            return said | {"view": snapshot.lanes_until_ms}
        text = self.client.hget(pool_keys("test")[0], f"w:{held.lease.worker}")
        record = LeaseRecord.parse(text.decode())
        assert record is not None
        lane = (0, parse_owner(record.owner).lane_until_ms)
        said["record"] = ids_until_ms(record.until_ms, record.outage_lane_ms, lane) - offset_ms
        (seen,) = (each for each in snapshot.living if each.worker == held.lease.worker)
        said["view"] = seen.ids_until_ms
        return said

    def said_after_the_lease(self) -> dict[str, int]:
        """Return the same when the lease has ended and a script has written that, without a renewal since."""
        self.away = True
        offset_ms, held = self.ids.clock_reading.now_ms - self.clock.server_time_ms(), self.ids._lease_manager.held
        assert held is not None
        self.clock.advance(TTL_MS + 1_000)
        self.away = False
        with self.generator():
            self.away = True
        (ended,) = (each for each in self.view.snapshot().ended if each.worker == held.lease.worker)
        (written,) = (
            each
            for each in self.view.events()
            if each.kind == EventKind.EXPIRED and (each.worker, each.at_ms) == (ended.worker, ended.end_ms)
        )
        assert (ended.ids_until_ms > self.clock.server_time_ms()) is self.ids.ready
        lasts_ms = self.ids.lasts_until_ms - offset_ms
        of_event = written.lease("expired").ids_until_ms
        return {"generator": lasts_ms, "view": ended.ids_until_ms, "event": of_event}


def claimed(it: Watched) -> None:
    it.create()
    it.ids.next_id()
    # a lease that is never renewed counts as one whose claim had no reply
    it.clock.advance(500)
    it.ids._beat()


def renewed(it: Watched) -> None:
    claimed(it)
    it.beat(60_000)


def after_a_gap(it: Watched) -> None:
    """Have an outage lane that opens later: Redis does not know the pool, and somebody may use that lane until then."""
    it.ids.next_id()
    it.beat(60_000)


def lane_has_opened(it: Watched) -> None:
    after_a_gap(it)
    it.beat(RESERVE_MS)


def lost_lane_and_another_lease(it: Watched) -> None:
    renewed(it)
    it.lose()
    it.beat(20_000)


def lost_lane_that_opens_later(it: Watched) -> None:
    after_a_gap(it)
    it.beat(RESERVE_MS // 2)
    it.lose()
    # the lane of the lease that was lost is open by now, that of the other one opens later
    it.beat(RESERVE_MS // 2)


def lost_lane_and_no_lease(it: Watched) -> None:
    renewed(it)
    it.away = True
    it.clock.advance(4 * TTL_MS)
    it.away = False
    others = [it.generator() for _ in range(2)]
    for other in others:
        other.claim()
    it.ids._beat()
    assert it.ids._lease_manager.held is None


def clock_ahead(it: Watched) -> None:
    it.clock.step(2_000)
    renewed(it)


def clock_behind(it: Watched) -> None:
    it.clock.step(-60_000)
    renewed(it)


def returned(it: Watched) -> None:
    renewed(it)
    it.away = True
    it.clock.advance(4 * TTL_MS)
    it.view.snapshot()
    it.away = False
    it.beat(20_000)


def released(it: Watched) -> None:
    renewed(it)
    it.ids.suspend()


# what happens -> whether the outage lane counts, by which ids go on for long
STATES = [
    (claimed, {}, True),
    (claimed, {"outage_reserve_ms": 0}, False),
    (renewed, {}, True),
    (after_a_gap, {}, False),
    (lane_has_opened, {}, True),
    (lost_lane_and_another_lease, {}, True),
    (lost_lane_that_opens_later, {}, True),
    (lost_lane_and_no_lease, {}, True),
    (clock_ahead, {}, True),
    (clock_behind, {}, True),
    (returned, {}, True),
    (released, {}, False),
]


@pytest.mark.parametrize(("happens", "settings", "goes_on"), STATES)
def test_generator_record_event_and_view_say_the_same(
    monkeypatch: pytest.MonkeyPatch, happens: Callable[[Watched], None], settings: dict[str, Any], goes_on: bool
) -> None:
    it = Watched(monkeypatch, **settings)
    happens(it)
    said = it.said()
    assert len(set(said.values())) == 1, said
    assert (said["view"] > it.clock.server_time_ms() + 2 * TTL_MS) is goes_on
    if "record" in said:
        later = it.said_after_the_lease()
        assert set(later.values()) == set(said.values()), later
    it.away = False
    it.ids.close()


@pytest.mark.parametrize(
    ("ahead_ms", "makes"), [(-3_600_000, True), (-10_000, True), (10_000, True), (3_600_000, False)]
)
def test_a_worker_whose_clock_is_an_hour_ahead_is_not_healthy_and_says_so(
    clock: ManualClock, fake: FakePool, caplog: pytest.LogCaptureFixture, ahead_ms: int, makes: bool
) -> None:
    first = fake.connect(label="right")
    first.next_id()
    # the pool is older than the hour
    clock.advance(3_600_000)
    first._beat()
    skewed = ManualClock(clock.server_time_ms())
    skewed.step(ahead_ms)
    ids = fake.connect(label="skewed", clock=skewed)
    with caplog.at_level(logging.ERROR, "snowredis"):
        for _ in range(3):
            skewed.advance(1_000)
            clock.advance(1_000)
            if makes:
                ids.next_id()
            else:
                with pytest.raises(ClockSkewed):
                    ids.next_id()
            ids._beat()
    seen = fake.view
    (state,) = [each.state for each in seen.workers() if each.label == "skewed"]
    assert (state, ids.ready) == ("alive" if makes else "no-ids", makes)
    codes = [condition.code for condition in status_of(seen.snapshot()).conditions if condition.level == "critical"]
    assert codes == ([] if makes else ["without-ids"])
    # once, not for each call
    assert len([record for record in caplog.records if "no ids: the clock" in record.getMessage()]) == (not makes)


def test_a_worker_whose_last_call_was_refused_makes_no_ids(clock: ManualClock, fake: FakePool) -> None:
    ids = fake.connect(clock_policy="wait", max_wait_ms=0)
    ids.next_id()
    clock.step(-100_000)
    with pytest.raises(snowredis.ClockMovedBack):
        ids.next_id()
    ids._beat()
    (seen,) = fake.view.workers()
    assert (seen.state, seen.owner.refused) == ("no-ids", "ClockMovedBack")
    clock.step(100_001)
    ids.next_id()
    ids._beat()
    assert fake.view.workers()[0].state == "alive"


def test_a_worker_that_had_no_ids_in_an_outage_has_them_with_the_first_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    it = Watched(monkeypatch, outage_reserve_ms=0)
    it.create()
    it.ids.next_id()
    it.away = True
    it.clock.advance(TTL_MS + 1_000)
    with pytest.raises(snowredis.LeaseExpired):
        it.ids.next_id()
    it.away = False
    it.ids._beat()
    (seen,) = it.view.workers()
    assert (seen.state, it.ids.ready) == ("alive", True)
    it.ids.close()


def test_a_reply_that_stalls_is_no_wrong_clock(clock: ManualClock) -> None:
    memory = memory_pool(clock=clock)
    ids = memory.connect(ttl=2)
    ids.next_id()
    store: Any = memory._stores["test"]
    ask, stalls = store.ask, iter([2_300])

    def slow(*request: Any) -> Any:
        reply = ask(*request)
        clock.advance(next(stalls, 0))
        return reply

    store.ask = slow
    clock.advance(1_999)
    ids.next_id()
    clock.advance(1)
    assert ids.next_id()
    assert next(stalls, None) is None
    stalls = itertools.repeat(2_300)
    clock.advance(2_000)
    with pytest.raises(snowredis.LeaseExpired, match="come after the end of what they reserve"):
        ids.next_id()


# --- who died, who is silent, who ended ------------------------------------------------------------


def ended(number: int, ago_ms: int = 40_000, **values: Any) -> Lease:
    """A lease whose last heartbeat was *ago_ms* ago, and whose process may make ids."""
    return expired(number, ago_ms - TTL_MS, **({"outage_until_ms": NOW_MS + HOUR_MS} | values))


def snapshot_of(*leases: Lease, living: int = 0) -> Snapshot:
    return Snapshot(info(), FLEET[:living], leases)


@pytest.mark.parametrize(("silent", "living", "is_one"), [(7, 0, True), (5, 3, True), (4, 4, False), (2, 0, False)])
def test_silence_of_most_workers_at_once_is_one_condition(silent: int, living: int, is_one: bool) -> None:
    leases = (ended(20 + number, 40_000 + 500 * number) for number in range(silent))
    status = status_of(snapshot_of(*leases, living=living))
    assert [condition.code for condition in status.conditions] == ["no-renewals" if is_one else "silent"]
    assert status.headline == ("no worker renews" if is_one else f"{silent} silent")
    assert (status.level == "critical") is is_one
    assert ("do not restart workers" in status.conditions[0].advice) is is_one


def test_the_heartbeat_of_a_pool_with_a_long_failover_slack_is_that_of_its_workers() -> None:
    config = PoolConfig(name="orders", failover_slack_ms=17_500)
    pool = info(config=config)
    assert pool.heartbeat_ms == config.heartbeat_ms == to_json(pool)["heartbeat_ms"] == TTL_MS // 6
    leases = tuple(ended(number, 40_000 + 4_000 * number) for number in range(4))
    assert silent_together(Snapshot(info(), (), leases)) is not None
    # further apart than two heartbeats
    assert silent_together(Snapshot(pool, (), leases)) is None
    for ago_ms, awaits in ((TTL_MS // 6 - 1, True), (TTL_MS // 6, False)):
        raised_ms = NOW_MS - ago_ms
        raised = replace(pool, incarnation=f"{raised_ms}-1", floor_ms=raised_ms + config.floor_ms)
        assert Snapshot(raised, ()).awaits_adoptions is awaits
        # pool create: the floor is in the past
        assert not Snapshot(replace(raised, floor_ms=raised_ms), ()).awaits_adoptions


def test_a_pool_that_was_just_created_may_be_asked_about_a_restart(server: RedisServer, pool_name: str) -> None:
    new_pool(server.url, pool_name, ttl=300)
    view = WorkerPool(server.url, pool_name)
    with contextlib.closing(view), snowredis.connect(server.url, pool=pool_name, ttl=300) as ids:
        ids.next_id()
        (restart, _) = view.read().answers
        assert (restart.answer, restart.text[:30]) == ("yes", "yes: the only worker goes on f")


def test_without_outage_lanes_workers_that_fell_silent_together_are_one_condition_too() -> None:
    leases = [ended(number, outage_until_ms=0) for number in range(7)]
    (condition,) = status_of(snapshot_of(*leases)).conditions
    assert (condition.code, "for some of them that is over" in condition.text) == ("no-renewals", True)


def test_a_refusal_of_this_process_is_known_before_anybody_is_silent() -> None:
    def first(since_ms: int) -> tuple[str, str, str]:
        refusal = Refusal("OOM command not allowed", since_ms)
        status = status_of(Snapshot(info(), FLEET, refusal=refusal))
        assert "OOM command not allowed" in status.conditions[0].text
        return status.conditions[0].code, status.level, status.headline

    assert first(NOW_MS) == ("no-renewals", "critical", "no worker renews")
    # others renew
    assert first(NOW_MS - 30_000) == ("no-renewals", "warning", "this service does not renew")
    # Redis is just back: that was one of the attempts that failed in the outage
    back = Snapshot(info(), FLEET, refusal=Refusal("connection refused", NOW_MS), is_back=True)
    assert status_of(back).level == "ok"
    # whoever looks then, with or without a memory of the outage, is told the same of a restart
    silent = Snapshot(info(), tuple(each._replace(state="silent") for each in FLEET))
    assert answers(silent) == answers(replace(silent, is_back=True))
    assert answers(silent)[0].answer == "unknown"


@pytest.mark.parametrize("reserve_ms", [0, RESERVE_MS])
def test_a_claim_that_was_never_renewed_is_no_death_but_its_process_may_make_ids(
    server: RedisServer, scripted: Scripted, reserve_ms: int
) -> None:
    """Its reply was lost, or Redis is full since then."""
    seen, holder = scripted(outage_reserve_ms=reserve_ms)
    holder().claim()
    now_ms = seen.info().now_ms
    change_record(server.client(), seen.name, 0, lease_end_ms=now_ms, until_ms=now_ms)
    snapshot = seen.snapshot()
    assert (snapshot.leases, snapshot.lanes_until_ms > now_ms) == ((), reserve_ms > 0)
    if reserve_ms:
        later = replace(snapshot, info=replace(snapshot.info, incarnation="1-1"))
        assert answers(later)[0].answer == "unknown"


# --- does Redis take writes ------------------------------------------------------------------------


def refuse_writes(server: RedisServer, how: str) -> None:
    client = server.client()
    if how == "full":
        client.config_set("maxmemory", 1)
    elif how == "read-only":
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
    else:
        client.config_set("min-replicas-to-write", 1)


def test_a_process_with_many_generators_counts_as_one() -> None:
    """One of six processes hangs: it has as many leases as the others together."""
    leases = [ended(number)._replace(owner=Owner("web-9", 1, outage=1)) for number in range(5, 10)]
    snapshot = snapshot_of(*leases, living=5)
    assert silent_together(snapshot) is None
    status = status_of(snapshot)
    assert status.headline == "1 silent"
    assert "1 process with 5 worker ids" in status.conditions[0].text
    found = [each._replace(state="died") for each in leases]
    assert status_of(snapshot_of(*found, living=5)).headline == "5 workers alive; 1 died in the last hour"


def test_a_process_that_has_another_lease_lives() -> None:
    lost = ended(20)._replace(owner=Owner("web-1", 100))
    assert silent_together(snapshot_of(lost, ended(21), ended(22), living=2)) is None
    assert silent_together(snapshot_of(lost, ended(21), ended(22), ended(23), living=2)) is not None


def test_a_lane_of_a_lost_lease_keeps_a_process_silent(server: RedisServer, scripted: Scripted) -> None:
    """It goes on in the outage lane of a lease that it lost, and its later lease has none: it has not died."""
    seen, holder = scripted(outage_reserve_ms=0)
    holder().claim()
    now_ms = seen.info().now_ms
    owner = owner_text("web-1", 7, "", generator="ab", lane_until=now_ms + HOUR_MS)
    times = {"lease_end_ms": now_ms, "until_ms": now_ms, "claimed_ms": now_ms - 9, "renewed_ms": now_ms - 5}
    change_record(server.client(), seen.name, 0, owner=owner, **times)
    snapshot = seen.snapshot()
    assert [each.ids_until_ms for each in snapshot.ended] == [now_ms + HOUR_MS]


@pytest.mark.usefixtures("each_generator_is_a_process")
@pytest.mark.parametrize("how", ["full", "read-only", "too few replicas"])
def test_a_redis_that_refuses_writes_is_one_fault_for_every_view(own_server: RedisServer, how: str) -> None:
    pytest.importorskip("starlette")
    from snowredis.web.service import create_app

    new_pool(own_server.url, "orders", ttl=1.5)
    with contextlib.ExitStack() as stack:
        fleet = [stack.enter_context(snowredis.connect(own_server.url, pool="orders", ttl=1.5)) for _ in range(3)]
        client = stack.enter_context(client_of(create_app(own_server.url, pools=["orders"])))
        reader = stack.enter_context(contextlib.closing(WorkerPool(own_server.url, "orders")))

        def renewed() -> int:
            return sum(each.renewed_ms > each.claimed_ms for each in reader.workers())

        eventually(lambda: renewed() == 4, "a heartbeat of each")
        assert client.get("/workers").json()["status"]["level"] == "ok"
        refuse_writes(own_server, how)

        def codes() -> list[str]:
            return [one["code"] for one in client.get("/workers").json()["status"]["conditions"]]

        eventually(lambda: codes()[:1] == ["no-renewals"], "the fault")
        # longer than all leases
        ended_s = time.monotonic() + 2.5
        while time.monotonic() < ended_s:
            for ids in fleet:
                ids.next_id()
            assert client.get("/id").status_code == client.get("/readyz").status_code == 200
            time.sleep(0.1)
        report = client.get("/workers").json()
        assert report["status"]["headline"] == "no worker renews"
        assert [lease["state"] for lease in report["leases"]] == ["expired"] * 4
        assert [answer["answer"] for answer in report["answers"]] == ["unknown", "no"]
        assert "do not restart workers" in report["status"]["conditions"][0]["advice"]
        # a reader that has no lease of its own sees it, too
        assert status_of(reader.snapshot()).headline == "no worker renews"
        found = {each.code: each.level for each in diagnose(own_server.url, "orders")}
        assert (found["writes"], found["restart"]) == ("critical", "unknown")
        assert all(ids.in_outage_lane and ids.renewal_failure for ids in fleet)
        for name, value in (("maxmemory", 0), ("min-replicas-to-write", 0)):
            own_server.client().config_set(name, value)
        own_server.client().execute_command("REPLICAOF", "NO", "ONE")
        eventually(lambda: codes() in ([], ["floor"]), "the end of it", ignored=(TypeError,))


# --- other settings, full memory, and what became of an id -----------------------------------------


def test_processes_with_other_settings_say_so_and_each_is_named(
    server: RedisServer, pool_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    new_pool(server.url, pool_name)
    for label in ("web", "jobs", "web"):
        with contextlib.closing(snowredis.connect(server.url, pool=pool_name, label=label, ttl=7)) as ids:
            for _ in range(3):
                with pytest.raises(snowredis.LayoutMismatch):
                    ids.next_id()
    lines = [record.getMessage() for record in caplog.records if "no ids: " in record.getMessage()]
    assert len(lines) == 3
    assert all("30 s" in line and "7 s" in line for line in lines), lines
    with contextlib.closing(WorkerPool(server.url, pool_name)) as seen:
        assert seen.info().mismatch_by.count("(web)") + seen.info().mismatch_by.count("(jobs)") >= 2


def test_ids_of_workers_that_were_adopted_after_a_wipe_have_a_certain_maker(own_server: RedisServer) -> None:
    new_pool(own_server.url, "orders")
    with contextlib.closing(WorkerPool(own_server.url, "orders")) as seen:
        fleet = [snowredis.connect(own_server.url, pool="orders", label=f"w{number}") for number in range(2)]
        made = [ids.next_id() for ids in fleet]
        gone = snowredis.connect(own_server.url, pool="orders", label="gone")
        lost_id = gone.next_id()
        gone.close()
        own_server.client().flushall()
        for ids in fleet:
            ids._beat()
        kinds = [event.kind for event in seen.events()]
        assert kinds == [EventKind.FLOOR, EventKind.ADOPTED, EventKind.ADOPTED]
        for number, an_id in enumerate(made):
            found = seen.whois(an_id)
            assert (found.certainty, found.maker and found.maker.label) == ("certain", f"w{number}"), found.reason
            # it was claimed before the id was made, and Redis does not know any more when
            assert found.maker is not None
            assert found.maker.claimed_ms == 0
        found = seen.whois(lost_id)
        assert found.certainty == "unknown"
        for ids in fleet:
            ids.close()


def test_a_lease_that_came_back_in_an_older_state_and_is_adopted_counts_as_no_end(own_server: RedisServer) -> None:
    new_pool(own_server.url, "orders")
    client, (key, leases, _) = own_server.client(), pool_keys("orders")
    with (
        contextlib.closing(WorkerPool(own_server.url, "orders")) as seen,
        snowredis.connect(own_server.url, pool="orders") as ids,
    ):
        ids.next_id()
        # as a snapshot of before the last renewals has it, in another server
        record = LeaseRecord.parse(text_of(client.hget(key, "w:0") or b""))
        assert record is not None
        older = record._replace(lease_end_ms=record.claimed_ms + 1)
        client.hset(key, mapping={"w:0": older.pack(), "run_id": "0" * 40})
        client.zadd(leases, {"0": older.lease_end_ms})
        ids._beat()
        info, kinds = seen.info(), [event.kind for event in seen.events()]
        assert kinds == [EventKind.FLOOR, EventKind.CLAIMED, EventKind.FLOOR, EventKind.ADOPTED]
        assert (info.claims, info.adopted, info.expired, info.returned) == (1, 1, 0, 0)
        # the record says when it was claimed
        assert seen.workers()[0].claimed_ms == record.claimed_ms


def test_a_generator_that_python_deleted_is_released_with_the_ids_that_it_made(
    server: RedisServer, pool_name: str
) -> None:
    new_pool(server.url, pool_name, ttl=0.5)
    ids = snowredis.connect(server.url, pool=pool_name, ttl=0.5)
    for _ in range(1_000):
        ids.next_id()
    made = ids.ids_made
    del ids
    gc.collect()
    with contextlib.closing(WorkerPool(server.url, pool_name)) as seen:
        released = [EventKind.RELEASED]
        eventually(lambda: [event.kind for event in seen.events()][-1:] == released, "the release")
        stats = seen.events()[-1].stats
        assert stats is not None
        assert stats.ids_made == made >= 1_000


@pytest.mark.parametrize(("slack_ms", "away_ms"), [(15_000, 21_000), (22_000, 6_000)])
def test_a_worker_that_lost_its_lease_to_a_failover_is_not_silent(
    monkeypatch: pytest.MonkeyPatch, slack_ms: int, away_ms: int
) -> None:
    """Its record stays until the lease would end, while it waits for the floor, as it wrote itself."""
    it = Watched(monkeypatch, failover_slack_ms=slack_ms)
    renewed(it)
    held = it.ids._lease_manager.held
    assert held is not None
    # a deposed master may have answered for so long: this reservation is too old to be adopted
    it.away = True
    it.clock.advance(away_ms)
    it.client.hset(pool_keys("test")[0], "run_id", "0" * 40)
    it.away = False
    it.ids._beat()
    snapshot = it.view.snapshot()
    assert [each.kind for each in it.view.events()][-1] == EventKind.LOST
    assert snapshot.leases == ()
    status = status_of(snapshot)
    assert [each.code for each in status.conditions] == ["floor"], status
    assert snapshot.makes_ids
    # another failover: it waits already, and loses nothing
    it.clock.advance(TTL_MS)
    it.client.hset(pool_keys("test")[0], "run_id", "1" * 40)
    it.ids._beat()
    for later_ms in (0, 15_000):
        it.clock.advance(later_ms)
        snapshot = it.view.snapshot()
        assert (snapshot.makes_ids, answers(snapshot)[0].answer) == (True, "unknown")
        assert [(each.code, each.level) for each in status_of(snapshot).conditions] == [("floor", "warning")]
    it.beat(60_000)
    seen = it.view.snapshot()
    assert ([each.state for each in seen.leases], status_of(seen).level) == (["alive"], "ok")
    it.ids.close()
