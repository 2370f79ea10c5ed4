"""A lease as others see it: one class for a living, a silent and an ended one, from Redis to JSON. Pure.

A process describes itself in its records and events: owner_text() of process/names.py wrote that. Hosts, labels and
versions are untrusted text. One process can have several generators, each with a lease of its own.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, get_args

from snowredis.core.as_json import Hidden, HiddenInt, Shown, TimeMs, in_json
from snowredis.errors import count
from snowredis.snowflake.protocol import messages
from snowredis.snowflake.protocol.record import LeaseRecord

# leases named in a text
_MAX_NAMED = 5


class Owner(NamedTuple):
    """Description of a process by itself: a new field stands here, and in _owner() of snowflake/lease/requests.py.

    Attributes:
        host, pid, label: how the process describes itself; untrusted text.
        refused: the error of its last call, if the process got no id since; empty: it makes ids, or was not asked for
            any.
        version: of snowredis in the process; untrusted text; empty if unknown.
        generator: random name of its generator: that of its process, "-", and its own; "" if unknown.
        lane_until_ms: end of the outage lane of a lease that it lost, in which it can go on, too; 0: none.
        taken_ms: when it took the lease over from a process that had ended; 0: it claimed the worker id itself.
        outage: 1 if it goes on in the outage lane of its lease while Redis is away; 0: it does not say so.
    """

    host: str = ""
    pid: Annotated[int, Shown(null=0)] = 0
    label: str = ""
    refused: str = ""
    version: str = ""
    generator: Hidden = ""
    lane_until_ms: HiddenInt = 0
    taken_ms: HiddenInt = 0
    outage: HiddenInt = 0

    @property
    def process(self) -> tuple[str, int, str]:
        """Host, pid and mark of the process: its generators share them, and no process of another container does."""
        return self.host, self.pid, self.generator.partition("-")[0]

    @property
    def text(self) -> str:
        """Host, pid and label for people; untrusted text."""
        return f"{self.host}:{self.pid}{f' ({self.label})' if self.label else ''}"


_FIELDS = [(name.removesuffix("_ms"), default, type(default)) for name, default in Owner()._asdict().items()]


def parse_owner(text: str) -> Owner:
    """Parse what owner_text() wrote. What has the wrong type is left out."""
    try:
        stored = json.loads(text)
    except (ValueError, RecursionError):
        stored = None
    if not isinstance(stored, dict):
        return Owner()
    values: list[Any] = [
        _valid(value) if type(value := stored.get(name)) is kind else default for name, default, kind in _FIELDS
    ]
    return Owner(*values)


def _valid(value: Any) -> Any:
    # thousands of leases are shown, and nearly all texts are ASCII
    if type(value) is str:
        return value if value.isascii() else encodable(value)
    return value if 0 <= value < 10**14 else 0


def encodable(value: object) -> str:
    """Return *value* without the surrogates that JSON can contain; "" if it is not text."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


# the words of the glossary, "How a lease ends". alive and no-ids: it renews its lease
State: TypeAlias = Literal["alive", "no-ids", "silent", "expired", "died", "released"]
STATES: tuple[State, ...] = get_args(State)


