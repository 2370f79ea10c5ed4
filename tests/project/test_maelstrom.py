"""The node for Maelstrom, driven as Maelstrom does it: several nodes, and messages as lines of JSON."""

import json
import os
import subprocess
import sys
from typing import Any

from tests.support import warm
from tests.support.programs import ROOT

NODES = ("n1", "n2", "n3")
ROUNDS = 300


def test_nodes_of_maelstrom_make_ids_that_differ_and_refuse_other_workloads() -> None:
    init: dict[str, Any] = {"type": "init", "node_ids": NODES}
    bodies = [init, *[{"type": "generate"}] * ROUNDS, {"type": "broadcast", "message": 1}]
    command = [sys.executable, str(ROOT / "examples" / "maelstrom_node.py")]
    # an embedded Redis of their own
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SNOWREDIS_URL": "embedded://"}
    pipe = subprocess.PIPE
    nodes = [warm.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) for _ in NODES]
    for name, node in zip(NODES, nodes, strict=True):
        assert node.stdin is not None
        for number, body in enumerate(bodies):
            message = {"src": "c1", "dest": name, "body": {**body, "node_id": name, "msg_id": number}}
            node.stdin.write(json.dumps(message) + "\n")
        node.stdin.flush()
    ids: set[str] = set()
    for name, node in zip(NODES, nodes, strict=True):
        replies = [json.loads(line) for line in node.communicate(timeout=30)[0].splitlines()]
        assert node.returncode == 0
        assert {(reply["src"], reply["dest"]) for reply in replies} == {(name, "c1")}
        said = [reply["body"] for reply in replies]
        assert [body["in_reply_to"] for body in said] == list(range(ROUNDS + 2))
        assert [body["type"] for body in said[:-1]] == ["init_ok"] + ["generate_ok"] * ROUNDS
        assert said[-1]["code"] == 10
        ids.update(body["id"] for body in said[1:-1])
    assert len(ids) == ROUNDS * len(NODES)
