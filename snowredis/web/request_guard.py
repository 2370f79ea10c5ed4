"""Checks of every request before anything is done for it: size, host, origin, token, rate.

Cheap checks first; a refused request costs no allocation. Raises Problem.
"""

from __future__ import annotations

import time
from collections.abc import MutableMapping, Sequence
from typing import Any

from snowredis.web.access import HostCheck, TokenAuth, is_loopback
from snowredis.web.limits import Limits, TokenBucket
from snowredis.web.problems import Problem, too_many_requests

Scope = MutableMapping[str, Any]
ID_PATHS = frozenset({"/id", "/ids"})
# for load balancers, which know neither a host name nor a token; the response is only yes or no
PROBES = frozenset({"/healthz", "/readyz"})
# pages that a person needs to log in; those with content check the cookie themselves
OPEN_PATHS = frozenset({"/", "/login", "/logout", "/static/page.css", "/static/icon.svg"})
_WITH_BODY = ("/login", "/logout")
# remembered loopback addresses
_MAX_REMEMBERED = 100


class RequestGuard:
    """Access and rate limits of one process.

    Attributes:
        auth: None without a token.
        local_only: whether only requests over loopback or a unix socket are allowed.
    """

    def __init__(self, token: str | None, hosts: Sequence[str], insecure: bool, limits: Limits) -> None:
        self.auth = TokenAuth(token) if token else None
        self.local_only = self.auth is None and not insecure
        self._limits = limits
        self._hosts = HostCheck(hosts)
        self._ids = TokenBucket(limits.id_requests_per_s)
        self._lookups = TokenBucket(limits.lookups_per_s)
        self._wrong_tokens = TokenBucket(limits.wrong_tokens_per_s)
        # server addresses of earlier requests, all loopback
        self._loopback: set[Any] = set()

    def check(self, scope: Scope) -> str | None:
        """Raise Problem unless the request is allowed.

        Returns:
            the session of its cookie, which may have ended; None without a cookie.
        """
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
            raise Problem(
                414, "UriTooLong", f"path and query may have {self._limits.max_query_bytes} bytes at most"
            )
        if path in PROBES:
            return None
        if not self._hosts.allows(host):
            raise Problem(
                403,
                "WrongHost",
                "the Host header is not a name of this service. Allow it with: snowredis serve --allow-host NAME",
            )
        # same-site: a page on another port of this host, which gets our cookie too
        if site in {b"cross-site", b"same-site"} and path != "/":
            raise Problem(403, "CrossSite", "requests from pages of other origins are not allowed")
        if path in OPEN_PATHS:
            return None
        session = self.check_caller(scope, authorization, cookie)
        if path in ID_PATHS and not self._ids.take(time.monotonic()):
            raise too_many_requests(f"the limit is {self._limits.id_requests_per_s} requests a second")
        return session

    def _check_body(self, path: str, name: bytes, value: bytes) -> None:
        limit = self._limits.max_body_bytes if path in _WITH_BODY else 0
        # browsers send the length of a form
        if name == b"transfer-encoding" or not value.isdigit() or len(value) > 12 or int(value) > limit:
            raise Problem(
                413, "BodyTooLarge", f"the body of a request to {path[:40]} may have {limit} bytes at most"
            )

    def check_caller(self, scope: Scope, authorization: bytes | None, cookie: bytes | None) -> str | None:
        """Raise Problem unless the request has the token or a cookie, or needs none. Return the cookie's session."""
        if self.auth is None:
            self._check_local(scope)
        elif authorization is not None:
            self._check_token(self.auth.is_bearer(authorization))
        else:
            session = None if cookie is None else self.auth.session_of(cookie, time.time())
            if session is None:
                raise no_token()
            return session
        return None

    def check_token(self, token: bytes) -> None:
        """Raise Problem unless *token* is the token, or none is needed."""
        self._check_token(self.auth is None or self.auth.is_token(token))

    def _check_token(self, correct: bool) -> None:
        if correct:
            return
        if not self._wrong_tokens.take(time.monotonic()):
            raise too_many_requests("too many wrong tokens")
        raise Problem(401, "Unauthorized", "the token is wrong")

    def _check_local(self, scope: Scope) -> None:
        server = scope.get("server")
        address = server[0] if server else "/"
        if address in self._loopback or not self.local_only:
            return
        if not is_loopback(str(address)):
            raise Problem(
                403,
                "TokenNeeded",
                "this service has no token, so only this machine may use it. Start it with a token or --insecure.",
            )
        if len(self._loopback) < _MAX_REMEMBERED:
            self._loopback.add(address)

    def check_lookup_rate(self) -> None:
        """Raise Problem if there are too many requests for lookups."""
        if not self._lookups.take(time.monotonic()):
            limit = self._limits.lookups_per_s
            raise too_many_requests(f"the limit for this kind of request is {limit} a second")


def no_token() -> Problem:
    """Return the response to a request without a token."""
    return Problem(401, "Unauthorized", "send the header Authorization: Bearer TOKEN")
