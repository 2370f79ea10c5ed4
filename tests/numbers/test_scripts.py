"""Rules of the scripts of numbers, each shown by a play on one Redis in memory.

Each play hands out numbers. With the library's scripts no number comes twice, and without the rule one does.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from snowredis.errors import ConfigError
from snowredis.numbers.formats import Calendar, Period
from snowredis.numbers.protocol import GrantedNumbers, OpenRequest, Shut, TakeRequest
from snowredis.numbers.stores import TagStore
from tests.lab.simulation.redis_model import RedisModel
from tests.lab.simulation.world import World

Edit = Callable[[str], str]
SLACK_MS, SKEW_MS, SETTLE_MS = 3_000, 2_500, 6_000
HOUR_MS = 3_600_000


class Stage:
    """A server with a tag, and what was handed out. *edit* changes the scripts."""

    def __init__(self, edit: Edit) -> None:
        self.server = RedisModel(World(1), "redis")
        self.handed: list[str] = []
        self._edit = edit

    def run(self, script: Any, keys: Sequence[str], args: Sequence[str | int]) -> Sequence[str]:
        return self.server.eval(self._edit(script.source), keys, args)

    def pass_ms(self, ms: int) -> None:
        self.server.offset_us += ms * 1000

    def now_ms(self) -> int:
        return self.server.now_us // 1000

    @contextlib.contextmanager
    def lost(self) -> Iterator[None]:
        """Restart the server with the data of before the block."""
        before = self.server.copy_data()
        yield
        self.server.restart(before)

    @contextlib.contextmanager
    def failed_over(self, data: Any = None) -> Iterator[None]:
        """Another server, with *data*, answers in the block, and the deposed one again afterwards."""
        deposed = self.server.copy_data(), self.server.run_id, self.server.replid
        self.server.restart(self.server.copy_data() if data is None else data)
        yield
        self.server.data, self.server.run_id, self.server.replid = deposed

    def restart(self) -> None:
        self.server.restart(self.server.copy_data())

    def take(self, wanted: int = 1, *, seen: int = 0, database: int = 0) -> Any:
        """Take plain numbers."""
        store = TagOnStage(self, "period=ever", database)
        return self.note("", store.send(TakeRequest(seen=seen, wanted=wanted)))

    def say(self, action: Any, number: int = 1, stride: int = 1) -> Any:
        """Create the tag, or open it, for plain numbers."""
        return TagOnStage(self, "period=ever").send(OpenRequest(action, from_number=number, stride=stride))

    def dated(self, action: Any, wanted: int = 1, *, seen: int = 0, database: int = 0, written: str = "") -> Any:
        """Take numbers of the hour, whose texts are *written* like this, or create the tag, or open the hour."""
        period: Period = Calendar("hour", "UTC").at(self.now_ms())
        period = period._replace(around=written or f"{period.label}-#")
        store = TagOnStage(self, "period=hour", database, "B" if written else "A")
        if action != "take":
            return store.send(OpenRequest(action, period, wanted))
        return self.note(period.around, store.send(TakeRequest(period, seen, wanted, wanted)))

    def note(self, around: str, reply: Any) -> Any:
        if isinstance(reply, GrantedNumbers):
            self.handed += [f"{around} {each}" for each in reply.numbers]
        return reply


class TagOnStage(TagStore):
    where = "stage"

    def __init__(self, stage: Stage, periods: str, database: int = 0, form: str = "") -> None:
        super().__init__("t", periods, format=form, slack_ms=SLACK_MS, database=database)
        self._stage = stage

    def run(self, script: Any, keys: Sequence[str], args: Sequence[str | int]) -> Sequence[str]:
        return self._stage.run(script, keys, args)


# --- plays ---------------------------------------------------------------------------------------------


def repeated_creation(stage: Stage) -> None:
    stage.say("create")
    stage.take(10)
    stage.server.data.clear()
    stage.take(seen=11)
    # it is not new: a process has shown numbers of it
    stage.say("create")
    stage.take(10)


def creation_after_a_failover(stage: Stage) -> None:
    """A person creates a tag again that the new master does not have, while the deposed one still hands out."""
    stage.say("create")
    stage.take(10)
    with stage.failed_over({}):
        stage.say("create", 11)
        stage.take(2)
    stage.take()


def low_word(stage: Stage) -> None:
    stage.say("create")
    stage.take(10)
    stage.restart()
    assert isinstance(stage.take(), Shut)
    stage.pass_ms(SLACK_MS)
    stage.say("open", 1)
    stage.take()


def lost_stride(stage: Stage) -> None:
    """The other server hands out even numbers; this one loses its tag, and then its last writes."""
    stage.say("create", stride=2)
    stage.handed.append(" 4")
    stage.server.data.clear()
    stage.take(seen=3)
    stage.restart()
    stage.take()
    stage.pass_ms(SLACK_MS)
    stage.say("open", 3)
    stage.take(3)
    stage.say("create", 3, 2)
    stage.take(3)


def stored_stride(stage: Stage) -> None:
    """A person opens one of two servers at a number that the other one hands out."""
    stage.say("create", stride=2)
    stage.handed.append(" 4")
    stage.say("open", 4)
    stage.take()


def copied_tag(stage: Stage) -> None:
    stage.say("create")
    copy = stage.server.copy_data()
    stage.take()
    stage.server.data = copy
    stage.take(database=1)


def counts(stage: Stage) -> None:
    stage.dated("create")
    for _ in range(3):
        stage.dated("take", 4)
        stage.pass_ms(HOUR_MS // 2)


def wipe(stage: Stage) -> None:
    stage.dated("create")
    stage.dated("take", 3)
    stage.server.data.clear()
    stage.dated("take")


def lost_numbers(stage: Stage, seen: int = 0) -> None:
    """Redis loses three numbers in a restart, and another one is asked for."""
    stage.dated("create")
    with stage.lost():
        stage.dated("take", 3)
    stage.dated("take", seen=seen)


def rollback(stage: Stage) -> None:
    stage.dated("create")
    before = stage.server.copy_data()
    stage.dated("take", 3)
    stage.dated("take", 4)
    stage.server.data = before
    # by the process that saw the first three
    stage.dated("take", seen=4)


def shown_and_opened(stage: Stage) -> None:
    """A process shows what it saw after a loss, and a person says too little."""
    lost_numbers(stage, seen=4)
    stage.pass_ms(SLACK_MS + SETTLE_MS)
    stage.dated("open", 1)
    stage.dated("take")


def boundary(stage: Stage) -> None:
    """A loss just before a period ends: another server's clock, or a deposed master, was in the next one already."""
    stage.pass_ms(HOUR_MS - 1 - stage.now_ms() % HOUR_MS)
    stage.dated("create")
    with stage.lost():
        stage.pass_ms(SKEW_MS // 2)
        stage.dated("take", 3)
        stage.pass_ms(-SKEW_MS // 2)
    assert isinstance(stage.dated("take"), Shut)
    stage.pass_ms(SKEW_MS)
    stage.dated("take")


def word(stage: Stage) -> None:
    """A person opens a period right after a failover, while the deposed master still hands out its numbers."""
    stage.dated("create")
    stage.dated("take", 3)
    with stage.failed_over():
        stage.dated("take")
        stage.dated("open", 4)
        stage.dated("take")
    stage.dated("take")


def second_loss(stage: Stage) -> None:
    """A period that was opened after a loss is closed by the next one."""
    stage.dated("create")
    stage.restart()
    stage.dated("take")
    stage.pass_ms(SLACK_MS + SETTLE_MS)
    stage.dated("open", 1)
    with stage.lost():
        stage.dated("take", 3)
    stage.dated("take")
    stage.dated("take")


def format_after_a_loss(stage: Stage) -> None:
    """A text that was lost would be written again in another format, in a later period."""
    label = Calendar("hour", "UTC").at(stage.now_ms()).label
    lost_numbers(stage)
    stage.pass_ms(2 * HOUR_MS)
    with contextlib.suppress(ConfigError):
        stage.dated("take", written=f"{label}-#")


def open_and_take(stage: Stage) -> None:
    stage.dated("take")
    stage.dated("open", 1)
    stage.dated("take")


def two_failovers(stage: Stage) -> None:
    """A person opens a period when the slack of a first failover is over, right after a second one."""
    stage.dated("create")
    stage.restart()
    stage.dated("take")
    stage.pass_ms(SLACK_MS + SETTLE_MS)
    with stage.failed_over():
        open_and_take(stage)
    open_and_take(stage)


class Rule(NamedTuple):
    """A play, and the text of a script that it needs, with what stands there without the rule."""

    play: Callable[[Stage], None]
    before: str
    after: str


RULES: Mapping[str, Rule] = {
    "only what is absent, and of which no process showed numbers, is new": Rule(
        repeated_creation, "if used then return done('exists') end", "redis.call('HDEL', KEYS[1], 'n:')"
    ),
    "what may be lost is created when no deposed master answers": Rule(
        creation_after_a_failover, "if from > 1 and wait_ms() > 0 then", "if false then"
    ),
    "a tag never opens below what it has handed out": Rule(
        low_word, "aligned(math.max(next_number, from))", "aligned(from)"
    ),
    "a tag whose stride is lost is created, and not opened": Rule(
        lost_stride,
        "if stride == 0 then return done('absent') end",
        "if stride == 0 then stride = 1 put('stride', '1') end",
    ),
    "a tag opens at a number that it hands out": Rule(stored_stride, "return over == 0 and n or", "return n or"),
    "a copy in another database is closed": Rule(copied_tag, "elseif v[3] ~= database then", "elseif false then"),
    "a number of a period is counted once": Rule(counts, "next_number = first + count * stride", "next_number = first"),
    "a tag that Redis does not know is closed": Rule(wipe, "  if lost then\n", "  if lost and known then\n"),
    "numbers of another server are closed": Rule(lost_numbers, "elseif v[2] ~= id then", "elseif false then"),
    "numbers that a process saw are a loss if Redis does not know them": Rule(
        rollback, "elseif seen > next_number and is_open then", "elseif false then"
    ),
    "numbers that a process saw are not handed out again": Rule(
        shown_and_opened, "  if seen > next_number then\n", "  if false then\n"
    ),
    "periods that another clock may have begun are closed, too": Rule(
        boundary, "= now + SKEW_MS + slack, now, losses", "= now, now, losses"
    ),
    "a period is opened when no deposed master hands out its numbers": Rule(
        word, "if wait_ms() > 0 then return done('settling'", "if false then return done('settling'"
    ),
    "the slack counts from the newest failover": Rule(
        two_failovers,
        "put('closed_at', fmt(now))\n  end\n  if not known",
        "if v[11] == '0' or v[15] == v[13] then put('closed_at', fmt(now)) end\n  end\n  if not known",
    ),
    "a period is opened after one loss": Rule(second_loss, "now, losses + 1, lost, false", "now, losses, lost, false"),
    "texts of another format are refused after a loss": Rule(
        format_after_a_loss, "if lost or closed_until > 0 then", "if false then"
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
