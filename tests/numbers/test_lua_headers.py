"""The headers of the scripts of numbers describe what the scripts do; the check is that of the scripts of leases."""

from __future__ import annotations

from importlib import resources

import pytest

from snowredis.numbers.dated_store import FIELDS
from snowredis.numbers.protocol import OpenRequest, TakeRequest
from snowredis.numbers.stores import SCRIPTS, load, lua_of
from tests.lease.test_lua_headers import GLOBALS_READ, Family, globals_of, header_of, problems

SEGMENT = Family("common", ("common",), {"reply_with": ("tag",), "done": (), "keep": ()}, first=3)


DATED = Family("dated", (), {}, first=3)


def test_the_header_of_dated_numbers_says_what_the_script_does() -> None:
    source = lua_of("dated")
    assert problems("dated", source, source, DATED) == []
    # the others are sent by arguments
    assert header_of(source).statuses == {*FIELDS, "signature", "unidentified"}


@pytest.mark.parametrize("name", ["common", *SCRIPTS])
def test_a_header_says_what_the_script_does(name: str) -> None:
    assert problems(name, lua_of(name), lua_of("common"), SEGMENT) == []


@pytest.mark.parametrize(
    ("name", "old", "new", "problem"),
    [
        ("take", "ARGV[16] wanted ", "ARGV[16] many   ", "ARGV[16] is read as int 'wanted"),
        ("take", "--       | limited, ", "-- limited: ", "documented are ['closed', 'copied', 'exhausted'"),
        (
            "open",
            "return done('settling'",
            "return done('waiting'",
            "answers ['exists', 'opened', 'waiting']",
        ),
        ("close", "-- Cost    O(1)", "--", "the cost is not documented"),
        (
            "common",
            "--       | unidentified, reason",
            "-- unidentified: reason",
            "answers ['signature', 'unidentified'",
        ),
    ],
)
def test_the_check_sees_what_was_doctored(name: str, old: str, new: str, problem: str) -> None:
    source = lua_of(name)
    assert old in source
    doctored = source.replace(old, new)
    found = problems(name, doctored, doctored if name == "common" else lua_of("common"), SEGMENT)
    assert any(problem in text for text in found), found


@pytest.mark.parametrize("name", [*SCRIPTS, "dated"])
def test_a_script_writes_no_global_and_reads_only_what_redis_gives(name: str) -> None:
    found = globals_of(load(name).source)
    assert found.written == set()
    assert found.read <= GLOBALS_READ


def test_every_lua_file_is_a_script_and_the_requests_are_their_arguments() -> None:
    files = {entry.name for entry in resources.files("snowredis.numbers").joinpath("lua").iterdir()}
    assert files == {f"{name}.lua" for name in ("common", *SCRIPTS, "dated")}
    for name, request in (("take", TakeRequest), ("open", OpenRequest)):
        arguments = [argument.name for argument in header_of(lua_of(name)).arguments]
        assert arguments == list(request._fields)
