"""Switch one rule of the design off, in the simulation only, to see that it is needed.

A rule of the scripts is a fragment of their text that is replaced, and must be found; a rule of
the runtime is a method that is overridden.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from snowredis.errors import LayoutMismatch
from snowredis.process.names import ProcessName
from snowredis.snowflake.allocator import IdAllocator
from snowredis.snowflake.crash_record import MARKS_BYTES, CrashRecord, read_page
from snowredis.snowflake.lease import Claimed, HeldLease, Lease
from snowredis.snowflake.lifecycle import LeaseLifecycle
from snowredis.snowflake.protocol import NO_STATS, WorkerStats
from snowredis.snowflake.record_files import FileName
from snowredis.snowflake.sweep import RecordAccess
from tests.simulation.machines import Machines, Page, Parent
from tests.simulation.process import Process
from tests.simulation.stand_ins import SimDeadProcesses, SimGuard, SimKeeper, SimSlot, SimStore

if TYPE_CHECKING:
    from tests.simulation.schedule import Simulation


class HostPidKeeper(SimKeeper):
    """R6 off: the token is made of host and pid, as in most systems."""

    def claim(self, *, wait_ms: int, instead_of: int = 0) -> Claimed:
        assert self.process is not None
        self.slot.set_token(self.process.host.name.encode().hex())
        return super().claim(wait_ms=wait_ms, instead_of=instead_of)


class EndlessSlot(SimSlot):
    """A lease without an end: the holder goes on until it is told that it lost it."""

    def hold(self, held: HeldLease, stats: WorkerStats | None, *, fresh: bool = False) -> bool:
        kept = super().hold(held, stats, fresh=fresh)
        self.latest = held._replace(lease=held.lease._replace(until=1 << 40))
        return kept


class EndlessKeeper(SimKeeper):
    slot_class = EndlessSlot


class DeafGuard(SimGuard):
    """R8 off: forks are detected, and nothing is done about them."""

    def recover(self) -> None:
        self.is_reset.value = True
        self._process.new_locks()


class BlindGuard(SimGuard):
    """R8 off: no page that shows a child that it is one."""

    def check(self) -> None:
        self.is_reset.value = True


class TimelessGuard(SimGuard):
    """R8 off: the child is reset, but a call that is in progress does not notice it."""

    def recover(self) -> None:
        super().recover()
        self.generation -= 1


class UnsealedLifecycle(LeaseLifecycle):
    """R7 off: what was used is read and sent while another thread may be making an id."""

    def release(self) -> None:
        held = self._leases.held
        if held is not None:
            self._leases.release(held, self._allocator.marks(held), self.stats())

    def _make_void(self) -> None:
        self._leases.slot.make_void()


class OneRowRecord(CrashRecord):
    """A crash record in which a fresh lease gets the row of marks of the lease before it."""

    __slots__ = ()

    def _write(self, own: dict[str, Any], *, fresh: bool, marks_ms: Sequence[int] = ()) -> memoryview | None:
        self._row ^= fresh
        return super()._write(own, fresh=fresh, marks_ms=marks_ms)


class OneTextRecord(CrashRecord):
    """A crash record whose text is replaced in its place."""

    __slots__ = ()

    def _write(self, own: dict[str, Any], *, fresh: bool, marks_ms: Sequence[int] = ()) -> memoryview | None:
        self._side ^= 1
        return super()._write(own, fresh=fresh, marks_ms=marks_ms)


class LateRecord(CrashRecord):
    """A crash record that is told at heartbeats how far the lanes are used, not before ids are made."""

    __slots__ = ("_late",)

    def _write(self, own: dict[str, Any], *, fresh: bool, marks_ms: Sequence[int] = ()) -> memoryview | None:
        marks = super()._write(own, fresh=fresh, marks_ms=marks_ms)
        if marks is None:
            return None
        if fresh:
            self._late = memoryview(bytearray(MARKS_BYTES)).cast("q")
            self._late[:] = marks
        marks[:] = self._late
        return self._late


class HastyMachines(Machines):
    """A lease that a process was releasing when it died itself is its own for ever."""

    def rename(self, old: str, new: str) -> None:
        name = FileName.parse(old)
        if name is not None and name.taker is not None:
            raise FileNotFoundError(old)
        super().rename(old, new)


class SilentRecord(CrashRecord):
    """A crash record that does not say whether a release was sent."""

    __slots__ = ()

    def note_release(self, token: str | None, *, sent: bool) -> None:
        """Do nothing."""


class SharedMachines(Machines):
    """A crash record is there for others, too, while one process takes the lease over."""

    def rename(self, old: str, new: str) -> None:
        if old not in self._pages:
            raise FileNotFoundError(old)
        copied = Page(self._pages[old])
        copied.inode = self._pages[old].inode
        super().rename(old, new)
        self._pages[old] = copied


class ForgetfulProcesses(SimDeadProcesses):
    """Takes the lease of a dead process over without what that process used."""

    def take_over(
        self,
        accept: Callable[[dict[str, Any]], HeldLease | None],
        record: Callable[[HeldLease], HeldLease],
    ) -> HeldLease | None:
        def unused(credentials: dict[str, Any]) -> HeldLease | None:
            return accept(credentials | {"marks_ms": (0,) * len(credentials["marks_ms"])})

        return super().take_over(unused, record)


class ForgetfulKeeper(SimKeeper):
    dead_class = ForgetfulProcesses


class UnvoidedSlot(SimSlot):
    """A slot that keeps the outage lane of a lease that was copied."""

    def drop_lost_lease(self) -> None:
        if self.latest is not None:
            self.keep_lane(self.latest)


class UnvoidedKeeper(SimKeeper):
    slot_class = UnvoidedSlot


class TrustingKeeper(SimKeeper):
    """A keeper that opens the outage lane whatever the clocks of its host show."""

    @property
    def clocks_agree(self) -> bool:
        return True


class OpenedKeeper(SimKeeper):
    """A keeper that compares the clocks of its host only when the outage lane is opened."""

    @property
    def clocks_agree(self) -> bool:
        assert self.process is not None
        return self.process.generator._lifecycle._opened > 0 or super().clocks_agree


class RepliedLifecycle(LeaseLifecycle):
    """Any reply of Redis closes the outage lane."""

    def _go_back(self) -> None:
        self._close_outage_lane()


class AbandoningKeeper(SimKeeper):
    """Gives an outage lane of which it does not know what was used back from the end of the other lanes on."""

    def release(self, held: HeldLease, marks_ms: tuple[int, ...] | None, stats: WorkerStats = NO_STATS) -> None:
        super().release(held, marks_ms or (held.lease.until_ms,) * len(held.lanes_ms), stats)


class ReleasingKeeper(SimKeeper):
    """Releases a lease in a forked child, too."""

    def _release(self, held: HeldLease, marks_ms: tuple[int, ...] | None, stats: WorkerStats) -> bool:
        return super()._release(held._replace(generation=self._guard.generation), marks_ms, stats)


class UnsentMachines(Machines):
    """The name of a record does not say that a release of its lease may have been sent."""

    def rename(self, old: str, new: str) -> None:
        name = FileName.parse(new)
        super().rename(old, new if name is None else str(name._replace(sent=False)))


class BequeathingKeeper(SimKeeper):
    """Leaves what it could not release, when it is suspended, to whoever starts next."""

    def disown(self) -> None:
        """Mark only what others left."""
        self.dead_processes.disown()


class CopiedMachines(Machines):
    """Records of dead processes are of use in each copy of the machine."""

    def disown(self, process: Process) -> None:
        """Do nothing."""


class CopyingMachines(Machines):
    """A copy of a record is as good as the record."""

    def inode(self, name: str) -> str:
        found = read_page(self.read(name))
        return str(found["inode"]) if found else ""


class FlatMachines(Machines):
    """All machines are in one network."""

    def access_of(self, process: Process | Parent) -> RecordAccess:
        return super().access_of(process)._replace(scope_of=lambda _: [])


class CredulousKeeper(SimKeeper):
    """Goes on with what it took over, whichever pool replies."""

    def _is_foreign(self, held: HeldLease, incarnation: str) -> bool:
        return False


class RefusedKeeper(SimKeeper):
    """Goes on in the outage lane of what it took over, if the pool that refuses it has the same lanes."""

    def _refused(self, held: HeldLease | None, error: LayoutMismatch) -> None:
        super()._refused(held and held._replace(taken_ms=0), error)


class HeirlessKeeper(SimKeeper):
    """Releases what it took over as if only its own ids had been made of it."""

    def release(self, held: HeldLease, marks_ms: tuple[int, ...] | None, stats: WorkerStats = NO_STATS) -> None:
        super().release(held._replace(taken_ms=0), marks_ms, stats)


class EagerLifecycle(LeaseLifecycle):
    """Takes over whatever has not ended, open or not."""

    def _is_of_use(self, lease: Lease) -> bool:
        return True


@dataclass(frozen=True)
class Rule:
    """Changes that switch one rule off."""

    # script ("common" for all), fragment, what stands there instead
    edits: tuple[tuple[str, str, str], ...] = ()
    lease_manager: type[SimKeeper] = SimKeeper
    guard: type[SimGuard] = SimGuard
    lifecycle: type[LeaseLifecycle] = LeaseLifecycle
    record: type[CrashRecord] = CrashRecord
    machines: type[Machines] = Machines
    allocator: type[IdAllocator] = IdAllocator
    store: type[SimStore] = SimStore
    # what a person did and is not put on disk
    unkept: tuple[str, ...] = ()
    # what is left of the name of a process
    name: Callable[[ProcessName], ProcessName] | None = None


_INDEX = "if cursor or redis.call('ZCARD', KEYS[2]) ~= pool.records then"
_COUNTED = "while pool.next < capacity and redis.call('HEXISTS', KEYS[1], 'w:' .. pool.next) == 1 do"
_MARK = "lanes[i] = math.max(before and before.lanes[i] or 0, before and before['until'] or 0, least)"
_HOLDER = (
    "if not (r and r.token == token_hash and in_chain(r, renewal_id, pending) "
    "and r.incarnation == pool.incarnation) then"
)
_OWN_END = "if used and r['until'] == held_until then"
_OUTAGE_MARK = "math.max(before and before.lanes[lane_count] or 0, before and before.outage or 0, outage_least)"
_OUTAGE_RAISED = "pool.outage_floor = math.max(pool.outage_floor, outage_horizon())"
_KEEP = "keep_floor(pool)"
_OF_A_CHANGE = _KEEP + "\n    pool.left"
_OF_A_TOMBSTONE = "pool.floor = math.max(pool.floor, pool.outage_floor)\n    " + _KEEP
_RAISED_ONLY = "pool.outage_floor = math.max(pool.outage_floor, pool.floor)"
_DOUBT = "if lossy then\n      -- the plan"
_TOO_LATE = "elseif held_until <= now + skew + lead + slack then"
_LOWERED = "held_outage > held_lanes[#held_lanes] and was_lowered(r)"
_ROLLED_BACK = (
    "elseif seen_raised > pool_raised or (seen_incarnation == pool.incarnation and seen_version > pool.version) then"
)
_RAISED = "pool.floor = math.max(pool.floor, horizon())"
# what is lost was lost before the server started, one could think
_FROM_ITS_START = """
    local uptime = tonumber(string.match(redis.call('INFO', 'server'), 'uptime_in_seconds:(%d+)'))
    pool.floor = math.max(pool.floor, horizon() - uptime * 1000)"""
_LEFT = "redis.call('HSET', KEYS[1], 'floor', pool.floor,"
_KEPT = "'ends', math.max(pool.floor, pool.outage_floor, now) + REMEMBERED_MS)"
_FIELDS = "redis.call('HSET', KEYS[1], unpack(pool.fields))"
# as when the expiry time of a tombstone was taken back between two writes
_IN_PARTS = "redis.call('HSET', KEYS[1], unpack(pool.fields, 1, 2)) redis.call('PERSIST', KEYS[1]) " + _FIELDS
_IDENTITY = "local id, reason = identity()"
_UNKNOWN = "if not id then return nil, { 'unidentified', reason, nonce } end"
_NEWCOMERS = "local least = durability == 'none' and math.max(pool.floor, horizon()) or pool.floor"
_OVERDUE = "local function overdue(r) return durability == 'none' and r.lease_end <= now + skew + slack end"

RULES: dict[str, Rule] = {
    "mark": Rule((("claim", _MARK, "lanes[i] = math.max(before and before.lanes[i] or 0, least)"),)),
    "end of the reservation": Rule(lease_manager=EndlessKeeper),
    "R1 index": Rule((("claim", _INDEX, "if false then"),)),
    "R1 adopted records": Rule((("claim", _COUNTED, "while false do"),)),
    "R2 cap": Rule((("common", "local capped = math.min(caller_ms, now + lead)", "local capped = caller_ms"),)),
    "R3 floor": Rule((("common", _RAISED, ""),)),
    "R3 from the moment of notice": Rule((("common", _RAISED, _FROM_ITS_START),)),
    "R3 run id": Rule((("common", "return run_id .. '-' .. replication_id", "return replication_id"),)),
    "R3 promotion": Rule((("common", "return run_id .. '-' .. replication_id", "return run_id"),)),
    "R3 identity": Rule((("common", _IDENTITY, "local id = identity() or ''"), ("common", _UNKNOWN, ""))),
    "R4 too late": Rule((("renew", "elseif held_until <= now + skew + lead + slack then", "elseif false then"),)),
    "R4 later holder": Rule((("renew", "elseif r and not is_own and", "elseif false and"),)),
    "R4 lease end": Rule((("renew", "math.max(r.lease_end, now + ttl)", "now + ttl"),)),
    "settling": Rule((("claim", "if pool.floor > now and", "if pool.floor - now > ttl and"),)),
    "R5 chain": Rule((("renew", "  if not in_chain(r, renewal_id, pending_renewal_id) then", "if false then"),)),
    "R5 chain across a loss": Rule((("renew", "r['until'] > held_until and not in_chain", "false and in_chain"),)),
    "R5 replayed claim": Rule((("claim", "and #r.renewal_id == FIRST_DIGITS\n      and r.lease_end > now", ""),)),
    "R5 chain of each answer": Rule((("claim", "r.renewed, r.renewal_id = now, first_renewal_id", "r.renewed = now"),)),
    "R5 chain of each grant": Rule((("claim", "renewal_id = first_renewal_id,\n", "renewal_id = '000000000000',\n"),)),
    "R6 fresh tokens": Rule(lease_manager=HostPidKeeper),
    "R7 seal": Rule(lifecycle=UnsealedLifecycle),
    # each of the two is enough on one server; both are for what may be forgotten, and for copies
    "R7 holder": Rule((("release", _HOLDER, "if not r then"), ("release", _OWN_END, "if used then"))),
    "R8 hook": Rule(guard=DeafGuard),
    "R8 page": Rule(guard=BlindGuard),
    "R8 generation": Rule(guard=TimelessGuard),
    "R9 signature": Rule(
        (("common", "return nil, { 'signature', current .. hint, nonce }", ""),)
    ),
    "R10 version": Rule((("common", _ROLLED_BACK, "elseif false then"),)),
    "R10 record": Rule((("renew", "if lacks and", "if false and"),)),
    "R10 released unused": Rule((("renew", " and not was_unused(token_hash)", ""),)),
    "R10 silence": Rule((("common", "elseif guard and now - pool.last > ttl then", "elseif false then"),)),
    "none: newcomers wait": Rule((("claim", _NEWCOMERS, "local least = pool.floor"),)),
    "none: no adoption": Rule((("renew", "elseif durability == 'none' then", "elseif false then"),)),
    "none: no late renewal": Rule((("common", _OVERDUE, "local function overdue(r) return false end"),)),
    "tombstone without expiry": Rule(
        (("delete", _KEPT, _KEPT + " redis.call('PEXPIREAT', KEYS[1], pool.floor + REMEMBERED_MS)"),)
    ),
    "bounded floor": Rule((("common", "if pool.floor_at > now + skew then", "if false then"),)),
    "bounded lease end": Rule((("common", "  bound_lease_ends()\n  sweep(pool)", "  sweep(pool)"),)),
    "reachable marks": Rule((("claim", "if least - usable_from > wait_ms + horizon() - now then", "if false then"),)),
    "one write": Rule((("common", _FIELDS, _IN_PARTS),)),
    "deleted pool's floor": Rule((("delete", _LEFT, _LEFT.replace("pool.floor", "0")),)),
    "outage mark": Rule((("claim", _OUTAGE_MARK, "outage_least"),)),
    "outage floor": Rule((("common", _OUTAGE_RAISED, ""),)),
    "abandoned outage lane": Rule(lease_manager=AbandoningKeeper),
    "outage lane adopts nothing": Rule((("renew", _TOO_LATE, _TOO_LATE.replace("held_until", "held_outage")),)),
    "copied outage lane": Rule(lease_manager=UnvoidedKeeper),
    "released outage lane": Rule((("renew", _LOWERED, "false"),)),
    "clocks agree": Rule(lease_manager=TrustingKeeper),
    "R9 plan on disk": Rule(unkept=("change_layout",)),
    "R9 undo on disk": Rule(unkept=("undo",)),
    "R9 create on disk": Rule(unkept=("delete", "create")),
    "R9 delete on disk": Rule(unkept=("delete",)),
    "R9 floor of a change after a loss": Rule((("common", _DOUBT, _DOUBT.replace("lossy", "false")),)),
    "R9 moment of a change after a loss": Rule((("common", "planned + later, moment + later", "planned, moment"),)),
    "R9 floor of a change that was made": Rule((("renew", "    if pool.sure_floor then", "    if false then"),)),
    "R9 outage floor of a new pool": Rule((("create", "if pool.certain then", "if true then"),)),
    "R9 refused processes create nothing": Rule((("common", "if creates == false and", "if false and"),)),
    "R9 lanes of a lost pool": Rule((("common", "math.max(floor, outage_horizon())\n", "floor\n"),)),
    "R9 kept floor of a change": Rule((("common", _OF_A_CHANGE, _OF_A_CHANGE.replace(_KEEP, _RAISED_ONLY)),)),
    "R9 kept floor of a change after a loss": Rule(
        (("common", _OF_A_CHANGE, _OF_A_CHANGE.replace(_KEEP, _RAISED_ONLY)),)
    ),
    "R9 kept floor of other lanes": Rule((("common", _OF_A_TOMBSTONE, _OF_A_TOMBSTONE.replace(_KEEP, _RAISED_ONLY)),)),
    "outage lane that passed on": Rule((("renew", "held_outage > tonumber(from) and ", ""),)),
    "outage lane while Redis is behind": Rule(lifecycle=RepliedLifecycle),
    "clocks agree in the outage lane": Rule(lease_manager=OpenedKeeper),
    "crash record's mark": Rule(record=LateRecord),
    "crash record's row": Rule(record=OneRowRecord),
    "crash record's text": Rule(record=OneTextRecord),
    "crash record's namespace": Rule(name=lambda name: name._replace(namespace="all")),
    "crash record's start": Rule(name=lambda name: name._replace(started="0")),
    "crash record taken over": Rule(machines=HastyMachines),
    "take-over by one": Rule(machines=SharedMachines),
    "take-over with its marks": Rule(lease_manager=ForgetfulKeeper),
    "no take-over after a release": Rule(record=SilentRecord),
    "no take-over after a release for the dead": Rule(machines=UnsentMachines),
    "R8 release": Rule(lease_manager=ReleasingKeeper),
    "suspended lease is no heir's": Rule(lease_manager=BequeathingKeeper),
    "leases of the dead are no heir's after a copy": Rule(machines=CopiedMachines),
    "record of a copied directory": Rule(machines=CopyingMachines),
    "record's network": Rule(machines=FlatMachines),
    "the pool's id": Rule(lease_manager=CredulousKeeper),
    "the pool's id in a refusal": Rule(lease_manager=RefusedKeeper),
    "abandoned lease of a dead process": Rule(lease_manager=HeirlessKeeper),
    "a lease of use": Rule(lifecycle=EagerLifecycle),
}  # fmt: skip


def switch_off(sim: Simulation, name: str) -> None:
    """Switch the rule off; call it before a process is made."""
    apply(sim, RULES[name])


def apply(sim: Simulation, rule: Rule) -> None:
    """Make the changes of *rule*; call it before a process is made."""

    @functools.cache
    def edit(script: str, source: str) -> str:
        for where, fragment, instead in rule.edits:
            if where in (script, "common"):
                assert source.count(fragment) == 1, f"{script}.lua does not say {fragment!r} once"
                source = source.replace(fragment, instead)
        return source

    class Ruled(Process):
        lease_manager_class = rule.lease_manager
        guard_class = rule.guard
        record_class = rule.record
        store_class = rule.store

        def new_locks(self) -> None:
            super().new_locks()
            self.generator._lifecycle.__class__ = rule.lifecycle
            self.generator._allocator.__class__ = rule.allocator

    sim.network.edit = edit
    sim.name_rule = rule.name
    if sim.machines is not None:
        starved, sim.machines = sim.machines.starved, rule.machines(sim)
        sim.machines.starved = starved
    sim.process_class = Ruled
