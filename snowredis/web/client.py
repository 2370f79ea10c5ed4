"""Ids from a service over HTTP, for a process that has no way to Redis: fetches many at once, hands out one by one.

    ids = Client("http://127.0.0.1:8600", pool="orders")
    ids.next_id()

Needs nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import sys
import threading
from array import array
from types import TracebackType
from typing import Self
from urllib.parse import urlencode, urlsplit

from snowredis.errors import ConfigError, SnowredisError

# how old its time stamps get while they lie here is for the caller to say: ids that are handed out late look old
DEFAULT_BATCH = 100


class ServiceError(SnowredisError):
    """The service did not give ids.

    Attributes:
        status: of HTTP; 0 if there was no answer.
        error, detail: what it said.
        retry_after_s: when it said to come again; 0 if it did not.
    """

    def __init__(self, status: int, error: str, detail: str, retry_after_s: int = 0) -> None:
        super().__init__(status, error, detail, retry_after_s)
        self.status, self.error, self.detail, self.retry_after_s = status, error, detail, retry_after_s

    def __str__(self) -> str:
        return f"the service gave no ids: {self.detail or self.error} (HTTP status {self.status or 'none'})"


class Client:
    """May be shared by threads; a forked child starts with no ids and a connection of its own.

    Args:
        url: of the service: http:// or https://, host and port.
        pool: default: the service's first.
        token: if the service wants one.
        batch: how many ids are fetched at once by next_id(). Ids are as old as their fetch.
        timeout: seconds, of a connect and of a read.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8600",
        *,
        pool: str | None = None,
        token: str | None = None,
        batch: int = DEFAULT_BATCH,
        timeout: float = 5.0,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise ConfigError(f"{url!r} is no address of a service, such as http://127.0.0.1:8600")
        if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
            raise ConfigError(f"batch must be a whole number from 1, not {batch!r}")
        self._kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._host, self._port, self._path = parts.hostname, parts.port, parts.path.rstrip("/")
        self._pool, self._batch, self._timeout_s = pool, batch, timeout
        self._headers = {"Accept": "application/octet-stream"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._connection: http.client.HTTPConnection | None = None
        # the next id last
        self._left: list[int] = []

    def next_id(self) -> int:
        """One id; each thread sees them grow. Blocks for a round trip every *batch* ids. Raises ServiceError."""
        if self._pid != os.getpid():
            self._begin()
        with self._lock:
            if not self._left:
                self._left = self._fetch(self._batch)[::-1]
            return self._left.pop()

    def next_ids(self, count: int) -> list[int]:
        """*count* fresh ids, strictly increasing, of one request. Raises ServiceError."""
        if self._pid != os.getpid():
            self._begin()
        with self._lock:
            return self._fetch(count)

    def close(self) -> None:
        """Close the connection; ids that were fetched and not handed out are never used."""
        with self._lock:
            self._left = []
            self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _fetch(self, count: int) -> list[int]:
        query = {"count": count} | ({"pool": self._pool} if self._pool is not None else {})
        status, headers, body = self._ask(f"{self._path}/ids?{urlencode(query)}")
        if status != 200:
            raise _refusal(status, headers, body)
        if headers.get_content_type() != "application/octet-stream" or len(body) != 8 * count:
            raise ServiceError(status, "BadAnswer", "this is no snowredis service, or one of another version")
        ids = array("q", body)
        if sys.byteorder == "little":
            ids.byteswap()
        return ids.tolist()

    def _ask(self, target: str) -> tuple[int, http.client.HTTPMessage, bytes]:
        while True:
            fresh = self._connection is None
            if self._connection is None:
                self._connection = self._kind(self._host, self._port, timeout=self._timeout_s)
            try:
                self._connection.request("GET", target, headers=self._headers)
                answer = self._connection.getresponse()
                return answer.status, answer.headers, answer.read()
            except (OSError, http.client.HTTPException) as error:
                self._drop()
                # the service may have closed a connection that was idle: ids of an answer that got lost do no harm
                if fresh or isinstance(error, TimeoutError):
                    reason = str(error) or type(error).__name__
                    where = f"{self._host}:{self._port or ''}".rstrip(":")
                    raise ServiceError(0, "Unreachable", f"{where} does not answer: {reason}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _refusal(status: int, headers: http.client.HTTPMessage, body: bytes) -> ServiceError:
    told: object = {}
    with contextlib.suppress(ValueError):
        told = json.loads(body)
    found = told if isinstance(told, dict) else {}
    after = headers.get("retry-after", "")
    wait_s = int(after) if after.isascii() and after.isdecimal() and len(after) < 6 else 0
    return ServiceError(status, str(found.get("error", "")), str(found.get("detail", "")), wait_s)
