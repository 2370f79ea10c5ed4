"""Every example runs, as its first lines say; the node for Maelstrom is driven as Maelstrom does it."""

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import warm
from tests.support.programs import ROOT, finished

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


# what comes with snowredis, and with a package that an example needs
INCLUDED = {"snowredis", "redis", "pydantic", "werkzeug"}
# with a test of what it makes
RUN_ELSEWHERE = {"game_shards.py", "home_made_registry.py", "maelstrom_node.py"}
# programs that another program starts, which the first line names
STARTED_BY = {"maelstrom_node.py": "maelstrom test -w unique-ids --bin"}
OF_EXTRAS = {"'snowredis[merge]'": ("duckdb", "sqlalchemy")}


def packages_of(line: str) -> set[str]:
    """Return the packages in the line of an example that says what it needs."""
    match = re.fullmatch(
        r"# Needs:    (?:pip install ('snowredis\[merge\]'|[\w ]+); and )?"
        r"redis-server, or else pip install 'fakeredis\[lua\]'",
        line,
    )
    assert match, line
    return {name for word in (match[1] or "").split() for name in OF_EXTRAS.get(word, (word,))}


def imported_by(example: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(example.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
            # an integration is of a package
            if node.module == "snowredis.integrations":
                names |= {alias.name for alias in node.names}
    return names - INCLUDED - set(sys.stdlib_module_names)


def documented_gunicorn_lines() -> list[str]:
    pages = sorted((ROOT / "docs").glob("**/*.md"))
    return sorted(
        {line for page in pages for line in re.findall(r"^\$ (gunicorn .*)$", page.read_text("utf-8"), re.MULTILINE)}
    )


@pytest.mark.parametrize("line", documented_gunicorn_lines())
def test_a_documented_line_starts_gunicorn(line: str, tmp_path: Path) -> None:
    for module in ("app.py", "project.py"):
        (tmp_path / module).write_text("def app(environ, start_response): ...\n")
    url = "redis://nowhere.invalid"
    done = finished("-m", *shlex.split(line), "--check-config", cwd=tmp_path, SNOWREDIS_URL=url)
    assert done.returncode == 0, done.stderr


def test_gunicorn_is_documented() -> None:
    assert len(documented_gunicorn_lines()) > 1


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_says_what_to_type_and_what_it_needs(example: Path) -> None:
    lines = [line for line in example.read_text("utf-8").splitlines() if not line.startswith("#!")]
    first, second, *_ = lines
    assert packages_of(second) >= imported_by(example)
    starter = STARTED_BY.get(example.name)
    command = f"{starter or 'python'} examples/{example.name}"
    typed = first.removeprefix("# Type:").strip()
    assert typed.startswith(command) if starter else typed == command


@pytest.mark.parametrize(
    "example", [path for path in EXAMPLES if path.name not in RUN_ELSEWHERE], ids=lambda path: path.name
)
def test_an_example_runs(example: Path) -> None:
    done = finished(f"examples/{example.name}")
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_a_registry_of_set_nx_ex_repeats_ids_and_a_lease_none() -> None:
    done = finished("examples/home_made_registry.py", "4", timeout_s=100)
    found = dict(re.findall(r"(SET NX EX|snowredis): [\d,]+ ids, ([\d,]+) of them", done.stdout))
    assert found["snowredis"] == "0", done.stderr
    assert found["SET NX EX"] != "0"


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
