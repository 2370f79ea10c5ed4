# Type:     python examples/process_pools.py
# Needs:    redis-server, or else pip install 'fakeredis[lua]'
# You see:  for each way in which Python starts processes (fork, spawn, forkserver) which worker ids made 10,000 ids,
#           in this process and in those of a multiprocessing.Pool and a ProcessPoolExecutor. No id is repeated, and
#           no code is needed for that: each process calls snowredis.next_ids(). It starts its own Redis.

import multiprocessing
import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import snowredis

# at import, so spawned processes run it, too; forked ones inherit it, and still claim a worker id of their own
snowredis.configure(url="embedded://", pool="process-pools")


def make(count: int) -> tuple[int, list[int]]:
    """Return the pid of the process that runs this, and *count* ids."""
    return os.getpid(), snowredis.next_ids(count)


def run(method: str) -> None:
    context = multiprocessing.get_context(method)
    results = [make(1_000)]

    # close() and join(): leaving a `with` block kills the processes, whose worker ids are then in use for one more ttl
    pool = context.Pool(2)
    results += pool.map(make, [1_000] * 5, chunksize=1)
    pool.close()
    pool.join()

    with ProcessPoolExecutor(2, mp_context=context) as executor:
        results += executor.map(make, [1_000] * 4)

    made = [an_id for _, ids in results for an_id in ids]
    assert len(set(made)) == len(made) == 10_000
    layout = snowredis.Layout()
    makers = Counter((pid, layout.decode(ids[0]).worker) for pid, ids in results)
    print(f"{method}: {len(made):,} ids, none repeated")
    for (pid, worker), batches in sorted(makers.items()):
        print(f"    pid {pid}{' (this one)' * (pid == os.getpid())}, worker id {worker}: {batches * 1_000:,}")


if __name__ == "__main__":
    for name in multiprocessing.get_all_start_methods():
        run(name)
    pids = [info.pid for info in snowredis.WorkerPool("embedded://", "process-pools").workers()]
    assert pids == [os.getpid()]
    print("the children released their worker ids; only this process has one")
