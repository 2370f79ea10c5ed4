"""Make ids in the children of a pool, with what the environment configures: multiprocessing_pool METHOD."""

import multiprocessing
import os
import sys

import snowredis


def make(_):
    return os.getpid(), snowredis.next_ids(500)


if __name__ == "__main__":
    here = snowredis.next_ids(500)
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        results = pool.map(make, range(20), chunksize=1)
    made = here + [an_id for _, ids in results for an_id in ids]
    assert len(set(made)) == len(made) == 21 * 500
    snowredis.close()
