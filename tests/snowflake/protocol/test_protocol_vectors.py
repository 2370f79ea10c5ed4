"""docs/reference/protocol.md and its vectors: what they say to a client of any language is what the scripts do."""

import json
import re
import time
from typing import Any

import pytest
import redis

from scripts import js_client
from snowredis.core.lanes import ClockRules, Lanes, UseTick, decide
from snowredis.core.presets import resolve_layout
from snowredis.signatures import fields_of
from snowredis.snowflake.lease.held import HeldLease
from snowredis.snowflake.protocol.messages import Terms
from snowredis.snowflake.protocol.pool_config import FORMAT, PoolConfig
from snowredis.snowflake.protocol.redis_store import load
from tests.support.holder import fresh_hex
from tests.support.programs import ROOT
from tests.support.servers import RedisServer

PAGE = (ROOT / "docs/reference/protocol.md").read_text("utf-8")
VECTORS = json.loads((ROOT / "docs/reference/protocol-vectors.json").read_text("utf-8"))
POOL = VECTORS["pools"][1]
MOST_WORDS = 1_200


def values_of(config: PoolConfig) -> dict[str, Any]:
    """Return what follows from the settings of a pool, as the vectors have it."""
    return {"signature": config.signature, "heartbeat_ms": config.heartbeat_ms, "usable_lanes": config.ordinary_lanes}


def config_of(signature: str) -> PoolConfig:
    fields = fields_of(signature)
    assert fields.pop("format") == str(FORMAT)
    numbers = {name: int(text) for name, text in fields.items() if name.endswith("_ms") or name == "datacenter"}
    others: Any = {"durability": fields["durability"]} | numbers
    return PoolConfig(name="orders", layout=resolve_layout(fields["layout"]), **others)


@pytest.mark.parametrize("pool", VECTORS["pools"], ids=lambda pool: pool["signature"])
def test_the_vectors_of_a_pool_are_what_its_settings_say(pool: dict[str, Any]) -> None:
    assert values_of(config_of(pool["signature"])) == pool


def test_the_vectors_of_ticks_and_ids_are_those_of_the_layouts() -> None:
    for each in VECTORS["ticks"]:
        layout = resolve_layout(each["layout"])
        assert layout.tick_at(each["ms"]) == each["tick"]
        assert layout.first_tick_from(each["ms"]) == each["first_tick_from"]
    for each in VECTORS["ids"]:
        layout, fields = resolve_layout(each["layout"]), {**each}
        del fields["layout"], fields["id"]
        assert layout.compose(backup=fields.pop("lane"), **fields) == int(each["id"])


@pytest.mark.parametrize("case", VECTORS["decisions"], ids=lambda case: case["name"])
def test_the_vectors_of_decisions_are_what_this_client_decides(case: dict[str, Any]) -> None:
    config = config_of(VECTORS["pools"][case["pool"]]["signature"])
    layout, terms, now_ms = config.layout, Terms.parse(case["lease"]), case["clock_ms"]
    assert str(terms) == case["lease"]
    tick = layout.tick_at(now_ms)
    assert tick == case["tick"]
    lease = HeldLease.granted(terms, config, fresh_hex(), 1, 1).lease
    lanes, open_still = Lanes.fresh(lease.opens[: config.ordinary_lanes]), set()
    for lane, last, sequence in case["made"]:
        lanes = lanes.using(lane, last)
        open_still |= {lane} if last == tick and sequence < layout.sequences - 1 else set()
    fitting = {lane for lane, opens in enumerate(lanes.opens) if opens <= tick} | open_still
    is_there = tick < lease.until and tick <= layout.max_tick
    assert sorted(fitting if is_there else ()) == case["lanes"]
    decision = decide(lanes, now_ms - layout.epoch_ms, lease.until, layout.tick_ms, ClockRules(max_wait_ms=0))
    if isinstance(decision, UseTick) and is_there:
        assert decision.lane in case["lanes"]
    used = "".join(str(int(is_used)) for is_used in lanes.used)
    assert used.ljust(len(terms.lanes_ms), "0") == case["opened"]


