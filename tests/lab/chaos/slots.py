"""Slot of the fleet: one worker process after another, and operations on it."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.lab.chaos.runs import read_status
from tests.lab.chaos.shim import StepClock
from tests.support import warm
from tests.support.waiting import becomes_true

ROOT = Path(__file__).parents[3]
NODE_PACKAGE = ROOT / "examples" / "node_modules" / "redis"
# on a machine with ten times as many busy processes as cores, the end of a process took more than half a second
END_LIMIT_S = 5.0
# all workers of a run, and their children, write there
LOG = "workers.log"


PROGRAMS = {
    "python": [sys.executable, "-W", "ignore", "-X", "faulthandler", "-m", "tests.lab.chaos.worker"],
    "node": ["node", str(Path(__file__).with_name("worker.mjs"))],
}


class Slot:
    """language: of its programs, or the command of a client, see foreign.py. arguments: of tests.lab.chaos.worker."""

    def __init__(
        self, number: int, directory: Path, clock: StepClock, arguments: Sequence[object], language: str = "python"
    ) -> None:
        self.number, self.clock = number, clock
        # how many faults are going on, and until when there may be no ids (s, monotonic)
        self.busy = 0
        self.excused_s = 0.0
        self.problems: list[str] = []
        program = PROGRAMS.get(language) or [sys.executable, "-m", "tests.lab.chaos.foreign", language]
        self._directory, self._command = directory, [*program, *map(str, arguments)]
        self._process: subprocess.Popen[bytes] | None = None
        self._told_to_end = False
        self._file: Path | None = None

    def start(self) -> None:
        with (self._directory / LOG).open("ab") as log:
            self._process = warm.Popen(
                self._command,
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.clock.environment},
            )
        self._told_to_end, self._file = False, None

    def signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._told_to_end |= number in (signal.SIGTERM, signal.SIGKILL)

    def tell(self, command: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            # a worker that ends just now does not listen
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(command.encode() + b"\n")
                self._process.stdin.flush()

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def end(self) -> None:
        """End the process; if it has to be killed, that is a problem, unless it was killed before."""
        if self._process is None:
            return
        if self._process.poll() is None and not self._has_ended():
            self.problems.append(f"worker {self.number} (pid {self._process.pid}) did not end when told to")
            # faulthandler writes what its threads do to the log
            self._process.send_signal(signal.SIGABRT)
            self._has_ended()
            self._process.kill()
        self._process.wait()
        # what a worker ends with: 0, or a signal before it could set its handler
        if self._process.returncode not in (0, -signal.SIGTERM, -signal.SIGKILL, -signal.SIGABRT):
            self.problems.append(f"worker {self.number} ended with {self._process.returncode}")
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        self._process = None

    def _has_ended(self) -> bool:
        """Wait for a process that was told to end or killed; return whether it has ended."""
        process = self._process
        assert process is not None
        return bool(becomes_true(lambda: process.poll() is not None, END_LIMIT_S))

    def restart(self) -> None:
        self.end()
        self.start()

    def check(self) -> None:
        """Record a problem if the process has ended without being told to."""
        if not self._told_to_end and self._process is not None and self._process.poll() is not None:
            log = (self._directory / LOG).read_text()
            raise SystemExit(
                f"worker {self.number} ended by itself, with {self._process.returncode}; its log:\n{log[-3000:]}"
            )

    def last_ms(self) -> int:
        """Return when the process last recorded ids, in ms of the run; 0 if it has not yet."""
        if self._process is None:
            return 0
        if self._file is None:
            for path in self._directory.glob(f"{self.number:02}-{self._process.pid}-*.runs"):
                status = read_status(path)
                if status is not None and status.kind == "worker":
                    self._file = path
        status = read_status(self._file) if self._file is not None else None
        return status.last_ms if status is not None else 0
