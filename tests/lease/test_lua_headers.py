"""The headers of the Lua scripts describe what the scripts do: keys, arguments, replies; and they use no globals.

The scripts of segments and of dated numbers are checked by the same functions, in their own tests.
Read with a tokenizer, so that comments and strings cannot mislead; which globals a script touches
is read in its bytecode, for every path and not only for those that a test runs.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import pytest

from snowredis.servers.scripts import PROLOGUE, load_script
from snowredis.snowflake import redis_store
from snowredis.snowflake.protocol import ClaimRequest, ReleaseRequest, RenewRequest
from snowredis.snowflake.redis_store import SCRIPTS, lua_of
from snowredis.snowflake.registry_stores import REGISTRY_SCRIPTS

ALL_PARTS = [*PROLOGUE, "pool", "registry"]
ALL_SCRIPTS = [*SCRIPTS, *REGISTRY_SCRIPTS]

# what Redis 6.2 gives to scripts, as far as it is needed here
GLOBALS_READ = {
    *("KEYS", "ARGV", "redis", "string", "math", "table"),
    *("tonumber", "tostring", "type", "ipairs", "unpack"),
}
COMMANDS_WITHOUT_A_KEY = {"TIME", "INFO"}
# documented type -> the function that checks it
CHECKED_BY = {"int": "int", "0": "int", "string": "str", "hex": "str", "ints": "str"}

_TOKEN = re.compile(
    r"""(?P<comment>--[^\n]*)|(?P<space>\s+)|'(?P<string>(?:[^'\\\n]|\\.)*)'"""
    r"""|(?P<word>[A-Za-z_]\w*)|(?P<number>\d+(?:\.\d+)?(?:e\d+)?)|(?P<sign>\.\.\.?|[~=<>]=|[^\w\s'"])"""
)


@dataclass(frozen=True)
class Argument:
    index: int
    name: str
    kind: str


@dataclass(frozen=True)
class Header:
    """The comment above a script's first line of code."""

    name: str
    keys: dict[int, str]
    arguments: list[Argument]
    statuses: set[str]
    cost: str


def header_of(source: str) -> Header:
    lines = []
    for line in source.splitlines():
        if not line.startswith("--"):
            break
        lines.append(line[2:].strip())
    text = "\n".join(lines)
    returns = re.search(r"^Returns (.*?)(?=^Cost|\Z)", text, re.MULTILINE | re.DOTALL)
    cost = re.search(r"^Cost +(\S.*)$", text, re.MULTILINE)
    return Header(
        name=lines[0].partition(":")[0] if lines else "",
        keys={int(index): name for index, name in re.findall(r"^KEYS\[(\d+)\] (\w+)", text, re.MULTILINE)},
        arguments=[
            Argument(int(index), name, kind)
            for index, name, kind in re.findall(r"^ARGV\[(\d+)\] (\w+) +(\w+)", text, re.MULTILINE)
        ],
        # "broken" is sent by a function of arguments.lua
        statuses=set(re.findall(r"(?:^|\|) *([a-z]+),(?! as in)", returns.group(1))) if returns else set(),
        cost=cost.group(1) if cost else "",
    )


def tokens_of(source: str) -> list[str]:
    """Return the tokens of *source*: strings as "'text", others unchanged."""
    tokens, place = [], 0
    while place < len(source):
        match = _TOKEN.match(source, place)
        assert match is not None, f"no token at {source[place : place + 20]!r}"
        place = match.end()
        if match.lastgroup == "string":
            tokens.append("'" + match["string"])
        elif match.lastgroup not in ("comment", "space"):
            tokens.append(match.group())
    return tokens


def windows(tokens: list[str], *pattern: str) -> list[list[str]]:
    """Return the places where *pattern* occurs; an empty text in it matches any token."""
    size = len(pattern)
    found = (tokens[place : place + size] for place in range(len(tokens) - size + 1))
    return [window for window in found if all(map(lambda want, is_: want in ("", is_), pattern, window))]


@dataclass(frozen=True)
class Family:
    """Scripts that begin with the same part.

    Attributes:
        base: name of the part that reads the first arguments, or of the only script.
        parts: names of all parts; they are no scripts.
        makers: function that makes a reply -> its arguments before the status.
        first: number of the first argument that *base* reads.
    """

    base: str
    parts: Sequence[str]
    makers: Mapping[str, tuple[str, ...]]
    first: int = 1


