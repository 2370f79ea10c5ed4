"""The client in JavaScript, while its Redis and its clock fail; tests/lab/chaos has it beside Python processes."""

import contextlib
import json
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import snowredis
from tests.support.pools import new_pool
from tests.support.programs import ROOT
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

NODE = shutil.which("node")
PACKAGE = ROOT / "examples" / "node_modules" / "redis"
PROGRAM = Path(__file__).parent / "programs" / "node_ids.mjs"
VECTORS = json.loads((ROOT / "docs" / "reference" / "protocol-vectors.json").read_text("utf-8"))
LAYOUTS = json.loads((ROOT / "docs" / "reference" / "vectors.json").read_text("utf-8"))["layouts"]
# how long a busy machine takes to start node, or to reply
LIMIT_S = 30.0
POOL = "node"
COUNT = 3_000
# field of a pool in the vectors, which follows from its signature -> its name in the client
SETTINGS = {"signature": "signature", "heartbeat_ms": "heartbeatMs", "usable_lanes": "usableLanes"}

if NODE is None:
    pytest.skip("node is not installed", allow_module_level=True)
if not PACKAGE.is_dir():
    pytest.skip("node-redis is not installed: npm install --prefix examples", allow_module_level=True)


class Refused(Exception):
    """The client threw an error with this code."""