class Lease(NamedTuple):
    """A lease of a worker id, living or ended, and the process that has or had it.

    Attributes:
        worker: the worker id.
        state: alive; no-ids: it sends heartbeats and gets no ids; silent: the last heartbeat is older than two thirds
            of a ttl, or Redis may have forgotten newer ones; expired: it ended without a release; died: another process
            found its process dead, and released the worker id; released.
        owner: the process.
        claimed_ms, renewed_ms: when it was claimed, and the last heartbeat; null if unknown.
        end_ms: its end: in the future if the lease is valid.
        from_ms, until_ms: its reservation in the first lane, on the clock of its host.
        ids_made, ids_per_second: since the process started, and since the heartbeat before the last one.
        clock_offset_ms: clock of its host minus the Redis clock.
        namespace: the backup bits in use.
        clock_backs: how often its clock went back.
        outage_from_ms, outage_until_ms: reservation of its outage lane; 0: none.
    """

    worker: int
    state: State
    owner: Annotated[Owner, Shown("parts")]
    claimed_ms: TimeMs = 0
    renewed_ms: Annotated[int, Shown("time", "heartbeat_at")] = 0
    end_ms: Annotated[int, Shown("time", "ends_at")] = 0
    from_ms: HiddenInt = 0
    until_ms: HiddenInt = 0
    ids_made: int = 0
    ids_per_second: int = 0
    clock_offset_ms: int = 0
    namespace: int = 0
    clock_backs: int = 0
    outage_from_ms: HiddenInt = 0
    outage_until_ms: HiddenInt = 0

    @property
    def host(self) -> str:
        """Host of the process; untrusted text."""
        return self.owner.host

    @property
    def pid(self) -> int:
        """Process id."""
        return self.owner.pid

    @property
    def label(self) -> str:
        """Label of the process; untrusted text."""
        return self.owner.label

    @property
    @in_json
    def ids_until_ms(self) -> TimeMs:
        """Until when its process makes ids if it lives and cannot reach Redis; null if it has none."""
        if self.state in ("died", "released"):
            return 0
        owner = self.owner
        lane = (self.outage_from_ms, self.outage_until_ms if owner.outage else 0)
        # reservations are on the clock of its host
        return max(0, messages.ids_until_ms(self.until_ms, lane, (0, owner.lane_until_ms)) - self.clock_offset_ms)


def lease_of(worker: int, record: LeaseRecord, now_ms: int, ttl_ms: int, end_ms: int, *, is_sure: bool) -> Lease:
    """Return what the record of a worker id shows.

    Args:
        now_ms: on the Redis clock.
        end_ms: end of the layout.
        is_sure: that Redis has not forgotten a renewal of it.
    """
    owner, until_ms, stats = parse_owner(record.owner), min(end_ms, record.until_ms), record.stats
    state: State = "alive"
    if not record.token_hash:
        state = "released"
    elif record.lease_end_ms <= now_ms:
        state = "expired" if is_sure else "silent"
    elif (now_ms - record.renewed_ms) * 3 >= 2 * ttl_ms:
        state = "silent"
    elif owner.refused or until_ms - stats.clock_offset_ms <= record.renewed_ms:
        # its clock is past what Redis reserves for it, or its last call raised an error
        state = "no-ids"
    times = record.claimed_ms, record.renewed_ms, record.lease_end_ms, record.lanes_ms[0], until_ms
    return Lease(worker, state, owner, *times, *stats, record.lanes_ms[-1], min(end_ms, record.outage_until_ms))


# --- texts -------------------------------------------------------------------------------------------


def processes_of(leases: Iterable[Lease]) -> set[tuple[str, int, str]]:
    """Return each process that has, or had, one of *leases*."""
    return {each.owner.process for each in leases}


def counted(leases: Sequence[Lease]) -> str:
    """Return how many processes have *leases*, and how many leases these are if some have several."""
    number = len(processes_of(leases))
    if number == len(leases):
        return count(number, "worker")
    return f"{count(number, 'process', 'processes')} with {len(leases):,} worker ids"


def named(leases: Sequence[Lease]) -> str:
    """Return how many these are, and the first of them."""
    names = ", ".join(f"{each.worker} on {each.host}:{each.pid}" for each in leases[:_MAX_NAMED])
    return f"{counted(leases)} ({names}{' …' if len(leases) > _MAX_NAMED else ''})"


def greatest_holder(leases: Sequence[Lease]) -> tuple[str, int]:
    """Return the process with the most worker ids, and how many it has; ("", 0) if there is none."""
    held = Counter(each.owner.process for each in leases)
    process, most = max(held.items(), key=lambda item: item[1], default=(None, 0))
    return next((each.owner.text for each in leases if each.owner.process == process), ""), most
