"""`demo`: its checker, its look, and one run of the whole."""

import os
import shutil
import signal
import subprocess
import sys
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest

from snowredis.cli.fleet import check
from snowredis.core.layout import Layout
from tests.support import warm

LAYOUT = Layout()


def ids_of(worker: int, ticks: range) -> list[int]:
    return [LAYOUT.compose(tick=tick, worker=worker, sequence=sequence) for tick in ticks for sequence in range(3)]


# --- the checker -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "duplicates"),
    [
        ([ids_of(worker, range(50)) for worker in range(3)], 0),
        # two processes made it
        ([ids_of(1, range(50)), [*ids_of(1, range(60, 70)), ids_of(1, range(31))[-1]]], 1),
        # one process made it twice
        ([[*ids_of(1, range(50)), ids_of(1, range(50))[-1]]], 1),
        ([[*ids_of(1, range(50)), ids_of(1, range(1))[0]]], 1),
        ([[ids_of(1, range(1))[0], *ids_of(1, range(50))]], 1),
    ],
)
def test_each_id_that_repeats_another_is_found(tmp_path: Path, files: list[list[int]], duplicates: int) -> None:
    paths = [tmp_path / str(number) for number in range(len(files) + 1)]
    for path, ids in zip(paths, [*files, []], strict=True):
        # half an id that a killed process left is not counted
        path.write_bytes(array("q", ids).tobytes() + b"\x01\x02\x03")
    assert check(paths) == (sum(map(len, files)), duplicates)


# --- the whole -------------------------------------------------------------------------------------


def start(command: list[str], directory: Path) -> subprocess.Popen[str]:
    if shutil.which("redis-server") is None:
        pytest.importorskip("fakeredis")
    packages = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    environment = os.environ | {"PYTHONPATH": packages, "TMPDIR": str(directory)}
    return warm.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def left_behind(directory: Path) -> list[str]:
    """Files, and processes that have one of them on their command line."""
    found = [str(path) for path in directory.iterdir()]
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        found += [line] if str(directory) in line else []
    return found


@pytest.mark.timeout(100)
def test_a_whole_demo_makes_no_id_twice_and_leaves_nothing_behind(short_directory: Path) -> None:
    program = "import sys; from snowredis.cli.commands.demo import run; sys.exit(run(None, 6, 3))"
    process = start([sys.executable, "-c", program], short_directory)
    out, err = process.communicate()
    assert err == ""
    assert process.returncode == 0, out
    for part in (
        "snowredis demo  on its own ",
        "they claimed worker ids 0, 1, 2",
        "kill -9 worker 1 ",
        "clock of worker 2 set back by 1.0 s",
        "it goes on in namespace 1",
        ", whose lease would end in ",
        "after the kill: another process released it",
        "it claimed worker id 3",
        "no worker id is leased any more",
        "duplicates  0\n",
    ):
        assert part in out, out
    assert max(map(len, out.splitlines())) <= 100
    assert left_behind(short_directory) == []


@pytest.mark.timeout(60)
def test_ctrl_c_ends_a_demo_and_leaves_nothing_behind(command: Callable[..., list[str]], short_directory: Path) -> None:
    process = start(command("demo"), short_directory)
    assert process.stdout
    for line in process.stdout:
        if "they claimed" in line:
            break
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert (process.returncode, err) == (130, "\nsnowredis: interrupted\n")
    assert left_behind(short_directory) == []
