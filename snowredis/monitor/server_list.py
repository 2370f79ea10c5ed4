"""Check that the pools of several independent servers belong together: one setting, each server in its place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from snowredis.lease.clients import address
from snowredis.lease.redis_store import translated
from snowredis.lease.scripts import pool_keys, text_of
from snowredis.monitor.findings import Finding, error


def look_at_list(clients: Sequence[Any], name: str) -> Iterator[Finding]:
    """Find pools named *name* that no process can use together. Raises StoreUnavailable."""
    stored: dict[int, str] = {}
    for index, client in enumerate(clients):
        with translated(address(client)):
            signature = client.hget(pool_keys(name)[0], "signature")
        if signature:
            stored[index] = text_of(signature)
    if len(clients) < 2 or not stored:
        return
    first = _without_place(next(iter(stored.values())))
    if all(signature == f"{first} share={index}/{len(clients)}" for index, signature in stored.items()):
        return
    said = "; ".join(f"{address(clients[index])} has {signature}" for index, signature in stored.items())
    yield error(
        f"pool {name}",
        f"the pools of the {len(clients)} servers do not belong together, so that new workers can be refused: {said}",
        "list the servers in the order of their shares, if each share is there once and the rest is equal. Else stop "
        f"all workers, wait for a ttl, run `snowredis pool delete {name}` on each wrong server alone, and `snowredis "
        "pool create` on the whole list",
    )


def _without_place(signature: str) -> str:
    return re.sub(r" share=\d+/\d+$", "", signature)
