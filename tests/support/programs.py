"""Programs run as processes of their own: to their end, for their output, or in the background."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.support import warm
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


def finished(
    *words: str | Path,
    cwd: Path = ROOT,
    timeout_s: float = 60,
    forked: bool = True,
    imported: tuple[str, ...] = (),
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Run this Python with the arguments *words* to its end, with these variables beside those of this process.

    *forked*: from a process that has imported the package, if it can be. *imported*: as of Popen.
    """
    run_program = partial(warm.run, imported=imported) if forked else subprocess.run
    variables = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    options: dict[str, Any] = {"cwd": cwd, "env": variables, "capture_output": True, "text": True, "timeout": timeout_s}
    return run_program([sys.executable, *words], **options)


@contextlib.contextmanager
def in_background(
    command: Sequence[str | Path], log: Path, *, imported: tuple[str, ...] = (), **options: Any
) -> Iterator[subprocess.Popen[Any]]:
    """Run a program for the length of the with block, and append what it prints to *log*.

    In the end it is killed, with what it started, if it has not ended. *imported*: as of Popen.
    """
    with log.open("ab") as output:
        options |= {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output, "start_new_session": True}
        process = Popen(command, imported=imported, **options)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
