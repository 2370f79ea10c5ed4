"""Rules of the scripts of numbers that a play on one Redis in memory shows, step by step; the others are in rules.py.

Each play hands out numbers. With the library's scripts no number comes twice, and without the rule one does.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from snowredis.numbers import NumbersDiffer, tag_store
from snowredis.numbers.fetcher import TagClient
from snowredis.numbers.formats import Calendar
from snowredis.numbers.settings import TagConfig
from snowredis.numbers.stores import DatedStore, NumberStore, ScriptTagStore, dated_keys, load
from snowredis.numbers.tag_store import Closed, GrantedNumbers, OpenRequest, PeriodRequest, Shut
from tests.simulation.redis_model import RedisModel
from tests.simulation.world import World

Edit = Callable[[str], str]
_hex = (f"{number:032x}" for number in itertools.count(1))
SLACK_MS, SKEW_MS = 3_000, 2_500
TAG = TagConfig(tag="t", failover_slack_ms=SLACK_MS)
HOUR_MS = 3_600_000


class Stage:
    """A server with a tag, and what was handed out. *edit* changes the scripts."""

    def __init__(self, edit: Edit) -> None:
        self.world = World(1)
        self.server = RedisModel(self.world, "redis")
        self.handed: list[str] = []
        self._edit = edit

    def run(self, script: Any, keys: Sequence[str], args: Sequence[str | int]) -> Sequence[str]:
        return self.server.eval(self._edit(script.source), keys, args)

    def pass_ms(self, ms: int) -> None:
        self.server.offset_us += ms * 1000

    def now_ms(self) -> int:
        return self.server.now_us // 1000

    # --- segments ---

    def store(self, config: TagConfig = TAG, database: int = 0) -> TagStoreOnStage:
        return TagStoreOnStage(self, config, database)

    def client(self, store: TagStoreOnStage | None = None) -> TagClient:
        return TagClient(store or self.store(), lambda: next(_hex), '{"host":"h"}')

    def take(self, client: TagClient, wanted: int = 10) -> Any:
        return self.note(client, client.ask(wanted))

    def note(self, client: TagClient, reply: Any) -> Any:
        if isinstance(reply, GrantedNumbers):
            numbers = range(reply.from_position, reply.until_position)
            self.handed += [str(client.store.config.number_at(each)) for each in numbers]
        return reply

    def create(self) -> Stage:
        self.store().open(OpenRequest("create"))
        return self

    def word(self, position: int) -> Any:
        self.pass_ms(SLACK_MS)
        return self.store().open(OpenRequest("word", position))

    # --- dated numbers ---

    def dated(self, action: Any, wanted: int = 1, *, seen: int = 1, calendar: str = "hour", database: int = 0) -> Any:
        period = Calendar(calendar, "UTC").at(self.now_ms())  # type: ignore[arg-type]
        reply = DatedStoreOnStage(self, database).send(PeriodRequest(action, period, wanted, seen))
        if isinstance(reply, GrantedNumbers):
            self.handed += [f"{period.label} {each}" for each in range(reply.from_position, reply.until_position)]
        return reply


class TagStoreOnStage(ScriptTagStore):
    where = "stage"

    def __init__(self, stage: Stage, config: TagConfig, database: int = 0) -> None:
        super().__init__(config, database=database)
        self._stage = stage

    def run(self, script: Any, keys: Sequence[str], args: Sequence[str | int]) -> Sequence[str]:
        return self._stage.run(script, keys, args)

    def stored_signature(self) -> str | None:
        raise AssertionError("it is known")

    def reconnect(self, *, also_in_use: bool = True) -> None: ...

    def close(self) -> None: ...


class DatedStoreOnStage(DatedStore):
    def __init__(self, stage: Stage, database: int) -> None:
        signature = "format=2 period=hour zone=UTC durability=detect"
        NumberStore.__init__(self, signature, dated_keys("t"), {"dated": load("dated")})
        self.tag, self._maximum, self._format, self.where = "t", 999, "", "stage"
        self._constants = (0, database, SKEW_MS, SLACK_MS)
        self._stage = stage

    def run(self, script: Any, keys: Sequence[str], args: Sequence[str | int]) -> Sequence[str]:
        return self._stage.run(script, keys, args)


# --- plays ---------------------------------------------------------------------------------------------


def failback(stage: Stage) -> None:
    """A segment whose reply is lost; a failover, after which others get it; then the old master is back."""
    one, other = stage.create().client(), stage.client()
    stage.take(one)
    before = stage.server.copy_data()
    # its reply is lost
    one.store.take(request_of(one, 10))
    with_segment = stage.server.copy_data()
    stage.server.restart(before)
    assert isinstance(stage.take(other), Closed)
    one.ask(0)
    stage.word(0)
    assert isinstance(stage.take(other), GrantedNumbers)
    stage.server.restart(with_segment)
    assert isinstance(one.ask(10), Closed)
    stage.word(0)
    assert isinstance(stage.take(one), GrantedNumbers)


def request_of(client: TagClient, wanted: int) -> tag_store.TakeRequest:
    """Return the next request of *client*, which it will repeat."""
    client._request_id = client._request_id or next(_hex)
    return tag_store.TakeRequest(
        *(client._name, client._received, client._request_id, client._segments, client._incarnation, client.seen),
        *(wanted, '{"host":"h"}'),
    )


def repeated_creation(stage: Stage) -> None:
    one = stage.create().client()
    stage.take(one)
    stage.server.data.clear()
    assert isinstance(one.ask(0), Closed)
    # it is not new: a process has reported numbers of it
    stage.store().open(OpenRequest("create"))
    stage.take(stage.client())


def low_word(stage: Stage) -> None:
    one = stage.create().client()
    stage.take(one)
    stage.server.restart(stage.server.copy_data())
    assert isinstance(one.ask(0), Closed)
    stage.word(0)
    stage.take(stage.client())


def copied_tag(stage: Stage) -> None:
    stage.take(stage.create().client())
    copy = stage.server.copy_data()
    stage.take(stage.client())
    original, stage.server.data = stage.server.data, copy
    stage.take(stage.client(stage.store(database=1)))
    stage.server.data = original
    stage.take(stage.client())


def change_of_a_closed_tag(stage: Stage) -> None:
    """After a failover that lost a segment, a change to a tag that a restart does not close."""
    before = stage.create().server.copy_data()
    stage.take(stage.client())
    stage.server.restart(before)
    assured = TagConfig(tag="t", durability="assured", failover_slack_ms=SLACK_MS)
    stage.store().change(assured)
    for config in (TAG, assured):
        # the tag has one of both
        with contextlib.suppress(NumbersDiffer):
            stage.take(stage.client(stage.store(config)))


def dated_counts(stage: Stage) -> None:
    stage.dated("create")
    for _ in range(3):
        stage.dated("take", 4)
        stage.pass_ms(HOUR_MS // 2)


def dated_wipe(stage: Stage) -> None:
    stage.dated("create")
    stage.dated("take", 3)
    stage.server.data.clear()
    stage.dated("take")


def dated_creation(stage: Stage) -> None:
    stage.dated("create")
    stage.dated("take", 3)
    stage.server.data.clear()
    stage.dated("take", seen=4)
    stage.dated("create")
    stage.dated("take")
    stage.dated("create")
    stage.dated("take")


def dated_restart(stage: Stage) -> None:
    stage.dated("create")
    before = stage.server.copy_data()
    stage.dated("take", 3)
    stage.server.restart(before)
    stage.dated("take")


def dated_rollback(stage: Stage) -> None:
    stage.dated("create")
    before = stage.server.copy_data()
    stage.dated("take", 3)
    stage.dated("take", 4)
    stage.server.data = before
    # by the process that saw the first three
    stage.dated("take", seen=4)


def dated_boundary(stage: Stage) -> None:
    """A loss just before a period ends: another server's clock, or a deposed master, was in the next one already."""
    stage.pass_ms(HOUR_MS - 1 - stage.now_ms() % HOUR_MS)
    stage.dated("create")
    before = stage.server.copy_data()
    stage.pass_ms(SKEW_MS // 2)
    stage.dated("take", 3)
    stage.pass_ms(-SKEW_MS // 2)
    stage.server.restart(before)
    assert isinstance(stage.dated("take"), Shut)
    stage.pass_ms(SKEW_MS)
    stage.dated("take")


def dated_word(stage: Stage) -> None:
    """A person opens a period right after a failover, while the deposed master still hands out its numbers."""
    stage.dated("create")
    stage.dated("take", 3)
    deposed = stage.server.copy_data()
    run_id, replid = stage.server.run_id, stage.server.replid
    stage.server.restart(stage.server.copy_data())
    stage.dated("take")
    stage.dated("open", 4)
    stage.dated("take")
    stage.server.data, stage.server.run_id, stage.server.replid = deposed, run_id, replid
    stage.dated("take")


def dated_copy(stage: Stage) -> None:
    stage.dated("create")
    stage.dated("take", 3)
    copy = stage.server.copy_data()
    stage.dated("take")
    stage.server.data = copy
    stage.dated("take", database=1)


def dated_forgotten(stage: Stage) -> None:
    """The clock goes back over more periods than are kept."""
    stage.dated("create")
    for _ in range(103):
        stage.dated("take")
        stage.pass_ms(HOUR_MS)
    stage.pass_ms(-103 * HOUR_MS)
    stage.dated("take")


class Rule(NamedTuple):
    """A play, and the text of a script that it needs, with what stands there without the rule."""

    play: Callable[[Stage], None]
    before: str
    after: str


RULES: Mapping[str, Rule] = {
    "a repeated request gets no segment of another incarnation": Rule(
        failback, " and r.incarnation == tag.incarnation then", " then"
    ),
    "only what is absent, and of which no process reported numbers, is new": Rule(
        repeated_creation,
        "if how == 'create' and not (tag.reason == 'no-tag' and tag.next == 0) then",
        "if how == 'create' then tag.next = 0 tag.reason = 'no-tag' end if false then",
    ),
    "a tag never opens below what it has handed out": Rule(low_word, "  from = math.max(from, tag.next)\n", ""),
    "a copy in another database is closed": Rule(copied_tag, "if v[11] ~= database then", "if false then"),
    "a closed tag is not changed": Rule(
        change_of_a_closed_tag,
        "if tag.reason ~= '' then\n  commit(tag)\n  return reply_with(tag, 'closed', tag.reason, fmt(tag.closed_at))",
        "if tag.reason ~= '' then tag.reason = ''",
    ),
    "a number of a period is counted once": Rule(dated_counts, "keep(next_number + count)", "keep(next_number)"),
    "dated numbers that Redis does not know are closed": Rule(dated_wipe, "  lost = 'no-tag'\n", ""),
    "only dated numbers of which none was seen are new": Rule(
        dated_creation, "  if used then return done('exists') end\n", "  redis.call('HDEL', KEYS[1], 'n:' .. label)\n"
    ),
    "dated numbers of another server are closed": Rule(
        dated_restart, "elseif not assured and v[2] ~= id then", "elseif false then"
    ),
    "numbers that a process saw are not handed out again": Rule(
        dated_rollback, "elseif seen > stored_next then", "elseif false then"
    ),
    "periods that another clock may have begun are closed, too": Rule(
        dated_boundary, "closed_until, reason = now + skew + slack, lost", "closed_until, reason = now, lost"
    ),
    "a period is opened when no deposed master hands out its numbers": Rule(
        dated_word, "  if wait > 0 then return done('settling', fmt(wait)) end\n", ""
    ),
    "a copy of dated numbers in another database is closed": Rule(
        dated_copy, "elseif v[8] ~= database then", "elseif false then"
    ),
    "a period whose numbers are forgotten is over": Rule(
        dated_forgotten, "local is_past = label <= trimmed", "local is_past = false"
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_no_number_comes_twice_and_without_the_rule_one_does(name: str) -> None:
    rule = RULES[name]
    edited: list[bool] = []

    def edit(source: str) -> str:
        edited.append(rule.before in source)
        return source.replace(rule.before, rule.after)

    stage = Stage(lambda source: source)
    rule.play(stage)
    assert len(set(stage.handed)) == len(stage.handed) > 0
    stage = Stage(edit)
    # a step that the rule refuses may be allowed
    with contextlib.suppress(AssertionError):
        rule.play(stage)
    assert any(edited)
    assert len(set(stage.handed)) < len(stage.handed)
