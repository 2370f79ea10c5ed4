"""Make numbers until it is killed, in threads, a signal handler and forked children, and record each before it is used.

Arguments: kind ("segment" or "dated"), URLs, folder. Each file there gets runs of consecutive numbers, as
"FIRST COUNT STRIDE" or "FIRST COUNT PERIOD"; one beside it the last error.
"""

import os
import signal
import sys
import threading
import time
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from snowredis.errors import SnowredisError
from snowredis.numbers import DatedGenerator
from snowredis.numbers.segments import open_generator

kind, urls, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
ids: Any
if kind == "dated":
    ids = DatedGenerator("bills", urls, period="hour", format="{date:%Y%m%d%H}-{number:012}")
else:
    ids = open_generator(urls, tag="word", step=2_000, max_step=400_000)


class Recorder:
    """Writes what one thread of one process made."""

    def __init__(self) -> None:
        self._path = folder / f"{kind}-{os.getpid()}-{threading.get_ident()}-{time.monotonic_ns()}.runs"
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def record(self, size: int) -> None:
        """Make and record *size* numbers."""
        try:
            lines = self._dated(size) if kind == "dated" else self._plain(size)
            os.write(self._file, lines.encode())
        except SnowredisError as error:
            self._path.with_suffix(".error").write_text(str(error))
            time.sleep(0.05)

    def _plain(self, size: int) -> str:
        numbers = np.array(ids.next_ids(size))
        steps = np.diff(numbers)
        # a run ends where the distance is another one than that of the numbers of a server
        starts = np.concatenate(([0], np.flatnonzero(steps != 2) + 1))
        counts = np.diff(np.append(starts, size))
        return "".join(f"{numbers[at]} {count} 2\n" for at, count in zip(starts, counts, strict=True))

    def _dated(self, size: int) -> str:
        texts = [text.split("-") for text in ids.next_ids(size)]
        return "".join(
            f"{int(run[0][1])} {len(run)} {label}\n"
            for label, each in groupby(texts, key=lambda text: text[0])
            if (run := list(each))
        )


def make_on(size: int) -> None:
    mine = Recorder()
    while True:
        mine.record(size)


def on_alarm(*_: object) -> None:
    if not busy:
        busy.append(True)
        handled.record(7)
        busy.clear()


busy: list[bool] = []
handled, main = Recorder(), Recorder()
if kind == "segment":
    signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
for size in (50_000, 200_000) if kind == "segment" else (10_000, 50_000):
    threading.Thread(target=make_on, args=(size,), daemon=True).start()
while True:
    for _ in range(20):
        main.record(1_000 if kind == "segment" else 500)
    if os.fork() == 0:
        signal.setitimer(signal.ITIMER_REAL, 0)
        child = Recorder()
        for _ in range(5):
            child.record(300)
        os._exit(0)
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                break
        except ChildProcessError:
            break
