"""The status of a pool in one verdict, from a snapshot: how bad it is, what is the case, what to do.

Pure. `workers`, `pool show`, `doctor`, the service and its page all show this one. What is unknown is reported
as unknown, never as ok. Texts contain hosts, which are untrusted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from snowredis.core.as_json import Hidden, NowMs, TimeMs, in_json
from snowredis.core.values import duration
from snowredis.errors import PoolNotFound, StoreRefused, StoreUnavailable
from snowredis.monitor.events import reason_text
from snowredis.monitor.owner import count, counted, greatest_holder, named, processes_of
from snowredis.monitor.snapshot import DEATH_SHOWN_MS, EndedLease, PoolInfo, Snapshot, WorkerInfo, time_text
from snowredis.snowflake.record import EventKind

# from best to worst; what is unknown is not ok, but may be nothing
LEVELS = ("ok", "notice", "unknown", "warning", "critical")
DAY_MS = 86_400_000
# a reload that starts the new processes before the old ones end needs twice the worker ids
HALF_FULL, NEARLY_FULL = 0.5, 0.9
# an alarm that people had a week to look at does not hide what is new; it stays among the conditions
ALARM_CRITICAL_MS = 7 * DAY_MS
# a process that is refused asks again once a second
MISMATCH_SHOWN_MS = 300_000
# a move to another layout takes months to plan, and days to do
LAYOUT_ENDS_MS, LAYOUT_CRITICAL_MS = 365 * DAY_MS, 30 * DAY_MS
# an outage of Redis is critical if workers have ids for less than this
OUTAGE_CRITICAL_MS = 3_600_000
DO_NOT_RESTART = "do not restart workers: those with ids go on, and a new one may not be able to start"


@dataclass(frozen=True, slots=True)
class Condition:
    """One thing that is the case. Times are ms since 1970.

    Attributes:
        code: for programs; texts may be reworded in any release.
        level: one of LEVELS.
        template: what is the case; in place of {since} and {until} stand times.
        advice: what to do; empty if there is nothing to do.
        since_ms, until_ms: from when to when, or None if that is unknown or has no meaning.
        count: how many workers, deaths or worker ids it concerns.
    """

    code: str
    level: str
    template: Hidden
    advice: str = ""
    since_ms: TimeMs | None = None
    until_ms: TimeMs | None = None
    count: int = 0

    @property
    @in_json
    def text(self) -> str:
        """Return the sentence that describes it, with times in UTC."""
        return self.render(time_text)

    @property
    def short(self) -> str:
        """Return the phrase for a headline; empty for a notice."""
        return "" if self.level == "notice" else HEADLINES[self.code](self)

    def render(self, time_text: Callable[[int], str]) -> str:
        """Return the sentence that describes it, with times as *time_text* shows them."""
        text = self.template
        for name, time_ms in (("{since}", self.since_ms), ("{until}", self.until_ms)):
            text = text.replace(name, "an unknown time" if time_ms is None else time_text(time_ms))
        return text


@dataclass(frozen=True, slots=True)
class Status:
    """Verdict about a pool.

    Attributes:
        level: one of LEVELS: the worst of the conditions.
        headline: one short line without times, for a title.
        conditions: the worst first.
        now_ms: time of the verdict, ms since 1970: of the snapshot, on the Redis clock; without one, on this host's.
        stale_since_ms: since when the pool could not be read, on this host's clock; None if the snapshot is fresh.
    """

    level: str
    headline: str
    conditions: tuple[Condition, ...]
    now_ms: NowMs
    stale_since_ms: TimeMs | None = None


def status_of(snapshot: Snapshot) -> Status:
    """Return the verdict about a pool that was just read."""
    info, workers = snapshot.info, snapshot.workers
    floor, renewals = _floor(snapshot), _no_renewals(snapshot)
    # if no worker can make ids, unknown workers cannot be adopted any more
    is_down = any(condition.code == "no-ids" for condition in floor)
    conditions = [
        *renewals,
        *_alarm(info),
        *floor,
        *_without_ids(snapshot),
        *([] if is_down else _unconfirmed(snapshot.unknown, info)),
        *_deaths(snapshot, "deaths", "died"),
        *_deaths(snapshot, "gone", "expired"),
        # their silence is what the one condition says
        *([] if any(condition.level == "critical" for condition in renewals) else _silent(snapshot)),
        *_mismatch(snapshot),
        *_use(snapshot),
        *_clocks(workers, info),
        *_without_outage_lane(workers, info),
        *_layout_end(info),
        *_end(info),
    ]
    return _verdict(conditions, info.now_ms, quiet=f"{counted(workers)} alive" if workers else "no worker is alive")


def unknown_status(now_ms: int) -> Status:
    """Return the verdict about a pool that was not read yet. *now_ms*: this host's clock."""
    return _verdict([Condition("not-read", "unknown", "the pool was not read yet")], now_ms)


