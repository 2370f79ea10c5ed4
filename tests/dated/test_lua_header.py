"""The header of the script of dated numbers describes what it does; the tools are those of the lease's scripts."""

from __future__ import annotations

from importlib import resources

from snowredis.dated.model import FIELDS
from snowredis.dated.store import load
from tests.lease.test_lua_headers import (
    CHECKED_BY,
    COMMANDS_WITHOUT_A_KEY,
    GLOBALS_READ,
    globals_of,
    header_of,
    tokens_of,
    windows,
)

LUA = resources.files("snowredis.dated").joinpath("lua")
SOURCE = LUA.joinpath("dated.lua").read_text("utf-8")
ERRORS = {"signature", "unidentified", "broken"}


def test_the_header_says_what_the_script_does() -> None:
    header, tokens = header_of(SOURCE), tokens_of(SOURCE)
    assert [entry.name for entry in LUA.iterdir()] == [f"{header.name}.lua"]
    assert [argument.index for argument in header.arguments] == list(range(1, len(header.arguments) + 1))
    checked = windows(tokens, "", "(", "", ",", "ARGV", "[", "", "]")
    found = {(window[6], window[2], window[0]) for window in checked}
    assert found == {(str(a.index), f"'{a.name}", CHECKED_BY.get(a.kind, a.kind)) for a in header.arguments}
    assert tokens.count("ARGV") == len(found)

    keys = windows(tokens, "KEYS", "[", "", "]")
    assert {window[2] for window in keys} == set(map(str, header.keys))
    assert tokens.count("KEYS") == len(keys)
    for window in windows(tokens, "redis", ".", "call", "(", "", "", ""):
        assert window[4][1:] in COMMANDS_WITHOUT_A_KEY or window[5:] == [",", "KEYS"], window

    made = {window[2][1:] for window in windows(tokens, "return", "{", "", ",")}
    assert made == header.statuses == {*FIELDS, *ERRORS}
    assert header.cost.startswith("O(")
    assert windows(tokens, "if", "bad", "then", "return", "redis", ".", "error_reply")


def test_the_script_writes_no_global_and_reads_only_what_redis_gives() -> None:
    found = globals_of(load().source)
    assert found.written == set()
    assert found.read <= GLOBALS_READ