LEASE = Family("pool", ALL_PARTS, {}, first=3)
REGISTRY = Family("registry", ALL_PARTS, {"reply_with": ("registry",)}, first=3)
BEGINNING = Family("arguments", ALL_PARTS, {})


def family_of(name: str) -> Family:
    """Return the family of the script, or part, *name* of leases and registries."""
    if name in PROLOGUE:
        return BEGINNING
    return REGISTRY if name in ("registry", *REGISTRY_SCRIPTS) else LEASE


def script(name: str) -> str:
    """Return the whole source of a script."""
    part = family_of(name).base
    return load_script(name, redis_store.__file__, (part,)).source


def problems(name: str, source: str, common: str, family: Family) -> list[str]:
    """Return what is wrong with the script *name*, or with the common part if that is its name."""
    header, shared = header_of(source), header_of(common)
    tokens = tokens_of(source)
    is_common = name == family.base
    begins = is_common or name in family.parts
    wrong = []
    if header.name != name:
        wrong.append(f"the header is that of {header.name!r}")
    last = family.first + len(shared.arguments) - 1
    if not begins and f"KEYS, ARGV[1..{last}] as in {family.base}" not in source:
        wrong.append("the header does not say that the common arguments come first")

    # arguments: contiguous, each read exactly where it is checked, under its own name, as its own type
    first = family.first if begins else last + 1
    indices = [argument.index for argument in header.arguments]
    if indices != list(range(first, first + len(indices))):
        wrong.append(f"the arguments are numbered {indices}, not from {first} on")
    checked = windows(tokens, "", "(", "", ",", "ARGV", "[", "", "]")
    found = {(window[6], window[2], window[0]) for window in checked}
    documented = {(str(a.index), f"'{a.name}", CHECKED_BY.get(a.kind, a.kind)) for a in header.arguments}
    wrong += [f"ARGV[{index}] is read as {how} {what}" for index, what, how in sorted(found - documented)]
    wrong += [f"ARGV[{index}] is not read as {how} {what}" for index, what, how in sorted(documented - found)]
    if tokens.count("ARGV") != len(documented):
        wrong.append(f"ARGV is read {tokens.count('ARGV')} times for {len(documented)} arguments")

    # keys: documented, and the first argument of every command
    if is_common and sorted(shared.keys) != list(range(1, len(shared.keys) + 1)):
        wrong.append(f"the keys are numbered {sorted(shared.keys)}")
    used = windows(tokens, "KEYS", "[", "", "]")
    wrong += [f"KEYS[{w[2]}] is not documented" for w in used if w[2] not in map(str, shared.keys)]
    if tokens.count("KEYS") != len(used):
        wrong.append("KEYS is read without a number")
    for how in ("call", "pcall"):
        for window in windows(tokens, "redis", ".", how, "(", "", "", ""):
            if window[4][1:] not in COMMANDS_WITHOUT_A_KEY and window[5:] != [",", "KEYS"]:
                wrong.append(f"{window[4][1:]} is not given a key of KEYS")
            if not window[4].startswith("'"):
                wrong.append(f"the command {window[4]} is computed")

    # answers
    if is_common or name not in family.parts:
        statuses = _statuses(tokens, family, is_common=is_common)
        if statuses != header.statuses:
            wrong.append(f"answers {sorted(statuses)}, documented are {sorted(header.statuses)}")
    if name not in family.parts:
        if not header.cost.startswith("O("):
            wrong.append("the cost is not documented")
        refusals = windows(tokens, "if", "bad", "then", "return", "refuse")
        refusals += windows(tokens, "return", "transaction", "(")
        if not refusals and not windows(tokens, "if", "bad", "then", "return", "redis", ".", "error_reply"):
            wrong.append("what is refused is not answered")
    return wrong


