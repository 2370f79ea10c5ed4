"""The processes of the demo: start them, read their messages, kill and stop them. Uses neither Redis nor the screen."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

# for processes that got SIGTERM; each needs one round trip to Redis
_STOP_TIMEOUT_S = 5.0
# ids per second are measured over this time
_RATE_WINDOW_S = 1.5
_ID_BYTES = 8


@dataclass(slots=True, eq=False)
class Member:
    """One process of the fleet, and its state according to its messages.

    Attributes:
        workers: the worker ids that it claimed, in order.
        killed: whether it was killed with -9.
        stopping: whether it got SIGTERM.
        closed: whether it released its worker id.
    """

    number: int
    process: subprocess.Popen[str]
    path: Path
    workers: list[int] = field(default_factory=list)
    namespace: int = 0
    killed: bool = False
    stopping: bool = False
    closed: bool = False
    _counts: deque[tuple[float, int]] = field(default_factory=deque)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def worker(self) -> int | None:
        """Its worker id, or its last one."""
        return self.workers[-1] if self.workers else None

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    @property
    def recorded(self) -> int:
        """Number of ids in its file."""
        return self.path.stat().st_size // _ID_BYTES

    def measure(self, now_s: float) -> None:
        """Record the number of ids at this time, for rate()."""
        self._counts.append((now_s, self.recorded))
        while now_s - self._counts[0][0] > _RATE_WINDOW_S:
            self._counts.popleft()

    def rate(self) -> int:
        """Return ids per second, measured over the last 1.5 s."""
        if len(self._counts) < 2:
            return 0
        (from_s, before), (to_s, now) = self._counts[0], self._counts[-1]
        return round((now - before) / (to_s - from_s)) if to_s > from_s else 0


# a process, the first word of its message, and the rest
Message = tuple[Member, str, str]


class Fleet:
    """All processes of one demo, with their files and logs in *directory*."""

    def __init__(self, directory: Path, url: str, pool: str, ttl_s: float, rate: int) -> None:
        self._directory = directory
        self._settings = [url, pool, str(ttl_s), str(rate)]
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.members: list[Member] = []

    def start(self) -> Member:
        """Start one more process. Does not wait for its worker id."""
        number = len(self.members) + 1
        path = self._directory / f"ids-{number}"
        path.touch()
        # the same packages as in this process, and none from the current directory
        packages = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
        command = [sys.executable, "-P", "-m", "snowredis.cli.demo.worker"]
        with (self._directory / f"log-{number}").open("wb") as log:
            process = subprocess.Popen(
                [*command, *self._settings, str(path), f"demo {number}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | {"PYTHONPATH": packages},
                # Ctrl-C at the terminal goes to this process only, which then stops the others in order
                start_new_session=True,
            )
        member = Member(number, process, path)
        self.members.append(member)
        threading.Thread(target=self._listen, args=(member,), daemon=True).start()
        return member

    def _listen(self, member: Member) -> None:
        if member.process.stdout:
            with member.process.stdout as lines:
                for line in lines:
                    word, _, text = line.rstrip("\n").partition(" ")
                    self._messages.put((member, word, text))
        member.process.wait()
        self._messages.put((member, "ended", str(member.process.returncode)))

    def receive(self, timeout_s: float) -> list[Message]:
        """Return the messages that arrived; wait at most *timeout_s* for the first."""
        received = []
        with contextlib.suppress(queue.Empty):
            received.append(self._messages.get(timeout=max(0.001, timeout_s)))
            while True:
                received.append(self._messages.get_nowait())
        for member, word, text in received:
            if word == "claimed":
                member.workers.append(int(text))
            elif word == "namespace":
                member.namespace = int(text)
            elif word == "closed":
                member.closed = True
        return received

    def last_log_line(self, member: Member) -> str:
        """Return the last line that *member* wrote to stderr."""
        log = (self._directory / f"log-{member.number}").read_text("utf-8", "replace").strip()
        return log.rpartition("\n")[2]

    def step_clock(self, member: Member, ms: int) -> None:
        """Step the clock of one process by *ms*."""
        if member.process.stdin:
            with contextlib.suppress(BrokenPipeError):
                member.process.stdin.write(f"step {ms}\n")
                member.process.stdin.flush()

    def kill(self, member: Member) -> None:
        """Kill a process with -9: no handler runs, and nothing is released."""
        member.killed = True
        member.process.kill()

    def terminate(self) -> list[Member]:
        """Send SIGTERM to all running processes, and return them. Does not wait."""
        running = [member for member in self.members if member.running]
        for member in running:
            member.stopping = True
            member.process.terminate()
        return running

    def stop(self) -> None:
        """Stop all processes; one that does not end within 5 s is killed."""
        self.terminate()
        deadline_s = time.monotonic() + _STOP_TIMEOUT_S
        for member in self.members:
            try:
                member.process.wait(max(0.0, deadline_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                member.process.kill()
                member.process.wait()
            if member.process.stdin:
                with contextlib.suppress(BrokenPipeError):
                    member.process.stdin.close()
