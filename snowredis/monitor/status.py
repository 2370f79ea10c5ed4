"""The status of a pool in one verdict, from a snapshot: how bad it is, what is the case, what to do.

Where tags of segments are shown with the pool, with_tags() adds those that hand out no numbers.

Pure. `workers`, `top`, `pool show`, `doctor`, the service and its page all show this one. What is unknown is reported
as unknown, never as ok. Texts contain hosts, which are untrusted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from snowredis.core.as_json import Hidden, NowMs, TimeMs, in_json
from snowredis.errors import PoolNotFound, SnowredisError
from snowredis.monitor.snapshot import Death, PoolInfo, Snapshot, WorkerInfo, time_text
from snowredis.snowflake.codes import FloorReason

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
# while Redis is away, and workers have ids for longer than this
OUTAGE_CRITICAL_MS = 3_600_000
# workers, or tags, named in a text
_MAX_NAMED = 5
# codes of the conditions that only a status with tags can have
TAG_CONDITIONS = ("tags-closed", "tags")
# states of tags that hand out no number until a person does something
_NO_NUMBERS = ("closed", "used up", "other settings")


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


@dataclass(frozen=True, slots=True)
class TagVerdict:
    """State of a tag, as far as a verdict needs it.

    Attributes:
        name: its name.
        state: "open", "closed" or another word of snowredis.numbers.watch.
        level: one of LEVELS.
    """

    name: str
    state: str
    level: str


def status_of(snapshot: Snapshot) -> Status:
    """Return the verdict about a pool that was just read."""
    info, workers = snapshot.info, snapshot.workers
    floor = _floor(snapshot)
    # what is unknown cannot be adopted any more if no worker can make ids
    is_down = any(condition.code == "no-ids" for condition in floor)
    conditions = [
        *_alarm(info),
        *floor,
        *([] if is_down else _unconfirmed(snapshot.unknown, info)),
        *_returning(snapshot.returning),
        *_deaths(snapshot),
        *_suspects(workers, info),
        *_mismatch(snapshot),
        *_use(snapshot),
        *_clocks(workers, info),
        *_without_outage_lane(workers, info),
        *_layout_end(info),
    ]
    quiet = _count(len(workers), "worker alive", "workers alive") if workers else "no worker is alive"
    return _verdict(conditions, info.now_ms, quiet=quiet)


def with_tags(status: Status, tags: Sequence[TagVerdict]) -> Status:
    """Return *status* with what is the case of *tags*, which are shown together with the pool."""
    found = [*_closed_tags(tags), *_other_tags(tags)]
    if not found:
        return status
    return _verdict([*status.conditions, *found], status.now_ms, status.stale_since_ms)


def unknown_status(now_ms: int) -> Status:
    """Return the verdict about a pool that was not read yet. *now_ms*: this host's clock."""
    condition = Condition("not-read", "unknown", "the pool was not read yet")
    return _verdict([condition], now_ms)


