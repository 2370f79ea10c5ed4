"""Access control: host names, the token, and the cookie that replaces it in a browser.

Pure: no socket, no clock. The caller passes the time.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
from collections.abc import Iterable

from snowredis.errors import ConfigError

LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
COOKIE = "snowredis"
# a little more than a working day
COOKIE_LIFE_S = 12 * 3600
# 64 bits in hex, and longer than a word
MIN_TOKEN_LENGTH = 16
# names of sessions are never guessed, only counted apart
_SESSION_BYTES = 8
# of HostCheck: remembered headers
_MAX_REMEMBERED = 100
_TOKEN = re.compile(r"[\x21-\x7e]+")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]@/\\]+)(?::\d{1,5})?")


def check_token(token: str | None) -> str | None:
    """Return the token without surrounding white space; None if it is empty. Raises ConfigError if it is too weak."""
    text = (token or "").strip()
    if not text:
        return None
    if len(text) < MIN_TOKEN_LENGTH or not _TOKEN.fullmatch(text):
        raise ConfigError(
            f"the token must be {MIN_TOKEN_LENGTH} or more visible ASCII characters without spaces; the service was "
            "not started. Create one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
        )
    return text


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
        # headers that were allowed before
        self._allowed: set[bytes] = set()

    def allows(self, header: bytes | None) -> bool:
        """Return true if *header* is the name of this service, with or without a port."""
        if header in self._allowed:
            return True
        if header is None or len(header) > 300:
            return False
        match = _HOST.fullmatch(header.decode("latin-1"))
        if match is None:
            return False
        allowed = "*" in self._names or match[1].lower().rstrip(".") in self._names
        if allowed and len(self._allowed) < _MAX_REMEMBERED:
            self._allowed.add(header)
        return allowed


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


class TokenAuth:
    """Verify the token, and cookies derived from it: every process of a service accepts those of the others."""

    def __init__(self, token: str) -> None:
        # of one length for any input, and the token itself is not kept in memory
        self._digest = _sha256(token.encode())
        self._cookie_key = hmac.new(token.encode(), b"snowredis dashboard cookie", hashlib.sha256).digest()

    def is_token(self, token: bytes) -> bool:
        """Compare in constant time."""
        return hmac.compare_digest(_sha256(token), self._digest)

    def is_bearer(self, header: bytes) -> bool:
        """Return true if an Authorization header contains the token."""
        scheme, _, token = header.partition(b" ")
        return scheme.lower() == b"bearer" and self.is_token(token.strip())

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


def _sha256(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()
