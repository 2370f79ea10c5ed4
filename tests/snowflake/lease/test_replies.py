"""Replies of the scripts as values, and texts that no script replies."""

from __future__ import annotations

from snowredis.servers.scripts import parse_reply
from snowredis.snowflake.replies import Absent, Alarm, AlarmReason, Created, Exists, Granted, Lost, Seen

GRANTED = ["granted", "1000", "Fv2", "3", "900", "", "17", "61000", "1000,2000", "17:1", "99000"]


def test_replies_with_the_same_values_are_equal() -> None:
    reply, again = parse_reply(GRANTED, [Granted]), parse_reply(GRANTED, [Granted])
    assert reply == again
    assert hash(reply) == hash(again)
    assert reply != parse_reply([*GRANTED[:-1], "99001"], [Granted])
    # replies of two classes differ, even with the same values
    assert parse_reply(["exists", *GRANTED[1:6]], [Exists]) != parse_reply(["absent", *GRANTED[1:6]], [Absent])


def test_a_reply_is_shown_with_its_values() -> None:
    reply = parse_reply(GRANTED, [Lost, Granted])
    assert isinstance(reply, Granted)
    assert repr(reply).startswith("Granted(redis_ms=1000, incarnation='Fv2', version=3, floor_ms=900, alarm=None")
    assert reply.seen == Seen("Fv2", 3)


def test_an_alarm_comes_with_the_reply_that_raised_it() -> None:
    code = next(iter(AlarmReason))
    reply = parse_reply(["exists", "1000", "Fv2", "3", "900", f"{code} 17 42"], [Created, Exists])
    assert reply.alarm == Alarm(code, 17, 42)