def status_without(
    error: SnowredisError, last: Snapshot | None, *, failed_since_ms: int, now_ms: int, last_read_ms: int
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
    error: SnowredisError, last: Snapshot | None, failed_since_ms: int, now_ms: int, last_read_ms: int
) -> Condition:
    text = "Redis does not answer since {since}; what the workers do is unknown"
    advice = f"get Redis running again; workers go on by themselves then. {error}"
    if not last or not last.workers:
        level = "critical" if last else "unknown"
        return Condition("redis-unavailable", level, text, advice, since_ms=failed_since_ms)
    # reservations are on the workers' clocks; this host's clock counts the time since the snapshot
    ends_ms = [worker.lasts_until_ms - worker.clock_offset_ms for worker in last.workers]
    ahead_ms = now_ms - last_read_ms
    first_s, last_s = (max(0, (end(ends_ms) - last.info.now_ms - ahead_ms)) // 1000 for end in (min, max))
    living = _count(len(last.workers), "worker that was alive then has", "workers that were alive then have")
    if last_s > 0:
        text += f"; the {living} ids for at least {_length(first_s)} more" if first_s else ""
        text += "" if first_s else f"; some of the {living} no ids any more, the last for {_length(last_s)}"
    else:
        text += f"; the {living} no ids any more, unless they reach Redis"
    until_ms = now_ms + first_s * 1000
    count = len(last.workers)
    # with outage lanes there is time to bring Redis back; only new processes may get no ids
    level = "warning" if first_s * 1000 > OUTAGE_CRITICAL_MS else "critical"
    return Condition("redis-unavailable", level, text, advice, failed_since_ms, until_ms, count)


def _length(seconds: int) -> str:
    return f"{seconds} s" if seconds < 600 else f"{seconds // 3600} h {seconds % 3600 // 60} min"


def _verdict(
    conditions: Sequence[Condition], now_ms: int, stale_since_ms: int | None = None, quiet: str = ""
) -> Status:
    ranked = tuple(sorted(conditions, key=lambda condition: -LEVELS.index(condition.level)))
    level = ranked[0].level if ranked else "ok"
    shown = [condition.short for condition in ranked if condition.short]
    return Status(level, "; ".join(shown[:3]) or quiet, ranked, now_ms, stale_since_ms)


# code of a condition -> its part of the headline
HEADLINES: dict[str, Callable[[Condition], str]] = {
    "alarm": lambda _: "ids may have been repeated",
    "redis-unavailable": lambda _: "Redis does not answer",
    "pool-missing": lambda _: "no such pool",
    "not-read": lambda _: "not read yet",
    "no-ids": lambda _: "no worker can make ids",
    "floor": lambda _: "new workers wait",
    "unconfirmed": lambda it: f"{_count(it.count, 'worker')} unknown",
    "returning": lambda it: f"{_count(it.count, 'worker')} unknown",
    "deaths": lambda it: f"{it.count:,} died",
    "deaths-acknowledged": lambda it: f"{it.count:,} died",
    "suspects": lambda it: f"{it.count:,} suspect",
    "mismatch": lambda _: "processes with other settings are refused",
    "full": lambda _: "pool full",
    "nearly-full": lambda _: "pool nearly full",
    "half-full": lambda _: "pool half full",
    "clocks": lambda it: f"{_count(it.count, 'clock')} off",
    "no-outage-lane": lambda it: f"{it.count:,} without an outage lane",
    "layout-over": lambda _: "layout used up",
    "layout-ends": lambda _: "layout ends soon",
    "tags-closed": lambda it: f"{_count(it.count, 'tag makes', 'tags make')} no numbers",
    "tags": lambda it: f"look at {_count(it.count, 'tag')}",
}


# --- conditions ------------------------------------------------------------------------------------


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
    try:
        reason = FloorReason(info.floor_reason).text
    except ValueError:
        reason = info.floor_reason or "unknown"
    # a pool that never had a worker is new, not down
    may_make_ids = snapshot.is_new or snapshot.has_outage_lanes or snapshot.awaits_adoptions
    if not snapshot.workers and not may_make_ids:
        text = f"no worker can make ids until {{until}}, in {-(-wait_ms // 1000)} s: no lease is valid, and {reason}"
        advice = (
            "wait: the outage was longer than the reservations, and ids stop until all of them have certainly ended. "
            "Then all workers go on by themselves"
        )
        return [Condition("no-ids", "critical", text, advice, info.raised_ms, info.floor_ms)]
    text = f"new workers are served in {-(-wait_ms // 1000)} s, at {{until}}: {reason}"
    advice = "wait: workers with a valid lease go on without a pause"
    if info.outage_reserve_ms:
        advice = "wait: workers with a valid lease, or with an outage lane, go on without a pause"
    return [Condition("floor", "warning", text, advice, info.raised_ms, info.floor_ms)]


def _unconfirmed(unknown: Sequence[WorkerInfo], info: PoolInfo) -> list[Condition]:
    if not unknown:
        return []
    text = (
        f"{_named(unknown)} may be dead or alive: Redis may have forgotten their last heartbeats. Those that are alive "
        "are adopted, or claim a worker id, before {until}"
    )
    return [Condition("unconfirmed", "unknown", text, "wait", None, info.floor_ms, len(unknown))]


def _returning(deaths: Sequence[Death]) -> list[Condition]:
    if not deaths:
        return []
    count = _count(len(deaths), "lease")
    text = f"{count} ended while Redis did not answer; their workers, if they live, return with their next heartbeat"
    return [Condition("returning", "unknown", text, "wait", deaths[-1].at_ms, None, len(deaths))]


def _deaths(snapshot: Snapshot) -> list[Condition]:
    """Return the condition of the deaths of the last hour: a notice if somebody has acknowledged all of them."""
    new = [death for death in snapshot.deaths if not death.acknowledged]
    deaths = new or snapshot.deaths
    if not deaths:
        return []
    newest, count = deaths[0], len(deaths)
    text = (
        f"{_count(count, 'worker')} died in the last hour without releasing the worker id, the last at "
        f"{{until}}: worker {newest.worker} on {newest.host}:{newest.pid}{f' ({newest.label})' if newest.label else ''}"
    )
    if not new:
        text = f"acknowledged: {text}"
        return [Condition("deaths-acknowledged", "notice", text, "", deaths[-1].at_ms, newest.at_ms, count)]
    advice = (
        "they were killed (out of memory?), crashed, or were cut off for over a ttl: snowredis workers lists them; "
        "snowredis workers --acknowledge says that they have been seen"
    )
    # of all processes of that hour: the living and the dead, and in a fleet of short jobs all that came
    processes = max(count + len(snapshot.workers), snapshot.claims)
    level = "critical" if count >= 3 and count * 10 >= processes else "warning"
    return [Condition("deaths", level, text, advice, deaths[-1].at_ms, newest.at_ms, count)]


def _suspects(workers: Sequence[WorkerInfo], info: PoolInfo) -> list[Condition]:
    suspects = [worker for worker in workers if worker.state == "suspect"]
    if not suspects:
        return []
    first_ms = min(worker.lease_end_ms for worker in suspects)
    oldest_ms = min(worker.renewed_ms for worker in suspects)
    text = (
        f"{_named(suspects)} sent no heartbeat for over {info.ttl_ms / 2000:g} s; without one, the first counts as "
        "dead at {until}"
    )
    advice = "they hang, were killed, or cannot reach Redis: look at these hosts"
    return [Condition("suspects", "warning", text, advice, oldest_ms, first_ms, len(suspects))]


def _mismatch(snapshot: Snapshot) -> list[Condition]:
    """Return the condition of processes that were refused for other settings in the last minutes."""
    info = snapshot.info
    if not info.mismatches or info.now_ms - info.mismatch_ms > MISMATCH_SHOWN_MS:
        return []
    by = f" by {info.mismatch_by}" if info.mismatch_by else ""
    text = (
        f"processes with other settings than the pool are refused: {_count(info.mismatches, 'claim')} so "
        f"far, the last at {{until}}{by}"
    )
    if not snapshot.workers:
        text += ". No worker is alive"
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
    use = f"{info.used:,} of {info.capacity:,} worker ids are leased"
    silent = [worker for worker in snapshot.workers if worker.state == "suspect"]
    advice = "stop idle processes, or move to a layout with more worker bits"
    if snapshot.dead_leases:
        use += f", about {snapshot.dead_leases:,} of them by processes that are dead"
        advice = f"let processes end in order, or shorten the ttl: a lease outlives a killed process by it; {advice}"
    if info.free <= 0:
        first_ms = min((worker.lease_end_ms for worker in silent), default=None)
        wait = "; if they are dead, the first worker id is available at {until}" if silent else ""
        text = f"{use}: new workers are refused{wait}"
        return [Condition("full", "critical", text, advice, until_ms=first_ms, count=info.used)]
    if share >= NEARLY_FULL:
        return [Condition("nearly-full", "warning", use, advice, count=info.used)]
    reload = "a reload that starts new processes before old ones end needs twice as many"
    return [Condition("half-full", "notice", f"{use}; {reload}", advice, count=info.used)]


def _clocks(workers: Sequence[WorkerInfo], info: PoolInfo) -> list[Condition]:
    off = [worker for worker in workers if abs(worker.clock_offset_ms) > max(1, info.lead_ms)]
    if not off:
        return []
    worst_ms = max((worker.clock_offset_ms for worker in off), key=abs)
    text = f"the clocks of {_named(off)} differ from the Redis clock, by up to {worst_ms:+,} ms"
    return [Condition("clocks", "warning", text, "synchronize the clocks of these hosts", count=len(off))]


def _without_outage_lane(workers: Sequence[WorkerInfo], info: PoolInfo) -> list[Condition]:
    """Return the condition of workers that could not go on without Redis, though the pool has outage lanes."""
    without = [worker for worker in workers if worker.lasts_until_ms <= worker.reserved_until_ms]
    if not info.outage_reserve_ms or not without:
        return []
    text = (
        f"{_named(without)} cannot go on for longer than a ttl without Redis: for up to "
        f"{info.outage_reserve_ms / 3.6e6:g} h after Redis got or lost the pool, others may have their outage lanes"
    )
    return [Condition("no-outage-lane", "notice", text, "wait", count=len(without))]


def _layout_end(info: PoolInfo) -> list[Condition]:
    left_ms = info.layout_end_ms - info.now_ms
    advice = "move to a layout with more timestamp bits, or a later epoch"
    if left_ms <= 0:
        text = "the layout's timestamp bits are used up since {until}: no ids can be made"
        return [Condition("layout-over", "critical", text, advice, until_ms=info.layout_end_ms)]
    if left_ms < LAYOUT_ENDS_MS:
        level = "critical" if left_ms < LAYOUT_CRITICAL_MS else "warning"
        text = f"the layout ends in {_count(left_ms // DAY_MS, 'day')}, at {{until}}"
        return [Condition("layout-ends", level, text, advice, until_ms=info.layout_end_ms)]
    return []


def _closed_tags(tags: Sequence[TagVerdict]) -> list[Condition]:
    """Return the condition of tags that hand out no number until a person does something."""
    closed = [tag for tag in tags if tag.state in _NO_NUMBERS]
    if not closed:
        return []
    text = f"no numbers are handed out of {_named_tags(closed)}"
    advice = "snowredis numbers show TAG says why; snowredis numbers open TAG --from N opens a closed one"
    return [Condition("tags-closed", "critical", text, advice, count=len(closed))]


def _other_tags(tags: Sequence[TagVerdict]) -> list[Condition]:
    """Return the condition of the other tags that are not all right: partly closed, used up soon, unknown, an alarm."""
    others = [tag for tag in tags if tag.level != "ok" and tag.state not in _NO_NUMBERS]
    if not others:
        return []
    others.sort(key=lambda tag: -LEVELS.index(tag.level))
    advice = "snowredis numbers show TAG says what is wrong"
    text = f"look at {_named_tags(others)}"
    return [Condition("tags", others[0].level, text, advice, count=len(others))]


def _named_tags(tags: Sequence[TagVerdict]) -> str:
    """Return how many tags these are, and the first of them."""
    named = ", ".join(f"{tag.name}: {tag.state}" for tag in tags[:_MAX_NAMED])
    more = " …" if len(tags) > _MAX_NAMED else ""
    return f"{_count(len(tags), 'tag')} ({named}{more})"


def _named(workers: Sequence[WorkerInfo]) -> str:
    """Return how many workers these are, and the first of them."""
    named = ", ".join(f"{worker.worker} on {worker.host}:{worker.pid}" for worker in workers[:_MAX_NAMED])
    more = " …" if len(workers) > _MAX_NAMED else ""
    return f"{_count(len(workers), 'worker')} ({named}{more})"


def _count(number: int, one: str, several: str = "") -> str:
    """Return *number* with the word for it; *several*: the plural if it is not *one* with an s."""
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"
