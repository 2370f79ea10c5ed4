"""The processes of the demo: start, hear, kill and end them. Knows no Redis and no screen."""

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

# for processes that were asked to end; each needs one round trip to Redis
_END_LIMIT_S = 5.0
# ids a second are counted over this long
_RATE_WINDOW_S = 1.5
_ID_BYTES = 8


@dataclass(slots=True, eq=False)
class Member:
    """One process, what it was told and what it said.

    Attributes:
        workers: the worker ids that it said to have claimed, in order.
        killed: whether it was killed with -9.
        closed: whether it said that it gave its worker id back.
    """

    number: int
    process: subprocess.Popen[str]
    path: Path
    workers: list[int] = field(default_factory=list)
    namespace: int = 0
    killed: bool = False
    asked_to_end: bool = False
    closed: bool = False
    _counts: deque[tuple[float, int]] = field(default_factory=deque)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def worker(self) -> int | None:
        """The worker id that it has, or had last."""
        return self.workers[-1] if self.workers else None

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    @property
    def made(self) -> int:
        """How many ids it has recorded."""
        return self.path.stat().st_size // _ID_BYTES

    def count(self, now_s: float) -> None:
        """Look how many ids there are by now, for rate()."""
        self._counts.append((now_s, self.made))
        while now_s - self._counts[0][0] > _RATE_WINDOW_S:
            self._counts.popleft()

    def rate(self) -> int:
        """Ids a second, over the last moments."""
        if len(self._counts) < 2:
            return 0
        (from_s, before), (to_s, made) = self._counts[0], self._counts[-1]
        return round((made - before) / (to_s - from_s)) if to_s > from_s else 0


Report = tuple[Member, str, str]


class Fleet:
    """All processes of one demo. Their files and logs are in *directory*."""

    def __init__(self, directory: Path, url: str, pool: str, ttl_s: float, rate: int) -> None:
        self._directory = directory
        self._settings = [url, pool, str(ttl_s), str(rate)]
        self._reports: queue.SimpleQueue[Report] = queue.SimpleQueue()
        self.members: list[Member] = []

    def start(self) -> Member:
        """Start one more."""
        number = len(self.members) + 1
        path = self._directory / f"ids-{number}"
        path.touch()
        # each finds the same packages as this process, and none by the accident of a current directory
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
                # Ctrl-C at the terminal is for this process, which then ends them in order
                start_new_session=True,
            )
        member = Member(number, process, path)
        self.members.append(member)
        threading.Thread(target=self._listen, args=(member,), daemon=True).start()
        return member

    def _listen(self, member: Member) -> None:
        if member.process.stdout:
            with member.process.stdout as said:
                for line in said:
                    word, _, text = line.rstrip("\n").partition(" ")
                    self._reports.put((member, word, text))
        member.process.wait()
        self._reports.put((member, "ended", str(member.process.returncode)))

    def hear(self, limit_s: float) -> list[Report]:
        """What was said; waits for it no longer than *limit_s*."""
        heard = []
        with contextlib.suppress(queue.Empty):
            heard.append(self._reports.get(timeout=max(0.001, limit_s)))
            while True:
                heard.append(self._reports.get_nowait())
        for member, word, text in heard:
            if word == "claimed":
                member.workers.append(int(text))
            elif word == "namespace":
                member.namespace = int(text)
            elif word == "closed":
                member.closed = True
        return heard

    def last_words(self, member: Member) -> str:
        """The last line that *member* wrote to stderr."""
        log = (self._directory / f"log-{member.number}").read_text("utf-8", "replace").strip()
        return log.rpartition("\n")[2]

    def step_clock(self, member: Member, ms: int) -> None:
        if member.process.stdin:
            with contextlib.suppress(BrokenPipeError):
                member.process.stdin.write(f"step {ms}\n")
                member.process.stdin.flush()

    def kill(self, member: Member) -> None:
        """kill -9: no handler runs, nothing is given back."""
        member.killed = True
        member.process.kill()

    def ask_to_end(self) -> list[Member]:
        """SIGTERM to everybody who runs; who that was."""
        running = [member for member in self.members if member.running]
        for member in running:
            member.asked_to_end = True
            member.process.terminate()
        return running

    def end(self) -> None:
        """Leave no process behind, and wait for none longer than a few seconds."""
        self.ask_to_end()
        deadline_s = time.monotonic() + _END_LIMIT_S
        for member in self.members:
            try:
                member.process.wait(max(0.0, deadline_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                member.process.kill()
                member.process.wait()
            if member.process.stdin:
                with contextlib.suppress(BrokenPipeError):
                    member.process.stdin.close()
