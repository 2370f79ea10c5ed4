"""Client of the service, for processes without access to Redis: fetches ids in batches over HTTP.

    ids = Client("http://127.0.0.1:8600", pool="orders")
    ids.next_id()

Needs only the standard library.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import sys
import threading
from array import array
from typing import Self
from urllib.parse import urlencode, urlsplit

from snowredis.errors import ConfigError, SnowredisError

# ids carry the time of their fetch, so the caller chooses how old they may get
DEFAULT_BATCH = 100


class ServiceError(SnowredisError):
    """A request to the service failed.

    Attributes:
        status: of HTTP; 0 without a response.
        error, detail: from the response.
        retry_after_s: when to try again; 0 if the response does not say it.
    """

    def __init__(self, status: int, error: str, detail: str, retry_after_s: int = 0) -> None:
        super().__init__(status, error, detail, retry_after_s)
        self.status, self.error, self.detail, self.retry_after_s = status, error, detail, retry_after_s

    def __str__(self) -> str:
        return (
            f"the service returned no ids: {self.detail or self.error} (HTTP status {self.status or 'none'})"
        )


class Client:
    """Source of ids; thread-safe. A forked child starts without ids and with its own connection.

    Args:
        url: of the service: http:// or https://, host and port.
        pool: name of the pool; default: the first pool of the service.
        token: if the service requires one.
        batch: how many ids next_id() fetches at once. The time in an id is that of its fetch.
        timeout: seconds, for a connect and for a read.
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
            raise ConfigError(f"{url!r} is not the URL of a service. Use one such as http://127.0.0.1:8600")
        if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
            raise ConfigError(f"batch must be a whole number above 0, not {batch!r}")
        secure = parts.scheme == "https"
        self._connection_type = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        self._host, self._port, self._path = parts.hostname, parts.port, parts.path.rstrip("/")
        self._pool, self._batch, self._timeout_s = pool, batch, timeout
        self._headers = {"Accept": "application/octet-stream"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        # connects at the first request, and again after close()
        self._connection = self._connection_type(self._host, self._port, timeout=self._timeout_s)
        # fetched ids, the next one last
        self._ids: list[int] = []

    def _lock_of_process(self) -> threading.Lock:
        """Return the lock, after a fork a new one: a thread of the parent may hold the old one."""
        if self._pid != os.getpid():
            self._reset()
        return self._lock

    def next_id(self) -> int:
        """Return the next id, increasing within a thread. Blocks for a fetch every *batch* ids. Raises ServiceError."""
        with self._lock_of_process():
            if not self._ids:
                self._ids = self._fetch(self._batch)[::-1]
            return self._ids.pop()

    def next_ids(self, count: int) -> list[int]:
        """Fetch *count* ids, strictly increasing, in one request. Blocks for it. Raises ServiceError."""
        with self._lock_of_process():
            return self._fetch(count)

    def close(self) -> None:
        """Close the connection and drop the fetched ids, which are never used."""
        with self._lock_of_process():
            self._ids = []
            self._connection.close()

    def _fetch(self, count: int) -> list[int]:
        query = {"count": count} | ({"pool": self._pool} if self._pool is not None else {})
        status, headers, body = self._get(f"{self._path}/ids?{urlencode(query)}")
        if status != 200:
            raise _service_error(status, headers, body)
        if headers.get_content_type() != "application/octet-stream" or len(body) != 8 * count:
            raise ServiceError(
                status, "BadResponse", "this is not a snowredis service, or it has another version"
            )
        ids = array("q", body)
        if sys.byteorder == "little":
            ids.byteswap()
        return ids.tolist()

    def _get(self, target: str) -> tuple[int, http.client.HTTPMessage, bytes]:
        while True:
            is_new = self._connection.sock is None
            try:
                self._connection.request("GET", target, headers=self._headers)
                response = self._connection.getresponse()
                return response.status, response.headers, response.read()
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                # the service may have closed an idle connection; ids of a lost response are never used, which is safe
                if is_new or isinstance(error, TimeoutError):
                    reason = str(error) or type(error).__name__
                    where = f"{self._host}:{self._port or ''}".rstrip(":")
                    raise ServiceError(0, "Unreachable", f"{where} does not respond: {reason}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def _service_error(status: int, headers: http.client.HTTPMessage, body: bytes) -> ServiceError:
    error: object = {}
    with contextlib.suppress(ValueError):
        error = json.loads(body)
    fields = error if isinstance(error, dict) else {}
    after = headers.get("retry-after", "")
    wait_s = int(after) if after.isascii() and after.isdecimal() and len(after) < 6 else 0
    return ServiceError(status, str(fields.get("error", "")), str(fields.get("detail", "")), wait_s)
