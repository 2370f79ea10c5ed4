"""What every request passes before anything is done for it: size, host, rate, token.

Small things first, and nothing is allocated for a request that is refused. Raises Problem.
"""

from __future__ import annotations

import time
from collections.abc import MutableMapping, Sequence
from typing import Any

from snowredis.web.answers import Problem
from snowredis.web.limits import Bucket, Limits
from snowredis.web.security import HostCheck, Keys, is_loopback

Scope = MutableMapping[str, Any]
# asked by machines that know neither our name nor a token; they learn nothing but yes or no
PROBES = frozenset({"/healthz", "/readyz"})
# pages that let a person in; each looks at the cookie itself
OPEN_PATHS = frozenset({"/", "/login", "/logout", "/static/page.css", "/static/icon.svg"})
_WITH_BODY = ("/login", "/logout")


class RequestGuard:
    """Of one process."""

    def __init__(self, token: str | None, hosts: Sequence[str], insecure: bool, limits: Limits) -> None:
        self.keys = Keys(token) if token else None
        self.insecure = insecure
        self._limits = limits
        self._hosts = HostCheck(hosts)
        self._ids = Bucket(limits.id_requests_per_s)
        self._lookups = Bucket(limits.lookups_per_s)
        self._wrong = Bucket(limits.wrong_tokens_per_s)
        # addresses of this machine that requests came in on, all of them loopback
        self._local: set[Any] = set()

    def check(self, scope: Scope) -> None:
        """Raise Problem unless the request may go on."""
        path = scope["path"]
        host = authorization = cookie = site = None
        for name, value in scope["headers"]:
            if name == b"host":
                host = value if host is None else b""
            elif name == b"authorization":
                authorization = value
            elif name == b"cookie":
                cookie = value if cookie is None else cookie + b";" + value
            elif name == b"sec-fetch-site":
                site = value
            elif name in {b"content-length", b"transfer-encoding"}:
                self._check_body(path, name, value)
        if len(scope["query_string"]) + len(path) > self._limits.max_query_bytes:
            raise Problem(414, "UriTooLong", f"{self._limits.max_query_bytes} bytes are the most")
        if path in PROBES:
            return
        if not self._hosts.allows(host):
            raise Problem(
                403,
                "WrongHost",
                "this service does not go by the name in the Host header. Allow it with: snowredis serve "
                "--allow-host NAME",
            )
        # same-site: another port of this host, whose pages get our cookie sent along
        if site in {b"cross-site", b"same-site"} and path != "/":
            raise Problem(403, "CrossSite", "pages of other origins may not ask")
        if path in OPEN_PATHS:
            return
        self.check_caller(scope, authorization, cookie)
        if path in {"/id", "/ids"} and not self._ids.take(time.monotonic()):
            raise Problem(
                429, "TooManyRequests", f"{self._limits.id_requests_per_s} requests a second are the most", 1
            )

    def _check_body(self, path: str, name: bytes, value: bytes) -> None:
        limit = self._limits.max_body_bytes if path in _WITH_BODY else 0
        # a form says how long it is
        if name == b"transfer-encoding" or not value.isdigit() or len(value) > 12 or int(value) > limit:
            raise Problem(
                413, "BodyTooLarge", f"a request to {path[:40]} has a body of {limit} bytes at most"
            )

    def check_caller(self, scope: Scope, authorization: bytes | None, cookie: bytes | None) -> None:
        """Raise Problem unless there is a token or a cookie, or none is needed."""
        if self.keys is None:
            self._check_local(scope)
            return
        if authorization is None:
            if cookie is not None and self.keys.is_cookie(cookie, time.time()):
                return
            raise Problem(401, "Unauthorized", "send the header Authorization: Bearer TOKEN")
        if not self.try_token(authorization.partition(b" ")[2].strip(), authorization):
            raise Problem(401, "Unauthorized", "this is not the token")

    def try_token(self, token: bytes, header: bytes | None = None) -> bool:
        """Whether it is the token. Raises Problem if too many were wrong."""
        if self.keys is None:
            return True
        right = self.keys.bearer(header) if header is not None else self.keys.is_token(token)
        if not right and not self._wrong.take(time.monotonic()):
            raise Problem(429, "TooManyRequests", "too many wrong tokens", 1)
        return right

    def _check_local(self, scope: Scope) -> None:
        server = scope.get("server")
        address = server[0] if server else "/"
        if address in self._local or self.insecure:
            return
        if not is_loopback(str(address)):
            raise Problem(
                403,
                "TokenNeeded",
                "this service has no token, so it answers this machine only. Start it with a token or --insecure.",
            )
        if len(self._local) < 100:
            self._local.add(address)

    def check_lookup_rate(self) -> None:
        """Raise Problem if Redis is asked too often."""
        if not self._lookups.take(time.monotonic()):
            raise Problem(
                429,
                "TooManyRequests",
                f"{self._limits.lookups_per_s} of these requests a second are the most",
                1,
            )
