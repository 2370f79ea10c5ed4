"""Credentials of a lease, as JSON: with them another process can release it, or repeat the claim that was under way.

A dict, since it travels between processes: ``store`` (its urls and its pool's settings; not in files, which nobody
reads who does not have them) and ``lanes`` (how many), then
``worker``, ``token``, ``stats`` and, of a lease, ``renewal_id`` and ``pending_renewal_id``, of a claim ``owner``;
crash_record.py adds ``marks_ms`` when it is read.
"""

from __future__ import annotations

import time
from dataclasses import fields
from typing import Any

from snowredis.core.presets import layout_spec, resolve_layout
from snowredis.lease.model import ClaimRequest, PoolConfig, ReleaseRequest, Store
from snowredis.lease.replies import Granted, Released, Seen
from snowredis.lease.stats import WorkerStats
from snowredis.runtime.lease import HeldLease

# the worker id of a claim that has no reply yet
UNKNOWN_WORKER = -1


def of_store(store: Store) -> dict[str, Any]:
    """Return the part with which another process can open *store*."""
    config = store.config
    settings = {item.name: getattr(config, item.name) for item in fields(config)}
    address = {"urls": store.urls, "config": settings | {"layout": layout_spec(config.layout)}}
    return {"store": address, "lanes": config.layout.namespaces}


def of_claim(token: str, owner: str) -> dict[str, Any]:
    """Return the part for a claim that is under way."""
    return {"worker": UNKNOWN_WORKER, "token": token, "owner": owner, "stats": ""}


def of_lease(held: HeldLease, stats: WorkerStats) -> dict[str, Any]:
    """Return the part for a lease."""
    return {
        "worker": held.lease.worker,
        "token": held.token,
        "renewal_id": held.renewal_id,
        "pending_renewal_id": held.pending_renewal_id,
        "stats": stats.to_text(),
    }


def config_of(credentials: dict[str, Any]) -> PoolConfig:
    """Return the settings of the pool of *credentials*."""
    settings = credentials["store"]["config"]
    layout, share = resolve_layout(settings["layout"]), tuple(settings["share"])
    return PoolConfig(**settings | {"layout": layout, "share": share})


def release(store: Store, credentials: dict[str, Any]) -> int | None:
    """Release one lease, in one attempt. Blocks for one round trip to Redis, two for a claim without a reply.

    Returns:
        its worker id, or None if it was not leased any more.

    Raises:
        StoreUnavailable: Redis did not reply; call again.
    """
    now_ms = time.time_ns() // 1_000_000
    worker, renewal_id = credentials["worker"], credentials.get("renewal_id", "")
    if worker == UNKNOWN_WORKER:
        # killed before the reply came: the same claim again has the same result
        claim = ClaimRequest(credentials["token"], now_ms, now_ms, 0, credentials["owner"])
        reply = store.claim(claim, Seen())
        if not isinstance(reply, Granted):
            return None
        worker, renewal_id = reply.worker, reply.renewal_id
    request = ReleaseRequest(
        worker=worker,
        token=credentials["token"],
        renewal_id=renewal_id,
        pending_renewal_id=credentials.get("pending_renewal_id", ""),
        caller_ms=now_ms,
        marks_ms=tuple(credentials["marks_ms"]),
        stats=WorkerStats.from_text(credentials["stats"]),
        reclaimed=True,
    )
    return worker if isinstance(store.release(request, Seen()), Released) else None
