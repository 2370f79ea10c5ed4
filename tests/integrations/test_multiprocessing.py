"""multiprocessing and concurrent.futures need nothing, however their processes start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import snowredis
from snowredis.lease.model import PoolConfig
from tests.support.programs import FORKS_WITH_THREADS, ROOT
from tests.support.servers import RedisServer

METHODS = ["fork", "spawn", "forkserver"]
HEAD = """
import json, multiprocessing, os, sys, time
from concurrent.futures import ProcessPoolExecutor
import snowredis

URL, POOL, METHOD, TTL = sys.argv[1:]
# forked children have that of their parent, spawned ones make their own when they import this
ids = snowredis.connect(URL, pool=POOL, ttl=float(TTL))
snowredis.configure(url=URL, pool=POOL, ttl=float(TTL))
context = multiprocessing.get_context(METHOD)

def make(_=None):
    return ids.next_ids(100) + [snowredis.next_id() for _ in range(10)]

def put(queue):
    queue.put(make())

def holders():
    return {info.pid for info in snowredis.WorkerPool(URL, POOL).workers()}

def say(batches):
    made = [an_id for batch in batches for an_id in batch]
    print(json.dumps([len(made), len(set(made)), sorted(holders() - {os.getpid()})]))
"""


@pytest.fixture
def program(server: RedisServer, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run HEAD and *source* as a file, since children that are not forked import it."""

    def run(source: str, method: str, ttl_s: int = 120) -> subprocess.CompletedProcess[str]:
        path = tmp_path / "program.py"
        path.write_text(HEAD + source)
        config = PoolConfig(name=tmp_path.name[-60:], ttl_ms=ttl_s * 1000)
        snowredis.WorkerPool(server.url, config.name).create(config)
        return subprocess.run(
            [sys.executable, "-W", FORKS_WITH_THREADS, str(path)]
            + [server.url, config.name, method, str(ttl_s)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


@pytest.mark.parametrize("method", METHODS)
def test_parent_and_children_repeat_no_id_and_children_give_their_worker_ids_back(
    program: Callable[..., subprocess.CompletedProcess[str]], method: str
) -> None:
    done = program(
        """
if __name__ == "__main__":
    batches = [make()]
    queue = context.SimpleQueue()
    processes = [context.Process(target=put, args=(queue,)) for _ in range(2)]
    for process in processes:
        process.start()
    batches += [queue.get() for _ in processes]
    for process in processes:
        process.join()
        assert process.exitcode == 0
    pool = context.Pool(2, maxtasksperchild=10)
    batches += pool.map(make, range(40), chunksize=1)
    pool.close()
    pool.join()
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        batches += pool.map(make, range(20))
    batches.append(make())
    say(batches)
""",
        method,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    made, different, others = json.loads(done.stdout)
    assert made == different == 64 * 110
    assert others == []


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_generator_as_an_argument_is_refused_with_what_to_do_instead(
    program: Callable[..., subprocess.CompletedProcess[str]], method: str
) -> None:
    done = program(
        """
if __name__ == "__main__":
    context.Process(target=print, args=(ids,)).start()
""",
        method,
    )
    assert done.returncode == 1
    assert "TypeError: a snowredis generator cannot be pickled or copied" in done.stderr
    assert "Call snowredis.connect() in each process" in done.stderr


def test_a_forked_process_may_be_given_a_generator(
    program: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = program(
        """
def give(generator, queue):
    queue.put(generator.next_ids(100))

if __name__ == "__main__":
    with snowredis.connect(URL, pool=POOL, ttl=float(TTL)) as given:
        batches = [given.next_ids(100)]
        queue = context.SimpleQueue()
        process = context.Process(target=give, args=(given, queue))
        process.start()
        batches.append(queue.get())
        process.join()
        say(batches)
""",
        "fork",
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [200, 200, []]


def test_children_that_a_pool_terminates_cost_one_ttl_and_no_id(
    program: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = program(
        """
if __name__ == "__main__":
    with context.Pool(2) as pool:
        batches = pool.map(make, range(10), chunksize=1)
    batches.append(make())
    until = time.monotonic() + 20
    while holders() - {os.getpid()} and time.monotonic() < until:
        time.sleep(0.05)
    say(batches + [make()])
""",
        "fork",
        ttl_s=2,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [12 * 110, 12 * 110, []]
