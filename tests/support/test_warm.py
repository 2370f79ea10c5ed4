"""Tests of warm.py: a program that is forked is a child like any other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import warm

SHOW = (
    "import os, sys; print(os.getppid(), os.getsid(0) == os.getpid(), sys.argv, os.getcwd(), __name__, "
    "'redis' in sys.modules)"
)


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("kind", ["-c", "-m", "script"])
def test_it_begins_as_it_was_told(tmp_path: Path, kind: str, alone: bool) -> None:
    (tmp_path / "shows.py").write_text(SHOW)
    words = {"-c": ["-c", SHOW], "-m": ["-m", "shows"], "script": ["shows.py"]}[kind]
    command = [sys.executable, *words, "one", "two"]
    options: dict[str, Any] = {"cwd": tmp_path, "capture_output": True, "text": True, "start_new_session": alone}
    usual = subprocess.run(command, **options)
    forked = warm.run(command, **options)
    assert (usual.stderr, forked.stderr) == ("", "")
    # the last word says that it is forked, where that can be
    assert forked.stdout == usual.stdout.replace("False\n", f"{warm._CLONE is not None}\n")


@pytest.mark.parametrize(
    "program",
    [
        "raise SystemExit(3)",
        "1 / 0",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "import os, signal; os.kill(os.getpid(), signal.SIGINT)",
        "import atexit; atexit.register(print, 'at the end')",
        "import threading; threading.Thread(target=print, args=['from a thread']).start()",
        "print(input()); print(input())",
        "import os; print(os.environ['A'], os.environ.get('HOME'))",
        "import multiprocessing; print(multiprocessing.get_context('fork').Pool(2).map(abs, [-1, -2]))",
    ],
)
def test_it_ends_as_any_program(program: str) -> None:
    command = [sys.executable, "-c", program]
    options: dict[str, Any] = {
        "input": "a line\nand one more\n",
        "env": {"A": "b"},
        "stdout": subprocess.PIPE,
        "text": True,
    }
    usual, forked = subprocess.run(command, **options), warm.run(command, **options)
    assert (forked.returncode, forked.stdout) == (usual.returncode, usual.stdout)


def test_it_has_the_descriptors_that_it_was_given_and_no_others() -> None:
    read, write = os.pipe()
    program = f"import os; os.write({write}, b'x'); print(len(os.listdir('/proc/self/fd')))"
    command = [sys.executable, "-c", program]
    counts = [run(command, pass_fds=[write], capture_output=True, text=True) for run in (subprocess.run, warm.run)]
    assert counts[0].stdout == counts[1].stdout
    assert os.read(read, 2) == b"xx"
    os.close(read)
    os.close(write)


@pytest.mark.parametrize("name", ["PYTHONDEVMODE", "SNOWREDIS_PURE"])
def test_what_an_interpreter_reads_once_makes_it_start_as_usual(name: str) -> None:
    program = "import sys; print('redis' in sys.modules)"
    done = warm.run([sys.executable, "-c", program], env={**os.environ, name: "1"}, capture_output=True, text=True)
    assert done.stdout == "False\n"
