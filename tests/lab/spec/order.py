"""Put the log of a chaos run into the order in which the server ran the scripts.

Processes log what they send and what arrives. A reply shows the incarnation and the version of the pool, and versions
count the scripts of a pool, so they say in which order scripts ran, and how many ran whose reply never arrived: those
are some of the requests that have no reply, and TLC tries which. The name of an incarnation contains the nonce of the
request that began it.
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.lab.spec.log import Entry

SERVER = "redis"
# digits of the nonce of the script that began an incarnation, at the end of the incarnation's name: before them is the
# pool's id
NONCE_DIGITS = slice(8, 16)
# what a server has after the fault of this name; everything else keeps its data
EMPTY = (
    "SHUTDOWN NOSAVE and start",
    "kill -9 redis and start",
    "kill -9 redis for longer than a ttl",
    "FLUSHALL",
    "DEL the pool's hash",
)
SNAPSHOT = ("restore an old RDB", "boot with a late clock", "move to a backup")
# how many requests without a reply may be tried in one place
MOST_UNSEEN = 12


@dataclass
class Served:
    """A script that sent a reply that arrived."""

    send: Entry
    reply: Entry
    at_ns: int = 0

    @property
    def incarnation(self) -> str:
        return str(self.reply["reply"][2])

    @property
    def version(self) -> int:
        return int(self.reply["reply"][3])

    @property
    def redis_ms(self) -> int:
        return int(self.reply["reply"][1])


@dataclass
class Incarnation:
    """An incarnation of the pool: the state that it began with, and what ran in it."""

    name: str
    served: list[Served] = field(default_factory=list)
    # the incarnation and the version before its first script; "" and 0: no pool
    base: tuple[str, int] = ("", 0)

    @property
    def first_ns(self) -> int:
        return min(int(one.reply["at_ns"]) for one in self.served)


def in_order(entries: list[Entry]) -> list[Entry]:
    """Return the entries as tests/lab/spec/steps.py reads them."""
    return _Order(entries).entries()


class _Order:
    def __init__(self, entries: list[Entry]) -> None:
        self._begin = entries[0]
        self._sends = {entry["call"]: entry for entry in entries if entry["do"] == "send"}
        self._replies = {entry["call"]: entry for entry in entries if entry["do"] == "reply"}
        self._uses = _compressed([entry for entry in entries if entry["do"] == "use"], self._calls_of())
        self._faults = [entry for entry in entries if entry["do"] in ("fault", "snapshot")]
        self._nonces = {str(entry["nonce"])[NONCE_DIGITS]: entry for entry in self._sends.values()}
        # calls without a reply that have not been tried in an earlier place
        self._unanswered = [entry for call, entry in self._sends.items() if call not in self._replies]

    @functools.cached_property
    def _capped_ms(self) -> set[int]:
        """Return when scripts ran whose reservations end as late as they may."""
        reach_ms = self._begin["ttl_ms"] + self._begin["max_clock_lead_ms"]
        place = {"granted": 7, "renewed": 6}
        replies = (entry["reply"] for entry in self._replies.values())
        return {int(reply[place[reply[0]]]) - reach_ms for reply in replies if reply[0] in place}

    def _calls_of(self) -> dict[str, list[int]]:
        moments: dict[str, list[int]] = {}
        for call, entry in self._sends.items():
            of = moments.setdefault(entry["process"], [])
            of.append(entry["at_ns"])
            if call in self._replies:
                of.append(self._replies[call]["at_ns"])
        return {process: sorted(of) for process, of in moments.items()}

    def entries(self) -> list[Entry]:
        incarnations = self._incarnations()
        order = [one for incarnation in incarnations for one in incarnation.served]
        latest = 1 << 62
        for one in reversed(order):
            latest = one.at_ns = min(latest, one.reply["at_ns"])
        timed: list[tuple[int, int, int, Entry]] = []

        def add(at_ns: int, rank: int, entry: Entry) -> None:
            timed.append((at_ns, rank, len(timed), entry))

        for entry in self._sends.values():
            add(entry["at_ns"], 0, entry)
        for entry in self._uses:
            add(entry["at_ns"], 0, entry)
        runs = {id(one): number for number, one in enumerate(order, 1)}
        run_of = {(one.incarnation, one.version): runs[id(one)] for one in order}
        # names for states that no reply shows: (incarnation, version) -> run
        versions = {name: sorted(v for n, v in run_of if n == name) for name, _ in run_of}
        for number, incarnation in enumerate(incarnations):
            self._begin_incarnation(incarnation, number, versions, run_of, add)
            before, earlier = incarnation.base[1], incarnation.served[0].redis_ms
            for one in incarnation.served:
                self._unseen(one, one.version - before - 1, earlier, add)
                earlier = one.redis_ms
                before = one.version
                call = one.send["call"]
                add(
                    one.at_ns,
                    1,
                    {"do": "run", "run": runs[id(one)], "call": call, "server": SERVER, "reply": one.reply["reply"]},
                )
                add(one.reply["at_ns"], 2, {"do": "reply", "call": call, "run": runs[id(one)]})
        timed.sort(key=lambda item: item[:3])
        return [self._begin, *self._created(incarnations), *(item[3] for item in timed), {"do": "end"}]

    def _created(self, incarnations: list[Incarnation]) -> list[Entry]:
        """Return the creation of the pool, by the driver, before all else."""
        if not incarnations or str(incarnations[0].name)[-8:] in self._nonces:
            return []
        name = incarnations[0].name
        # the name of an incarnation begins with the moment at which it began
        created_ms = name.partition("-")[0]
        # the floor of a new pool is that moment, on the later clock
        floor_ms = incarnations[0].served[0].reply["reply"][4]
        send: Entry = {"do": "send", "call": "create", "process": "driver", "script": "create"}
        send |= {"caller_ms": int(floor_ms), "seen_incarnation": "", "seen_version": 0}
        reply = ["created", created_ms, name, "1", floor_ms, "", ""]
        return [send, {"do": "run", "run": 0, "call": "create", "server": SERVER, "reply": reply}]

    def _incarnations(self) -> list[Incarnation]:
        found: dict[str, Incarnation] = {}
        for call, reply in self._replies.items():
            if len(reply["reply"]) > 6:
                one = Served(self._sends[call], reply)
                found.setdefault(one.incarnation, Incarnation(one.incarnation)).served.append(one)
        for incarnation in found.values():
            incarnation.served.sort(key=lambda one: one.version)
        return sorted(found.values(), key=lambda incarnation: incarnation.first_ns)

    def _begin_incarnation(
        self,
        incarnation: Incarnation,
        number: int,
        versions: dict[str, list[int]],
        run_of: dict[tuple[str, int], int],
        add: Any,
    ) -> None:
        """Find the state that an incarnation began with, and let the server be found with it."""
        first = incarnation.served[0]
        beginner = self._nonces.get(incarnation.name[-8:])
        if beginner is None:
            # the driver created the pool: nothing was before
            incarnation.base = ("", 1)
            return
        seen = beginner["call"] == first.send["call"]
        kind, snapshot = self._fault_before(incarnation.first_ns)
        if kind == "empty" or (seen and first.version == 1):
            data, version = 0, 0
        else:
            wanted = first.version - 1 if seen else first.version - 2
            names = [one for one in versions if one != incarnation.name]
            order = list(versions)
            earlier = [name for name in order[: order.index(incarnation.name)] if name in names]
            if kind == "snapshot" and snapshot in earlier:
                earlier = [*earlier, snapshot]
            data, version = 0, 0
            for name in reversed(earlier):
                below = [v for v in versions[name] if v <= wanted]
                if below:
                    data, version = run_of[name, below[-1]], below[-1]
                    break
        incarnation.base = ("", version)
        entry = {"do": "found", "server": SERVER, "data": data, "identity": number + 2}
        add(first.at_ns, 0, entry)
        if not seen and first.version == version + 2:
            # only the script that began it, at the moment that its name begins with, unless clocks went back
            moment_ms = min(int(incarnation.name.partition("-")[0]), first.redis_ms)
            unseen: Entry = {"do": "unseen", "server": SERVER, "calls": [beginner["call"]]}
            unseen |= {"times_ms": [moment_ms], "since_ms": moment_ms}
            add(first.at_ns, 0, unseen | {"incarnation": incarnation.name, "version": version + 1})
            incarnation.base = ("", version + 1)

    def _fault_before(self, at_ns: int) -> tuple[str, str]:
        kind, snapshot, of = "kept", "", ""
        for entry in self._faults:
            if entry["at_ns"] > at_ns:
                break
            if entry["do"] == "snapshot":
                snapshot = entry["incarnation"]
            elif entry["name"] in EMPTY:
                kind = "empty"
            elif entry["name"] in SNAPSHOT:
                kind, of = "snapshot", snapshot
            else:
                kind = "kept"
        return kind, of

    def _unseen(self, before: Served, count: int, since_ms: int, add: Any) -> None:
        """Add scripts that ran before this one and after *since_ms*, and whose reply never arrived.

        A reservation that was capped (step 1, grant) shows when its script ran; else the time does not matter.
        """
        if count <= 0:
            return
        calls = [entry["call"] for entry in self._unanswered if entry["at_ns"] <= before.at_ns]
        times_ms = {ms for ms in self._capped_ms if since_ms <= ms <= before.redis_ms} | {before.redis_ms}
        for _ in range(min(count, len(calls))):
            entry = {
                "do": "unseen",
                "server": SERVER,
                "calls": calls[-MOST_UNSEEN:],
                "times_ms": sorted(times_ms),
                "since_ms": since_ms,
            }
            add(before.at_ns, 0, entry)


def _compressed(uses: Iterable[Entry], calls: dict[str, list[int]]) -> list[Entry]:
    """Join the uses of a process between two of its calls, by worker id and lane."""
    joined: dict[tuple[str, int, int, int], Entry] = {}
    ticks: dict[tuple[str, int, int, int], set[int]] = {}
    for use in uses:
        between = bisect_right(calls.get(use["process"], []), use["at_ns"])
        key = (use["process"], use["worker"], use["lane"], between)
        one = joined.setdefault(key, dict(use))
        one["at_ns"] = max(one["at_ns"], use["at_ns"])
        ticks.setdefault(key, set()).update(use["ticks_ms"])
    for key, one in joined.items():
        one["ticks_ms"] = sorted(ticks[key])
    return list(joined.values())
