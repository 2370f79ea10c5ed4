"""Tell a registry of the pools that are in a Redis: each pool's own hash holds its number. For people."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

from snowredis.core.presets import resolve_layout
from snowredis.errors import SnowredisError
from snowredis.lease.clients import address, close_client
from snowredis.lease.model import settings_of
from snowredis.lease.open import open_client
from snowredis.lease.redis_store import translated
from snowredis.lease.scripts import pool_keys, text_of
from snowredis.registry.model import NO_NUMBER, Place, Registry, Status, parse_registration

_POOL = re.compile(r"snowredis:\{([A-Za-z0-9_.-]{1,64})\}")


def confirm_pools(
    server: Any, registry: Registry, open_for: Callable[[Place], contextlib.closing[Registry]]
) -> Iterator[str]:
    """Confirm the numbers of all pools at *server* that have one of *registry*; yield a line about each.

    Args:
        open_for: opens the registry for layouts that have their number in this place.

    Raises StoreUnavailable. Scans all keys of the server.
    """
    opened = open_client(server)
    client = opened.client
    stack = contextlib.ExitStack()
    placed: dict[Place, Registry] = {}
    try:
        with translated(opened.where):
            names = sorted(
                match[1]
                for key in client.scan_iter(match="snowredis:{*}", count=1000)
                if (match := _POOL.fullmatch(text_of(key)))
            )
        for name in names:
            with translated(opened.where):
                values = client.hmget(pool_keys(name)[0], "signature", "highest_number")
            signature, highest = (text_of(value or b"") for value in values)
            stored = settings_of(signature)
            of, registration = parse_registration(stored.get("registry", ""))
            if of != registry.name:
                continue
            number = int(stored["datacenter"])
            try:
                place = Place.of(resolve_layout(stored["layout"]))
                if place not in placed:
                    placed[place] = stack.enter_context(open_for(place))
                reply = placed[place].confirm(
                    name,
                    registration,
                    number,
                    highest=int(highest) if highest.isdecimal() else NO_NUMBER,
                    first=not highest,
                    owner=f"pool at {address(client)}",
                )
            except SnowredisError as error:
                yield f"{name}: {error}"
                continue
            if reply.status is Status.CONFLICT and not reply.fields[1]:
                yield f"{name}: number {number} was never confirmed: delete the pool and create it again"
            elif reply.status is Status.CONFLICT:
                yield f"{name}: CONFLICT: its number {number} belongs to pool {reply.fields[1]}; it is refused"
            else:
                yield f"{name}: number {number} confirmed"
    finally:
        stack.close()
        if opened.owned:
            close_client(client)
