"""The codes that the scripts write are those that Python knows, and each has a text."""

import re

import pytest

from scripts._docs.lua import lua_of
from snowredis.servers.scripts import Reason
from snowredis.snowflake.protocol.administration import POOL_SCRIPTS
from snowredis.snowflake.protocol.messages import Alarm, AlarmReason, LossReason
from snowredis.snowflake.protocol.record import EventKind, FloorReason

LUA = "\n".join(map(lua_of, ("pool", *POOL_SCRIPTS)))


@pytest.mark.parametrize(
    ("codes", "written"),
    [
        (EventKind, r"\bevent(?:_of_end)?\(pool, [\w.]+, ([^,]*'),"),
        (FloorReason, r"\bbegin_incarnation\(pool, (.*'.*), \w+\)|^local function loss_of([\s\S]*?\n)end"),
        (AlarmReason, r"pool\.alarm = table\.concat\(\{ ('[^']*')"),
    ],
)
def test_the_scripts_write_each_code_and_no_other(codes: type[Reason], written: str) -> None:
    found = "\n".join(match[match.lastindex or 0] for match in re.finditer(written, LUA, re.MULTILINE))
    quoted = set(re.findall(r"'([a-z-]+)'", found)) - {"detect"}
    assert quoted == {str(code) for code in codes}


def test_a_refused_renewal_says_why_by_a_code() -> None:
    assert set(re.findall(r"\breason = '([^']*)'", lua_of("renew"))) == {str(code) for code in LossReason}


@pytest.mark.parametrize("codes", [FloorReason, LossReason, AlarmReason])
def test_a_code_is_no_text_and_every_text_is_another(codes: type[Reason]) -> None:
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", code) for code in codes)
    assert len({code.text for code in codes}) == len(codes)
    assert not {code.text for code in codes} & set(codes)


def test_an_alarm_is_read_as_it_is_stored() -> None:
    alarm = Alarm.parse("ids-may-repeat 17 42")
    assert alarm == Alarm(AlarmReason.IDS_MAY_REPEAT, 17, 42)
    assert alarm.text == "ids may have been repeated between 1970-01-01T00:00:00.017Z and 1970-01-01T00:00:00.042Z"
    for text in ("", "ids-may-repeat", "ids-may-repeat 1 x", "other 1 2"):
        with pytest.raises(ValueError, match=r"."):
            Alarm.parse(text)
