"""The header of each Lua script says what it does: keys, arguments, replies, cost; and it uses no global of its own."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import pytest

from snowredis.numbers.protocol import OpenRequest, TakeRequest
from snowredis.snowflake.protocol.messages import ClaimRequest, ReleaseRequest, RenewRequest

ROOT = Path(__file__).parents[2] / "snowredis"
FILES = {path.stem: path for path in ROOT.rglob("*.lua")}
# the beginnings of other scripts
PARTS = {"identity": "", "arguments": "", "pool": "arguments", "tag": "arguments"}
BASES = {path.parent.parent.name: base for base, path in FILES.items() if base in ("pool", "tag")}
# what Redis 6.2 gives to scripts, as far as it is needed here
GLOBALS = {
    *("KEYS", "ARGV", "redis", "string", "math", "table"),
    *("tonumber", "tostring", "type", "ipairs", "pairs", "unpack"),
}
WITHOUT_A_KEY = {"TIME", "INFO"}
CHECKED_BY = {"int": "int", "0": "int", "string": "str", "hex": "str"}
ARGUMENT = re.compile(r"^-- ARGV\[(\d+)\] (\w+) +(\w+)", re.MULTILINE)
STATUS = re.compile(r"(?:return \{|nil, \{|or \{|reply_with\(\w+,|done\(|keep\(|finish\() ?'([a-z]+)'")


def base_of(name: str) -> str:
    """Return the part that a script begins with; "" if there is none."""
    if name in PARTS:
        return PARTS[name]
    return BASES[FILES[name].parent.parent.name]


def split(source: str) -> tuple[str, str]:
    """Return the header, and the code without comments."""
    header = "\n".join(re.match(r"(?:--.*\n)*", source)[0].splitlines())  # type: ignore[index]
    return header, re.sub(r"('(?:[^'\\\n]|\\.)*')|--[^\n]*", lambda found: found[1] or "", source)


def problems(name: str, source: str) -> list[str]:
    """Return what is wrong with the script, or part, *name*."""
    header, code = split(source)
    wrong = [] if header.startswith(f"-- {FILES[name].stem}: ") else ["it is the header of another script"]
    documented = ARGUMENT.findall(header)
    found = re.findall(r"\b(\w+)\('(\w+)', ARGV\[(\d+)\]", code)
    expected = [(CHECKED_BY.get(kind, kind), argument, index) for index, argument, kind in documented]
    for how, argument, index in {*found} ^ {*expected}:
        wrong.append(f"ARGV[{index}] is {how} {argument} on one side only")
    base, base_header = base_of(name), ""
    if base:
        base_header = split(FILES[base].read_text())[0]
        before = re.findall(r"ARGV\[(?:1\.\.)?(\d+)\]", base_header)[-1]
        if not re.search(rf"ARGV\[1\.\.{before}\] as in {FILES[base].stem}\b", header):
            wrong.append(f"the header does not say that ARGV[1..{before}] are those of {base}")
        if [int(index) for index, *_ in documented] != [*range(int(before) + 1, int(before) + 1 + len(documented))]:
            wrong.append("the arguments are not numbered one after the other")
    if code.count("ARGV") != len(documented):
        wrong.append(f"ARGV is read {code.count('ARGV')} times for {len(documented)} arguments")
    keys = re.findall(r"KEYS\[(\d+)\] ", header + base_header)
    wrong += [f"KEYS[{key}] is not documented" for key in re.findall(r"KEYS\[(\d+)\]", code) if key not in keys]
    if re.search(r"\bKEYS\b(?!\[)", code):
        wrong.append("KEYS is read without a number")
    for command, after in re.findall(r"redis\.p?call\(([^,)]+)(,? ?\w*)", code):
        if command.strip("'") not in WITHOUT_A_KEY and (command[0] != "'" or after != ", KEYS"):
            wrong.append(f"{command} is not given a key of KEYS")
    said = re.search(r"^-- Returns (.*?)(?=^-- Cost|^--$|^-- and|\Z)", header, re.MULTILINE | re.DOTALL)
    statuses = set(re.findall(r"(?:^|\| )([a-z]+)(?=,)", said[1])) if said else set()
    # which the parts document for all scripts that begin with them, or reply if the script asks for it
    replied = {*STATUS.findall(code)} | {*re.findall(r"^end, nil, '(absent)'\)", code, re.MULTILINE)}
    if replied - {"missing", "broken"} != statuses - {"broken"}:
        wrong.append(f"it replies {sorted(replied)}, documented are {sorted(statuses)}")
    if name not in PARTS and not re.search(r"^-- Cost +O\(", header, re.MULTILINE):
        wrong.append("the cost is not documented")
    return wrong


def globals_of(source: str) -> tuple[set[str], set[str]]:
    """Return the globals that a script reads and those that it writes, on any path: from its byte code (lundump.c)."""
    lua51: Any = pytest.importorskip("lupa.lua51")
    dump: bytes = lua51.LuaRuntime(encoding=None).eval(b"function(s) return string.dump(assert(loadstring(s))) end")(
        source.encode()
    )
    # version 5.1, little-endian, int of 4 bytes, size_t of 8, instructions of 4, numbers of 8
    assert dump[:12] == b"\x1bLua\x51\x00\x01\x04\x08\x04\x08\x00"
    read: set[str] = set()
    written: set[str] = set()
    place = 12

    def take(form: str) -> Any:
        nonlocal place
        place += struct.calcsize("<" + form)
        return struct.unpack_from("<" + form, dump, place - struct.calcsize("<" + form))[0]

    def text() -> str:
        return str(take(f"{size}s")[:-1], "latin-1") if (size := take("Q")) else ""

    of_type = {0: lambda: None, 1: lambda: take("B"), 3: lambda: take("d"), 4: text}

    def function() -> None:
        text(), take("12s")
        code = [take("I") for _ in range(take("I"))]
        constants = [of_type[take("B")]() for _ in range(take("I"))]
        # OP_GETGLOBAL and OP_SETGLOBAL
        read.update(constants[word >> 14] for word in code if word & 0x3F == 5)
        written.update(constants[word >> 14] for word in code if word & 0x3F == 7)
        for part in (function, lambda: take("I"), lambda: (text(), take("Q")), text):
            for _ in range(take("I")):
                part()

    function()
    return read, written


@pytest.mark.parametrize("name", FILES)
def test_a_header_says_what_the_script_does(name: str) -> None:
    assert problems(name, FILES[name].read_text()) == []


@pytest.mark.parametrize("name", sorted(FILES.keys() - PARTS.keys()))
def test_a_script_writes_no_global_and_reads_only_what_redis_gives(name: str) -> None:
    parts, base = [FILES[name].read_text()], base_of(name)
    while base:
        parts.insert(0, FILES[base].read_text())
        base = base_of(base)
    read, written = globals_of("\n".join([FILES["identity"].read_text(), *parts]))
    assert (written, read - GLOBALS) == (set(), set())
    assert {"KEYS", "ARGV", "redis"} <= read


REQUESTS: dict[str, Any] = {
    "claim": ClaimRequest,
    "renew": RenewRequest,
    "release": ReleaseRequest,
    "take": TakeRequest,
    "open": OpenRequest,
}


@pytest.mark.parametrize("name", REQUESTS)
def test_the_fields_of_a_request_are_the_arguments_of_its_script(name: str) -> None:
    arguments = [argument for _, argument, _ in ARGUMENT.findall(split(FILES[name].read_text())[0])]
    common = ["seen", "caller_ms"] if BASES.get(FILES[name].parent.parent.name) == "pool" else []
    left_out = {"caller_ms", "period", "around", "seen"} - {*common}
    assert [*common, *arguments] == [field for field in REQUESTS[name]._fields if field not in left_out]
