"""The header of each Lua script says what it does: keys, arguments, replies, cost."""

import re
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


@pytest.mark.parametrize("name", FILES)
def test_a_header_says_what_the_script_does(name: str) -> None:
    assert problems(name, FILES[name].read_text()) == []


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
