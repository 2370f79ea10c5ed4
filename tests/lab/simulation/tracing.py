"""Log of one simulated run, for tests/lab/spec: what processes asked, what servers did, which ticks were used.

One JSON object a line; tests/lab/spec/log.py describes them. It says what there is, and no cause: why a script did what
it did is for the specification to say. Attached to a simulation before it begins; a simulation without it does nothing
of this.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any

from tests.lab.simulation.redis_model import CHANGING, CONSTANT
from tests.lab.spec.log import header, ints, request_of

if TYPE_CHECKING:
    from snowredis.snowflake.lease.held import HeldLease
    from tests.lab.simulation.redis_model import RedisModel
    from tests.lab.simulation.schedule import Simulation

# the scripts of generators, and of whoever creates a pool; a run ends with any other
TRACED = ("claim", "renew", "release", "create", "delete")


class Tracer:
    """Writes the log of one run to *file*. Its methods are called by the network, the checker and the processes."""

    def __init__(self, sim: Simulation, file: IO[str]) -> None:
        self._sim, self._file = sim, file
        self._calls = 0
        self._runs = 0
        # why the log ends before the run, and how many scripts ran after that
        self._early, self._after_end = "", 0
        # call -> the worker id of its request
        self._workers: dict[int, int] = {}
        # server -> a hash of its pool after the last script, and the number of its identity
        self._pools: dict[str, int] = {}
        self._numbers: dict[str, int] = {}
        # identity -> its number
        self._identities: dict[str, int] = {}
        self._next_number = 1
        # hash of a pool -> the run of a script after which it was that
        self._after: dict[int, int] = {}
        # hash of a pool -> the number of the identity of the server that wrote it
        self._written_by: dict[int, int] = {}
        # replies to each call that has not ended, each with its run
        self._replies: dict[int, list[tuple[int, list[str]]]] = {}
        # ticks that a process used since its last call, by worker id and lane, in the order in which ids were made:
        # first ms, sequences
        self._used: dict[str, dict[tuple[int, int], list[list[int]]]] = {}
        # an id may be seen after a later one where tasks of one process come between each other
        self._in_order = sim.makers == 1 and not sim.preempt and "signal" not in sim.classes
        # token of a claim, or id of a renewal -> the process that sent it first, and in which call
        self._names: dict[str, tuple[str, int]] = {}
        # clone -> how many calls there were before
        self._born: dict[str, int] = {}
        self._write(do="begin", seed=sim.seed, classes=sim.classes, **header(sim.config))

    def _write(self, **entry: Any) -> None:
        if not self._early:
            json.dump(entry, self._file, separators=(",", ":"))
            self._file.write("\n")

    def end(self) -> None:
        if not self._early:
            for process in list(self._used):
                self._flush(process)
        early, self._early = self._early, ""
        self._write(do="end", early=early, after=self._after_end)

    def _end_early(self, why: str) -> None:
        """Log nothing more: the specification of logs does not have what comes now."""
        for process in list(self._used):
            self._flush(process)
        self._early = self._early or why

    # --- processes ---------------------------------------------------------------------------------

    def _flush(self, process: str) -> None:
        for (worker, lane), visits in self._used.pop(process, {}).items():
            # when everything has healed, each process has another task that makes an id
            in_order = self._in_order and not self._sim.healed
            use = {"worker": worker, "lane": lane, "visits": visits, "in_order": in_order}
            self._write(do="use", process=process, **use)

    def sent(self, process: str, script: str, args: Sequence[str | int]) -> int:
        self._calls += 1
        self._flush(process)
        if script not in TRACED:
            self._end_early(f"script {script}")
        else:
            request = request_of(script, args)
            if script == "release":
                # it may be that of a process that has ended
                for other in list(self._used):
                    self._flush(other)
            self._workers[self._calls] = request.get("worker", -1)
            if script in ("claim", "renew"):
                name = request["token" if script == "claim" else "pending"]
                first, call = self._names.setdefault(name, (process, self._calls))
                of_clone = process in self._born or first in self._born
                if first != process and of_clone and self._born.get(process, 0) < call:
                    self._end_early("clones that draw the same random numbers")
            self._write(do="send", call=self._calls, process=process, **request)
        return self._calls

    def answered(self, process: str, call: int, reply: list[str]) -> None:
        if self._early:
            return
        self._flush(process)
        # a message that arrived twice was answered twice
        runs = (run for run, sent in self._replies.pop(call) if sent is reply)
        self._write(do="reply", call=call, run=next(runs))

    def used(self, process: str, worker: int, lane: int, tick: int, sequence: int) -> None:
        ms = self._sim.config.layout.ms_at(tick)
        visits = self._used.setdefault(process, {}).setdefault((worker, lane), [])
        if visits and visits[-1][0] == ms:
            visits[-1].append(sequence)
        else:
            visits.append([ms, sequence])

    def cloned(self, parent: str, child: str, token: str = "") -> None:
        """Log a clone; with *token*: one that was made while this claim was under way."""
        self._flush(parent)
        self._born[child] = self._calls
        self._write(do="clone", process=parent, child=child, token=token)

    def taken_over(self, process: str, taken: HeldLease) -> None:
        """Log that a process goes on with the lease of one that ended."""
        for other in list(self._used):
            self._flush(other)
        ends = {"until_ms": taken.lease.until_ms, "outage_ms": taken.lease.outage_until_ms}
        ends["used_ms"] = taken.outage_used_ms
        self._write(do="take", process=process, token=taken.token, renewal_id=taken.terms.renewal_id, **ends)

    def lifted(self, until_ms: int, outage_until_ms: int) -> None:
        self._write(do="lift", until_ms=until_ms, outage_until_ms=outage_until_ms)

    # --- servers -----------------------------------------------------------------------------------

    def arrives(self, server: RedisModel, key: str) -> None:
        """Log what happened to *server* since its last script."""
        if self._early:
            return
        now = _hash(server.data.get(key))
        data: int | None = None
        if now != self._pools.get(server.name, 0):
            if now and now not in self._after:
                self._end_early("data that no script wrote")
                return
            data = self._after[now] if now else 0
        self._pools[server.name] = now
        identity = self._identity(server)
        if identity == CONSTANT:
            # no script can tell it from the server that wrote the pool last
            number = self._written_by.get(now, self._numbers.get(server.name, 1))
        else:
            number = self._identities.get(identity) or self._renumber(identity)
        self._found(server, data, number)

    def _found(self, server: RedisModel, data: int | None, number: int) -> None:
        if data is not None or number != self._numbers.get(server.name, 1):
            self._write(do="found", server=server.name, data=data, identity=number)
            self._numbers[server.name] = number

    def _renumber(self, identity: str) -> int:
        number = self._identities[identity] = self._next_number
        self._next_number += 1
        return number

    def _identity(self, server: RedisModel) -> str:
        if self._sim.config.durability != "detect" or server.shows == CONSTANT:
            return CONSTANT
        return str(self._runs) if server.shows == CHANGING else f"{server.run_id} {server.replid}"

    def ran(self, server: RedisModel, key: str, call: int, reply: list[str]) -> None:
        if self._early:
            self._after_end += 1
            return
        pool = server.data.get(key)
        if pool and pool["signature"] != self._sim.config.signature:
            self._end_early("a pool with other settings")
            self._after_end += 1
            return
        self._runs += 1
        self._replies.setdefault(call, []).append((self._runs, reply))
        now = _hash(pool)
        self._pools[server.name] = now
        self._written_by[now] = self._numbers.get(server.name, 1)
        self._after.setdefault(now, self._runs)
        worker = int(reply[5].split(",")[0]) if reply[0] == "granted" else self._workers.get(call)
        record = _record((pool or {}).get(f"w:{worker}"))
        shown = {"run": self._runs, "call": call, "server": server.name, "reply": reply}
        self._write(do="run", **shown, record=record, pool=_pool(pool))


def _pool(stored: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return what a pool in Redis says of its beginning and its end."""
    if not stored:
        return None
    names = {"start_ms": "start", "lost_at_ms": "lost_at", "is_new": "is_new", "end_ms": "end"}
    return {name: int(stored.get(of) or 0) for name, of in names.items()} | {"over": stored.get("over", "")}


def _record(text: str | None) -> dict[str, Any] | None:
    """Return what a record in Redis says of a lease, read without the library's own code."""
    if text is None:
        return None
    token, _, _, until, lease_end, lanes, outage, before, _ = text.split("|", 8)
    return {
        "until_ms": int(until),
        "end_ms": int(lease_end),
        "lanes_ms": ints(lanes),
        "outage_ms": int(outage),
        "token": token,
        "before": before,
    }


def _hash(pool: dict[str, Any] | None) -> int:
    return hash(frozenset(pool.items())) if pool else 0


def attach(sim: Simulation, file: IO[str]) -> Tracer:
    """Log the run of *sim*, which has not begun, to *file*."""
    tracer = Tracer(sim, file)
    sim.tracer = sim.network.tracer = tracer
    return tracer


def attach_to_schedule(sim: Simulation, file: IO[str]) -> Tracer:
    """Log a schedule. The specification knows no durability "none": such a pool has "detect" then."""
    if sim.config.durability == "none":
        sim.config = replace(sim.config, durability="detect")
        sim.configs = [sim.config]
    return attach(sim, file)