def status_without(
    error: PoolNotFound | StoreUnavailable,
    last: Snapshot | None,
    *,
    failed_since_ms: int,
    now_ms: int,
    last_read_ms: int,
) -> Status:
    """Return the verdict about a pool that cannot be read.

    Args:
        last: what was read last; None: it never could be read.
        failed_since_ms, now_ms, last_read_ms: since when, now, and when *last* was read, on this host's clock.
    """
    if isinstance(error, PoolNotFound):
        gone = "the pool is gone since {since}" if last else "the pool does not exist"
        advice = "it was deleted, or Redis lost its data: living workers create it again with their next heartbeat"
        if not last:
            advice = "check its name; a pool is created with: snowredis pool create NAME"
        level = "critical" if last else "unknown"
        condition = Condition("pool-missing", level, gone, advice, since_ms=failed_since_ms)
    else:
        condition = _redis_unavailable(error, last, failed_since_ms, now_ms, last_read_ms)
    return _verdict([condition], now_ms, failed_since_ms)


def _redis_unavailable(
    error: StoreUnavailable, last: Snapshot | None, failed_since_ms: int, now_ms: int, last_read_ms: int
) -> Condition:
    what, todo = "does not answer", "get Redis running again; workers then renew by themselves"
    if isinstance(error, StoreRefused):
        what, todo = "refuses this user", "correct the user's password or rights, in Redis or in the URL"
    elif error.timed_out:
        what, todo = "does not answer in time", "look for what keeps Redis or the network busy"
    text = f"Redis {what} since {{since}}; what the workers do is unknown"
    advice = f"{todo}. Until then, {DO_NOT_RESTART}. {error}"
    # this host's clock counts the time since the snapshot
    ahead_ms = now_ms - last_read_ms
    if last is None or not (lasting_ms := last.lasting_ms):
        return Condition("redis-unavailable", "critical" if last else "unknown", text, advice, failed_since_ms)
    first_s, last_s = (max(0, lasting_ms[end] - ahead_ms) // 1000 for end in (0, -1))
    living = count(len(lasting_ms), "worker that was alive then has", "workers that were alive then have")
    if first_s > 0:
        text += f"; the {living} ids for about {duration(1000 * first_s)} more"
    elif last_s > 0:
        text += f"; some of the {living} no ids any more, the last for about {duration(1000 * last_s)}"
    else:
        text += f"; the {living} no ids any more, unless they reach Redis"
    # with outage lanes there is time to bring Redis back; only new processes may get no ids
    level = "warning" if first_s * 1000 > OUTAGE_CRITICAL_MS else "critical"
    return Condition(
        "redis-unavailable", level, text, advice, failed_since_ms, now_ms + first_s * 1000, len(lasting_ms)
    )


def _verdict(
    conditions: Sequence[Condition], now_ms: int, stale_since_ms: int | None = None, quiet: str = ""
) -> Status:
    ranked = tuple(sorted(conditions, key=lambda condition: -LEVELS.index(condition.level)))
    level = ranked[0].level if ranked else "ok"
    shown = [condition.short for condition in ranked if condition.short]
    return Status(level, "; ".join(shown[:3]) or quiet, ranked, now_ms, stale_since_ms)


# code of a condition -> its part of the headline
HEADLINES: dict[str, Callable[[Condition], str]] = {
    "no-renewals": lambda it: "no worker renews" if it.level == "critical" else "this service does not renew",
    "alarm": lambda _: "ids may have been repeated",
    "redis-unavailable": lambda it: it.template.partition(" since ")[0],
    "pool-missing": lambda _: "no such pool",
    "not-read": lambda _: "not read yet",
    "no-ids": lambda _: "no worker can make ids",
    "floor": lambda _: "new workers wait",
    "without-ids": lambda it: f"{count(it.count, 'worker makes', 'workers make')} no ids",
    "unconfirmed": lambda it: f"{count(it.count, 'worker')} unknown",
    "deaths": lambda it: f"{it.count:,} died",
    "gone": lambda it: f"{it.count:,} gone without a release",
    "silent": lambda it: f"{it.count:,} silent",
    "mismatch": lambda _: "processes with other settings are refused",
    "full": lambda _: "pool full",
    "nearly-full": lambda _: "pool nearly full",
    "half-full": lambda _: "pool half full",
    "clocks": lambda it: f"{count(it.count, 'clock')} off",
    "no-outage-lane": lambda it: f"{it.count:,} without an outage lane",
    "layout-over": lambda _: "layout used up",
    "layout-ends": lambda _: "layout ends soon",
    "ends": lambda _: "pool ends",
}


# --- conditions ------------------------------------------------------------------------------------


def _no_renewals(snapshot: Snapshot) -> list[Condition]:
    """Return the one condition behind the silence of most workers: Redis takes no renewals, or the network is cut."""
    mass, refusal = snapshot.mass_silence, snapshot.refusal
    why = "Redis refuses writes, the network is cut, or their hosts are gone"
    advice = f"{DO_NOT_RESTART}. Look what `snowredis doctor` says of Redis, on the host of a worker"
    if mass:
        text = f"{mass.count:,} of {mass.fleet:,} workers sent no heartbeat since {{since}}: "
        text += f"{refusal.reason if refusal else why}. "
        text += "Those that live have ids until {until} at least"
        if mass.until_ms <= snapshot.info.now_ms:
            text += ": for some of them that is over"
        return [Condition("no-renewals", "critical", text, advice, mass.since_ms, mass.until_ms, mass.count)]
    if refusal is None:
        return []
    # clocks are known to the length of a reply
    others = any(worker.renewed_ms > refusal.since_ms + 1_000 for worker in snapshot.workers)
    text = f"Redis takes no claim and no renewal of this service since {{since}}: {refusal.reason}"
    return [Condition("no-renewals", "warning" if others else "critical", text, advice, refusal.since_ms)]


def _without_ids(snapshot: Snapshot) -> list[Condition]:
    """Return the condition of workers that renew their leases and make no ids."""
    without = snapshot.in_state("no-ids")
    # the end of the layout has a condition of its own
    if not without or snapshot.info.now_ms >= snapshot.info.layout_end_ms:
        return []
    worst_ms = max((worker.clock_offset_ms for worker in without), key=abs)
    reasons = ", ".join(sorted({worker.owner.refused for worker in without if worker.owner.refused}))
    text = f"{named(without)} cannot make ids{f': {reasons}' if reasons else ''}; their clocks differ by up to "
    text += f"{worst_ms:+,} ms from the Redis clock"
    advice = "synchronize the clocks of these hosts; the logs of these processes name the error"
    return [Condition("without-ids", "critical", text, advice, count=len(without))]


def _alarm(info: PoolInfo) -> list[Condition]:
    if not info.alarms:
        return []
    text = "ids may have been repeated: Redis went back to an older state"
    text += "; times of these ids: {since} to {until}" if info.alarm_until_ms else f" ({info.alarm})"
    advice = (
        "look in the tables of this pool for ids of that time that two rows share (snowredis whois ID ID tells which "
        "processes made them); then find out why Redis lost data: a restored snapshot, or a failover without "
        "replication"
    )
    since_ms, until_ms = info.alarm_from_ms or None, info.alarm_until_ms or None
    level = "notice" if until_ms and info.now_ms - until_ms > ALARM_CRITICAL_MS else "critical"
    return [Condition("alarm", level, text, advice, since_ms, until_ms, info.alarms)]


def _floor(snapshot: Snapshot) -> list[Condition]:
    """Return the condition of a floor that has not passed: nobody, or nobody new, can make ids until then."""
    info = snapshot.info
    wait_ms = info.floor_ms - info.now_ms
    if wait_ms <= 0:
        return []
    reason = reason_text(EventKind.FLOOR, info.floor_reason) or "unknown"
    # a pool that never had a worker is new, not down
    may_make_ids = snapshot.is_new or snapshot.has_outage_lanes or snapshot.awaits_adoptions
    if not snapshot.workers and not may_make_ids:
        text = f"no worker can make ids until {{until}}, in {duration(wait_ms)}: no lease is valid, and {reason}"
        advice = (
            "wait: the outage was longer than the reservations, and ids stop until all of them have certainly ended. "
            "Then all workers go on by themselves"
        )
        return [Condition("no-ids", "critical", text, advice, info.raised_ms, info.floor_ms)]
    text = f"new workers are served in {duration(wait_ms)}, at {{until}}: {reason}"
    advice = "wait"
    if snapshot.workers:
        advice += f": {counted(snapshot.workers)} with a valid lease go on without a pause"
    elif snapshot.lanes_until_ms > info.now_ms or snapshot.silent:
        advice += ": workers with an outage lane go on without a pause, and get worker ids then"
    elif not snapshot.is_new:
        advice += ": Redis hears within a heartbeat from the workers that live, and whether they have ids"
    return [Condition("floor", "warning", text, advice, info.raised_ms, info.floor_ms)]


def _unconfirmed(unknown: Sequence[WorkerInfo], info: PoolInfo) -> list[Condition]:
    if not unknown:
        return []
    text = (
        f"{named(unknown)} may be dead or alive: Redis may have forgotten their last heartbeats. Those that are alive "
        "are adopted, or claim a worker id, before {until}"
    )
    return [Condition("unconfirmed", "unknown", text, "wait", None, info.floor_ms, len(unknown))]


# code of a condition -> what is said of the processes, and what to do
_ENDS = {
    "deaths": (
        "died in the last hour: another process found them dead, and released what they had leased",
        "they were killed (out of memory?) or crashed",
    ),
    "gone": (
        "sent no heartbeat until all their reservations had ended, and no process saw them end: if they live, they "
        "have no ids until they reach Redis",
        "they hang, cannot reach Redis, or were killed where no other process of the pool runs: look at the hosts",
    ),
}
_ACKNOWLEDGE = "snowredis workers lists them; snowredis workers --acknowledge says that they have been seen"


def _deaths(snapshot: Snapshot, code: str, kind: str) -> list[Condition]:
    """Return the condition of the leases of *kind* that ended: a notice if somebody has acknowledged all of them."""
    ended = [each for each in snapshot.deaths if each.kind == kind]
    new = [each for each in ended if not each.acknowledged]
    ended = new or ended
    if not ended:
        return []
    newest, number = ended[0], len(processes_of(ended))
    said, why = _ENDS[code]
    text = f"{counted(ended)} {said}. The last, at {{until}}: worker {newest.worker} on {newest.owner.text}"
    times_ms = ended[-1].at_ms, newest.at_ms
    if not new:
        return [Condition(code, "notice", f"acknowledged: {text}", "", *times_ms, number)]
    # all processes of that hour: the living and the dead; in a fleet of short jobs, all that claimed
    processes = max(number + len(processes_of(snapshot.workers)), snapshot.claims)
    level = "critical" if number >= 3 and number * 10 >= processes else "warning"
    return [Condition(code, level, text, f"{why}; {_ACKNOWLEDGE}", *times_ms, number)]


def _silent(snapshot: Snapshot) -> list[Condition]:
    """Return the condition of workers that renew no more: a notice if all have been seen, or after an hour."""
    info = snapshot.info
    silent: list[WorkerInfo | EndedLease] = [*snapshot.in_state("silent")]
    new = [each for each in snapshot.silent if not each.acknowledged and each.at_ms > info.now_ms - DEATH_SHOWN_MS]
    is_seen = not silent and not new
    silent += new or snapshot.silent
    if not silent:
        return []
    beats_ms, number = [each.renewed_ms or 0 for each in silent], len(processes_of(silent))
    until_ms = max(each.lasts_until_ms for each in silent)
    text = f"{named(silent)} sent no heartbeat since {{since}}; if they live, the last of them has ids until {{until}}"
    if is_seen:
        return [Condition("silent", "notice", f"known: {text}", "", min(beats_ms), until_ms, number)]
    advice = f"{_ENDS['gone'][1]}; {_ACKNOWLEDGE}"
    return [Condition("silent", "warning", text, advice, min(beats_ms), until_ms, number)]


def _mismatch(snapshot: Snapshot) -> list[Condition]:
    """Return the condition of processes that were refused for other settings in the last minutes."""
    info = snapshot.info
    if not info.mismatches or info.now_ms - info.mismatch_ms > MISMATCH_SHOWN_MS:
        return []
    by = f" by {info.mismatch_by}" if info.mismatch_by else ""
    text = (
        f"processes with other settings than the pool are refused: {count(info.mismatches, 'claim')} so "
        f"far, the last at {{until}}{by}{'' if snapshot.workers else '. No worker is alive'}"
    )
    advice = (
        "compare the settings of that process (layout, datacenter, ttl) with: snowredis pool show; its log has both. "
        "To change the layout of a pool: snowredis pool change-layout"
    )
    level = "warning" if snapshot.workers else "critical"
    return [Condition("mismatch", level, text, advice, None, info.mismatch_ms, info.mismatches)]


def _use(snapshot: Snapshot) -> list[Condition]:
    info = snapshot.info
    share = info.used / max(1, info.capacity)
    if share <= HALF_FULL:
        return []
    use, advice = snapshot.use, ["move to a layout with more worker bits"]
    silent = snapshot.in_state("silent")
    holder, held = greatest_holder(snapshot.workers)
    if held > 1 and held * 10 >= info.used:
        use += f", {held:,} of them by {holder}"
        advice.insert(0, "let the threads of that process share one generator")
    if silent:
        advice.insert(0, "let processes end in order, or shorten the ttl: a lease outlives a killed process by it")
    todo = "; ".join(advice if len(advice) > 1 else ["stop idle processes", *advice])
    if info.free <= 0:
        first_ms = min((worker.lease_end_ms for worker in silent), default=None)
        wait = "; if they are dead, the first worker id is available at {until}" if silent else ""
        text = f"{use}: new workers are refused{wait}"
        return [Condition("full", "critical", text, todo, until_ms=first_ms, count=info.used)]
    if share >= NEARLY_FULL:
        return [Condition("nearly-full", "warning", use, todo, count=info.used)]
    reload = "a reload that starts new processes before old ones end needs twice as many"
    return [Condition("half-full", "notice", f"{use}; {reload}", todo, count=info.used)]


def _clocks(workers: Sequence[WorkerInfo], info: PoolInfo) -> list[Condition]:
    most_ms = max(1, info.lead_ms)
    off = [worker for worker in workers if abs(worker.clock_offset_ms) > most_ms]
    if not off:
        return []
    worst_ms = max((worker.clock_offset_ms for worker in off), key=abs)
    text = f"the clocks of {named(off)} differ from the Redis clock, by up to {worst_ms:+,} ms"
    return [Condition("clocks", "warning", text, "synchronize the clocks of these hosts", count=len(off))]


def _without_outage_lane(workers: Sequence[WorkerInfo], info: PoolInfo) -> list[Condition]:
    """Return the condition of workers that could not go on without Redis, though the pool has outage lanes."""
    # no lane reaches beyond the end of the pool
    if not info.outage_reserve_ms or 0 < info.end_ms < info.now_ms + info.outage_reserve_ms:
        return []
    without = [each for each in workers if each.lasts_until_ms <= each.reserved_until_ms - each.clock_offset_ms]
    if not without:
        return []
    text = (
        f"{len(without):,} of {count(len(workers), 'worker')} would have no ids after a ttl ({duration(info.ttl_ms)}) "
        f"without Redis: earlier processes may have the outage lanes, for up to {duration(info.outage_reserve_ms)} "
        "after Redis got or lost the pool. See docs/how-to/redis-unavailable.md#the-outage-lane"
    )
    return [Condition("no-outage-lane", "notice", text, count=len(without))]


def _layout_end(info: PoolInfo) -> list[Condition]:
    left_ms = info.layout_end_ms - info.now_ms
    advice = "move to a layout with more timestamp bits, or a later epoch"
    if left_ms <= 0:
        text = "the layout's timestamp bits are used up since {until}: no ids can be made"
        return [Condition("layout-over", "critical", text, advice, until_ms=info.layout_end_ms)]
    if left_ms < LAYOUT_ENDS_MS:
        level = "critical" if left_ms < LAYOUT_CRITICAL_MS else "warning"
        text = f"the layout ends in {count(left_ms // DAY_MS, 'day')}, at {{until}}"
        return [Condition("layout-ends", level, text, advice, until_ms=info.layout_end_ms)]
    return []


def _end(info: PoolInfo) -> list[Condition]:
    """Return the condition of a pool that a person deleted, or gave another layout, and that goes on until its end."""
    if not info.end_ms:
        return []
    text = "the pool was deleted, and ends at {until}. Workers that live then create it again"
    advice = "stop its workers before that, or let them go on: no id is repeated, and an end cannot be taken back"
    if info.changes_ms:
        text = "the pool has another layout from {until} on. Processes with the present one make no ids then"
        advice = "start processes with the new layout after that: snowredis pool show has both"
    return [Condition("ends", "notice", text, advice, until_ms=info.end_ms)]
