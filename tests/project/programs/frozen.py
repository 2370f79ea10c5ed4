"""A program to freeze, with the least that its user imports: ids of each kind, from SNOWREDIS_URL. DIRECTORY is new."""

import multiprocessing
import os
import sys

import snowredis


def main():
    print(snowredis.IMPLEMENTATION)
    with snowredis.connect() as ids:
        print(ids.decode(ids.next_id()).worker)
    print(snowredis.next_id() > 0)
    for kind in ("snowflake", "uuid4", "of_another_package"):
        print(snowredis.generator(kind).next_id() is not None)
    print(snowredis.WorkerPool(os.environ["SNOWREDIS_URL"], "default").snapshot().info.name)
    with multiprocessing.Pool(2) as pool:
        print(len(set(pool.map(make, range(10)))))
    try:
        snowredis.generator("segment", url=os.environ["SNOWREDIS_URL"], tag="closed").next_id()
    except snowredis.SnowredisError as error:
        # what a script replied
        print(type(error).__name__)
    print(snowredis.embedded.start(sys.argv[1]).fresh)
    snowredis.embedded.stop(sys.argv[1])


def make(_):
    return snowredis.next_id()


if __name__ == "__main__":
    multiprocessing.freeze_support()
    main()
