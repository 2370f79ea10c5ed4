"""One process of a chaos run whose client is written in any language: a command that prints ids, one a line.

It is called with the URL and the name of the pool, makes ids until SIGTERM, and goes on after Redis was away. An id
counts once its line is written. This program becomes the command, so that signals and clocks meet the client itself;
a child of it records the ids, and kills the client if the run ends first.
"""

import os
import select
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

from tests.lab.chaos.runs import Recorder, runs_of

CHUNK = 1 << 18


def record(recorder: Recorder, ids: int, client: int, rest_s: float) -> None:
    """Record what the process *client* writes to *ids*, until it ends; rest a while after each part."""
    rest, watched = b"", [0, ids]
    while True:
        ready, _, _ = select.select(watched, [], [])
        if 0 in ready and not os.read(0, CHUNK):
            watched.remove(0)
            os.kill(client, signal.SIGKILL)
        if ids in ready:
            data = os.read(ids, CHUNK)
            *lines, rest = (rest + data).split(b"\n")
            for batch in increasing(list(map(int, lines))):
                recorder.record(runs_of(batch))
            if not data:
                return
            time.sleep(rest_s)


def increasing(ids: list[int]) -> Iterator[list[int]]:
    """Cut *ids* where one is not above the one before: a client may go back to earlier ticks."""
    cuts = [0, *(i for i, (one, other) in enumerate(pairwise(ids), 1) if other <= one), len(ids)]
    return (ids[start:end] for start, end in pairwise(cuts) if end > start)


def main() -> NoReturn:
    command, url, pool, *settings = sys.argv[1:]
    directory, slot, began_ns, _, rest_s = settings[5:10]
    # its files have this pid, which the command keeps
    recorder, client = Recorder(Path(directory), int(slot), int(began_ns)), os.getpid()
    ids, out = os.pipe()
    if os.fork() == 0:
        os.close(out)
        record(recorder, ids, client, float(rest_s))
        os._exit(0)
    os.dup2(out, 1)
    words = shlex.split(command)
    os.execvp(words[0], [*words, url, pool])


if __name__ == "__main__":
    main()