def _statuses(tokens: list[str], family: Family, *, is_common: bool) -> set[str]:
    """Return the statuses with which the script, or the common part, replies."""
    made = [window[2] for window in windows(tokens, "return", "{", "", "")]
    if is_common:
        made += [window[4] for window in windows(tokens, "return", "nil", ",", "{", "")]
        made += [window[2] for window in windows(tokens, "or", "{", "", ",")]
    else:
        for maker, before in family.makers.items():
            pattern = [token for argument in before for token in (argument, ",")]
            made += [window[-1] for window in windows(tokens, maker, "(", *pattern, "")]
    statuses = {text[1:] for text in made if text.startswith("'")}
    # which registry.lua documents for all of its scripts
    return statuses if is_common else statuses - {"missing"}


# --- globals, from the byte code of Lua 5.1 (lundump.c, lopcodes.h) -----------------------------------

OP_GETGLOBAL, OP_SETGLOBAL = 5, 7


class Bytecode:
    """Reader of what string.dump() writes on a 64-bit little-endian machine."""

    def __init__(self, dump: bytes) -> None:
        # version 5.1, little-endian, int of 4 bytes, size_t of 8, instructions of 4, numbers of 8
        assert dump[:12] == b"\x1bLua\x51\x00\x01\x04\x08\x04\x08\x00", dump[:12]
        self._dump, self._place = dump, 12
        self.read: set[str] = set()
        self.written: set[str] = set()
        self._function()

    def _take(self, form: str) -> int:
        value: int = struct.unpack_from("<" + form, self._dump, self._place)[0]
        self._place += struct.calcsize("<" + form)
        return value

    def _text(self) -> str:
        size = self._take("Q")
        self._place += size
        return self._dump[self._place - size : self._place - 1].decode("latin-1") if size else ""

    def _function(self) -> None:
        self._text()
        self._place += 2 * 4 + 4
        code = [self._take("I") for _ in range(self._take("I"))]
        constants = [self._constant() for _ in range(self._take("I"))]
        for word in code:
            if word & 0x3F in (OP_GETGLOBAL, OP_SETGLOBAL):
                names = self.read if word & 0x3F == OP_GETGLOBAL else self.written
                names.add(str(constants[word >> 14]))
        for _ in range(self._take("I")):
            self._function()
        # for debuggers: lines, names of locals and of upvalues
        for _ in range(self._take("I")):
            self._take("I")
        for _ in range(self._take("I")):
            self._text()
            self._place += 8
        for _ in range(self._take("I")):
            self._text()

    def _constant(self) -> object:
        kind = self._take("B")
        if kind == 4:
            return self._text()
        if kind == 0:
            return None
        return self._take("d" if kind == 3 else "B")


def globals_of(source: str) -> Bytecode:
    lua51 = pytest.importorskip("lupa.lua51")
    runtime = lua51.LuaRuntime(encoding=None)
    dump = runtime.eval(b"function(source) return string.dump(assert(loadstring(source))) end")
    return Bytecode(dump(source.encode()))


# --- the tests ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*ALL_PARTS, *ALL_SCRIPTS])
def test_a_header_says_what_the_script_does(name: str) -> None:
    family = family_of(name)
    assert problems(name, lua_of(name), lua_of(family.base), family) == []


@pytest.mark.parametrize("name", ALL_SCRIPTS)
def test_a_script_writes_no_global_and_reads_only_what_redis_gives(name: str) -> None:
    found = globals_of(script(name))
    assert found.written == set()
    assert found.read <= GLOBALS_READ
    assert {"KEYS", "ARGV", "redis"} <= found.read


def test_every_lua_file_is_a_script_and_every_script_a_file() -> None:
    folders = [
        resources.files(f"snowredis.{package}").joinpath("lua") for package in ("servers", "snowflake")
    ]
    files = {entry.name.removesuffix(".lua") for folder in folders for entry in folder.iterdir()}
    assert files == {*ALL_PARTS, *ALL_SCRIPTS}


@pytest.mark.parametrize(
    ("name", "request_class"), [("claim", ClaimRequest), ("renew", RenewRequest), ("release", ReleaseRequest)]
)
def test_the_fields_of_a_request_are_the_arguments_of_its_script(name: str, request_class: Any) -> None:
    arguments = [argument.name for argument in header_of(lua_of(name)).arguments]
    fields = [field for field in request_class._fields if field != "caller_ms"]
    assert arguments == fields + (["capacity", "lane_count"] if name == "claim" else [])


