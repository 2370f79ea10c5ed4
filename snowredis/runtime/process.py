"""State that a process' generators share: a label, and what is done about leases of processes that are killed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from snowredis.lease.model import Store
from snowredis.lease.stats import WorkerStats
from snowredis.runtime.lease import HeldLease


class CrashRecorder(Protocol):
    """Records what another process needs to give one generator's lease back if this process is killed.

    No method blocks or raises.
    """

    def write_claim(self, token: str, owner: str) -> None:
        """Record that a claim is under way: its worker id may be leased though no reply came."""

    def write_lease(self, held: HeldLease, stats: WorkerStats, *, fresh: bool) -> memoryview | None:
        """Record the lease *held*; no lane of a *fresh* one was used yet.

        Returns:
            where its marks belong (int64): ms of each lane's first unused tick, 0 for a lane never used. They may
            be stored from anywhere, and only ever grow within a lease. None if nothing could be recorded.
        """

    def clear(self) -> None:
        """Record that nothing is held any more."""

    def forget(self) -> None:
        """Never write again, in a forked child, whatever call goes on there."""

    def give_up(self) -> None:
        """Release the memory for another generator. A lease that is still recorded stays so if there is room."""


class CrashRecorders(Protocol):
    """The crash records of one process."""

    def new_record(self, store: Store) -> CrashRecorder | None:
        """Return a recorder for one generator; None if its lease could not be given back, or no room is left."""


class ThisProcess:
    """Settings of this process; a forked child starts with its parent's.

    Attributes:
        label: of generators that have none: the text that people see beside the worker id.
        crash_records: where the leases of this process are recorded; None if nowhere.
        sweep: gives back leases of a store that dead processes left, so many at most; returns how many it gave back.
            Blocks for a round trip each, and raises StoreUnavailable. None: nobody does that here.
    """

    def __init__(self) -> None:
        self.label = ""
        self.crash_records: CrashRecorders | None = None
        self.sweep: Callable[[Store, int], int] | None = None


THIS = ThisProcess()
