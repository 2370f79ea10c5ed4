"""Access to the service: the token, and a limit for wrong ones. No socket is used here.

The token is sent as a bearer token by programs, and as the password of HTTP Basic by browsers. There are no sessions,
so nothing outlives a change of the token.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
import re
import time
from collections.abc import Sequence
from functools import lru_cache

from starlette.types import Scope

from snowredis.errors import ConfigError
from snowredis.process.log import log
from snowredis.web.messages import HttpProblem

LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
# name and port of a Host header
_HOST = re.compile(r"(\*|[\w.-]+|\[[0-9a-f:.]+(?:%\w+)?\])(:\d*)?", re.ASCII)
# a second and client, also at once; above it, its right token is refused, too
WRONG_TOKENS_PER_S = 10
# networks of clients whose wrong tokens are counted
_MAX_NETWORKS = 1_000


@lru_cache(maxsize=100)
def is_loopback(address: str) -> bool:
    """Return true if only this machine can connect to *address*. A path is a unix socket, which is local too."""
    if address.startswith("/") or address in ("localhost", ""):
        return bool(address)
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return False


class Guard:
    """Access to the service.

    Args:
        hosts: names of the service besides LOCAL_HOSTS, without port; "*" allows any. Raises ConfigError for others.

    Attributes:
        local_only: whether only requests over loopback or a unix socket are allowed.
    """

    def __init__(self, token: str | None, insecure: bool, hosts: Sequence[str] = ()) -> None:
        self._hosts = {*LOCAL_HOSTS}
        for name in map(str.lower, hosts):
            found = _HOST.fullmatch(f"[{name}]" if name.count(":") > 1 and name[0] != "[" else name)
            if not found or found[2]:
                text = "SNOWREDIS_SERVE_HOSTS, or hosts=, takes names without a port, such as ids.internal, or '*', not"
                raise ConfigError(f"{text} {name!r}")
            self._hosts.add(found[1])
        # a digest has one length for any input, and keeps the token itself out of memory
        self._digest = _sha256(token.encode()) if token else None
        self.local_only = self._digest is None and not insecure
        # for each network, so that a client with an old token does not keep out the others
        self._wrong_tokens_of = lru_cache(maxsize=_MAX_NETWORKS)(_WrongTokens)

    def check_host(self, scope: Scope) -> None:
        """Raise HttpProblem unless the Host header has a name of the service, against DNS rebinding."""
        host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")
        found = _HOST.fullmatch(host.lower())
        if "*" not in self._hosts and not (found and found[1] in self._hosts):
            detail = f"{host[:100]!r} is no name of this service. Add it to SNOWREDIS_SERVE_HOSTS, without the port."
            raise HttpProblem(400, "UnknownHost", detail)

    def check(self, scope: Scope) -> None:
        """Raise HttpProblem unless the request has the token; without a token, unless it came over loopback."""
        if self._digest is None:
            server = scope.get("server")
            if self.local_only and not is_loopback(str(server[0] if server else "/")):
                detail = (
                    "this service has no token, so only this machine may use it. Start it with a token, or with "
                    "SNOWREDIS_SERVE_INSECURE=1."
                )
                raise HttpProblem(403, "TokenNeeded", detail)
            return
        header = next((value for name, value in scope["headers"] if name == b"authorization"), None)
        if header is None:
            detail = "send the header Authorization: Bearer TOKEN; in a browser, give the token as the password"
            raise HttpProblem(401, "Unauthorized", detail)
        wrong = self._wrong_tokens_of(_network_of(str((scope.get("client") or ("a unix socket",))[0])))
        # before the comparison: else a guess above the limit would be told from the right token
        wrong.check()
        if not hmac.compare_digest(_sha256(_token_of(header)), self._digest):
            wrong.count()
            raise HttpProblem(401, "Unauthorized", "the token is wrong")

    def knows(self, scope: Scope) -> bool:
        """Return true if the request may see texts: it has the token, or the service has none."""
        if self._digest is None:
            return True
        try:
            self.check(scope)
        except HttpProblem:
            return False
        return True


class _WrongTokens:
    """The wrong tokens of one network: a bucket that loses WRONG_TOKENS_PER_S of them a second."""

    def __init__(self, network: str) -> None:
        self._network, self._level, self._at_s, self._logged = network, 0.0, 0.0, False

    def check(self) -> None:
        """Raise HttpProblem if there were too many; the first time, with a line in the log."""
        now_s = time.monotonic()
        self._level = max(0.0, self._level - (now_s - self._at_s) * WRONG_TOKENS_PER_S)
        self._at_s = now_s
        if self._level + 1 > WRONG_TOKENS_PER_S:
            if not self._logged:
                text = "tokens from %s are refused without a comparison: too many of them were wrong"
                log.warning(text, self._network)
            self._logged = True
            raise HttpProblem(429, "TooManyRequests", f"{WRONG_TOKENS_PER_S} wrong tokens a second are the limit", 1)

    def count(self) -> None:
        """Count a wrong token."""
        self._level += 1.0


def _token_of(header: bytes) -> bytes:
    """Return the token in an Authorization header; b"", which is no token, if there is none."""
    scheme, _, value = header.partition(b" ")
    if scheme.lower() == b"bearer":
        return value.strip()
    if scheme.lower() == b"basic":
        try:
            return base64.b64decode(value, validate=True).partition(b":")[2]
        except binascii.Error:
            return b""
    return b""


def _sha256(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()


@lru_cache(maxsize=100)
def _network_of(address: str) -> str:
    """Return the network whose addresses belong to the client at *address*: its /64 for IPv6, else itself."""
    try:
        parsed = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        # IPv4, a unix socket, or what a proxy says
        return address[:100]
    # a socket of both families shows IPv4 addresses so
    return address if parsed.ipv4_mapped else str(ipaddress.IPv6Network((int(parsed), 64), strict=False))
