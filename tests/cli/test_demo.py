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

from snowredis.cli.fleet import Recorded, check
from snowredis.core.layout import Layout
from tests.support import warm

LAYOUT = Layout()


def recorded(directory: Path, name: str, ids: list[int], workers: set[int], torn: bytes = b"") -> Recorded:
    path = directory / name
    path.write_bytes(array("q", ids).tobytes() + torn)
    return path, workers


def ids_of(worker: int, ticks: range) -> list[int]:
    return [LAYOUT.compose(tick=tick, worker=worker, sequence=sequence) for tick in ticks for sequence in range(3)]


# --- the checker -----------------------------------------------------------------------------------


def test_ids_that_all_differ_are_good(tmp_path: Path) -> None:
    files = [recorded(tmp_path, f"f{worker}", ids_of(worker, range(100)), {worker}) for worker in range(3)]
    verdict = check([*files, recorded(tmp_path, "empty", [], set())], LAYOUT)
    assert verdict.good
    assert verdict.ids == 900


def test_an_id_that_two_processes_made_is_found(tmp_path: Path) -> None:
    ids = ids_of(1, range(50))
    files = [recorded(tmp_path, "one", ids, {1}), recorded(tmp_path, "two", [*ids_of(1, range(60, 70)), ids[30]], {1})]
    verdict = check(files, LAYOUT)
    assert (verdict.duplicates, verdict.wrong_workers, verdict.good) == (1, 0, False)


def test_an_id_that_one_process_made_twice_is_found(tmp_path: Path) -> None:
    ids = ids_of(1, range(50))
    for again in ([*ids, ids[-1]], [*ids, ids[0]], [ids[0], *ids]):
        assert check([recorded(tmp_path, "f", again, {1})], LAYOUT).duplicates == 1


def test_an_id_of_a_worker_id_that_its_process_never_had_is_found(tmp_path: Path) -> None:
    verdict = check([recorded(tmp_path, "f", ids_of(1, range(5)) + ids_of(2, range(5, 6)), {1})], LAYOUT)
    assert (verdict.duplicates, verdict.wrong_workers, verdict.good) == (0, 3, False)


def test_half_an_id_that_a_killed_process_left_is_not_counted(tmp_path: Path) -> None:
    assert check([recorded(tmp_path, "f", ids_of(1, range(5)), {1}, b"\x01\x02\x03")], LAYOUT).ids == 15


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
        "duplicates     0\n",
        "wrong workers  0\n",
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
