"""The header of the script of dated numbers describes what it does; the check is that of the scripts of leases."""

from __future__ import annotations

from importlib import resources

import pytest

from snowredis.numbers.dated_store import FIELDS, load, read_script
from tests.lease.test_lua_headers import GLOBALS_READ, Family, globals_of, header_of, problems

DATED = Family("dated", (), {})
ERRORS = {"signature", "unidentified", "broken"}


def test_the_header_says_what_the_script_does() -> None:
    source = read_script()
    assert problems("dated", source, source, DATED) == []
    assert header_of(source).statuses == {*FIELDS, *ERRORS}
    files = resources.files("snowredis.numbers").joinpath("lua").iterdir()
    assert [entry.name for entry in files] == ["dated.lua"]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("-- ARGV[11] count ", "-- ARGV[11] number", "ARGV[11] is read as int 'count"),
        ("--       | exhausted, now | past", "--       | past", "documented are"),
        ("-- Cost    O(1)", "-- It costs O(1)", "the cost is not documented"),
        ("redis.call('HKEYS', KEYS[1])", "redis.call('HKEYS', 'tag')", "HKEYS is not given a key"),
        ("if bad then return", "if false then return", "what is refused is not answered"),
    ],
)
def test_the_check_sees_what_was_doctored(old: str, new: str, problem: str) -> None:
    source = read_script()
    assert old in source
    doctored = source.replace(old, new)
    found = problems("dated", doctored, doctored, DATED)
    assert any(problem in text for text in found), found


def test_the_script_writes_no_global_and_reads_only_what_redis_gives() -> None:
    found = globals_of(load().source)
    assert found.written == set()
    assert found.read <= GLOBALS_READ
