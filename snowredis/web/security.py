"""Who may ask: the Host header, the token, the cookie that stands for it in a browser.

Pure: a request's headers in, an answer out. No socket, no clock: the caller says what time it is.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Iterable

from snowredis.errors import ConfigError
from snowredis.web.answers import Headers

LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
COOKIE = "snowredis"
# a working day, and a little
COOKIE_LIFE_S = 12 * 3600
# 64 bits in hex, and too long to be a word
MIN_TOKEN_LENGTH = 16
_TOKEN = re.compile(r"[\x21-\x7e]+")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]@/\\]+)(?::\d{1,5})?")

PAGE_HEADERS: Headers = [
    (b"cache-control", b"no-store"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    # with no-referrer a browser says "Origin: null" of our own forms, too
    (b"referrer-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]


def check_token(token: str | None) -> str | None:
    """The token without white space around it; None if there is none. Raises ConfigError if it is easy to guess."""
    text = (token or "").strip()
    if not text:
        return None
    if len(text) < MIN_TOKEN_LENGTH or not _TOKEN.fullmatch(text):
        raise ConfigError(
            f"the token must be {MIN_TOKEN_LENGTH} or more visible ASCII characters without blanks; the service was "
            "not started. Make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
        )
    return text


def is_loopback(address: str) -> bool:
    """Whether only this machine can come in at *address*. A path is a unix socket, which only it can open."""
    if address.startswith("/") or address in ("localhost", ""):
        return bool(address)
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return False


class HostCheck:
    """Whether a Host header names this service: a page that rebinds its own name to 127.0.0.1 does not know one.

    Args:
        hosts: names besides the local ones, without a port; "*" for any.
    """

    def __init__(self, hosts: Iterable[str] = ()) -> None:
        self._names = {name.lower().rstrip(".") for name in (*LOCAL_HOSTS, *map(_bracketed, hosts)) if name}
        # what was right before, by its bytes; bounded
        self._known: set[bytes] = set()

    def allows(self, header: bytes | None) -> bool:
        if header in self._known:
            return True
        if header is None or len(header) > 300:
            return False
        match = _HOST.fullmatch(header.decode("latin-1"))
        if match is None:
            return False
        right = "*" in self._names or match[1].lower().rstrip(".") in self._names
        if right and len(self._known) < 100:
            self._known.add(header)
        return right


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


class Keys:
    """The token, and cookies made from it: so every process of a service knows those of the others."""

    def __init__(self, token: str) -> None:
        # of one length whatever was sent, and nothing of the token in memory dumps of the service
        self._digest = _sha256(token.encode())
        self._cookie_key = hmac.new(token.encode(), b"snowredis dashboard cookie", hashlib.sha256).digest()

    def is_token(self, given: bytes) -> bool:
        """In constant time."""
        return hmac.compare_digest(_sha256(given), self._digest)

    def bearer(self, header: bytes) -> bool:
        kind, _, given = header.partition(b" ")
        return kind.lower() == b"bearer" and self.is_token(given.strip())

    def cookie(self, now_s: float) -> str:
        """A cookie's value: until when, and a proof that we said so."""
        until = str(int(now_s) + COOKIE_LIFE_S)
        return f"{until}.{self._proof(until)}"

    def is_cookie(self, header: bytes, now_s: float) -> bool:
        """Whether a Cookie header has a good one."""
        for part in header.decode("latin-1").split(";"):
            name, _, value = part.strip().partition("=")
            until, _, proof = value.partition(".")
            if name != COOKIE or not (until.isascii() and until.isdecimal() and len(until) < 13):
                continue
            good = hmac.compare_digest(proof.encode("latin-1"), self._proof(until).encode())
            if good and now_s < int(until) <= now_s + COOKIE_LIFE_S:
                return True
        return False

    def _proof(self, until: str) -> str:
        return hmac.new(self._cookie_key, until.encode(), hashlib.sha256).hexdigest()


def set_cookie(value: str, *, secure: bool, life_s: int = COOKIE_LIFE_S) -> bytes:
    flags = "; Secure" if secure else ""
    return f"{COOKIE}={value}; Path=/; Max-Age={life_s}; HttpOnly; SameSite=Strict{flags}".encode()


def _sha256(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()
