"""Type checkers take the Python of all pages: mypy in its strict mode, and pyright. Each runs once for all of them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import PAGES, ROOT, TRANSLATED, blocks_of

# the files of a service, in the order of its page, which import each other
SERVICE = ("models", "app", "tasks", "env")
# what is written in a page without annotations of its own is checked all the same
MYPY = (
    "--strict",
    "--check-untyped-defs",
    "--allow-untyped-defs",
    "--allow-incomplete-defs",
    "--allow-untyped-calls",
    "--allow-subclassing-any",
    "--allow-untyped-decorators",
    "--no-warn-return-any",
    "--ignore-missing-imports",
    "--follow-imports=silent",
    "--config-file=",
)
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


def check(*command: str | Path, cwd: Path) -> str:
    environment = os.environ | {"MYPYPATH": str(ROOT)}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(300)
def test_mypy_takes_the_python_of_all_pages(snippets: Path) -> None:
    pytest.importorskip("mypy")
    cache = f"--cache-dir={ROOT / '.mypy_cache' / 'snippets'}"
    said = check(sys.executable, "-m", "mypy", *MYPY, "--no-pretty", cache, ".", cwd=snippets)
    errors = [line for line in said.splitlines() if ": error: " in line]
    assert [line for line in errors if not line.startswith("wrong.py:3")] == []
    assert len(errors) == 1


@pytest.mark.timeout(300)
def test_pyright_takes_the_python_of_all_pages(snippets: Path) -> None:
    pytest.importorskip("pyright")
    if not shutil.which("node"):
        pytest.skip("pyright needs node")
    # celery carries no types, so pyright guesses that a task is a function
    config = {"extraPaths": [str(ROOT)], "reportFunctionMemberAccess": False}
    (snippets / "pyrightconfig.json").write_text(json.dumps(config))
    said = check(sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", cwd=snippets)
    found = [(Path(item["file"]).name, item["message"]) for item in json.loads(said)["generalDiagnostics"]]
    assert [item for item in found if item[0] != "wrong.py"] == []
    assert len(found) == 1
