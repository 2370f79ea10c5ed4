"""The node for Maelstrom, driven as Maelstrom does it: several nodes, and messages as lines of JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import warm

ROOT = Path(__file__).parents[2]
NODE = ROOT / "examples" / "maelstrom_node.py"
NODES = ("n1", "n2", "n3")


class Node:
    """One node, and the numbers of the messages that it was sent."""

    def __init__(self, name: str, environment: dict[str, str]) -> None:
        self.name = name
        self._process = warm.Popen(
            [sys.executable, str(NODE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._sent = 0

    def send(self, **body: Any) -> int:
        self._sent += 1
        message = {"src": "c1", "dest": self.name, "body": body | {"msg_id": self._sent}}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()
        return self._sent

    def receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        message = json.loads(self._process.stdout.readline())
        assert (message["src"], message["dest"]) == (self.name, "c1")
        body: dict[str, Any] = message["body"]
        return body

    def end(self) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        code = self._process.wait(30)
        self._process.stdout.close()
        return code


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Node]]:
    # an embedded Redis of their own
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    started = [Node(name, environment) for name in NODES]
    yield started
    assert [node.end() for node in started] == [0] * len(NODES)


def test_nodes_of_maelstrom_make_ids_that_differ_and_refuse_other_workloads(nodes: list[Node]) -> None:
    for node in nodes:
        number = node.send(type="init", node_id=node.name, node_ids=list(NODES))
        assert node.receive() == {"type": "init_ok", "msg_id": 1, "in_reply_to": number}
    ids: set[str] = set()
    rounds = 300
    for _ in range(rounds):
        # all are asked before one replies
        numbers = [node.send(type="generate") for node in nodes]
        for node, number in zip(nodes, numbers, strict=True):
            body = node.receive()
            assert (body["type"], body["in_reply_to"]) == ("generate_ok", number)
            ids.add(body["id"])
    assert len(ids) == rounds * len(NODES)
    nodes[0].send(type="broadcast", message=1)
    assert nodes[0].receive()["code"] == 10
