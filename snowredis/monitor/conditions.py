"""Conditions of a pool in one table: how bad each is, and what to do. The worst is the verdict. Pure.

`workers`, `pool show`, `doctor`, the metrics, the service and its page show these. What is unknown is reported as
unknown, never as ok. Texts contain hosts, which are untrusted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias, get_args

from snowredis.core.as_json import Hidden, NowMs, TimeMs
from snowredis.core.values import duration, time_text
from snowredis.errors import REFUSED, LayoutMismatch, PoolNotFound, SnowredisError, StoreUnavailable, count
from snowredis.monitor.history import reason_text
from snowredis.monitor.lease import counted, greatest_holder, named, processes_of
from snowredis.monitor.pool import SHOWN_MS, Snapshot
from snowredis.snowflake.protocol.pool_config import pool_keys
from snowredis.snowflake.protocol.record import EventKind

# from best to worst; what is unknown is not ok, but may be nothing. ok: worth to know, and nothing to do
Level: TypeAlias = Literal["ok", "unknown", "warning", "critical"]
LEVELS: tuple[Level, ...] = get_args(Level)
DAY_MS = 86_400_000
# an alarm that people had a week to look at does not hide what is new; it stays among the conditions
ALARM_CRITICAL_MS = 7 * DAY_MS
# a process that is refused asks again once a second
MISMATCH_SHOWN_MS = 300_000
# a move to another layout takes months to plan, and days to do
LAYOUT_ENDS_MS, LAYOUT_CRITICAL_MS = 365 * DAY_MS, 30 * DAY_MS
# an outage of Redis, or an end that does not count, is critical if workers have ids for less than this. A restart of
# Redis takes less, as does what goes wrong in it
OUTAGE_CRITICAL_MS = 3_600_000
DO_NOT_RESTART = "do not restart workers: those with ids go on, and a new one may not be able to start"


@dataclass(frozen=True, slots=True)
class Condition:
    """One thing that is so, with a pool or, as doctor finds it, with a host or a server.

    Attributes:
        level: ok, unknown, warning or critical.
        text: what is so; may contain untrusted text.
        advice: what to do; empty if there is nothing to do.
        count: how many workers or worker ids it concerns.
        phrase: its part of the headline if that is not the usual one of its code.
        code: for programs; texts may be reworded in any release. Of doctor, the name of the check.
        subject: the pool or tag that it is about, such as "pool orders"; empty if that is clear.
    """

    level: Level
    text: str
    advice: str = ""
    count: int = 0
    phrase: Hidden = ""
    code: str = ""
    subject: str = ""

    def of(self, code: str, subject: str = "", advice: str = "") -> Condition:
        """Return it as a condition of *code*, unless it has a code already; *advice*: if it has none."""
        return replace(self, code=self.code or code, subject=subject, advice=self.advice or advice)


@dataclass(frozen=True, slots=True)
class Status:
    """Verdict about a pool.

    Attributes:
        level: the worst of the conditions: ok, unknown, warning or critical.
        headline: one short line without times, for a title.
        conditions: the worst first.
        now_ms: time of the verdict, ms since 1970: of the snapshot, on the Redis clock; without one, on this host's.
        stale_since_ms: since when the pool could not be read, on this host's clock; None if the snapshot is fresh.
    """

    level: Level
    headline: str
    conditions: tuple[Condition, ...]
    now_ms: NowMs
    stale_since_ms: TimeMs | None = None


Rule: TypeAlias = Callable[[Snapshot], Condition | None]


def worst(conditions: Iterable[Condition]) -> Level:
    """Return the highest level of *conditions*; "ok" if there are none."""
    return max((each.level for each in conditions), key=LEVELS.index, default="ok")


def status_of(snapshot: Snapshot) -> Status:
    """Return the verdict about a pool that was just read."""
    found = {code: result for code, (_, rule) in TABLE.items() if rule is not None and (result := rule(snapshot))}
    quiet = f"{counted(snapshot.living)} alive" if snapshot.living else "no worker is alive"
    if died := snapshot.in_state("died"):
        quiet += f"; {len(processes_of(died)):,} died in the last hour"
    return _verdict(found, snapshot.info.now_ms, quiet=quiet)


def status_without(
    error: SnowredisError, last: Snapshot | None, *, failed_since_ms: int, now_ms: int, last_read_ms: int
) -> Status:
    """Return the verdict about a pool that cannot be read.

    Args:
        error: PoolNotFound, StoreUnavailable, or LayoutMismatch for a pool of another format.
        last: what was read last; None: it never could be read.
        failed_since_ms, now_ms, last_read_ms: since when, now, and when *last* was read, on this host's clock.
    """
    if isinstance(error, LayoutMismatch):
        advice = "look at it with the version that its processes run"
        code, found = "unread", Condition("unknown", f"what its workers do is unknown: {error}", advice)
    elif isinstance(error, PoolNotFound):
        advice = "it was deleted, or Redis lost its data: living workers create it again with their next heartbeat"
        if not last:
            advice = "check its name; a pool is created with: snowredis pool create NAME"
        text = f"the pool is gone since {time_text(failed_since_ms)}" if last else "the pool does not exist"
        code, found = "pool-missing", Condition("critical" if last else "unknown", text, advice)
    else:
        found = _redis_unavailable(error, last, failed_since_ms, now_ms - last_read_ms)
        code = "redis-unavailable"
    return _verdict({code: found}, now_ms, failed_since_ms)


def _redis_unavailable(error: SnowredisError, last: Snapshot | None, since_ms: int, ago_ms: int) -> Condition:
    what, todo = "does not answer", "get Redis running again; workers then renew by themselves"
    if error.code in REFUSED:
        what, todo = "refuses this user", "correct the user's password or rights, in Redis or in the URL"
    elif isinstance(error, StoreUnavailable) and error.timed_out:
        what, todo = "does not answer in time", "look for what keeps Redis or the network busy"
    elif error.code == "broken" or (isinstance(error, StoreUnavailable) and error.replied):
        what, todo = "replies with an error", "correct what the error names"
    text = f"Redis {what} since {time_text(since_ms)}; what the workers do is unknown"
    advice = f"{todo}. Until then, {DO_NOT_RESTART}. {error}"
    if last is None or not (lasting_ms := last.lasting_ms):
        return Condition("critical" if last else "unknown", text, advice, phrase=f"Redis {what}")
    # this host's clock counts the time since the snapshot
    first_ms, last_ms = (max(0, lasting_ms[end] - ago_ms) // 1000 * 1000 for end in (0, -1))
    living = count(len(lasting_ms), "worker that was alive then has", "workers that were alive then have")
    if first_ms:
        text += f"; the {living} ids for about {duration(first_ms)} more"
    elif last_ms:
        text += f"; some of the {living} no ids any more, the last for about {duration(last_ms)}"
    else:
        text += f"; the {living} no ids any more, unless they reach Redis"
    # with outage lanes there is time to bring Redis back; only new processes may get no ids
    level: Level = "warning" if first_ms > OUTAGE_CRITICAL_MS else "critical"
    return Condition(level, text, advice, len(lasting_ms), f"Redis {what}")


def _verdict(found: Mapping[str, Condition], now_ms: int, stale_since_ms: int | None = None, quiet: str = "") -> Status:
    ranked = sorted(found.items(), key=lambda item: -LEVELS.index(item[1].level))
    conditions = tuple(each.of(code) for code, each in ranked)
    shown = [each.phrase or TABLE[code][0].format(f"{each.count:,}") for code, each in ranked if each.level != "ok"]
    return Status(worst(conditions), "; ".join(shown[:3]) or quiet, conditions, now_ms, stale_since_ms)


# --- rules -------------------------------------------------------------------------------------------


def silent_together(snapshot: Snapshot) -> tuple[int, int, int, int] | None:
    """Return how many processes fell silent at once, of how many; when; and until when all have ids.

    None unless they are more than half of at least three: one fault of Redis or the network, and not of each of them.
    """
    living = processes_of(each for each in snapshot.living if each.state != "silent")
    # last heartbeat of each process, and until when the first of its generators has ids
    silent: dict[tuple[str, int, str], tuple[int, int]] = {}
    for each in snapshot.in_state("silent", "expired"):
        process, beat_ms = each.owner.process, each.renewed_ms
        if process not in living and beat_ms:
            before = silent.get(process, (beat_ms, each.ids_until_ms))
            silent[process] = max(beat_ms, before[0]), min(each.ids_until_ms, before[1])
    beats = sorted(silent.values())
    # how many had their last heartbeat within this time before another one's, and that other one
    width_ms = 3 * snapshot.info.heartbeat_ms // 2
    groups = ((last + 1 - bisect_left(beats, (beat_ms - width_ms,)), last) for last, (beat_ms, _) in enumerate(beats))
    number, last = max(groups, default=(0, 0))
    fleet = number + len(living)
    if fleet < 3 or 2 * number <= fleet:
        return None
    return number, fleet, beats[last][0], min(until for _, until in beats[last + 1 - number : last + 1])


def _no_renewals(snapshot: Snapshot) -> Condition | None:
    """Find the one fault behind the silence of most workers: Redis takes no renewals, or the network is cut."""
    refusal = snapshot.refusal
    if snapshot.is_back:
        # the last attempt of the service was one of those that failed in the outage
        return None
    advice = f"{DO_NOT_RESTART}. Look what `snowredis doctor` says of Redis, on the host of a worker"
    if together := silent_together(snapshot):
        number, fleet, since_ms, until_ms = together
        why = "Redis refuses what they send, the network is cut, or their hosts are gone"
        if refusal:
            why = refusal.reason.rstrip(".")
        text = f"{number:,} of {fleet:,} workers sent no heartbeat since {time_text(since_ms)}: {why}. Those that live "
        text += f"have ids until {time_text(until_ms)} at least"
        over = ": for some of them that is over" if until_ms <= snapshot.info.now_ms else ""
        return Condition("critical", text + over, advice, number)
    if refusal is None:
        return None
    # clocks are known to the length of a reply
    others = any(each.renewed_ms > refusal.since_ms + 1_000 for each in snapshot.living)
    text = f"Redis takes no claim and no renewal of this service since {time_text(refusal.since_ms)}: {refusal.reason}"
    if others:
        return Condition("warning", text, advice, phrase="this service does not renew")
    return Condition("critical", text, advice)


def _alarm(snapshot: Snapshot) -> Condition | None:
    info = snapshot.info
    if not info.alarms:
        return None
    text = "ids may have been repeated: Redis went back to an older state"
    text += f"; times of these ids: {time_text(info.alarm_from_ms)} to {time_text(info.alarm_until_ms)}"
    advice = "look in the tables of this pool for ids of that time that two rows share (snowredis whois ID ID tells "
    advice += "which processes made them); then find out why Redis lost data: an old snapshot, or a lossy failover"
    is_old = 0 < info.alarm_until_ms < info.now_ms - ALARM_CRITICAL_MS
    return Condition("ok" if is_old else "critical", text, advice, info.alarms)


def _floor(snapshot: Snapshot) -> Condition | None:
    """Find out whether new workers wait, and whether no worker can make ids meanwhile."""
    info = snapshot.info
    if not info.floor_wait_ms:
        return None
    wait, reason = duration(info.floor_wait_ms), reason_text(EventKind.FLOOR, info.floor_reason) or "unknown"
    if info.created_ms > info.now_ms:
        reason = "the clock of Redis was set back to before the pool was created"
    text = f"new workers are served in {wait}, at {time_text(info.floor_ms)}: {reason}"
    if snapshot.living:
        going = [each for each in snapshot.living if each.state != "no-ids"]
        who = f": {counted(going)} with a valid lease go on without a pause" if going else ""
        return Condition("warning", text, f"wait{who}")
    if snapshot.is_new or snapshot.has_outage_lanes or snapshot.awaits_adoptions:
        advice = "workers that live say so within a heartbeat; those with an outage lane go on, and get worker ids then"
        return Condition("warning", text, f"wait: {advice}")
    text = f"no worker can make ids until {time_text(info.floor_ms)}, in {wait}: no lease is valid, and {reason}"
    advice = "wait: the outage was longer than the reservations, and ids stop until all of them have certainly ended. "
    advice += "Then all workers go on by themselves"
    return Condition("critical", text, advice, phrase="no worker can make ids")


def _without_ids(snapshot: Snapshot) -> Condition | None:
    """Find workers that renew their leases and make no ids. The end of the layout has a condition of its own."""
    without = snapshot.in_state("no-ids")
    if not without or snapshot.info.now_ms >= snapshot.info.layout_end_ms:
        return None
    worst_ms = max((each.clock_offset_ms for each in without), key=abs)
    reasons = ", ".join(sorted({each.owner.refused for each in without if each.owner.refused}))
    text = f"{named(without)} cannot make ids{f': {reasons}' if reasons else ''}; their clocks differ by up to "
    text += f"{worst_ms:+,} ms from the Redis clock"
    advice = "synchronize the clocks of these hosts and of Redis; the logs of these processes name the error"
    return Condition("critical", text, advice, len(without))


def _silent(snapshot: Snapshot) -> Condition | None:
    """Find processes that sent no heartbeat lately, and those whose leases expired in the last hour."""
    info = snapshot.info
    silent = [each for each in snapshot.in_state("silent", "expired") if each.end_ms > info.now_ms - SHOWN_MS]
    if not silent or (silent_together(snapshot) and not snapshot.is_back):
        return None
    number, until_ms = len(processes_of(silent)), max(each.ids_until_ms for each in silent)
    since_ms = min(each.renewed_ms for each in silent)
    text = f"{named(silent)} sent no heartbeat since {time_text(since_ms)}; "
    if until_ms > info.now_ms:
        text += f"if they live, the last of them has ids until {time_text(until_ms)}"
    else:
        text += "if they live, they have no ids until they reach Redis"
    advice = "they hang, cannot reach Redis, or were killed where no other process of the pool runs: look at the hosts "
    advice += "that snowredis workers names"
    without = processes_of(each for each in silent if each.ids_until_ms <= info.now_ms)
    # all processes of that hour: the living and the dead; in a fleet of short jobs, all that claimed
    fleet = max(number + len(processes_of(snapshot.living)), snapshot.claims)
    is_critical = len(without) >= 3 and len(without) * 10 >= fleet and not snapshot.is_back
    return Condition("critical" if is_critical else "warning", text, advice, number)


def _mismatch(snapshot: Snapshot) -> Condition | None:
    """Find processes that were refused for other settings in the last minutes."""
    info = snapshot.info
    if not info.mismatches or info.now_ms - info.mismatch_ms > MISMATCH_SHOWN_MS:
        return None
    by = f" by {info.mismatch_by}" if info.mismatch_by else ""
    text = f"processes with other settings than the pool are refused: {count(info.mismatches, 'claim')} so far, "
    text += f"the last at {time_text(info.mismatch_ms)}{by}{'' if snapshot.living else '. No worker is alive'}"
    advice = "compare settings of that process (layout, datacenter, ttl) with: snowredis pool show; its log has both"
    return Condition("warning" if snapshot.living else "critical", text, advice, info.mismatches)


def _full(snapshot: Snapshot) -> Condition | None:
    """Find out how full the pool is: a reload that starts new processes before old ones end needs twice as many."""
    info, silent = snapshot.info, [each for each in snapshot.living if each.state == "silent"]
    if 2 * info.used <= info.capacity:
        return None
    by = f", {len(silent):,} of them by processes that renew no more" if silent else ""
    use = f"{info.used:,} of {info.capacity:,} worker ids are leased{by}"
    advice = ["move to a layout with more worker bits"]
    holder, held = greatest_holder(snapshot.living)
    if held > 1 and held * 10 >= info.used:
        use += f", {held:,} of them by {holder}"
        advice.insert(0, "let the threads of that process share one generator")
    if silent:
        advice.insert(0, "let processes end in order, or shorten the ttl: a lease outlives a killed process by it")
    todo = "; ".join(advice if len(advice) > 1 else ["stop idle processes", *advice])
    if info.free <= 0:
        first_ms = min((each.end_ms for each in silent), default=0)
        wait = f"; if they are dead, the first worker id is available at {time_text(first_ms)}" if silent else ""
        return Condition("critical", f"{use}: new workers are refused{wait}", todo, info.used, "pool full")
    if 10 * info.used >= 9 * info.capacity:
        return Condition("warning", f"{use}: nearly all", todo, info.used)
    return Condition("ok", f"{use}: a reload that starts new processes before old ones end needs twice as many", todo)


def _clocks(snapshot: Snapshot) -> Condition | None:
    limit_ms = max(1, snapshot.info.config.max_clock_lead_ms)
    off = [each for each in snapshot.living if abs(each.clock_offset_ms) > limit_ms]
    if not off:
        return None
    worst_ms = max((each.clock_offset_ms for each in off), key=abs)
    text = f"the clocks of {named(off)} differ from the Redis clock, by up to {worst_ms:+,} ms"
    return Condition("warning", text, "synchronize the clocks of these hosts and of Redis", len(off))


def _unread(snapshot: Snapshot) -> Condition | None:
    workers = snapshot.unreadable
    if not workers and snapshot.has_history:
        return None
    if not workers:
        text = f"another program uses the key {pool_keys(snapshot.info.name)[2]}: which leases ended is not known"
        advice = "rename or delete it. Claims and renewals go on; `whois` and `events` need it"
        return Condition("warning", text, advice)
    ids = f"{count(len(workers), 'worker id')} ({', '.join(map(str, workers[:5]))}{', …' * (len(workers) > 5)})"
    text = f"another program has written the records of {ids}: whether they are leased is not known"
    advice = "keep other programs away from this key. A holder that lives logs an error that says what to do"
    return Condition("warning", text, advice, len(workers))


def _layout_ends(snapshot: Snapshot) -> Condition | None:
    info = snapshot.info
    left_ms, advice = info.layout_end_ms - info.now_ms, "move to a layout with more timestamp bits, or a later epoch"
    if left_ms >= LAYOUT_ENDS_MS:
        return None
    text = f"the layout ends in {count(left_ms // DAY_MS, 'day')}, at {time_text(info.layout_end_ms)}"
    if left_ms <= 0:
        text = f"the layout's timestamp bits are used up since {time_text(info.layout_end_ms)}: no ids can be made"
    return Condition("critical" if left_ms < LAYOUT_CRITICAL_MS else "warning", text, advice)


def _ends(snapshot: Snapshot) -> Condition | None:
    """Find out whether a person deleted the pool, which goes on until its end."""
    info = snapshot.info
    if not info.end_ms:
        return None
    if not info.end_counts:
        is_near = info.end_ms - info.now_ms < OUTAGE_CRITICAL_MS
        then = "are refused" if info.end_ms <= info.now_ms else "stop then, and none starts there"
        text = f"pool delete set an end at {time_text(info.end_ms)} that does not count yet: a replica, or the disk, "
        text += f"may not have it. All processes {then}, until it counts"
        return Condition("critical" if is_near else "warning", text, f"repeat: snowredis pool delete {info.name}")
    text = f"the pool was deleted, and ends at {time_text(info.end_ms)}. Workers that live then create it again"
    advice = "stop its workers before that, or let them go on: no id is repeated, and an end cannot be taken back"
    return Condition("ok", text, advice)


# code -> its part of a headline, in which {} is the count, and its rule; None: found when the pool cannot be read
TABLE: dict[str, tuple[str, Rule | None]] = {
    "no-renewals": ("no worker renews", _no_renewals),
    "alarm": ("ids may have been repeated", _alarm),
    "redis-unavailable": ("Redis does not serve", None),
    "pool-missing": ("no such pool", None),
    "unread": ("not known", _unread),
    "floor": ("new workers wait", _floor),
    "without-ids": ("{} without ids", _without_ids),
    "silent": ("{} silent", _silent),
    "mismatch": ("processes with other settings are refused", _mismatch),
    "full": ("pool nearly full", _full),
    "clocks": ("{} clocks off", _clocks),
    "layout-ends": ("layout ends", _layout_ends),
    "ends": ("pool ends", _ends),
}


# --- what people ask before they do something ---------------------------------------------------------


class PlanAnswer(NamedTuple):
    """Answer to a question that people ask before they do something.

    Attributes:
        question: "restart": may I restart Redis now? "deploy": may I start a rolling deployment now?
        answer: yes, no, unknown, or if: what has to be kept to, the text says.
        text: the answer for people.
    """

    question: str
    answer: Literal["yes", "no", "if", "unknown"]
    text: str


def answers(snapshot: Snapshot) -> tuple[PlanAnswer, ...]:
    """Return the answers of a pool that was just read."""
    info = snapshot.info
    if info.end_ms and not info.end_counts:
        text = f"no: pool delete set an end at {time_text(info.end_ms)} that does not count yet, and all processes are "
        text += f"refused from then on. Repeat it first: snowredis pool delete {info.name}"
        return PlanAnswer("restart", "no", text), PlanAnswer("deploy", "no", text)
    return PlanAnswer("restart", *_may_restart(snapshot)), PlanAnswer("deploy", *_may_deploy(snapshot))


Answer: TypeAlias = tuple[Literal["yes", "no", "if", "unknown"], str]


def _may_restart(snapshot: Snapshot) -> Answer:
    info, lasting_ms = snapshot.info, snapshot.lasting_ms
    wait = "" if info.config.durability == "assured" else f"{duration(info.config.floor_ms)} after "
    then = f"A process that starts meanwhile gets no ids until {wait}Redis is back"
    # those without a valid lease, who may wait for one, go on in outage lanes
    in_lanes = snapshot.has_outage_lanes and (info.floor_wait_ms > 0 or not lasting_ms)
    unseen = in_lanes or snapshot.unreadable or not (lasting_ms or snapshot.has_history)
    if unseen or snapshot.refusal or silent_together(snapshot) or (snapshot.awaits_adoptions and not snapshot.is_new):
        text = "unknown: Redis renews no lease of workers that may make ids, so how long they go on cannot be seen"
        return "unknown", f"{text}. {then}"
    if not lasting_ms:
        return "yes", f"yes: no worker makes ids. {then}"
    if lasting_ms[0] >= OUTAGE_CRITICAL_MS:
        who = "the only worker goes" if len(lasting_ms) == 1 else f"all {len(lasting_ms):,} workers go"
        return "yes", f"yes: {who} on for {duration(lasting_ms[0])}. {then}"
    short = sum(left_ms < OUTAGE_CRITICAL_MS for left_ms in lasting_ms)
    rest = f"; the others go on for {duration(lasting_ms[short])}" if short < len(lasting_ms) else ""
    return "if", (
        f"only if it is back within {duration(max(0, lasting_ms[0]))}: {short:,} of {count(len(lasting_ms), 'worker')} "
        f"can have no ids after that{rest}. {then}"
    )


def _may_deploy(snapshot: Snapshot) -> Answer:
    info, living = snapshot.info, len(snapshot.living)
    if snapshot.refusal or silent_together(snapshot):
        return "no", "no: Redis takes no renewals, so a new worker may get no worker id"
    if info.floor_wait_ms:
        return "no", f"not yet: new workers wait for {duration(info.floor_wait_ms)} more"
    needed = f"it needs {2 * living:,} worker ids ({living:,} living and as many new), and there are {info.capacity:,}"
    if living <= info.free:
        return "yes", f"yes: {needed}"
    if info.free <= 0:
        return "no", f"no: {needed}, all leased"
    return "if", f"only if at most {info.free:,} new workers start before old ones end: {needed}"
