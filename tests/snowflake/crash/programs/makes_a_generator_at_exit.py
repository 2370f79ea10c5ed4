"""Make ids, and in an exit handler that runs after those of snowredis with another generator: URL POOL."""

import atexit
import sys

import snowredis

kept: list[snowredis.SnowflakeGenerator] = []


def make_an_id() -> None:
    kept.append(snowredis.connect(sys.argv[1], pool=sys.argv[2], layout="41/0/2/0/10", ttl=3.0))
    kept[-1].next_id()


atexit.register(make_an_id)
make_an_id()
