"""Access control of the service: host names, the token and the cookie made of it, rates, trusted proxies.

RequestGuard checks each request before anything is done for it: size, host, origin, token, rate. Cheap checks come
first, and a refused request costs no allocation. No socket is used here.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import ipaddress
import logging
import re
import secrets
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from starlette.types import Scope

from snowredis.errors import ConfigError
from snowredis.web.messages import HttpProblem
from snowredis.web.settings import Limits

log = logging.getLogger("snowredis")


class Proxies:
    """The trusted proxies.

    Args:
        addresses: IP addresses and networks; "*" is every client, for a service that only proxies can reach.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        for address in addresses:
            try:
                if address != "*":
                    ipaddress.ip_network(address)
            except ValueError as error:
                raise ConfigError(
                    f"trusted_proxies: {error}. Use addresses such as 10.0.0.7 and networks such as 10.0.0.0/8"
                ) from error
        self._addresses = list(addresses)
        self._trusted: Any = None

    def around(self, app: Any) -> Any:
        """Return *app* with scopes that have the client and the scheme that a trusted proxy saw."""
        if not self._addresses:
            return app
        from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

        trusted = "*" if "*" in self._addresses else self._addresses
        middleware = ProxyHeadersMiddleware(app, trusted_hosts=trusted)
        self._trusted = middleware.trusted_hosts
        return middleware

    def trusts(self, address: str) -> bool:
        """Return true if *address* is that of a trusted proxy."""
        return self._trusted is not None and address in self._trusted


LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
COOKIE = "snowredis"
# a little more than a working day
COOKIE_LIFE_S = 12 * 3600
# names of sessions are never guessed, only counted apart
_SESSION_BYTES = 8
# Host headers and addresses whose check is remembered
_MAX_REMEMBERED = 100
# networks of clients whose wrong tokens are counted
_MAX_NETWORKS = 1_000
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]@/\\]+)(?::\d{1,5})?")


@lru_cache(maxsize=_MAX_REMEMBERED)
def is_loopback(address: str) -> bool:
    """Return true if only this machine can connect to *address*. A path is a unix socket, which is local too."""
    if address.startswith("/") or address in ("localhost", ""):
        return bool(address)
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return False


class HostCheck:
    """Check that Host headers name this service, against DNS rebinding.

    Args:
        hosts: names besides the local ones, without port; "*" allows any.
    """

    def __init__(self, hosts: Iterable[str] = ()) -> None:
        self._names = {name.lower().rstrip(".") for name in (*LOCAL_HOSTS, *map(_bracketed, hosts)) if name}
        self._is_ours = lru_cache(maxsize=_MAX_REMEMBERED)(self._is_name)

    def allows(self, header: bytes | None) -> bool:
        """Return true if *header* is the name of this service, with or without a port."""
        return header is not None and len(header) <= 300 and self._is_ours(header)

    def _is_name(self, header: bytes) -> bool:
        match = _HOST.fullmatch(header.decode("latin-1"))
        return match is not None and not self._names.isdisjoint({"*", match[1].lower().rstrip(".")})


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


class TokenAuth:
    """Verify the token, and cookies derived from it: every process of a service accepts those of the others."""

    def __init__(self, token: str) -> None:
        # a digest has one length for any input, and keeps the token itself out of memory
        self._digest = _sha256(token.encode())
        self._cookie_key = hmac.new(token.encode(), b"snowredis dashboard cookie", hashlib.sha256).digest()

    def is_token(self, token: bytes) -> bool:
        """Compare in constant time."""
        return hmac.compare_digest(_sha256(token), self._digest)

    def make_cookie(self, now_s: float) -> str:
        """Return the value of a new cookie: its end, the name of a new session, and a signature of both."""
        signed = f"{int(now_s) + COOKIE_LIFE_S}.{secrets.token_hex(_SESSION_BYTES)}"
        return f"{signed}.{self._signature(signed)}"

    def session_of(self, header: bytes, now_s: float) -> str | None:
        """Return the session of the first valid cookie in a Cookie header."""
        for part in header.decode("latin-1").split(";"):
            name, _, value = part.strip().partition("=")
            signed, _, signature = value.rpartition(".")
            until, _, session = signed.partition(".")
            if name != COOKIE or not (until.isascii() and until.isdecimal() and len(until) < 13):
                continue
            expected = self._signature(signed).encode()
            valid = hmac.compare_digest(signature.encode("latin-1"), expected)
            if valid and now_s < int(until) <= now_s + COOKIE_LIFE_S:
                return session
        return None

    def _signature(self, signed: str) -> str:
        return hmac.new(self._cookie_key, signed.encode("latin-1"), hashlib.sha256).hexdigest()


def bearer_of(header: bytes) -> bytes:
    """Return the token in an Authorization header; b"", which is no token, if there is none."""
    scheme, _, token = header.partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""


