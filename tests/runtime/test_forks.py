"""Forks of every kind, on a real redis-server: no child makes an id of its parent's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from snowredis.monitor.worker_pool import WorkerPool
from tests.support.programs import run
from tests.support.servers import RedisServer


def ids_of(output: str) -> list[int]:
    ids = [int(line) for line in output.split()]
    assert ids
    return ids


def test_forked_children_claim_worker_ids_of_their_own(
    server: RedisServer, new_pool: Callable[..., str]
) -> None:
    output = run(
        """
        import os, sys, snowredis
        ids = snowredis.connect(sys.argv[1], pool=sys.argv[2])
        made = ids.next_ids(1500)
        children = []
        for _ in range(4):
            pid = os.fork()
            if pid == 0:
                assert ids.lease is None
                out = ids.next_ids(1500)
                os.write(1, ("\\n".join(map(str, out)) + "\\n").encode())
                ids.close()
                os._exit(0)
            children.append(pid)
        made += ids.next_ids(1500)
        os.write(1, ("\\n".join(map(str, made)) + "\\n").encode())
        for pid in children:
            assert os.waitpid(pid, 0)[1] == 0
        """,
        server.url,
        new_pool(),
    )
    made = ids_of(output)
    assert len(made) == 6 * 1500
    assert len(set(made)) == len(made)


def test_a_fork_that_bypasses_python_is_found_at_the_next_id(
    server: RedisServer, new_pool: Callable[..., str]
) -> None:
    output = run(
        """
        import ctypes, os, sys, snowredis
        # a tick of 10 s: parent and child are in the same one
        ids = snowredis.connect(sys.argv[1], pool=sys.argv[2], layout="game")
        made = ids.next_ids(10)
        pid = ctypes.CDLL(None).fork()
        made = made + ids.next_ids(10) if pid else [ids.next_id() for _ in range(10)]
        os.write(1, ("\\n".join(map(str, made)) + "\\n").encode())
        if pid == 0:
            ids.close()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        """,
        server.url,
        new_pool(layout="game"),
    )
    made = ids_of(output)
    assert len(made) == 30
    assert len(set(made)) == 30


def test_a_fork_inside_next_id_gives_parent_and_child_different_ids(
    server: RedisServer, new_pool: Callable[..., str]
) -> None:
    output = run(
        """
        import os, signal, sys, snowredis
        ids = snowredis.connect(sys.argv[1], pool=sys.argv[2])
        ids.claim()
        in_child = False

        def fork(number, frame):
            global in_child
            pid = os.fork()
            if pid == 0:
                in_child = True
                made.clear()
            else:
                forks.append(pid)
                # one at a time: a fork inside the hooks of a fork is more than Python itself can take
                signal.setitimer(signal.ITIMER_REAL, 0.0013)

        made, forks = [], []
        signal.signal(signal.SIGALRM, fork)
        signal.setitimer(signal.ITIMER_REAL, 0.0005)
        while not in_child and len(forks) < 60:
            an_id = ids.next_id()
            if in_child and snowredis.IMPLEMENTATION == "c":
                # no handler comes into C: this one came when the id was the caller's already
                break
            made.append(an_id)
        signal.setitimer(signal.ITIMER_REAL, 0)
        if in_child:
            made = made[-1:] + [ids.next_id()]
        with open(sys.argv[3], "a") as file:
            file.write("".join(f"{i}\\n" for i in made))
        if in_child:
            ids.close()
            os._exit(0)
        for pid in forks:
            assert os.waitpid(pid, 0)[1] == 0
        print(len(forks))
        """,
        server.url,
        new_pool(),
        str(server.directory / "forked.txt"),
    )
    assert int(output) >= 60
    made = ids_of((server.directory / "forked.txt").read_text())
    assert len(set(made)) == len(made)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_needs_nothing(
    server: RedisServer, new_pool: Callable[..., str], method: str
) -> None:
    program = server.directory / "pooled.py"
    program.write_text(
        """
import multiprocessing, os, sys
import snowredis

def make(_):
    return os.getpid(), snowredis.next_ids(500)

if __name__ == "__main__":
    here = snowredis.next_ids(500)
    with multiprocessing.get_context(sys.argv[1]).Pool(3) as pool:
        results = pool.map(make, range(30), chunksize=1)
    made = here + [i for _, ids in results for i in ids]
    assert len(set(made)) == len(made) == 31 * 500
    snowredis.close()
"""
    )
    name = new_pool()
    import os
    import subprocess
    import sys

    environment = {**os.environ, "SNOWREDIS_URL": server.url, "SNOWREDIS_POOL": name, "PYTHONPATH": "."}
    done = subprocess.run([sys.executable, str(program), method], env=environment, timeout=60)
    assert done.returncode == 0
    assert len(WorkerPool(server.url, name).workers()) <= 3


def test_a_child_that_never_makes_an_id_takes_no_worker_id(
    server: RedisServer, new_pool: Callable[..., str]
) -> None:
    name = new_pool()
    run(
        """
        import os, sys, snowredis
        ids = snowredis.connect(sys.argv[1], pool=sys.argv[2])
        first = ids.claim()
        pid = os.fork()
        if pid == 0:
            ids.close()
            sys.exit(0)
        os.waitpid(pid, 0)
        assert ids.lease.worker == first.worker
        assert len(snowredis.WorkerPool(sys.argv[1], sys.argv[2]).workers()) == 1
        ids.next_id()
        """,
        server.url,
        name,
    )
    assert WorkerPool(server.url, name).workers() == []