def test_every_documented_key_and_argument_is_found() -> None:
    common = header_of(lua_of("pool"))
    assert common.keys == {1: "pool", 2: "leases", 3: "events"}
    assert [argument.name for argument in common.arguments][:2] == ["ttl_ms", "lead_ms"]
    claim = header_of(lua_of("claim"))
    assert (claim.arguments[0].index, claim.arguments[-1].index) == (13, 18)
    assert claim.statuses == {"granted", "settling", "exhausted", "behind"}
    assert common.statuses == {"signature", "unidentified"}


DOCTORED = [
    # header
    ("claim", "-- claim:", "-- take:", "header is that of 'take'"),
    ("claim", "ARGV[14] fit_ms      int", "ARGV[14] fit          int", "ARGV[14] is read as int 'fit_ms"),
    ("claim", "ARGV[14] fit_ms      int", "ARGV[14] fit_ms      hex", "ARGV[14] is not read as str 'fit_ms"),
    ("claim", "-- ARGV[18] lane_count ", "-- ARGV[19] lane_count ", "are numbered [13, 14, 15, 16, 17, 19]"),
    ("claim", "-- ARGV[15] wait_ms", "-- wait_ms", "ARGV[15] is read as int 'wait_ms"),
    ("claim", "KEYS, ARGV[1..12] as in pool", "as in common", "common arguments come first"),
    (
        "claim",
        "       | settling, common",
        "       | common",
        "answers ['behind', 'exhausted', 'granted', 'settling'",
    ),
    ("claim", "-- Cost    O(log pool)", "--", "the cost is not documented"),
    ("pool", "-- KEYS[3] events", "-- events", "KEYS[3] is not documented"),
    ("pool", "--       | unidentified, reason", "--       | reason", "answers ['signature', 'unidentified']"),
    # body
    ("claim", "int('fit_ms', ARGV[14]", "int('fit', ARGV[14]", "ARGV[14] is read as int 'fit"),
    ("claim", "ARGV[15], 0", "ARGV[14], 0", "ARGV[14] is read as int 'wait_ms"),
    ("claim", "local owner = str('owner', ARGV[16],", "local owner = f('{}',", "ARGV[16] is not read"),
    ("claim", "return transaction(", "return (", "what is refused is not answered"),
    ("claim", "return { 'settling', '1' }", "return { 'busy' }", "'busy'"),
    ("claim", "'ZADD', KEYS[2], r.lease_end", "'ZADD', 'leases', r.lease_end", "ZADD is not given a key"),
    ("claim", "local token_hash = sha(token)", "local n = #ARGV", "ARGV is read 7 times for 6"),
    ("release", "redis.call('ZADD', KEYS[2]", "redis.call('ZADD', KEYS[4]", "KEYS[4] is not documented"),
    ("release", "redis.call('ZADD', KEYS[2]", "redis.call('ZADD', unpack(KEYS)", "KEYS is read without"),
    ("release", "redis.call('ZADD', KEYS[2]", "redis.call(what, KEYS[1]", "the command what is computed"),
]


@pytest.mark.parametrize(("name", "old", "new", "problem"), DOCTORED)
def test_the_check_sees_a_header_or_a_body_that_was_doctored(
    name: str, old: str, new: str, problem: str
) -> None:
    source = lua_of(name)
    assert old in source
    doctored = source.replace(old, new)
    found = problems(name, doctored, doctored if name == "pool" else lua_of("pool"), LEASE)
    assert any(problem in text for text in found), found


def test_the_check_is_not_misled_by_comments_and_strings() -> None:
    source = lua_of("create")
    harmless = source + "\n-- ARGV[13], KEYS[9], redis.call('GET', 'x')\nlocal text = 'ARGV[14] -- KEYS[8]'\n"
    assert problems("create", harmless, lua_of("pool"), LEASE) == []


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("leaked = 1", "leaked"),
        ("local function f() return function() leaked = 1 end end", "leaked"),
        ("if false then leaked = 1 end", "leaked"),
        ("function leaked() end", "leaked"),
    ],
)
def test_the_check_sees_a_global_wherever_it_is_written(line: str, name: str) -> None:
    assert globals_of(line + "\n" + script("create")).written == {name}


def test_the_check_sees_a_misspelt_name() -> None:
    assert not globals_of("local function f() return tonumbr('1') end").read <= GLOBALS_READ
