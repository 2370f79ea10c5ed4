"""Sessions of browsers that logged out: their cookies are refused by every process of the service.

They are stored in the Redis of the pools, until the cookies would have ended. Each process looks once a second while
cookies are used. While Redis is unavailable, a process knows those that it saw or ended itself.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from snowredis.errors import SnowredisError
from snowredis.process.threads import in_thread
from snowredis.snowflake.open import is_in_memory, open_client
from snowredis.snowflake.redis_store import translated
from snowredis.snowflake.scripts import text_of
from snowredis.web.access import COOKIE_LIFE_S
from snowredis.web.request_guard import no_token

log = logging.getLogger("snowredis")

# zset: session -> end of its cookie, seconds since 1970
KEY = "snowredis:ended-sessions"
_LOOK_EVERY_S = 1.0
_MAX_SESSIONS = 10_000


class EndedSessions:
    """Sessions whose cookies are refused.

    Args:
        url: as connect() takes it. Pools in memory have only one process, and nothing is stored.
    """

    def __init__(self, url: Any) -> None:
        self._urls = [
            one for one in (url if isinstance(url, list | tuple) else [url]) if not is_in_memory(one)
        ]
        self._ended: dict[str, int] = {}
        # ended here, and not stored yet
        self._unstored: dict[str, int] = {}
        self._servers: list[Any] = []
        self._looked_at_s = float("-inf")
        self._failed = False

    async def end(self, session: str) -> None:
        """End *session*, here at once, elsewhere within about a second."""
        until_s = int(time.time()) + COOKIE_LIFE_S
        self._ended[session] = self._unstored[session] = until_s
        self._looked_at_s = float("-inf")
        await self._look()

    async def check(self, session: str) -> None:
        """Raise Problem if *session* has ended."""
        if time.monotonic() - self._looked_at_s >= _LOOK_EVERY_S:
            await self._look()
        if session in self._ended:
            raise no_token()

    async def _look(self) -> None:
        # first, so that requests meanwhile do not look too
        self._looked_at_s = time.monotonic()
        try:
            found = await in_thread(self._exchange)
        except SnowredisError as error:
            if not self._failed:
                log.warning("a logout is not seen by other processes: %s", error)
            self._failed = True
            return
        self._failed = False
        now_s = time.time()
        self._ended = {name: until_s for name, until_s in (self._ended | found).items() if until_s > now_s}

    def _exchange(self) -> dict[str, int]:
        """Store what is not stored yet, and return what is. Blocks for a few round trips to Redis."""
        if not self._servers:
            self._servers = [open_client(url) for url in self._urls]
        found: dict[str, int] = {}
        unstored = dict(self._unstored)
        now_s = int(time.time())
        for server in self._servers:
            with translated(server.where):
                if unstored:
                    server.client.zadd(KEY, unstored)
                rows = server.client.zrangebyscore(KEY, "-inf", "+inf", 0, _MAX_SESSIONS, withscores=True)
                old = [name for name, until_s in rows if until_s <= now_s]
                if old:
                    server.client.zrem(KEY, *old)
            found |= {text_of(name): int(until_s) for name, until_s in rows}
        for name in unstored:
            del self._unstored[name]
        return found
