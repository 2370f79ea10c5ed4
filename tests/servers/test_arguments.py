"""A script refuses a call that lacks arguments itself, by the name of one of them, before it changes anything."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import redis

from snowredis.servers.scripts import Script
from snowredis.snowflake.protocol import PoolConfig
from snowredis.snowflake.redis_store import RedisStore
from tests.support.holder import Holder
from tests.support.servers import RedisServer

NOW_MS = 1_800_000_000_000
# as many arguments as all scripts of a pool have in common
COMMON = 6


class Recording(RedisStore):
    """Keeps the arguments of the last call."""

    args: Sequence[str | int] = ()

    def run(self, script: Script, keys: Sequence[str], args: Sequence[str | int]) -> Sequence[bytes | str]:
        self.args = args
        return super().run(script, keys, args)


@pytest.mark.parametrize("name", ["claim", "renew", "release"])
def test_too_few_arguments_are_refused_by_name(name: str, server: RedisServer) -> None:
    store = Recording(server.url, PoolConfig(name="arguments"))
    store.create(0)
    Holder(store, lambda: NOW_MS).claim()
    before = server.client().hgetall(store._keys[0])
    source, named = store._scripts[name].source, set()
    for count in range(COMMON + 1):
        with pytest.raises(redis.ResponseError, match="SNOWREDIS bad argument ") as caught:
            server.client().eval(source, len(store._keys), *store._keys, *store.args[:count])
        named.add(str(caught.value).rpartition(" ")[2])
    assert {"signature", "nonce", "constants"} < named
    assert server.client().hgetall(store._keys[0]) == before
