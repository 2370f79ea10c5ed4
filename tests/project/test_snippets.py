"""The Python of every page runs as it stands, and its commands can be parsed."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from scripts._docs.commands import commands_of as children_of
from snowredis.cli import build_parser
from snowredis.monitor.worker_pool import WorkerPool
from snowredis.snowflake.open import pool_config
from tests.support.pages import PAGES, ROOT, TRANSLATED, blocks_of, commands_of
from tests.support.servers import redis_server

# pools besides those that every page may take for granted: their first user would wait for the floor
POOLS_OF_PAGES = {
    "docs/reference/layouts.md": (
        {
            "pool": "eu-orders",
            "layout": "41/region:2,business:4/2/6/8",
            "fields": {"region": 1, "business": 7},
        },
        {"pool": "gene-orders", "layout": "41/0/2/10/6;gene_bits=4"},
    )
}
DATABASES = 16
WITH_PYTHON = [
    page for page in PAGES if page not in TRANSLATED and any(block.language == "python" for block in blocks_of(page))
]


def test_there_are_snippets() -> None:
    assert {"README.md", "docs/index.md", "docs/how-to/integrations.md"} <= set(WITH_PYTHON)
    assert len(blocks_of("docs/how-to/integrations.md")) >= 10


@pytest.mark.parametrize("page", WITH_PYTHON)
def test_the_python_of_a_page_runs(page: str, tmp_path: Path) -> None:
    snippets = [block for block in blocks_of(page) if block.language == "python" and not block.not_run]
    with redis_server(tmp_path) as server:
        urls = [f"{server.url}?db={number % DATABASES}" for number in range(len(snippets))]
        for url in set(urls):
            for settings in ({"pool": "default"}, {"pool": "orders"}, *POOLS_OF_PAGES.get(page, ())):
                config = pool_config(settings)
                WorkerPool(url, config.name).create(config)
        done = subprocess.run(
            [sys.executable, str(Path(__file__).with_name("snippet_runner.py"))],
            input=json.dumps([[block.name, url, block.text] for block, url in zip(snippets, urls, strict=True)]),
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=100,
        )
    assert done.returncode == 0, done.stderr


def test_the_commands_of_all_pages_exist_with_their_options() -> None:
    for block in [block for page in PAGES for block in blocks_of(page)]:
        for words in commands_of(block) if block.language == "console" else ():
            program, *arguments = words
            if program == "snowredis":
                # exits with a message if it cannot be parsed
                build_parser().parse_args(arguments)
            elif program.startswith("scripts/"):
                source = (ROOT / program).read_text("utf-8")
                for option in re.findall(r"--[a-z-]+", " ".join(arguments)):
                    assert option in source, (block.name, words)


def test_the_commands_in_the_text_of_all_pages_exist_with_their_options() -> None:
    texts = [path.read_text("utf-8") for path in PAGES.values()]
    for text in [text for page in texts for text in re.findall(r"`snowredis ([^`]+)`", page)]:
        parser: argparse.ArgumentParser = build_parser()
        words = shlex.split(text)
        names = children_of(parser)
        if words[0] == "COMMAND":
            continue
        while words and words[0] in names:
            parser = names[words.pop(0)]
            names = children_of(parser)
        # a name alone, such as `snowredis pool create`, need not have its arguments
        if words:
            parser.parse_args(words)
