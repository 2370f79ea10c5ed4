"""Texts in Redis of any length, which its users can write: what is read of them is short."""

import ast
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import snowredis
from snowredis.core.as_json import to_json
from snowredis.errors import SnowredisError
from snowredis.servers.scripts import LONGEST_TEXT, text_of
from snowredis.worker_pool import WorkerPool
from tests.support.pools import new_pool
from tests.support.servers import RedisServer

PACKAGE = Path(snowredis.__file__).parent
POOL, LONG = "texts", "x" * 200_000
KEY = f"snowredis:{{{POOL}}}"


def texts_in(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for each in (*value, *value.values()):
                yield from texts_in(each)
        case list():
            for each in value:
                yield from texts_in(each)


def seen(url: str) -> list[str]:
    """Return all texts that monitoring shows of the pool, or says of its errors."""
    found: list[str] = []
    with contextlib.closing(WorkerPool(url, POOL)) as pool:
        for read in (pool.snapshot, pool.events, pool.info, lambda: pool.whois(1)):
            try:
                found += texts_in(to_json(read()))
            except SnowredisError as error:
                found.append(str(error))
    return found


@pytest.fixture
def pool(own_server: RedisServer) -> RedisServer:
    """A pool with a worker and an event."""
    new_pool(own_server.url, POOL)
    ids = snowredis.connect(own_server.url, pool=POOL, label="web")
    ids.next_id()
    ids.close()
    return own_server


def test_no_field_of_a_pool_is_read_at_any_length(pool: RedisServer) -> None:
    client: Any = pool.client()
    fields = {name: value for name, value in client.hgetall(KEY).items() if not name.startswith("t:")}
    assert {"signature", "incarnation", "w:0"} < fields.keys()
    for name, value in (fields | dict.fromkeys(("alarm", "layouts", "mismatch"), "1|")).items():
        client.hset(KEY, name, value + LONG)
        assert max(map(len, seen(pool.url))) < 2 * LONGEST_TEXT, name
        client.hset(KEY, mapping=fields)


def test_no_text_of_a_process_is_read_at_any_length(pool: RedisServer) -> None:
    client: Any = pool.client()
    now_ms = int(time.time() * 1000)
    for name in ("host", "label", "generator"):
        owner = f'{{"host":"h","{name}":"{LONG}","pid":1}}'
        record = client.hget(KEY, "w:0").partition("{")[0].split("|")
        record[0], record[3], record[4] = "a" * 40, str(now_ms + 60_000), str(now_ms + 60_000)
        client.hset(KEY, "w:0", "|".join(record) + owner)
        client.zadd(f"{KEY}:leases", {"0": now_ms + 60_000})
        client.xadd(f"{KEY}:events", {"event": "claimed", "worker": 0, "at": now_ms, "owner": owner, "reason": LONG})
        assert max(map(len, seen(pool.url))) < 2 * LONGEST_TEXT
    with contextlib.closing(WorkerPool(pool.url, POOL)) as monitor:
        # it counts as one whose process is unknown
        assert [(each.worker, each.host) for each in monitor.workers()] == [(0, "")]


def test_bytes_and_text_are_cut_and_what_is_no_utf8_is_replaced() -> None:
    assert text_of(b"a" * 5_000) == text_of("a" * 5_000) == "a" * LONGEST_TEXT
    assert text_of(b"a\xff") == "a\N{REPLACEMENT CHARACTER}"


def test_one_function_reads_the_texts_of_redis() -> None:
    found = set()
    for room in ("monitor", "numbers", "servers", "snowflake", "web"):
        for path in (PACKAGE / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                # bytes.decode() and bytes.decode("utf-8"); Layout.decode() takes an id
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "decode":
                    encoding = [each.value for each in node.args[:1] if isinstance(each, ast.Constant)]
                    if encoding == ["utf-8"] or not node.args:
                        found.add(f"{room}/{path.name}: {ast.unparse(node)}")
    assert found == {
        # surrogates in JSON, which text_of() has read
        "monitor/lease.py: value.encode('utf-8', 'replace').decode()",
        "servers/scripts.py: start.decode('utf-8', 'replace')",
        # a file of the package
        "servers/scripts.py: data.decode()",
    }
