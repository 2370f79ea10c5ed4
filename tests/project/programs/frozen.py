"""A program to freeze, with the least that its user imports: ids of each kind, from the server at SNOWREDIS_URL."""

import multiprocessing
import os

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
    for url in (f"segment+{os.environ['SNOWREDIS_URL']}?tag=closed", "snowflake+embedded://"):
        try:
            snowredis.generator(url).next_id()
        except snowredis.SnowredisError as error:
            # the first is what a script replies
            print(type(error).__name__, error)


def make(_):
    return snowredis.next_id()


if __name__ == "__main__":
    multiprocessing.freeze_support()
    main()
