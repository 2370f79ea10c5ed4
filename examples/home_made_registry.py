# Type:     python examples/home_made_registry.py
# Needs:    redis-server, or else pip install 'fakeredis[lua]'
# You see:  how many ids repeat if node ids are kept with SET NX EX and EXPIRE, as in many applications, and how many
#           with snowredis in the same processes. Three of them are paused for longer than the lease, and Redis is
#           emptied once. It takes 40 s; another number of seconds may follow.

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import redis

import snowredis

TTL_S = 2
EPOCH_MS = 1_735_689_600_000


class SetNxNode:
    """The pattern: whoever sets the key first has the node id, and keeps it with EXPIRE."""

    def __init__(self, client):
        self.client, self.beat, self.last = client, time.monotonic(), (0, 0)
        self.node = next(node for node in range(1024) if client.set(f"node:{node}", os.getpid(), nx=True, ex=TTL_S))

    def next_id(self):
        if time.monotonic() - self.beat > TTL_S / 3:
            self.beat = time.monotonic()
            self.client.expire(f"node:{self.node}", TTL_S)
        ms = time.time_ns() // 1_000_000
        self.last = (ms, self.last[1] + 1 if ms == self.last[0] else 0)
        return ms - EPOCH_MS << 22 | self.node << 12 | self.last[1]


def work(url, directory):
    """Make about 1,000 ids a second of each kind, until the process is ended."""
    node, ids = SetNxNode(redis.Redis.from_url(url)), snowredis.connect(url, pool="registry", ttl=TTL_S)
    with (
        Path(directory, f"{os.getpid()}.setnx").open("w") as one,
        Path(directory, f"{os.getpid()}.lease").open("w") as two,
    ):
        while os.getppid() != 1:
            one.write(f"{node.next_id()}\n")
            two.write(f"{ids.next_id()}\n")
            # a pause between two ids, as requests have
            time.sleep(0.0005)


def start(url, directory):
    return subprocess.Popen([sys.executable, __file__, "work", url, directory])


def main(seconds):
    with tempfile.TemporaryDirectory() as directory:
        # a server of its own, since it is emptied below; other programs share embedded://
        url = snowredis.embedded.start(Path(directory, "redis")).url
        workers = [start(url, directory) for _ in range(4)]
        time.sleep(seconds * 0.15)
        for paused in workers[:3]:
            # a long garbage collection, a frozen VM, a debugger; meanwhile the autoscaler starts another process
            paused.send_signal(signal.SIGSTOP)
            time.sleep(1.5 * TTL_S)
            workers.append(start(url, directory))
            time.sleep(seconds * 0.1)
            paused.send_signal(signal.SIGCONT)
        # Redis came back empty
        redis.Redis.from_url(url).flushdb()
        workers.append(start(url, directory))
        time.sleep(max(seconds * 0.4, 2.5 * TTL_S))
        for worker in workers:
            worker.terminate()
            worker.wait()
        snowredis.embedded.stop(Path(directory, "redis"))
        for name, kind in ("SET NX EX", "setnx"), ("snowredis", "lease"):
            made = [line for file in Path(directory).glob(f"*.{kind}") for line in file.read_text().split("\n")[:-1]]
            print(f"{name:>9}: {len(made):,} ids, {len(made) - len(set(made)):,} of them repeated")


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        work(*sys.argv[2:])
    else:
        main(float(sys.argv[1]) if sys.argv[1:] else 30)
