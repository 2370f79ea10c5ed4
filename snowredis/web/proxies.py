"""X-Forwarded-For and X-Forwarded-Proto of proxies that the service was told of. Clients can forge these headers."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any

from snowredis.errors import ConfigError


class Proxies:
    """The trusted proxies.

    Args:
        addresses: IP addresses and networks; "*" is every client, for a service that only proxies can reach.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        for address in addresses:
            _check(address)
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


def _check(address: str) -> None:
    if address == "*":
        return
    try:
        ipaddress.ip_network(address)
    except ValueError as error:
        raise ConfigError(
            f"trusted_proxies: {error}. Use addresses such as 10.0.0.7 and networks such as 10.0.0.0/8"
        ) from error
