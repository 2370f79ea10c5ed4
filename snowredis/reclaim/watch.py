"""Record the leases of this process, and give back those that others leave: called wherever a store is opened.

All that this needs is imported here: in the middle of a claim another thread may fork, and its child would inherit the
locks of the import system.
"""

from __future__ import annotations

from collections.abc import Callable

from snowredis.lease.model import Store
from snowredis.lease.open import open_store
from snowredis.reclaim.parent import ANY, PARENT
from snowredis.reclaim.record_files import RecordFiles, pool_name
from snowredis.reclaim.sweep import sweep
from snowredis.runtime.process import THIS


def watch(store: Store) -> None:
    """Record leases of *store* from now on, and give back those of dead processes. Starts and opens nothing yet."""
    if not store.shared:
        return
    _watch_others()
    urls = store.urls
    if urls:
        # its number of a registry is known later
        PARENT.add(pool_name(store), lambda: pool_name(store), lambda: open_store(list(urls), store.config))


def watch_settings(open_settings: Callable[[], Store]) -> None:
    """Give back leases of the process' generator, of which only the settings are known yet."""
    _watch_others()
    PARENT.add("settings", lambda: ANY, open_settings)


def _watch_others() -> None:
    # a server may have a place of its own for the records of its workers (gunicorn.py)
    if THIS.crash_records is None:
        THIS.crash_records = RecordFiles()
    THIS.sweep = sweep
