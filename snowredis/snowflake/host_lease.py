"""lease="host": the processes of one host make ids of one lease, from one word in shared memory (host_page.py).

The same members as those of any generator, with another place for what they know. Credentials are in the page instead
of a crash record (HostCredentials). Used ticks are in the word instead of a TickRange. Whatever talks to Redis or
changes the word does so in a turn of the page (Host.in_turn()), after it has loaded what the page says:
host_members.py.

A process that cannot share leases a worker id of its own, and says why in a log line.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from snowredis.process.clock import SYSTEM
from snowredis.snowflake import host_page
from snowredis.snowflake.context import LOCK_LIMIT_S, Context
from snowredis.snowflake.crash_record import UNKNOWN_WORKER, of_claim, of_lease
from snowredis.snowflake.lease import HeldLease, LeaseSlot
from snowredis.snowflake.lease_manager import LeaseManager
from snowredis.snowflake.protocol import WorkerStats
from snowredis.snowflake.record_files import RECORDS, pool_name
from snowredis.snowflake.replies import Seen

log = logging.getLogger("snowredis")

T = TypeVar("T")

# marks of a lease whose marks are in the word: LeaseSlot records only leases that have some
IN_WORD = memoryview(b"")


class HostSlot(LeaseSlot):
    """The lease of the host: in a turn as it was loaded and changed since, else as the page has it now."""

    host: Host
    # of the credentials that were read last, and the lease in them
    _shown: tuple[int, HeldLease | None] = (-1, None)

    @property
    def held(self) -> HeldLease | None:
        """The lease that ids may be made of; None if there is none."""
        page = self.host.page
        if page is None or page.has_turn:
            return super().held
        header = page.load(host_page.HEADER)
        if header != self._shown[0]:
            self._shown = header, self.host.credentials.lease_of(self.host.credentials.read(), self.oldest)
        return self._shown[1]


class HostCredentials:
    """The lease of the host and a claim under way, in its page: a CrashRecorder that other processes read at any time.

    What is written is lost if the turn was taken away. Then the lease, or the claim, is void for this process, so that
    it sends nothing, and makes nothing of a reply.

    Attributes:
        marks_before: each lane's mark of the lease that the current one has replaced.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self.marks_before: tuple[int, ...] = ()

    def read(self) -> dict[str, Any] | None:
        """Return the credentials of a lease or of a claim; None if there are none that can be used."""
        page = self._host.page
        try:
            credentials = page.read() if page is not None else None
        except (ValueError, LookupError) as error:
            log.warning("pool %s: %s; claiming another worker id", self._host.pool, error)
            return None
        return None if credentials is None or credentials.get("released") else credentials

    def marks(self, credentials: dict[str, Any]) -> tuple[int, ...]:
        """Return each lane's first unused ms, 0 for a lane never used, by the credentials and the word."""
        host, marks = self._host, list(credentials["marks_ms"])
        word = host.word & ~host_page.SEALED_BIT
        layout, parts = host.layout, host.layout.decode(word)
        if parts.worker == credentials["worker"]:
            end_ms = layout.ms_at(parts.tick + 1)
            # at or below, it is the word of an earlier lease of the same worker id
            if end_ms > credentials["lanes_ms"][parts.backup]:
                marks[parts.backup] = max(marks[parts.backup], end_ms)
        return tuple(marks)

    def lease_of(self, credentials: dict[str, Any] | None, serial: int) -> HeldLease | None:
        """Return the lease in *credentials*, without its used ticks; None if there is none."""
        if credentials is None or credentials["worker"] == UNKNOWN_WORKER:
            return None
        host = self._host
        held = HeldLease.taken_over(credentials, host.config, serial, host.context.guard.generation)
        return held._replace(
            lease=held.lease._replace(renewals=credentials["renewals"]),
            marks=IN_WORD,
        )

    def write_claim(self, token: str, owner: str) -> None:
        """Record that a claim is under way. See CrashRecorder."""

        def change(_: dict[str, Any] | None) -> dict[str, Any]:
            return of_claim(token, owner) | self._host.seen

        self._write(change, seal=True)

    def write_lease(
        self, held: HeldLease, stats: WorkerStats, *, fresh: bool, marks_ms: Sequence[int] = ()
    ) -> memoryview | None:
        """Record the lease *held*, then extend the limit if ids of it are made already. See CrashRecorder."""
        host = self._host
        more = {"renewals": held.lease.renewals, **host.seen}

        def change(before: dict[str, Any] | None) -> dict[str, Any]:
            if fresh:
                self.marks_before = self.marks(before) if before and "marks_ms" in before else ()
                marks: Sequence[int] = marks_ms or (0,) * len(held.lanes_ms)
            elif before and "marks_ms" in before:
                marks = before["marks_ms"]
            else:
                raise host_page.TurnOver
            return of_lease(held, stats) | more | {"marks_ms": [*marks]}

        if self._write(change, seal=fresh) and not fresh:
            host.extend(held)
        return IN_WORD

    def write_pending(self, renewal_id: str) -> None:
        """Record the id of a renewal of the recorded lease, before it is sent. See CrashRecorder."""

        def change(before: dict[str, Any] | None) -> dict[str, Any]:
            if before is None or "marks_ms" not in before:
                raise host_page.TurnOver
            return {**before, "pending_renewal_id": renewal_id}

        self._write(change, seal=False)

    def note_release(self, token: str, *, sent: bool) -> None:
        """Record whether a release may have been sent. Raises TurnOver: then it must not be sent."""

        def change(before: dict[str, Any] | None) -> dict[str, Any] | None:
            # the lease of before, when another one has replaced it, is not in the page any more
            return {**before, "released": sent} if before and before["token"] == token else before

        self._host.write(change)

    def clear(self) -> None:
        """Record that nothing is held any more."""
        self._write(lambda _: None, seal=True)

    def forget(self) -> None:
        """Do nothing, in a forked child: HostAllocator.after_fork() does."""

    def give_up(self) -> None:
        """Be no member any more, of a generator that was dropped without close(). What it has leased, stays."""
        self._host.leave()

    def _write(self, change: Callable[[dict[str, Any] | None], dict[str, Any] | None], *, seal: bool) -> bool:
        try:
            if seal:
                # as long as the word is open, it is of the lease that the credentials show
                self._host.seal()
            self._host.write(change)
        except host_page.TurnOver:
            self._host.leases.slot.make_void()
            return False
        return True