def script_of_the_page(name: str) -> str:
    """Return the script *name*, joined from the files that the page names."""
    [sentence] = re.findall(r"A script is the text of (.*?), joined by one newline each", PAGE, re.DOTALL)
    files = [file for file in re.findall(r"`([\w/.]+\.lua)`", sentence) if "/" in file]
    assert files[-1] == "snowflake/protocol/lua/claim.lua"
    paths = [ROOT / "snowredis" / file for file in files]
    return "\n".join(path.read_text("utf-8") for path in (*paths[:-1], paths[-1].with_stem(name)))


@pytest.mark.parametrize("name", ["claim", "renew", "release"])
def test_the_page_joins_the_scripts_as_python_does(name: str) -> None:
    assert script_of_the_page(name) == load(name).source


def test_the_folder_of_the_client_in_javascript_has_the_scripts_as_they_are() -> None:
    assert js_client.PLACE.read_text("utf-8") == js_client.text_of(), "run: scripts/js_client.py"


class Case:
    """One case of the vectors on a server: replaces what stands in < >, as the vectors say."""

    def __init__(self, client: redis.Redis, pool: str) -> None:
        self._client = client
        self._texts = {"pool": pool, "signature": POOL["signature"]}
        self._start_ms = time.time_ns() // 1_000_000
        key = f"snowredis:{{{pool}}}"
        self._keys = (key, f"{key}:leases", f"{key}:events")

    def text_of(self, name: str) -> str | None:
        if re.fullmatch(r"t(\+\d+)?", name):
            return str(self._start_ms + int(name[1:] or 0))
        if name.startswith("random "):
            return self._texts.setdefault(name, fresh_hex())
        return self._texts.get(name)

    def filled(self, text: str) -> str:
        return re.sub(r"<([^<>]+)>", lambda found: str(self.text_of(found[1])), text)

    def compare(self, expected: list[str], reply: list[str]) -> None:
        assert len(reply) == len(expected), reply
        for there, here in zip(expected, reply, strict=True):
            names, pattern = [], ""
            for name, text in re.findall("<([^<>]+)>|([^<>]+)", there):
                known = self.text_of(name) if name else text
                pattern += "([^,@]+)" if known is None else re.escape(known)
                names += [name] if known is None else []
            found = re.fullmatch(pattern, here)
            assert there == "*" or found, (there, expected, reply)
            self._texts |= zip(names, found.groups() if found else (), strict=False)

    def run(self, step: dict[str, Any]) -> None:
        if "redis" in step:
            self._client.execute_command(*map(self.filled, step["redis"]))
            return
        self._texts["nonce"] = fresh_hex()
        arguments = [self.filled(text) for text in step["args"]]
        assert "None" not in "".join(arguments), arguments
        call: Any = (script_of_the_page(step["call"]), 3, *self._keys, *arguments)
        if "error" in step:
            with pytest.raises(redis.ResponseError, match=step["error"]):
                self._client.eval(*call)
            return
        reply: Any = self._client.eval(*call)
        self.compare(step["reply"], reply[0].split("\n"))


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["name"])
def test_the_scripts_reply_as_the_vectors_say(case: dict[str, Any], server: RedisServer) -> None:
    running = Case(server.client(), f"vectors-{fresh_hex()}")
    for step in case["steps"]:
        running.run(step)


def test_the_page_has_the_numbers_of_a_default_pool() -> None:
    values = values_of(PoolConfig(name="orders"))
    assert values == VECTORS["pools"][0]
    assert f"```text\n{values['signature']}\n```" in PAGE
    assert f"here {values['heartbeat_ms']:,}" in PAGE


def test_the_page_is_short_and_names_every_reply_of_the_three_scripts() -> None:
    assert len(PAGE.split()) <= MOST_WORDS
    for name in ("claim", "renew", "release"):
        header = (ROOT / f"snowredis/snowflake/protocol/lua/{name}.lua").read_text("utf-8").partition("\n-- Cost")[0]
        statuses = re.findall(r"(?:-- Returns|\|) ([a-z]+), common fields", header)
        assert len(statuses) >= 2
        for status in statuses:
            assert f"`{status}`" in PAGE, status
