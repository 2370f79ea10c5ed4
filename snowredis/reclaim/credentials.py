"""Credentials of a lease, as JSON: with them another process can release it, or repeat the claim that was under way.

A dict, since it travels between processes: ``store`` (its urls and its pool's settings) and ``lanes`` (how many), then
``worker``, ``token``, ``stats`` and, of a lease, ``renewal_id`` and ``pending_renewal_id``, of a claim ``owner``;
crash_record.py adds ``marks_ms`` when it is read.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from snowredis.core.presets import layout_spec, resolve_layout
from snowredis.lease.model import PoolConfig, Store
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
