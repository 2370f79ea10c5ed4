"""Replies of the scripts as values, and texts that no script replies."""

from __future__ import annotations

from snowredis.servers.scripts import parse_reply
from snowredis.snowflake.protocol.replies import Absent, Alarm, AlarmReason, Created, Exists, Granted, Lost, Seen

GRANTED = ["granted", "1000", "3@1-fe", "900", "", "17,61000,99000,1-fe,ab,1000,2000"]


def test_replies_with_the_same_values_are_equal() -> None:
    reply, again = parse_reply(GRANTED, [Granted]), parse_reply(GRANTED, [Granted])
    assert reply == again
    assert hash(reply) == hash(again)
    assert reply != parse_reply([*GRANTED[:-1], "17,61000,99001,1-fe,ab,1000,2000"], [Granted])
    # replies of two classes differ, even with the same values
    assert parse_reply(["exists", *GRANTED[1:5]], [Exists]) != parse_reply(["absent", *GRANTED[1:5]], [Absent])


def test_a_reply_is_shown_with_its_values() -> None:
    reply = parse_reply(GRANTED, [Lost, Granted])
    assert isinstance(reply, Granted)
    assert repr(reply).startswith(
        "Granted(redis_ms=1000, seen=Seen(incarnation='1-fe', version=3), floor_ms=900, alarm=None"
    )
    assert reply.seen == Seen("1-fe", 3)
    assert str(reply.seen) == GRANTED[2]
    assert str(reply.terms) == GRANTED[5]


def test_an_alarm_comes_with_the_reply_that_raised_it() -> None:
    code = next(iter(AlarmReason))
    reply = parse_reply(["exists", "1000", "3@1-fe", "900", f"{code} 17 42"], [Created, Exists])
    assert reply.alarm == Alarm(code, 17, 42)