class Node:
    """One process that has a client."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [str(NODE), str(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, *command: Any) -> Any:
        assert self.process.stdin
        assert self.process.stdout
        print(json.dumps(command), file=self.process.stdin, flush=True)
        reply = json.loads(self.process.stdout.readline())
        if "code" in reply:
            raise Refused(reply["code"])
        return reply.get("value")

    def connect(self, server: RedisServer, label: str = "", **options: Any) -> int:
        _, worker = self.ask("connect", {"url": server.url, "pool": POOL, "label": label, **options})
        return int(worker)

    def join(self, server: RedisServer, label: str = "", **constants: Any) -> int:
        """Connect to a new pool, and return the worker id."""
        new_pool(server.url, POOL, **constants)
        return self.connect(server, label)

    def ids(self, count: int = COUNT) -> list[int]:
        return [int(text) for text in self.ask("ids", count)]

    def can_make_ids(self) -> bool:
        with contextlib.suppress(Refused):
            return bool(self.ids(1))
        return False


@pytest.fixture
def node() -> Iterator[Node]:
    node = Node()
    with node.process:
        yield node
        node.process.kill()


def snapshot(server: RedisServer) -> Any:
    with contextlib.closing(snowredis.WorkerPool(server.url, POOL)) as pool:
        return pool.snapshot()


def test_settings_ticks_ids_decisions_and_layouts_are_those_of_the_vectors(node: Node) -> None:
    for pool in VECTORS["pools"]:
        settings = node.ask("settings", pool["signature"])
        found = {name: settings[of] for name, of in SETTINGS.items()}
        assert found == pool
    for case in VECTORS["ticks"]:
        assert node.ask("ticks", case["layout"], case["ms"]) == [case["tick"], case["first_tick_from"]]
    for case in VECTORS["ids"]:
        fields = {name: value for name, value in case.items() if name not in ("layout", "id")}
        assert node.ask("encode", case["layout"], fields) == case["id"]
        assert node.ask("decode", case["layout"], case["id"]) == fields
    for case in VECTORS["decisions"]:
        found = node.ask("decision", VECTORS["pools"][case["pool"]]["signature"], case)
        assert found["opened"] == case["opened"], case["name"]
        # it waits for a later tick where the sequence is used up
        assert (found["made"] is None) == (not case["lanes"]), case["name"]
        for made in filter(None, [found["made"]]):
            assert made["lane"] in case["lanes"], case["name"]
            assert (made["tick"], made["worker"]) == (case["tick"], int(case["lease"].partition(",")[0])), case["name"]
    for layout in LAYOUTS:
        for case in layout["ids"]:
            lane = {"lane": int(case["backup"])}
            fields = {name: int(case[name]) for name in ("tick", "datacenter", "worker", "sequence", "gene")} | lane
            assert node.ask("decode", layout["spec"], case["id"]) == fields


def test_a_process_is_listed_until_sigterm_which_releases(server: RedisServer, node: Node) -> None:
    worker = node.join(server, label="shop 7")
    node.ids(1)
    (listed,) = snapshot(server).living
    assert (listed.worker, listed.owner.label) == (worker, "shop 7")
    assert (listed.owner.host, listed.owner.pid) == (socket.gethostname(), node.process.pid)
    node.process.send_signal(signal.SIGTERM)
    assert node.process.wait(LIMIT_S) == -signal.SIGTERM
    assert not snapshot(server).living
    assert not snapshot(server).ended


def test_ids_go_on_while_redis_stands_still_for_less_than_a_ttl(own_server: RedisServer, node: Node) -> None:
    worker = node.join(own_server, ttl=9)
    ids = node.ids(100)
    own_server.kill(signal.SIGSTOP)
    # a heartbeat, and the 2 s after which a renewal without a reply is given up
    time.sleep(5.2)
    ids += node.ids(100)
    own_server.kill(signal.SIGCONT)

    def renewals() -> Any:
        calls = node.ask("calls")
        (silent,) = (number for number, call in enumerate(calls) if "reply" not in call)
        return calls[silent : silent + 2] if "reply" in calls[-1] else None

    silent, repeated = eventually(renewals, "the repeated renewal", LIMIT_S, ignored=(ValueError,))
    assert repeated["args"][7] == silent["args"][7]
    assert repeated["reply"][0] == "renewed"
    ids += node.ids(100)
    assert len(set(ids)) == 300
    assert node.ask("worker") == worker


def test_a_client_whose_lease_is_lost_claims_again(own_server: RedisServer, node: Node) -> None:
    node.join(own_server, ttl=3)
    ids = node.ids(100)
    # it comes back with a lease that ended, to a Redis that forgot it
    node.process.send_signal(signal.SIGSTOP)
    own_server.client().flushall()
    time.sleep(3.5)
    node.process.send_signal(signal.SIGCONT)
    ids.append(int(node.ask("id")))
    ids += node.ids(100)
    assert len(set(ids)) == 201
    statuses = [call["reply"][0] for call in node.ask("calls") if "reply" in call]
    lost = statuses.index("lost")
    assert {"settling", "granted"} <= set(statuses[lost:])


def test_a_clock_that_goes_back_opens_another_lane_or_is_reported(server: RedisServer, node: Node) -> None:
    node.join(server)
    time.sleep(1)
    ids = node.ids()
    assert node.ask("lane") == 0
    node.ask("back", 500)
    assert node.ask("lane") != 0
    ids += node.ids()
    node.ask("back", 3_600_000)
    with pytest.raises(Refused, match="NOT_YET"):
        node.ids()
    node.ask("back", 0)
    ids += node.ids()
    assert len(set(ids)) == 3 * COUNT


def test_a_clock_ahead_makes_no_id_at_the_end_of_the_lease(server: RedisServer, node: Node) -> None:
    node.join(server)
    node.ask("back", -60_000)
    with pytest.raises(Refused, match="UNTIL"):
        node.ids(1)
    node.ask("back", 0)
    assert node.can_make_ids()


def test_a_pool_or_a_redis_that_is_absent_or_silent_is_refused_in_time(
    server: RedisServer, tmp_path: Path, node: Node
) -> None:
    server.client().flushdb()
    with pytest.raises(Refused, match="NO_POOL"):
        node.connect(server)
    assert not server.client().keys()
    with pytest.raises(Refused, match="NO_REPLY"):
        node.ask("connect", {"url": f"unix://{tmp_path}/none.sock", "pool": POOL, "maxWaitMs": 300})
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        # NO_REPLY, had it waited for the 2 s that it gives a reply
        with pytest.raises(Refused, match="NO_LEASE"):
            node.ask("connect", {"url": url, "pool": POOL, "maxWaitMs": 300})


def test_a_client_goes_on_with_the_settings_of_the_pool_that_follows_its_own(server: RedisServer, node: Node) -> None:
    node.join(server, ttl=3)
    ids = node.ids(100)
    with contextlib.closing(snowredis.WorkerPool(server.url, POOL)) as pool:
        pool.delete(force=True)
    new_pool(server.url, POOL, ttl=6)
    assert eventually(node.can_make_ids, "an id of the pool that follows", LIMIT_S)
    eventually(lambda: [each.worker for each in snapshot(server).living], "a lease there", LIMIT_S)
    ids += [int(node.ask("id")), *node.ids(100)]
    assert len(set(ids)) == 201
    assert "ttl_ms=6000 " in node.ask("signature")


def test_the_program_prints_ids_and_releases(server: RedisServer) -> None:
    new_pool(server.url, POOL)
    command = [str(NODE), "examples/client/client.mjs", server.url, POOL, "5"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    ids = [int(line) for line in done.stdout.split()]
    assert len(ids) == 5
    assert ids == sorted(set(ids))
    assert not snapshot(server).living
