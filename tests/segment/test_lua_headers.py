"""The headers of the segments' scripts describe what the scripts do; the tools are those of the lease's scripts."""

from __future__ import annotations

from importlib import resources

import pytest

from snowredis.segment.model import OpenRequest, TakeRequest
from snowredis.segment.scripts import SCRIPTS, load, read_lua
from tests.lease.test_lua_headers import (
    CHECKED_BY,
    COMMANDS_WITHOUT_A_KEY,
    GLOBALS_READ,
    globals_of,
    header_of,
    tokens_of,
    windows,
)

# what replies are made with, in each script
MAKERS = ("reply_with", "done", "keep")


@pytest.mark.parametrize("name", ["common", *SCRIPTS])
def test_a_header_says_what_the_script_does(name: str) -> None:
    source = read_lua(name)
    header, common, tokens = header_of(source), header_of(read_lua("common")), tokens_of(source)
    assert header.name == name
    first = 1 if name == "common" else len(common.arguments) + 1
    assert [argument.index for argument in header.arguments] == list(
        range(first, first + len(header.arguments))
    )
    checked = windows(tokens, "", "(", "", ",", "ARGV", "[", "", "]")
    found = {(window[6], window[2], window[0]) for window in checked}
    assert found == {(str(a.index), f"'{a.name}", CHECKED_BY.get(a.kind, a.kind)) for a in header.arguments}
    assert tokens.count("ARGV") == len(found)

    keys = windows(tokens, "KEYS", "[", "", "]")
    assert {window[2] for window in keys} <= set(map(str, common.keys))
    for how in ("call", "pcall"):
        for window in windows(tokens, "redis", ".", how, "(", "", "", ""):
            assert window[4][1:] in COMMANDS_WITHOUT_A_KEY or window[5:] == [",", "KEYS"], window

    if name == "common":
        assert {window[4][1:] for window in windows(tokens, "return", "nil", ",", "{", "")} == {
            "signature",
            "unidentified",
        }
        assert header.statuses == {"signature", "unidentified", "broken"}
        return
    assert f"KEYS, ARGV[1..{len(common.arguments)}] as in common" in source
    made = {window[4] for window in windows(tokens, "reply_with", "(", "tag", ",", "")}
    made |= {window[2] for maker in MAKERS for window in windows(tokens, maker, "(", "")}
    assert {text[1:] for text in made if text.startswith("'")} == header.statuses
    assert header.cost.startswith("O(")
    assert windows(tokens, "if", "bad", "then", "return", "refuse")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_writes_no_global_and_reads_only_what_redis_gives(name: str) -> None:
    found = globals_of(load(name).source)
    assert found.written == set()
    assert found.read <= GLOBALS_READ


def test_every_lua_file_is_a_script_and_the_requests_are_their_arguments() -> None:
    files = {entry.name for entry in resources.files("snowredis.segment").joinpath("lua").iterdir()}
    assert files == {f"{name}.lua" for name in ("common", *SCRIPTS)}
    for name, request in (("take", TakeRequest), ("open", OpenRequest)):
        arguments = [argument.name for argument in header_of(read_lua(name)).arguments]
        assert arguments == list(request._fields)
