"""`demo`: put server, fleet, scenario and display together, check what was made, and leave nothing behind."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from snowredis import embedded
from snowredis.cli.demo.check import Recorded, Verdict, check
from snowredis.cli.demo.fleet import Fleet
from snowredis.cli.demo.scenario import Look, Plan, Scenario
from snowredis.cli.demo.view import frame, log_lines, status, verdict_lines
from snowredis.cli.exit_codes import ExitCode, ended_like_ctrl_c, uninterrupted
from snowredis.cli.live import can_be_live, display
from snowredis.cli.output import plain, write
from snowredis.core.layout import Layout
from snowredis.lease.model import PoolConfig
from snowredis.monitor.pool import WorkerPool

if TYPE_CHECKING:
    from snowredis.embedded import Server

_POOL = "demo"
# ids a second of the whole fleet: a number to look at, and 40 MB of files in 20 s
_FLEET_RATE = 250_000
# between two looks at Redis and two frames
_FRAME_S = 0.15
# plain lines come this often
_STATUSES = 8


def run(seconds: float, workers: int, *, plain: bool) -> int:
    """Show it all; ExitCode.ERROR if an id came twice, or a process failed."""
    began_s = time.monotonic()
    plan = Plan(seconds, workers)
    live = not plain and can_be_live()
    with ended_like_ctrl_c(), _server() as server, contextlib.closing(WorkerPool(server.url, _POOL)) as pool:
        # made by a person, so to speak: this server is new, nobody has to wait
        config = PoolConfig(name=_POOL, ttl_ms=round(plan.ttl_s * 1000))
        pool.create(config, time.time_ns() // 1_000_000)
        with _fleet(server, plan) as fleet:
            scenario = Scenario(fleet, plan, began_s, _look(pool))
            verdict = _live(scenario, pool, server) if live else _plain(scenario, pool, server)
            if live:
                # the live display is gone by now; this stays
                write([[("snowredis demo", "strong"), (f"  on its own {server.kind}", "dim")], []])
                write(log_lines(scenario))
            write([[], *verdict_lines(scenario, verdict)])
    return ExitCode.OK if verdict.good and not scenario.failed else ExitCode.ERROR


@contextlib.contextmanager
def _server() -> Iterator[Server]:
    """A Redis in a directory of its own, that disturbs nobody."""
    directory = Path(tempfile.mkdtemp(prefix="snowredis-"))
    try:
        yield embedded.start(directory, linger_s=0.0)
    finally:
        with uninterrupted():
            embedded.stop(directory)
            shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def _fleet(server: Server, plan: Plan) -> Iterator[Fleet]:
    rate = min(50_000, _FLEET_RATE // plan.workers)
    fleet = Fleet(server.directory, server.url, _POOL, plan.ttl_s, rate)
    try:
        yield fleet
    finally:
        with uninterrupted():
            fleet.end()


def _live(scenario: Scenario, pool: WorkerPool, server: Server) -> Verdict:
    with display() as draw:

        def show(note: str) -> None:
            draw(lambda width, height: frame(scenario, server.kind, note, width, height))

        _play(scenario, pool, lambda: show("Ctrl-C ends it and cleans up"))
        show("checking every id …")
        return _checked(scenario)


def _plain(scenario: Scenario, pool: WorkerPool, server: Server) -> Verdict:
    print(f"snowredis demo on its own {server.kind}", flush=True)
    told, next_status_s = 0, 0.0

    def show() -> None:
        nonlocal told, next_status_s
        for line in log_lines(scenario)[told:]:
            print(plain(line), flush=True)
            told += 1
        now_s = scenario.now_s
        if scenario.making_s[0] and now_s >= next_status_s:
            next_status_s = now_s + scenario.plan.seconds / _STATUSES
            print(status(scenario), flush=True)

    _play(scenario, pool, show)
    print(f"{scenario.now_s:6.1f} s  checking every id", flush=True)
    return _checked(scenario)


def _play(scenario: Scenario, pool: WorkerPool, show: Callable[[], None]) -> None:
    going_on = True
    while going_on:
        reports = scenario.fleet.hear(_FRAME_S)
        for member in scenario.fleet.members:
            member.count(scenario.now_s)
        going_on = scenario.step(reports, _look(pool))
        show()


def _look(pool: WorkerPool) -> Look:
    workers = pool.workers(alive_only=False)
    return Look(time.monotonic(), pool.info(), {worker.worker: worker for worker in workers})


def _checked(scenario: Scenario) -> Verdict:
    files = [
        Recorded(f"pid {member.pid}", member.path, frozenset(member.workers))
        for member in scenario.fleet.members
    ]
    return check(files, Layout())
