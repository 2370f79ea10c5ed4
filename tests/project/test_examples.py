"""Every example runs, as its first lines say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_says_what_to_type_and_runs(example: Path, tmp_path: Path) -> None:
    first = example.read_text("utf-8").splitlines()[0]
    assert first.removeprefix("# Type:").strip() == f"python examples/{example.name}"
    done = subprocess.run(
        [sys.executable, f"examples/{example.name}"],
        cwd=ROOT,
        # an embedded Redis of its own
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