def _sha256(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()


ID_PATHS = frozenset({"/id", "/ids"})
# load balancers know neither a host name nor a token; they only get yes or no
PROBES = frozenset({"/healthz", "/readyz"})
# pages that a person needs to log in; those with content check the cookie themselves
OPEN_PATHS = frozenset({"/", "/login", "/logout", "/static/page.css", "/static/theme.css", "/static/icon.svg"})
_WITH_BODY = ("/login", "/logout")


class RateLimit:
    """A token bucket: *rate* requests a second, and bursts of as many; *what* names it for the client."""

    __slots__ = ("_at_s", "_detail", "_left", "_rate")

    def __init__(self, rate: float, what: str) -> None:
        self._rate, self._left, self._at_s = rate, float(rate), 0.0
        self._detail = f"the limit for {what} is {rate} a second"

    def check(self) -> None:
        """Raise HttpProblem if the request is above the limit."""
        if not self.take(time.monotonic()):
            raise HttpProblem(429, "TooManyRequests", self._detail, 1)

    def take(self, now_s: float) -> bool:
        """Return true if the request is allowed."""
        left = min(self._rate, self._left + max(0.0, now_s - self._at_s) * self._rate)
        self._at_s = now_s
        allowed = left >= 1.0
        self._left = left - 1.0 if allowed else left
        return allowed

    def uncount(self) -> None:
        """Do not count the last request that was allowed."""
        self._left += 1.0


def _log_refusal(network: str) -> None:
    log.warning("tokens from %s are refused without a comparison: too many of them were wrong", network)


@lru_cache(maxsize=_MAX_REMEMBERED)
def _network_of(address: str) -> str:
    """Return the network whose addresses belong to the client at *address*: its /64 for IPv6, else itself."""
    try:
        parsed = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        # IPv4, a unix socket, or what a proxy says
        return address
    # a socket of both families shows IPv4 addresses so
    return address if parsed.ipv4_mapped else str(ipaddress.IPv6Network((int(parsed), 64), strict=False))


class RequestGuard:
    """Access and rate limits of one process.

    Attributes:
        auth: None without a token.
        local_only: whether only requests over loopback or a unix socket are allowed.
        ids, lookups, metrics: their rates. Metrics do not count as lookups: who measures must see an overload.
    """

    def __init__(self, token: str | None, hosts: Sequence[str], insecure: bool, limits: Limits) -> None:
        self.auth = TokenAuth(token) if token else None
        self.local_only = self.auth is None and not insecure
        self._limits = limits
        self._hosts = HostCheck(hosts)
        self.ids = RateLimit(limits.id_requests_per_s, "requests for ids")
        self.lookups = RateLimit(limits.lookups_per_s, "this kind of request")
        self.metrics = RateLimit(limits.lookups_per_s, "/metrics")
        # for each network, so that a client with an old token does not keep out the others
        self._wrong_tokens_of = lru_cache(maxsize=_MAX_NETWORKS)(
            lambda _network: RateLimit(limits.wrong_tokens_per_s, "wrong tokens")
        )
        # once for each
        self._log_refusal = lru_cache(maxsize=_MAX_NETWORKS)(_log_refusal)

    def check(self, scope: Scope) -> str | None:
        """Raise HttpProblem unless the request is allowed.

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
            detail = f"path and query may have {self._limits.max_query_bytes} bytes at most"
            raise HttpProblem(414, "UriTooLong", detail)
        if path in PROBES:
            return None
        if not self._hosts.allows(host):
            detail = "the Host header is not a name of this service. Allow it with: snowredis serve --allow-host NAME"
            raise HttpProblem(403, "WrongHost", detail)
        # same-site: a page on another port of this host, which gets our cookie too
        if site in {b"cross-site", b"same-site"} and path != "/":
            raise HttpProblem(403, "CrossSite", "requests from pages of other origins are not allowed")
        if path in OPEN_PATHS:
            return None
        session = self.check_caller(scope, authorization, cookie)
        if path in ID_PATHS:
            self.ids.check()
        return session

    def _check_body(self, path: str, name: bytes, value: bytes) -> None:
        limit = self._limits.max_body_bytes if path in _WITH_BODY else 0
        # browsers send the length of a form
        if name == b"transfer-encoding" or not value.isdigit() or len(value) > 12 or int(value) > limit:
            detail = f"the body of a request to {path[:40]} may have {limit} bytes at most"
            raise HttpProblem(413, "BodyTooLarge", detail)

    def check_caller(self, scope: Scope, authorization: bytes | None, cookie: bytes | None) -> str | None:
        """Return the session of the cookie, if there is one. Raise HttpProblem if the request may not be served."""
        if self.auth is None:
            self._check_local(scope)
        elif authorization is not None:
            self.check_token(scope, bearer_of(authorization))
        else:
            session = None if cookie is None else self.auth.session_of(cookie, time.time())
            if session is None:
                raise no_token()
            return session
        return None

    def knows(self, scope: Scope) -> bool:
        """Return true if the request may see texts: it has the token, or the service has none."""
        header = dict(scope["headers"]).get(b"authorization")
        if self.auth is None or header is None:
            return self.auth is None
        with contextlib.suppress(HttpProblem):
            self.check_token(scope, bearer_of(header))
            return True
        return False

    def check_token(self, scope: Scope, token: bytes) -> None:
        """Raise HttpProblem unless *token* is the token, or none is needed; above the limit of its client, always."""
        if self.auth is None:
            return
        network = _network_of(str((scope.get("client") or ("a unix socket",))[0]))
        limit = self._wrong_tokens_of(network)
        try:
            # before the comparison: else a guess above the limit would be told from the right token
            limit.check()
        except HttpProblem:
            self._log_refusal(network)
            raise
        if not self.auth.is_token(token):
            raise HttpProblem(401, "Unauthorized", "the token is wrong")
        limit.uncount()

    def _check_local(self, scope: Scope) -> None:
        server = scope.get("server")
        if self.local_only and not is_loopback(str(server[0] if server else "/")):
            detail = "this service has no token, so only this machine may use it. Start it with a token or --insecure."
            raise HttpProblem(403, "TokenNeeded", detail)


def no_token() -> HttpProblem:
    """Return the response to a request without a token."""
    return HttpProblem(401, "Unauthorized", "send the header Authorization: Bearer TOKEN")
