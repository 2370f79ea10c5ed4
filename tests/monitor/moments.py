"""Texts of every view in each bad moment: one table for scripts/bad_moments.py, which plays them, and the alerts.

Pure data. The pool has six workers and a service; scripts/bad_moments.py says what happens in each moment.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

WORKERS = 6
Texts: TypeAlias = dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Expected:
    """State of all views in a moment.

    Attributes:
        codes: conditions of the status, one of which must be the first; (): there is none, or none is a problem.
        alerts: those that must fire, without "Snowredis".
        with_ids: workers that make ids, of six; -1: any number.
        died: whether processes are found dead.
        doctor: text that doctor must show.
        says, never: view -> texts that it must show, and must not: "workers", "events", "doctor", "page", "log".
        quiet: alerts that must not fire.
        settle_s: from the end of the act until the views are read: longer than a lease, and than a failed claim.
    """

    codes: tuple[str, ...] = ()
    alerts: tuple[str, ...] = ()
    with_ids: int = WORKERS
    died: bool = False
    doctor: str = ""
    says: Texts = field(default_factory=dict)
    never: Texts = field(default_factory=dict)
    quiet: tuple[str, ...] = ()
    settle_s: float = 8.0


def _refused(doctor: str) -> Expected:
    # they make ids, and how many cannot be seen
    shown: Texts = {"page": ("Ids per second unknown without 6 silent or expired workers", "Living workers unknown")}
    return Expected(("no-renewals",), ("NoRenewals",), doctor=doctor, says=shown, never={"page": ("..",)})


def _away(alerts: tuple[str, ...] = ("RedisUnavailable",), **more: object) -> Expected:
    return Expected(("redis-unavailable",), alerts, **more)  # type: ignore[arg-type]


_SLOW = ("no-renewals", "redis-unavailable", "silent")
_AHEAD = Expected(("without-ids",), ("WorkersWithoutIds",), with_ids=0)
_WAITING: Texts = {"log": ("starts without a worker id and serves",)}
# fmt: off
EXPECTED: dict[str, Expected] = {
    "dead": _away(doctor="nothing else was checked"),
    "hung": _away(settle_s=12),
    "slow": Expected(_SLOW, settle_s=14),
    "full": _refused("Redis takes no writes"),
    "read-only": _refused("Redis takes no writes"),
    "no-replicas": _refused("Redis takes no writes"),
    "no-rights": _refused("may not"),
    "back-empty": Expected(("floor",), ("PoolMadeAnew",), settle_s=0),
    "failed-over": Expected(("floor",), ("RedisChanged",), settle_s=1),
    "half-cut": Expected(("silent",), ("WorkersSilent",), settle_s=12),
    "clock+10s": _AHEAD,
    "clock-10s": Expected(("clocks",), ("ClockOff",)),
    "clock+1h": _AHEAD,
    # the pool is younger than that, and its ids begin where it begins
    "clock-1h": Expected(("without-ids",), ("WorkersWithoutIds", "ClockOff"), with_ids=0),
    "layout-ends": Expected(("layout-ends",), ("LayoutEndsSoon",)),
    "layout-over": Expected(("layout-ends",), ("LayoutOver",), with_ids=0),
    "pool-full": Expected(("full",), ("ClaimsRefused", "PoolFull"), settle_s=14),
    "other-settings": Expected(("mismatch",), ("OtherSettings",)),
    "killed": Expected((), ("WorkerDied",), died=True, with_ids=-1, says={"workers": ("1 died in the last hour",)}),
    "with-pool": Expected((), ("WorkerDied",), died=True, says={"workers": ("status ok",)}, quiet=("ManySilent",)),
    "lane-near-end": _away(),
    "lane-over": _away(("RedisUnavailable", "LeaseRunsOut"), with_ids=0, settle_s=12),
    # a start
    "start-away": _away(says=_WAITING, never={"log": ("Traceback",)}),
    "start-full": Expected(
        ("full",), ("ClaimsRefused", "PoolFull"), settle_s=14,
        says=_WAITING | {"doctor": ("may I deploy now? no: it needs 16",)},
    ),
    "never-claims": Expected(
        (), ("NoWorkerId",), quiet=("ClaimsRefused",), settle_s=20, says={"log": ("starts without a worker id",)},
    ),
    "rolling": Expected(
        ("full",), quiet=("ClaimsRefused", "NoWorkerId", "WorkerDied"),
        says={"log": ("waiting for a worker id",)}, never={"workers": ("died",)},
    ),
    # words
    "hung-worker": Expected(
        ("silent",), ("WorkersSilent",), with_ids=-1, quiet=("WorkerDied",),
        says={"workers": ("have no ids until they reach Redis",)},
        never={"workers": ("out of memory", "died in"), "events": ("killed",)},
    ),
    "three-generators": Expected(
        (), ("WorkerDied",), died=True, quiet=("ManySilent",),
        says={"workers": ("1 died in the last hour",), "events": ("another process found it dead",)},
    ),
    "one-holds-most": Expected(
        ("full",), ("PoolFull",), settle_s=14,
        says={"workers": ("25 of them by", "(import)", "share one generator")},
    ),
    "records-off": Expected(says={"log": ("crash records are off",), "doctor": ("crash records", "chmod 700")}),
    "no-lanes": Expected(
        # within a heartbeat, 5 s, workers may say that they live
        ("floor",), ("NoIds",), with_ids=-1, settle_s=6, never={"workers": ("without a pause",)},
    ),
    "first-replica": Expected(
        ("floor",), ("RedisChanged",), settle_s=1,
        says={"events": ("a replica was attached",), "doctor": ("1 replica",)},
        never={"events": ("another server",), "doctor": ("1 replicas",)},
    ),
    "may-i": Expected(
        says={"doctor": ("may I restart Redis now? yes: all 7 workers go on for 24.0 h",
                         "may I deploy now? yes: it needs 14 worker ids")},
    ),
    "versions": Expected(says={"workers": ("version", "0.0.9")}),
    # more
    "slow-2s": Expected(_SLOW, settle_s=14, says={"doctor": ("do not restart workers",)}),
    "clock+20s": Expected(
        ("without-ids",), ("WorkersWithoutIds", "ClockOff"), with_ids=0, settle_s=12,
        says={"workers": ("synchronize the clocks",)},
    ),
    "memory-98": Expected(
        doctor="of maxmemory is used", quiet=("NoRenewals",), never={"doctor": ("takes no writes",)},
    ),
    "password": Expected(
        ("redis-unavailable",), ("RedisUnavailable",), settle_s=12,
        says={"workers": ("invalid username-password", "do not restart workers")},
    ),
    "two-environments": Expected(says={"workers": ("staging",)}),
    "pool-deleted": Expected(
        ("ends",), says={"workers": ("the pool was deleted, and ends at",)}, never={"workers": ("died",)},
    ),
    "1000-deaths": Expected(
        (), ("WorkerDied",), died=True, says={"workers": ("1,000 died in the last hour", "… and 980 more")},
    ),
    "crash-loop": Expected((), ("WorkerDied",), died=True, says={"workers": ("3 died in the last hour",)}),
    "flapping": Expected(never={"workers": ("died", "silent")}, quiet=("WorkerDied", "WorkersSilent")),
    "half-stopped": Expected(
        ("silent",), ("WorkersSilent",), with_ids=-1, says={"workers": ("3 silent",)}, never={"workers": ("died",)},
        settle_s=12,
    ),
}
# fmt: on
