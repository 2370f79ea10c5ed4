"""pyright takes the Python of all pages, for all of them at once; mypy checks that of the package and its tests."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import PAGES, TRANSLATED, blocks_of
from tests.support.programs import ROOT

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
