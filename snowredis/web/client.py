"""Client of the service, for processes without access to Redis: fetches ids in batches over HTTP.

    ids = Client("http://127.0.0.1:8600", pool="orders")
    ids.next_id()

Needs only the standard library.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import struct
import threading
import time
from collections.abc import Callable
from typing import Self, TypeVar
from urllib.parse import urlencode, urlsplit

from snowredis.errors import ConfigError, SnowredisError
from snowredis.process.fork import GUARD
from snowredis.process.threads import NotAcquired, locked

T = TypeVar("T")

# a first pause after a failed connection; it doubles
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
# ids carry the time of their fetch, so the caller chooses how old they may get
DEFAULT_BATCH = 100


# statuses after which the same request can succeed: none at all, above a rate limit, no ids now
_TEMPORARY = frozenset({0, 429, 503})


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
        return f"the service returned no ids: {self.detail or self.error} (HTTP status {self.status or 'none'})"


class Client:
    """Source of ids; thread-safe. A forked child starts without ids and with its own connection.

    Args:
        url: of the service: http:// or https://, host and port.
        pool: name of the pool; default: the first pool of the service.
        token: if the service requires one.
        batch: how many ids next_id() fetches at once. The time in an id is that of its fetch.
        timeout: seconds, for a connect and for a read.
        max_wait: seconds; how long a call waits and tries again while the service cannot be reached or has no ids, also
            if other threads wait, too. It waits as long as the service says, and not at all if that is longer. 0: one
            attempt.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8600",
        *,
        pool: str | None = None,
        token: str | None = None,
        batch: int = DEFAULT_BATCH,
        timeout: float = 5.0,
        max_wait: float = 5.0,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise ConfigError(f"{url!r} is not the URL of a service. Use one such as http://127.0.0.1:8600")
        if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
            raise ConfigError(f"batch must be a whole number above 0, not {batch!r}")
        secure = parts.scheme == "https"
        self._connection_type = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        self._host, self._port, self._path = parts.hostname, parts.port, parts.path.rstrip("/")
        self._pool, self._batch = pool, batch
        self._timeout_s, self._max_wait_s = timeout, max_wait
        self._headers = {"Accept": "application/octet-stream"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._after_fork()
        GUARD.reset_in_child(self)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()
        # connects at the first request, and again after close()
        self._connection = self._connection_type(self._host, self._port, timeout=self._timeout_s)
        # fetched ids, the next one last
        self._ids: list[int] = []

    def next_id(self) -> int:
        """Return the next id, increasing within a thread. Blocks for a fetch every *batch* ids. Raises ServiceError."""
        return GUARD.in_one_process(lambda: self._with_retries(self._take))

    def next_ids(self, count: int) -> list[int]:
        """Fetch *count* ids, strictly increasing, in one request. Blocks for it. Raises ServiceError."""
        return GUARD.in_one_process(lambda: self._with_retries(lambda: self._fetch(count)))

    def _take(self) -> int:
        # read once: a child that is forked in here has another list, which gets nothing of this one
        ids = self._ids
        if not ids:
            ids += reversed(self._fetch(self._batch))
        return ids.pop()

    def close(self) -> None:
        """Close the connection and drop the fetched ids, which are never used."""
        GUARD.check()
        with self._lock:
            self._ids = []
            self._connection.close()

    def _with_retries(self, attempt: Callable[[], T]) -> T:
        """Call *attempt* under the lock until it succeeds, for max_wait.

        Ids of a response that was lost are never used, so a request may be repeated. Other threads have their attempts
        during the pauses. Behind a service that hangs a thread waits in the queue for as long as one attempt may take.
        """
        began_s, pause_s = time.monotonic(), _FIRST_PAUSE_S
        while True:
            left_s = began_s + self._max_wait_s - time.monotonic()
            try:
                return locked(self._lock, attempt, max(left_s, self._timeout_s))
            except NotAcquired:
                where = f"other threads of this client wait for {self._host}"
                raise ServiceError(0, "Timeout", f"{where}, which does not respond") from None
            except ServiceError as error:
                if error.status not in _TEMPORARY or error.error == "Timeout":
                    raise
                wait_s = float(error.retry_after_s) or pause_s
                if time.monotonic() + wait_s > began_s + self._max_wait_s:
                    raise
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                time.sleep(wait_s)

    def _fetch(self, count: int) -> list[int]:
        query = {"count": count} | ({"pool": self._pool} if self._pool is not None else {})
        status, headers, body = self._get(f"{self._path}/ids?{urlencode(query)}")
        if status != 200:
            raise _service_error(status, headers, body)
        if headers.get_content_type() != "application/octet-stream" or len(body) != 8 * count:
            raise ServiceError(status, "BadResponse", "this is not a snowredis service, or it has another version")
        return list(struct.unpack(f">{count}q", body))

    def _get(self, target: str) -> tuple[int, http.client.HTTPMessage, bytes]:
        while True:
            is_new = self._connection.sock is None
            try:
                self._connection.request("GET", target, headers=self._headers)
                response = self._connection.getresponse()
                return response.status, response.headers, response.read()
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                # the service may have closed an idle connection: once more on a new one, without a pause
                if is_new or isinstance(error, TimeoutError):
                    reason = str(error) or type(error).__name__
                    where = f"{self._host}:{self._port or ''}".rstrip(":")
                    code = "Timeout" if isinstance(error, TimeoutError) else "Unreachable"
                    raise ServiceError(0, code, f"{where} does not respond: {reason}") from error

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
    wait_s = int(after) if after.isascii() and after.isdecimal() and len(after) < 9 else 0
    return ServiceError(status, str(fields.get("error", "")), str(fields.get("detail", "")), wait_s)
