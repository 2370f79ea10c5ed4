"""Faults of the code that the judges must see: each puts one into the scripts or the client, in the simulation only.

The judges are the checker of the simulation, and TLC on the log of the same schedule. scripts/judges.py plays the
schedules that provoke each fault, and prints who saw it; test_code_faults.py plays a few.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from snowredis.core.lanes import Lanes, Position
from snowredis.snowflake.ids.allocator import IdAllocator
from snowredis.snowflake.lease.values import HeldLease
from snowredis.snowflake.protocol.requests import NO_STATS, RenewRequest, WorkerStats
from tests.lab.simulation.rules import Rule, apply
from tests.lab.simulation.schedule import Result, Simulation
from tests.lab.simulation.stand_ins import SimKeeper, SimSlot, SimStore
from tests.lab.simulation.tracing import attach_to_schedule
from tests.lab.spec.log import read_log
from tests.lab.spec.steps import steps_of
from tests.lab.spec.validate import check


class WrongSlot(SimSlot):
    """A client that converts what a reply grants, wrongly."""

    def wrong(self, held: HeldLease, *, fresh: bool) -> HeldLease:
        """Return what it makes of *held*; *fresh*: of a claim, not of a renewal."""
        raise NotImplementedError

    def hold(self, held: HeldLease, stats: WorkerStats, *, fresh: bool = False) -> bool:
        return super().hold(held if held.pending_renewal_id else self.wrong(held, fresh=fresh), stats, fresh=fresh)

    def ticks(self, *times_ms: int) -> tuple[int, ...]:
        assert self.process is not None
        return tuple(map(self.process.config.layout.first_tick_from, times_ms))


class LateTickSlot(WrongSlot):
    def wrong(self, held: HeldLease, *, fresh: bool) -> HeldLease:
        return held._replace(lease=held.lease._replace(until=held.lease.until + 1))


class EarlyTickSlot(WrongSlot):
    def wrong(self, held: HeldLease, *, fresh: bool) -> HeldLease:
        opens = tuple(tick - fresh for tick in held.lease.opens)
        return held._replace(lease=held.lease._replace(opens=opens))


class LateMsSlot(WrongSlot):
    def wrong(self, held: HeldLease, *, fresh: bool) -> HeldLease:
        until_ms = held.lease.until_ms + 1
        return held._replace(
            terms=held.terms._replace(until_ms=until_ms),
            lease=held.lease._replace(until_ms=until_ms, until=self.ticks(until_ms)[0]),
        )


class EarlyMsSlot(WrongSlot):
    def wrong(self, held: HeldLease, *, fresh: bool) -> HeldLease:
        lanes_ms = tuple(ms - fresh for ms in held.lanes_ms)
        return held._replace(
            terms=held.terms._replace(lanes_ms=lanes_ms), lease=held.lease._replace(opens=self.ticks(*lanes_ms))
        )


class SameRenewalSlot(WrongSlot):
    def wrong(self, held: HeldLease, *, fresh: bool) -> HeldLease:
        return held if fresh else held._replace(pending_renewal_id=held.terms.renewal_id)


class FirstWorkerSlot(WrongSlot):
    def wrong(self, held: HeldLease, *, fresh: bool) -> HeldLease:
        return held._replace(lease=held.lease._replace(worker=0))


def _keeper(slot: type[SimSlot]) -> type[SimKeeper]:
    return type(f"KeeperOf{slot.__name__}", (SimKeeper,), {"slot_class": slot})


class HeirlessKeeper(SimKeeper):
    """Releases what it took over as if only its own ids had been made of it."""

    def release(self, held: HeldLease, opened: str, stats: WorkerStats = NO_STATS) -> None:
        super().release(held, opened or "0" * len(held.lanes_ms), stats)


class LowLanesStore(SimStore):
    """A client that says in its renewals that its lanes begin a second before they do."""

    def ask(self, request: Any) -> Any:
        if isinstance(request, RenewRequest):
            lanes_ms = tuple(ms - 1000 for ms in request.lease.lanes_ms)
            request = request._replace(lease=request.lease._replace(lanes_ms=lanes_ms))
        return super().ask(request)


class ReopeningAllocator(IdAllocator):
    """An allocator that forgets that the last tick of a lane was used."""

    def _lanes(self, position: Position) -> Lanes:
        lanes = super()._lanes(position)
        opens = [tick - used for tick, used in zip(lanes.opens, lanes.used, strict=True)]
        return lanes._replace(opens=tuple(opens))


# how long a schedule goes on after the first failure: TLC may see a fault later than the checker does
AFTER_FAILURE_US = 12_000_000

_STORED = "  put(pool, 'w:' .. of_worker, pack_record(r))"
_OLD_MARK = f"  local moved = r['until'] r['until'] = held_until {_STORED} r['until'] = moved"
_OWN, _NEXT = "  if is_granted_here and is_own then", "local is_next = is_own and in_chain("
_MARK = "local function mark_of(r, i) return math.max(r.lanes[i], r['until'], pool.floor) end"
_UNTIL_FORGOTTEN = _MARK.replace("r['until'], ", "")
_FREE, _ALIVE = "redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now,", "elseif r.lease_end > now then"
_GOES_BACK = "local goes_back = i > 1 and is_sure and"
_HORIZON = "return at + length + lead + slack end"
_ENDS = "math.max(latest, r['until'], r.outage, unpack(r.lanes))"


@dataclass(frozen=True)
class CodeFault:
    """A fault, and what provokes it.

    Attributes:
        rule: what is changed.
        classes: faults of the schedules in which it does harm.
        seed: of a schedule in which the judges see it.
        blind: "soak" or "TLC", if that judge cannot see it.
    """

    rule: Rule
    classes: tuple[str, ...]
    seed: int = 1000
    blind: str = ""


# a worker id passes on while its holder is silent
_SILENT = ("pause", "starve", "crash")
_LOST = ("crash", "wipe")

CODE_FAULTS: dict[str, CodeFault] = {
    "mark not moved": CodeFault(Rule((("renew", _STORED, _OLD_MARK),)), _SILENT),
    "false alarm of a loss": CodeFault(
        Rule((("renew", "  if lacks and", "  if pool.version % 9 == 8 or lacks and"),)), _SILENT
    ),
    "lanes too low in a client's request": CodeFault(Rule(store=LowLanesStore), _SILENT),
    "one tick used twice": CodeFault(Rule(allocator=ReopeningAllocator), ("step", "skew"), seed=1008),
    "one tick too late": CodeFault(Rule(lease_manager=_keeper(LateTickSlot)), ("down", "starve"), seed=1007),
    "one tick too early": CodeFault(Rule(lease_manager=_keeper(EarlyTickSlot)), _SILENT),
    "1 ms too late (until)": CodeFault(Rule(lease_manager=_keeper(LateMsSlot)), ("down", "starve")),
    "1 ms too early (from)": CodeFault(Rule(lease_manager=_keeper(EarlyMsSlot)), _SILENT),
    "token unchecked": CodeFault(
        Rule(
            (
                ("renew", _OWN, "  if is_granted_here then"),
                ("renew", _NEXT, "local is_next = not is_own or in_chain("),
            )
        ),
        ("pause", "starve", "release"), seed=1001),
    "one id for all renewals": CodeFault(Rule(lease_manager=_keeper(SameRenewalSlot)), ("clone",), seed=1003),
    "lane granted twice": CodeFault(
        Rule(
            (
                ("claim", _FREE, _FREE.replace("now", "now + ttl")),
                ("claim", _ALIVE, "elseif false then"),
                ("claim", _MARK, _UNTIL_FORGOTTEN),
            )
        ),
        _SILENT,
    ),
    "release too low": CodeFault(Rule((("release", _GOES_BACK, "local goes_back = true or"),)), ("release",)),
    "horizon without failover_slack": CodeFault(
        Rule((("common", _HORIZON, _HORIZON.replace(" + slack", "")),)), ("deposed",)
    ),
    "two processes with one worker id": CodeFault(Rule(lease_manager=_keeper(FirstWorkerSlot)), _SILENT),
    "dropped generator taken for unused": CodeFault(Rule(lease_manager=HeirlessKeeper), ("drop",), seed=1030),
    "end before the ends of outage lanes": CodeFault(
        Rule((("delete", _ENDS, _ENDS.replace("r.outage, ", "")),)), ("relaned",), blind="TLC"
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Played:
    """A schedule that was played with a fault in the code, and its log for TLC."""

    result: Result
    log: str


class _Enough(Exception):
    """Ends a schedule in which the checker has seen the fault."""


def _end_after_failure(sim: Simulation) -> None:
    fail = sim.checker.fail

    def end() -> None:
        raise _Enough

    def failed(what: str) -> None:
        if not sim.checker.failures:
            sim.world.after(AFTER_FAILURE_US, end)
        fail(what)

    sim.checker.fail = sim.network.malformed = failed  # type: ignore[method-assign]


def play(name: str, seed: int, classes: Sequence[str] = ()) -> Played:
    """Play the schedule of *seed* with the fault *name* in the code; "": without one, with *classes*.

    It ends a while after the checker's first failure.
    """
    log = io.StringIO()
    fault = CODE_FAULTS[name] if name else None
    sim = Simulation(seed, fault.classes if fault is not None else classes)
    if fault is not None:
        apply(sim, fault.rule)
    tracer = attach_to_schedule(sim, log)
    _end_after_failure(sim)
    with suppress(_Enough):
        sim.run()
    tracer.end()
    return Played(sim.result(), log.getvalue())


def accepted(logs: Sequence[str], directory: Path) -> list[bool]:
    """Return for each log whether TLC finds that the specification allows it. Writes into *directory*."""
    path = directory / "runs.log"
    path.write_text("".join(logs))
    verdicts = check([steps_of(entries) for entries in read_log(path)], explain=False)
    return [verdict.accepted for verdict in sorted(verdicts, key=lambda verdict: verdict.number)]
