"""Log of one simulated run, for tests/spec: what processes asked, what servers did, which ticks were used.

One JSON object a line; tests/spec/steps.py describes them. Attached to a simulation before it begins; a simulation
without it does nothing of this.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any

from tests.simulation.redis_model import CHANGING, CONSTANT
from tests.spec.log import header, request_of

if TYPE_CHECKING:
    from tests.simulation.redis_model import RedisModel
    from tests.simulation.schedule import Simulation

# the scripts of generators, and of whoever creates a pool; a run ends with any other
TRACED = ("claim", "renew", "release", "create")


class Tracer:
    """Writes the log of one run to *file*. Its methods are called by the network, the checker and the processes."""

    def __init__(self, sim: Simulation, file: IO[str]) -> None:
        self._sim, self._file = sim, file
        self._calls = 0
        self._runs = 0
        self._ended = False
        # of each server: a hash of its pool after the last script, and the number of its identity
        self._pools: dict[str, int] = {}
        self._numbers: dict[str, int] = {}
        # identity -> its number; another one after a script that noticed a loss which no identity shows
        self._identities: dict[str, int] = {}
        self._next_number = 1
        # hash of a pool -> the run of a script after which it was that, and the incarnation
        self._after: dict[int, int] = {}
        # hash of a pool -> the number of the identity of the server that wrote it
        self._written_by: dict[int, int] = {}
        self._incarnations: dict[int, str] = {}
        # replies to each call that has not ended, each with its run
        self._replies: dict[int, list[tuple[int, list[str]]]] = {}
        # ticks that a process used since its last call, by worker id and lane: the first ms of each
        self._used: dict[str, dict[tuple[int, int], set[int]]] = {}
        self._write(do="begin", kind="simulation", seed=sim.seed, classes=sim.classes, **header(sim.config))

    def _write(self, **entry: Any) -> None:
        if not self._ended:
            json.dump(entry, self._file, separators=(",", ":"))
            self._file.write("\n")

    def end(self) -> None:
        for process in list(self._used):
            self._flush(process)
        self._write(do="end")
        self._ended = True

    # --- processes ---------------------------------------------------------------------------------

    def _flush(self, process: str) -> None:
        for (worker, lane), ticks in self._used.pop(process, {}).items():
            self._write(do="use", process=process, worker=worker, lane=lane, ticks_ms=sorted(ticks))

    def sent(self, process: str, script: str, args: Sequence[str | int]) -> int:
        self._calls += 1
        self._flush(process)
        if script not in TRACED:
            self.end()
        else:
            self._write(do="send", call=self._calls, process=process, **request_of(script, args))
        return self._calls

    def answered(self, process: str, call: int, reply: list[str]) -> None:
        if self._ended:
            return
        self._flush(process)
        # a message that arrived twice was answered twice
        runs = (run for run, sent in self._replies.pop(call) if sent is reply)
        self._write(do="reply", call=call, run=next(runs))

    def used(self, process: str, worker: int, lane: int, tick: int) -> None:
        ms = self._sim.config.layout.ms_at(tick)
        self._used.setdefault(process, {}).setdefault((worker, lane), set()).add(ms)

    def cloned(self, parent: str, child: str, token: str = "") -> None:
        """Log a clone; with *token*: one that was made while this claim was under way."""
        self._flush(parent)
        self._write(do="clone", process=parent, child=child, token=token)

    def taken_over(self, process: str, token: str) -> None:
        """Log that a process goes on with the lease of one that ended."""
        for other in list(self._used):
            self._flush(other)
        self._write(do="take", process=process, token=token)

    def lifted(self, until_ms: int) -> None:
        self._write(do="lift", until_ms=until_ms)

    # --- servers -----------------------------------------------------------------------------------

    def arrives(self, server: RedisModel, key: str) -> None:
        """Log what happened to *server* since its last script."""
        if self._ended:
            return
        if abs(server.offset_us) > self._sim.skew_us:
            # the specification has clocks of servers that are redis_skew apart at most
            self.end()
            return
        now = _hash(server.data.get(key))
        data: int | None = None
        if now != self._pools.get(server.name, 0):
            if now and now not in self._after:
                # a person did something at the server
                self.end()
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
        if self._ended:
            return
        self._runs += 1
        self._replies.setdefault(call, []).append((self._runs, reply))
        pool = server.data.get(key)
        now = _hash(pool)
        if pool and now != self._pools[server.name]:
            incarnation = pool["incarnation"]
            before = self._incarnations.get(self._pools[server.name], incarnation)
            if before != incarnation and pool.get("floor_reason") in ("rolled-back", "silence"):
                # R10: the script noticed what no identity shows. A server begins with number 1, also if none was drawn
                self._next_number = max(self._next_number, self._numbers.get(server.name, 1) + 1)
                self._found(server, None, self._renumber(self._identity(server)))
            self._incarnations[now] = incarnation
        self._pools[server.name] = now
        self._written_by[now] = self._numbers.get(server.name, 1)
        self._after.setdefault(now, self._runs)
        self._write(do="run", run=self._runs, call=call, server=server.name, reply=reply)


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