class Host:
    """What the members of one generator with lease="host" share.

    Attributes:
        page: None as long as this process is no member: then it makes no ids, or has a lease of its own.
        refused: whether it has a lease of its own.
        on_join: called when it has become a member.
    """

    def __init__(self, context: Context, leases: LeaseManager) -> None:
        self.context, self.leases, self.config = context, leases, context.config
        self.layout, self.pool = context.config.layout, context.config.name
        self._name = ""
        self.page: host_page.HostPage | None = None
        self.refused = False
        self.on_join: Callable[[], object] = bool
        self.credentials = HostCredentials(self)
        slot = HostSlot(leases.store, lambda store: RECORDS.new_record(store) if self.refused else self.credentials)
        slot.host = self
        leases.slot = slot

    def join(self) -> bool:
        """Become a member if this process is none; return False if it has a lease of its own instead."""
        if self.page is not None or self.refused:
            return not self.refused
        try:
            page = self._open_page()
            page.join()
        except host_page.HostRefused as error:
            log.warning('pool %s: lease="host" cannot be used by this process: %s', self.pool, error)
            self.refused = True
            return False
        self.page = page
        self.leases.slot.record = self.credentials
        self.leases.processes = lambda: page.pids
        self.context.reference()._join(page.memory, self.context.guard.alive)
        self.on_join()
        return True

    def _open_page(self) -> host_page.HostPage:
        """Open the page of all processes that may share a lease. Raises HostRefused."""
        store = self.leases.store
        if not store.shared or self.context.clock is not SYSTEM:
            raise host_page.HostRefused("its pool, or its clock, is in the memory of this process")
        if store.redundant or self.config.registry:
            raise host_page.HostRefused("its pool has a registry, or several servers")
        text = f"{pool_name(store)}\n{self.leases.label}\n{getattr(store, 'min_replicas', 0)}"
        self._name = hashlib.sha256(text.encode()).hexdigest()[:16]
        return host_page.open_page(self._name, min(LOCK_LIMIT_S, self.config.heartbeat_ms / 1000))

    def leave(self) -> bool:
        """Be no member any more; return True if this was the last one, which still has the page."""
        page, generator = self.page, self.context.reference()
        if page is None:
            return False
        if generator is not None:
            generator._join(None, None)
        is_last = page.leave()
        if not is_last:
            self.page = None
        return is_last

    def after_fork(self) -> None:
        """Be no member any more, in a forked child: the parent still is."""
        self.context.reference()._join(None, None)
        if self.page is not None:
            self.page.forget_turn()
        self.page, self.refused = None, False

    # --- the word ---------------------------------------------------------------------------------

    @property
    def word(self) -> int:
        """The last id of the host, with SEALED_BIT if it is sealed."""
        return host_page.SEALED_BIT if self.page is None else self.page.load(host_page.WORD)

    def seal(self) -> int:
        """Let nobody take ids of the host. Raises TurnOver."""
        if self.page is None:
            raise host_page.TurnOver
        layout = self.layout
        mask = (layout.sequences - 1) * layout.sequence_step
        return self.page.seal(layout.sequence_step, mask, 1 << layout.timestamp_shift)

    def write(self, change: Callable[[dict[str, Any] | None], dict[str, Any] | None]) -> None:
        """Replace the credentials by what *change* makes of them. Raises TurnOver."""
        if self.page is None:
            raise host_page.TurnOver
        self.page.write(change)

    def extend(self, held: HeldLease) -> None:
        """Raise the limit to the end of *held*, if ids are made of it, in another lane than its outage lane."""
        word, page = self.word, self.page
        if page is None or word & host_page.SEALED_BIT or self.is_outage_lane(word):
            return
        with contextlib.suppress(host_page.TurnOver):
            page.set_limit(self.limit_ms(held.lease.until))

    def limit_ms(self, until: int) -> int:
        """Return the limit for ids before the tick *until*, ms since 1970."""
        return self.layout.ms_at(min(until, self.layout.max_tick + 1))

    def is_outage_lane(self, word: int) -> bool:
        """Return whether *word* is an id of an outage lane."""
        return self.layout.decode(word & ~host_page.SEALED_BIT).backup >= self.config.ordinary_lanes

    # --- turns ------------------------------------------------------------------------------------

    @property
    def seen(self) -> dict[str, Any]:
        """What this process has seen of the pool, for the next one that talks to Redis (R10, version)."""
        return {"seen": list(self.leases.view.seen)}

    def in_turn(self, action: Callable[[], T]) -> T | None:
        """Call *action* in a turn, after the lease was loaded; return None if another process has the turn.

        Raises StoreUnavailable: a signal handler has interrupted a conversation with Redis.
        """
        page = self.page
        if self.leases.talks_here:
            self.leases.end_conversation()
        if page is None:
            return None
        turn = page.take_turn()
        if turn is None:
            return None
        try:
            self._load()
            return action()
        except host_page.TurnOver:
            return None
        finally:
            if page.has_turn:
                # outside of a turn, nothing is known of it but by the page
                self.leases.slot.latest = None
            page.free(turn)

    def _load(self) -> None:
        """Go on with the lease, or with the claim, that the page shows."""
        leases, credentials = self.leases, self.credentials.read()
        serial = leases.slot.next_serial()
        token = credentials["token"] if credentials and credentials["worker"] == UNKNOWN_WORKER else ""
        if credentials is not None:
            seen = Seen(*credentials["seen"])
            if seen.version > leases.view.seen.version:
                leases.view.seen = seen
            if not token:
                credentials["marks_ms"] = self.credentials.marks(credentials)
        leases.take_up(self.credentials.lease_of(credentials, serial), token, self._name[:12])
