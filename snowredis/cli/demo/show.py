"""Run the demo: start server and fleet, play the scenario, show it, check the ids, and remove everything."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from snowredis import embedded
from snowredis.cli.demo.check import Recorded, Verdict, check
from snowredis.cli.demo.fleet import Fleet
from snowredis.cli.demo.scenario import Plan, Scenario, Snapshot
from snowredis.cli.demo.view import frame, log_lines, status, verdict_lines
from snowredis.cli.exit_codes import ExitCode, interrupted_by_signals, uninterrupted
from snowredis.cli.output import alternate_screen, is_terminal, plain, write
from snowredis.core.layout import Layout
from snowredis.monitor.worker_pool import WorkerPool
from snowredis.snowflake.protocol import PoolConfig

if TYPE_CHECKING:
    from snowredis.embedded import Server

_POOL = "demo"
# ids per second of the whole fleet: 40 MB of files in 20 s
_FLEET_RATE = 250_000
# time between two reads of Redis, and between two frames
_FRAME_S = 0.15
# number of status lines in plain output
_STATUSES = 8


def run(seconds: float, workers: int, *, plain: bool) -> int:
    """Run the demo for about *seconds*; return ExitCode.ERROR if an id was made twice, or a process failed."""
    began_s = time.monotonic()
    plan = Plan(seconds, workers)
    live = not plain and is_terminal(sys.stdout)
    with (
        interrupted_by_signals(),
        _server() as server,
        contextlib.closing(WorkerPool(server.url, _POOL)) as pool,
    ):
        # this server is new, so no worker has to wait for a floor
        config = PoolConfig(name=_POOL, ttl_ms=round(plan.ttl_s * 1000))
        pool.create(config, time.time_ns() // 1_000_000)
        with _fleet(server, plan) as fleet:
            scenario = Scenario(fleet, plan, began_s, _read(pool))
            verdict = _live(scenario, pool, server) if live else _plain(scenario, pool, server)
            if live:
                # stays on the screen after the live display is closed
                write([[("snowredis demo", "strong"), (f"  on its own {server.kind}", "dim")], []])
                write(log_lines(scenario))
            write([[], *verdict_lines(scenario, verdict)])
    return ExitCode.OK if verdict.good and not scenario.failed else ExitCode.ERROR


@contextlib.contextmanager
def _server() -> Iterator[Server]:
    """Start a private Redis in a temporary directory; stop it and remove the directory at the end."""
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
            fleet.stop()


def _live(scenario: Scenario, pool: WorkerPool, server: Server) -> Verdict:
    """Play the scenario in a display that is redrawn; return the verdict on its ids."""
    with alternate_screen() as draw:

        def show(note: str) -> None:
            draw(frame(scenario, server.kind, note, *shutil.get_terminal_size()))

        _play(scenario, pool, lambda: show("Ctrl-C ends it and cleans up"))
        show("checking every id …")
        return _check_ids(scenario)


def _plain(scenario: Scenario, pool: WorkerPool, server: Server) -> Verdict:
    """Play the scenario and print its log and a few status lines; return the verdict on its ids."""
    print(f"snowredis demo on its own {server.kind}", flush=True)
    printed, next_status_s = 0, 0.0

    def show() -> None:
        nonlocal printed, next_status_s
        for line in log_lines(scenario)[printed:]:
            print(plain(line), flush=True)
            printed += 1
        now_s = scenario.now_s
        if scenario.making_s[0] and now_s >= next_status_s:
            next_status_s = now_s + scenario.plan.seconds / _STATUSES
            print(status(scenario), flush=True)

    _play(scenario, pool, show)
    print(f"{scenario.now_s:6.1f} s  checking every id", flush=True)
    return _check_ids(scenario)


def _play(scenario: Scenario, pool: WorkerPool, show: Callable[[], None]) -> None:
    """Play the scenario to its end, and call *show* about every 0.15 s."""
    running = True
    while running:
        messages = scenario.fleet.receive(_FRAME_S)
        for member in scenario.fleet.members:
            member.measure(scenario.now_s)
        running = scenario.step(messages, _read(pool))
        show()


def _read(pool: WorkerPool) -> Snapshot:
    workers = pool.workers(alive_only=False)
    return Snapshot(time.monotonic(), pool.info(), {worker.worker: worker for worker in workers})


def _check_ids(scenario: Scenario) -> Verdict:
    files = [
        Recorded(f"pid {member.pid}", member.path, frozenset(member.workers))
        for member in scenario.fleet.members
    ]
    return check(files, Layout())
