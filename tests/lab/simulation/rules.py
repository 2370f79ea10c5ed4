"""Switch one rule of the design off, in the simulation only, to see that it is needed.

A rule of the scripts is a fragment of their text that is replaced, and must be found; a rule of
the runtime is a method that is overridden.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from snowredis.process.names import ProcessName
from snowredis.snowflake.crash.record import CrashRecord, Credentials, read_page
from snowredis.snowflake.lease.context import PoolView
from snowredis.snowflake.lease.held import Claimed, HeldLease
from snowredis.snowflake.protocol.messages import NO_STATS, WorkerStats
from snowredis.snowflake.upkeep.lifecycle import LeaseLifecycle
from snowredis.snowflake.upkeep.renewing import Renewals
from tests.lab.simulation.machines import Machines, Page
from tests.lab.simulation.process import Process
from tests.lab.simulation.stand_ins import SimDeadProcesses, SimGuard, SimKeeper, SimSlot

if TYPE_CHECKING:
    from tests.lab.simulation.schedule import Simulation


class HostPidKeeper(SimKeeper):
    """Fresh tokens off: token and owner are made of host and pid, as in most systems."""

    def send_claim(self, now: bool, instead_of: int, gives_up: bool) -> Claimed:
        assert self.process is not None
        host = self.process.host.name
        self.slot.set_asked(host.encode().hex(), f'{{"host":"{host}"}}')
        return super().send_claim(now, instead_of, gives_up)


class EndlessSlot(SimSlot):
    """A lease without an end: the holder goes on until it is told that it lost it."""

    def hold(self, held: HeldLease, stats: WorkerStats, *, fresh: bool = False) -> bool:
        kept = super().hold(held, stats, fresh=fresh)
        self.latest = held._replace(lease=held.lease._replace(until=1 << 40))
        return kept


class EndlessKeeper(SimKeeper):
    slot_class = EndlessSlot


class BlindGuard(SimGuard):
    """A guard that notices no fork: neither the hook nor the page tells it, and no call in progress is told."""

    def check(self) -> None:
        self.is_reset.value = True

    def recover(self) -> None:
        self.is_reset.value = True
        self._process.new_locks()


class UnsealedLifecycle(LeaseLifecycle):
    """Which lanes were opened is read and sent while another thread may be making an id."""

    def release(self) -> None:
        held = self._leases.held
        if held is not None:
            self._leases.release(held, self._allocator.opened(held), self.renewals.stats())

    def _make_void(self) -> None:
        self._leases.slot.make_void()


class OneTextRecord(CrashRecord):
    """A crash record whose text is replaced in its place."""

    __slots__ = ()

    def write(self, credentials: Credentials) -> bool:
        self._side ^= 1
        return super().write(credentials)


class HastyMachines(Machines):
    """A lease that a process was releasing when it died itself is its own for ever."""

    def rename(self, old: str, new: str) -> None:
        name = self._parsed(old)
        if name is not None and name.taker is not None:
            raise FileNotFoundError(old)
        super().rename(old, new)


class SilentRecord(CrashRecord):
    """A crash record that does not say whether a release was sent."""

    __slots__ = ()

    def note_release(self, token: str | None, *, sent: bool) -> bool:
        """Say that it was recorded, and do nothing."""
        return True


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

    def take_over(self, accept: Callable[[Credentials], HeldLease | None]) -> HeldLease | None:
        def unused(credentials: Credentials) -> HeldLease | None:
            return accept(credentials._replace(outage_used_ms=0))

        return super().take_over(unused)


class ForgetfulKeeper(SimKeeper):
    dead_class = ForgetfulProcesses


class UnvoidedSlot(SimSlot):
    """A slot that keeps the outage lane of a lease that was copied."""

    def drop_lost_lease(self) -> None:
        if self.latest is not None:
            self.keep_lane(self.latest)


class UnvoidedKeeper(SimKeeper):
    slot_class = UnvoidedSlot


class TrustingView(PoolView):
    """Opens the outage lane whatever the clocks of its host show."""

    clocks_agree = True


class TrustingKeeper(SimKeeper):
    view_class = TrustingView


class RepliedRenewals(Renewals):
    """Any reply of Redis closes the outage lane."""

    def go_back(self) -> None:
        self._close_outage_lane()


class UnopenedKeeper(SimKeeper):
    """Gives all lanes back, whatever was used of them."""

    def release(self, held: HeldLease, opened: str, stats: WorkerStats = NO_STATS) -> None:
        super().release(held, "0" * len(held.terms.lanes_ms), stats)


class BequeathingKeeper(SimKeeper):
    """Leaves what it and dead processes could not release, when it is suspended, to whoever starts next."""

    def disown(self) -> None:
        """Do nothing."""


class CopyingMachines(Machines):
    """A copy of a record is as good as the record."""

    def inode(self, name: str) -> str:
        found = read_page(self.read(name))
        return found.inode if found else ""


class EagerClaims(LeaseLifecycle):
    """Takes over whatever has not ended, open or not."""

    def _is_of_use(self, taken: HeldLease) -> bool:
        return True


@dataclass(frozen=True)
class Rule:
    """Changes that switch one rule off."""

    # script ("common" for all), fragment, what stands there instead
    edits: tuple[tuple[str, str, str], ...] = ()
    lease_manager: type[SimKeeper] = SimKeeper
    guard: type[SimGuard] = SimGuard
    lifecycle: type[LeaseLifecycle] = LeaseLifecycle
    renewals: type[Renewals] = Renewals
    record: type[CrashRecord] = CrashRecord
    machines: type[Machines] = Machines
    # what a person did and is not put on disk
    unkept: tuple[str, ...] = ()
    # what is left of the name of a process
    name: Callable[[ProcessName], ProcessName] | None = None


_MARK = "local function mark_of(r, i) return math.max(r.lanes[i], r['until'], pool.floor) end"
_OUTAGE_MARK = "math.max(pool.outage_floor, r and r.lanes[lane_count] or 0, r and r.outage or 0)"
_COUNTED = "while pool.next < capacity and redis.call('HEXISTS', KEYS[1], 'w:' .. pool.next) == 1 do"
_FLOOR = "pool.floor = math.max(pool.start, pool.is_new and at or horizon(at, ttl))"
_OUTAGE_FLOOR = "pool.outage_floor = math.max(pool.start, pool.is_new and at or horizon(at, outage))"
_FIRST_ID = "local first_renewal_id = string.sub(sha(nonce .. now .. pool.version .. token_hash), 1, FIRST_DIGITS)"
_TOO_LATE = "elseif held_until <= later_clock + lead + slack or held_lanes[1] < pool.start then"
_ROLLED_BACK = "  if is_older then"
_NOTICED = "pool.lost_at, pool.is_new = math.max(pool.lost_at, later_clock), false"
# what is lost was lost before the server started, one could think
_FROM_ITS_START = """
    local uptime = tonumber(string.match(redis.call('INFO', 'server'), 'uptime_in_seconds:(%d+)'))
    pool.lost_at, pool.is_new = now - uptime * 1000, false"""
_BOUND = "if pool.lost_at > later_clock + lead + ttl then pool.lost_at, pool.changed = later_clock, true end"
_FIELDS = "redis.call('HSET', KEYS[1], unpack(pool.fields))"
# a command that is refused between two writes
_IN_PARTS = "redis.call('HSET', KEYS[1], unpack(pool.fields, 1, 2)) redis.call('HEXISTS', KEYS[1], '') " + _FIELDS
_IDENTITY = "local id, reason = identity()"
_UNKNOWN = "if not id then return nil, { 'unidentified', reason } end"
_BAD_DURABILITY = "if #signature > 400 or"
_TRUSTED = f"if durability == 'none' then durability = 'assured' end\n{_BAD_DURABILITY}"
_UNOPENED = "string.sub(opened, i, i) == '0'"
_FIRST = "local goes_back = i > 1 and is_sure and"
_KEEPS = "local keeps = reason ~= 'copied' and not (is_later and r.before ~= token_hash)"
_REFUSED = "return nil, { 'signature', v[1] .. (v[8] and ' ends_at=' .. v[8] .. (v[9] and '' or ' unsure=1') or '') }"
_OVER = "local over = v[1] and (v[9] == 'now' or v[9] == 'then' and is_past(ends))"
_START = "math.max(pool.start, start), 0, 0, now"
_CUT = "math.min(capped + ttl, pool.ends)"
_OUTAGE_CUT = "math.min(capped + outage, pool.ends)"
_EARLIEST = "math.max(now, is_unknown and pool.top or latest, pool.floor, outage > 0 and pool.outage_floor or 0)"
_ABOVE = "if lowest_id(signature, start) < lowest_id(v[1], ends) then"
_BEYOND = "'(' .. latest_end, '+inf', 'LIMIT', 0, AT_ONCE)"
_ONCE = "local at = has_end and pool.ends or earliest"

RULES: dict[str, Rule] = {
    # step 1, grant
    "mark": Rule((("claim", _MARK, _MARK.replace("r['until'], ", "")), ("claim", _OUTAGE_MARK, "pool.outage_floor"))),
    "end of the reservation": Rule(lease_manager=EndlessKeeper),
    "index": Rule((("claim", "and redis.call('ZCARD', KEYS[2]) == pool.records then return", "then return"),)),
    "adopted records": Rule((("claim", _COUNTED, "while false do"),)),
    "cap": Rule((("common", "= math.min(caller_ms, now + lead), math.max", "= caller_ms, math.max"),)),
    # step 2, extend
    "chain": Rule(
        (
            ("renew", "    if not is_next then", "    if false then"),
            ("renew", "r['until'] > held_until and not is_next", "false"),
        )
    ),
    "replayed claim": Rule((("claim", "and #r.renewal_id == FIRST_DIGITS\n    and r.lease_end > now", ""),)),
    "first renewal id": Rule((("claim", _FIRST_ID, "local first_renewal_id = '000000000000'"),)),
    "copied outage lane": Rule(lease_manager=UnvoidedKeeper),
    "holder before": Rule((("renew", _KEEPS, "local keeps = reason ~= 'copied'"),)),
    # step 3, lose
    "floor": Rule(
        (("common", _FLOOR, "pool.floor = pool.start"), ("common", _OUTAGE_FLOOR, "pool.outage_floor = pool.start"))
    ),
    "time of notice": Rule((("common", _NOTICED, _FROM_ITS_START),)),
    "start of a new pool": Rule((("common", _FLOOR, _FLOOR.replace("pool.is_new and at", "pool.is_new and 0")),)),
    "server": Rule((("common", "return run_id .. '-' .. replication_id", "return ''"),)),
    "identity": Rule((("common", _IDENTITY, "local id = identity() or ''"), ("common", _UNKNOWN, ""))),
    "version": Rule((("common", _ROLLED_BACK, "  if false then"),)),
    "record": Rule((("renew", "if lacks and", "if false and"),)),
    "another pool": Rule((("common", "if is_foreign and (", "if false and ("),)),
    # step 4, adopt
    "settling": Rule((("claim", "elseif pool.floor > now then", "elseif pool.floor - now > ttl + lead then"),)),
    "too late": Rule((("renew", _TOO_LATE, "elseif false then"),)),
    "later lease": Rule((("renew", "  elseif is_later then", "  elseif false then"),)),
    "lease end": Rule((("common", "math.max(r.lease_end, now + ttl)", "now + ttl"),)),
    # step 5, own
    "fresh tokens": Rule(lease_manager=HostPidKeeper),
    "fork": Rule(guard=BlindGuard),
    "seal": Rule(lifecycle=UnsealedLifecycle),
    "clocks agree": Rule(lease_manager=TrustingKeeper),
    # a release gives back what was never opened
    "lane that was opened": Rule(lease_manager=UnopenedKeeper),
    "first lane stays": Rule(
        (("release", _FIRST, _FIRST.replace("i > 1 and ", "")), ("release", _UNOPENED, f"(i == 1 or {_UNOPENED})"))
    ),
    # the end of a pool
    "signature": Rule((("common", _REFUSED, ""),)),
    "end of grants": Rule((("common", _CUT, "capped + ttl"), ("common", _OUTAGE_CUT, "capped + outage"))),
    "start at the end": Rule((("common", _START, "pool.start, 0, 0, now"),)),
    "not before grants": Rule((("delete", _EARLIEST, "now"),)),
    "end once": Rule((("delete", _ONCE, "local at = earliest"),)),
    "end on every copy": Rule((("common", _OVER, "local over = ends <= now"),), unkept=("delete", "create")),
    "above the pool before": Rule((("common", _ABOVE, "if false then"),)),
    "refused processes create nothing": Rule(
        (("common", "elseif pool.created and without == 'lost' and", "elseif false and"),)
    ),
    # durability none
    "none": Rule((("common", _BAD_DURABILITY, _TRUSTED),)),
    "none: no adoption": Rule((("renew", "elseif durability == 'none' then", "elseif false then"),)),
    # nobody starves
    "clock that was ahead": Rule((("common", _BOUND, ""),)),
    "bounded lease end": Rule((("common", _BEYOND, _BEYOND.replace("AT_ONCE", "0")),)),
    "reachable marks": Rule(
        (("claim", "if pool.floor - usable_from > wait_ms + horizon(0, ttl) then", "if false then"),)
    ),
    "one write": Rule((("common", _FIELDS, _IN_PARTS),)),
    "outage lane while Redis is behind": Rule(renewals=RepliedRenewals),
    # crash records
    "crash record's text": Rule(record=OneTextRecord),
    "crash record's namespace": Rule(name=lambda name: name._replace(namespace="all")),
    "crash record's start": Rule(name=lambda name: name._replace(started="0")),
    "crash record taken over": Rule(machines=HastyMachines),
    "take-over by one": Rule(machines=SharedMachines),
    "take-over behind what was used": Rule(lease_manager=ForgetfulKeeper),
    "no take-over after a release": Rule(record=SilentRecord),
    "no take-over after a copy": Rule(lease_manager=BequeathingKeeper),
    "record of a copied directory": Rule(machines=CopyingMachines),
    "a lease of use": Rule(lifecycle=EagerClaims),
}


def switch_off(sim: Simulation, name: str) -> None:
    """Switch the rule off; call it before a process is made."""
    rule = RULES[name]

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

        def new_locks(self) -> None:
            super().new_locks()
            lifecycle = self.generator._lifecycle
            lifecycle.__class__ = rule.lifecycle
            lifecycle.renewals.__class__ = rule.renewals

    sim.network.edit = edit
    sim.name_rule = rule.name
    if sim.machines is not None:
        starved, sim.machines = sim.machines.starved, rule.machines(sim)
        sim.machines.starved = starved
    sim.process_class = Ruled
