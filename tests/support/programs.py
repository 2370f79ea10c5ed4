"""Small programs run as processes of their own, and their output."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.warm import FORKS_WITH_THREADS, Popen

ROOT = Path(__file__).parents[2]


def start(module: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Run *module*, such as tests.lab.chaos.worker, as a program; stdout and stderr are text pipes."""
    return Popen(
        [sys.executable, "-X", "faulthandler", "-W", FORKS_WITH_THREADS, "-m", module, *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def run(module: str, *arguments: str, timeout_s: float = 60) -> str:
    """Run *module* to its end and return what it printed; it must exit with 0 and say nothing on stderr."""
    process = start(module, *arguments)
    output, errors = process.communicate(timeout=timeout_s)
    assert process.returncode == 0, errors
    assert not errors, errors
    return output
