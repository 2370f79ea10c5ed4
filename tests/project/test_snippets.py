"""The Python of every page runs as it stands, pyright takes it, and its commands can be parsed."""

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts._docs.commands import commands_of as children_of
from snowredis.cli import build_parser
from snowredis.snowflake.protocol.open import pool_config
from snowredis.worker_pool import WorkerPool
from tests.support.pages import PAGES, TRANSLATED, blocks_of, commands_of
from tests.support.programs import ROOT, finished
from tests.support.servers import redis_server

# pools besides those that every page may take for granted: their first user would wait for the floor
POOLS_OF_PAGES = {
    "docs/reference/layouts.md": (
        {"pool": "eu-orders", "layout": "41/region:2,business:4/2/6/8", "fields": {"region": 1, "business": 7}},
        {"pool": "gene-orders", "layout": "41/0/2/10/6;gene_bits=4"},
    )
}
WITH_PYTHON = [
    page for page in PAGES if page not in TRANSLATED and any(block.language == "python" for block in blocks_of(page))
]


@pytest.fixture(scope="module")
def parser() -> argparse.ArgumentParser:
    """Make the parser once: of all commands, it takes long."""
    return build_parser()


def test_there_are_snippets() -> None:
    assert {"README.md", "docs/index.md", "docs/how-to/integrations.md"} <= set(WITH_PYTHON)
    assert len(blocks_of("docs/how-to/integrations.md")) >= 10


def test_the_python_of_all_pages_runs(tmp_path: Path) -> None:
    """Each snippet is a program of its own, which has a database of its own."""
    snippets = [
        (page, block)
        for page in WITH_PYTHON
        for block in blocks_of(page)
        if block.language == "python" and not block.not_run
    ]
    failed = []
    with redis_server(tmp_path, "--databases", str(len(snippets))) as server:
        for database, (page, block) in enumerate(snippets):
            url = f"{server.url}?db={database}"
            for settings in ({"pool": "default"}, {"pool": "orders"}, *POOLS_OF_PAGES.get(page, ())):
                config = pool_config(settings)
                WorkerPool(url, config.name).create(config)
            done = finished("-c", block.text.replace("redis://localhost:6379/0", url), SNOWREDIS_URL=url)
            if done.returncode:
                failed.append(f"{block.name} failed: exit code {done.returncode}\n{done.stderr}")
    assert not failed, "\n".join(failed)


def test_the_commands_of_all_pages_exist_with_their_options(parser: argparse.ArgumentParser) -> None:
    for block in [block for page in PAGES for block in blocks_of(page)]:
        for words in commands_of(block) if block.language == "console" else ():
            program, *arguments = words
            if program == "snowredis":
                # exits with a message if it cannot be parsed
                parser.parse_args(arguments)
            elif program.startswith("scripts/"):
                source = (ROOT / program).read_text("utf-8")
                for option in re.findall(r"--[a-z-]+", " ".join(arguments)):
                    assert option in source, (block.name, words)


def test_the_commands_in_the_text_of_all_pages_exist_with_their_options(parser: argparse.ArgumentParser) -> None:
    texts = [path.read_text("utf-8") for path in PAGES.values()]
    for text in [text for page in texts for text in re.findall(r"`snowredis ([^`]+)`", page)]:
        words = shlex.split(text)
        command, names = parser, children_of(parser)
        if words[0] == "COMMAND":
            continue
        while words and words[0] in names:
            command = names[words.pop(0)]
            names = children_of(command)
        # a name alone, such as `snowredis pool create`, need not have its arguments
        if words:
            command.parse_args(words)


# --- types; mypy checks those of the package and its tests --------------------------------------------

# the files of a service, in the order of its page, which import each other
SERVICE = ("models", "app", "tasks", "env")
WRONG = "import snowredis\n\nan_id: str = snowredis.next_id()\n"


@pytest.fixture(scope="module")
def snippets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory with a module for each snippet, and one with a mistake."""
    directory = tmp_path_factory.mktemp("snippets")
    service = iter(SERVICE)
    for page in PAGES.keys() - TRANSLATED.keys():
        for block in blocks_of(page):
            if block.language != "python" or block.not_run.startswith(("a part", "needs pandas")):
                continue
            name = next(service) if "a file of the service" in block.not_run else re.sub(r"\W", "_", block.name)
            (directory / f"{name}.py").write_text(block.text)
    assert next(service, None) is None
    (directory / "wrong.py").write_text(WRONG)
    assert len(list(directory.glob("*.py"))) > 40
    return directory


@pytest.mark.timeout(300)
def test_pyright_takes_the_python_of_all_pages(snippets: Path) -> None:
    pytest.importorskip("pyright")
    if not shutil.which("node"):
        pytest.skip("pyright needs node")
    # celery carries no types, so pyright guesses that a task is a function
    config = {"extraPaths": [str(ROOT)], "reportFunctionMemberAccess": False}
    (snippets / "pyrightconfig.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run(command, cwd=snippets, capture_output=True, text=True, timeout=280)
    assert done.returncode == 1, done.stdout + done.stderr
    found = [(Path(item["file"]).name, item["message"]) for item in json.loads(done.stdout)["generalDiagnostics"]]
    assert [item for item in found if item[0] != "wrong.py"] == []
    assert len(found) == 1
