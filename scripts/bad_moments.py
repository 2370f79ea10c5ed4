#!/usr/bin/env python3
"""Play every bad moment of a fleet, and compare what each view says of it with what the processes do.

    scripts/bad_moments.py                              all, into build/bad-moments
    scripts/bad_moments.py full half-cut                only these

Each moment gets a redis-server, six workers with a ttl of 3 s and `snowredis serve` of its own. A Prometheus evaluates
docs/alerts.yml, with its times shortened as the ttl is, and a headless Chromium looks at the dashboard. table.md has
what each view says; NAME.txt the terminal, NAME.png the page. Exit code 1 if a view is not true: readiness and ids, the
page and the status, who died, the condition, its alert and its advice. Takes about 10 minutes; needs Linux, Chromium,
redis-server, prometheus and snowredis[web].
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import snowredis  # noqa: E402
from scripts._bench.tables import markdown  # noqa: E402
from snowredis.process.clock import StepClock  # noqa: E402
from tests.chaos.proxy import Proxy  # noqa: E402
from tests.support.ha import Node  # noqa: E402
from tests.support.pools import new_pool  # noqa: E402
from tests.support.ports import free_port  # noqa: E402
from tests.support.prometheus import PROMETHEUS, Prometheus  # noqa: E402
from tests.support.waiting import eventually  # noqa: E402
from tests.web.chromium import Page, chromium  # noqa: E402

TTL_S, WORKERS, POOL = 3.0, 6, "orders"
# user of the fleet and its views, as options of a server
USER = ("--user", "app", "on", ">secret", "~*", "+@all")
# from the act until the views are read: longer than a lease, and than a failed claim of the service
SETTLE_S = 8.0
HEAD = (
    "moment",
    "workers with ids",
    "/id",
    "/readyz",
    "status",
    "page",
    "`workers`",
    "doctor",
    "alerts after",
    "advice",
)
# "for: 20s", "[10m]", "[7d:1h]", "offset 1h"
_TIME = re.compile(r"(?:(?<=for: )|(?<=offset )|(?<=\[)|(?<=[smhd]:))(\d+)([smhd])\b")
_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def worker(url: str) -> None:
    """Make ids until stdin ends; a number on stdin steps the clock by so many ms, an empty line asks for the counts."""
    os.set_blocking(0, False)
    clock, made, refused, buffer = StepClock(), 0, 0, b""
    ids = snowredis.connect(url, pool=POOL, clock=clock, claim_timeout=0.5, **json.loads(os.environ["POOL_OPTIONS"]))
    while True:
        try:
            ids.next_id()
            made += 1
        except snowredis.SnowredisError:
            refused += 1
        time.sleep(0.02)
        part = os.read(0, 1000) if _readable() else None
        if part == b"":
            os._exit(0)
        buffer += part or b""
        *lines, buffer = buffer.split(b"\n")
        for line in lines:
            if line:
                clock.step(int(line))
            else:
                print(json.dumps([made, refused]), flush=True)
                made = refused = 0


def _readable() -> bool:
    return bool(select.select([0], [], [], 0)[0])


class Stage:
    """The fleet: every second worker connects through a proxy of its own."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.directory, self.options = directory, {"ttl": TTL_S} | options
        self.standby: Node | None = None
        self.redis = Node(directory / "redis", *USER, "--unixsocket", str(directory / "redis.sock"))
        self.link, self.proxies = directory / "link.sock", [Proxy(directory / "link.sock") for _ in range(2)]
        self.processes: list[subprocess.Popen[str]] = []
        self.port, self.at_s = free_port(), 0.0
        self.service: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.redis.start()
        self.point_to(self.directory / "redis.sock")
        for proxy in self.proxies:
            proxy.start()
        new_pool(self.redis.url, POOL, **self.options)
        self.add(WORKERS)
        environment = os.environ | {"SNOWREDIS_URL": self.url(0)}
        with (self.directory / "service.log").open("wb") as log:
            command = [sys.executable, "-m", "snowredis", "serve", "--port", str(self.port), "--pool", POOL]
            self.service = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=log, stderr=log)
        eventually(lambda: self.ask("/readyz")[0] == 200, "the service", 60, ignored=(OSError,))
        self.tell("")
        eventually(lambda: self.made() == [WORKERS, WORKERS], "ids of all workers", 30)
        time.sleep(TTL_S / 2)

    def url(self, number: int) -> str:
        return f"redis://app:secret@127.0.0.1:{self.proxies[number % 2].port}/0"

    def add(self, count: int, **options: Any) -> None:
        """Start *count* workers."""
        given = json.dumps(self.options | options, default=str)
        for _ in range(count):
            command = [sys.executable, str(Path(__file__)), "--worker", self.url(len(self.processes))]
            with (self.directory / "workers.log").open("ab") as log:
                process = subprocess.Popen(
                    command,
                    env=os.environ | {"POOL_OPTIONS": given},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
            self.processes.append(process)

    def tell(self, line: str) -> None:
        """Send a line to every worker that was there at the start."""
        for process in self.processes[:WORKERS]:
            assert process.stdin is not None
            process.stdin.write(f"{line}\n")
            process.stdin.flush()

    def made(self) -> list[int]:
        """Return how many workers made ids without a refusal since the last call, and of how many."""
        self.tell("")
        replies = [json.loads(process.stdout.readline()) for process in self.processes[:WORKERS] if process.stdout]
        return [sum(made > 0 and not refused for made, refused in replies), len(replies)]

    def point_to(self, socket: Path) -> None:
        new = self.directory / "new.sock"
        new.symlink_to(socket)
        new.replace(self.link)

    def ask(self, path: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        with contextlib.closing(connection):
            connection.request("GET", path)
            reply = connection.getresponse()
            return reply.status, json.loads(reply.read() or b"null")

    def command(self, *arguments: str) -> str:
        environment = os.environ | {"SNOWREDIS_URL": self.url(0), "COLUMNS": "200"}
        done = subprocess.run(
            [sys.executable, "-m", "snowredis", *arguments], check=False, cwd=ROOT, env=environment,
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        return done.stdout + done.stderr

    def stop(self) -> None:
        started: list[subprocess.Popen[Any]] = [*self.processes, *([self.service] if self.service else [])]
        for process in started:
            process.kill()
            process.wait(10)
        for node in (self.redis, self.standby):
            if node is not None:
                node.kill()


@dataclass(frozen=True)
class Moment:
    """A bad moment.

    Attributes:
        act: does it.
        codes: conditions of the status, one of which must be the first.
        alerts: those that must fire, without "Snowredis".
        with_ids: workers that make ids, of six; None: as many as are ready.
        deaths: whether somebody dies.
        doctor: text that doctor must show.
        options: settings of the pool.
        settle_s: from the act until the views are read.
    """

    act: Callable[[Stage], object]
    codes: tuple[str, ...]
    alerts: tuple[str, ...] = ()
    with_ids: int = WORKERS
    deaths: bool = False
    doctor: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    settle_s: float = SETTLE_S


def _config(name: str, value: int) -> Callable[[Stage], object]:
    return lambda stage: stage.redis.ask("CONFIG", "SET", name, value)


def _kill(stage: Stage) -> None:
    stage.redis.kill()


def _restart(stage: Stage) -> None:
    """Let Redis be away for longer than a ttl, and come back empty."""
    stage.redis.kill()
    time.sleep(1.5 * TTL_S)
    (stage.directory / "redis.sock").unlink(missing_ok=True)
    stage.redis.start()


def _fail_over(stage: Stage) -> None:
    stage.standby = Node(stage.directory / "standby", *USER, "--unixsocket", str(stage.directory / "standby.sock"),
                         "--replicaof", "127.0.0.1", str(stage.redis.port))  # fmt: skip
    standby = stage.standby.start()
    eventually(lambda: standby.info("replication").get("master_link_status") == "up", "a replica", 30)
    stage.redis.kill()
    standby.ask("REPLICAOF", "NO", "ONE")
    stage.point_to(stage.directory / "standby.sock")


def _cut_half(stage: Stage) -> None:
    # the service is behind the other one
    stage.proxies[1].set("stall")


def _slow(stage: Stage) -> None:
    for proxy in stage.proxies:
        proxy.set("delay", 0.5)


def _step(ms: int) -> Callable[[Stage], object]:
    return lambda stage: stage.tell(str(ms))


def _ending(seconds: float) -> dict[str, Any]:
    """Return a layout that ends in *seconds*, from the start of this program's moment on."""
    end_ms = int((time.time() + seconds) * 1000)
    return {"layout": f"38/0/2/13/10;epoch_ms={end_ms - (1 << 38)}"}


REFUSED: dict[str, Any] = {"codes": ("no-renewals",), "alerts": ("NoRenewals",), "doctor": "Redis takes no writes"}
AWAY: dict[str, Any] = {"codes": ("redis-unavailable",), "alerts": ("RedisUnavailable",)}
MOMENTS: dict[str, Callable[[], Moment]] = {
    "dead": lambda: Moment(_kill, **AWAY, doctor="nothing else was checked"),
    "hung": lambda: Moment(lambda stage: stage.redis.kill(signal.SIGSTOP), **AWAY, settle_s=12),
    "slow": lambda: Moment(_slow, ("no-renewals", "redis-unavailable", "silent"), settle_s=14),
    "full": lambda: Moment(_config("maxmemory", 1), **REFUSED),
    "read-only": lambda: Moment(lambda stage: stage.redis.ask("REPLICAOF", "127.0.0.1", "1"), **REFUSED),
    "no-replicas": lambda: Moment(_config("min-replicas-to-write", 1), **REFUSED),
    "no-rights": lambda: Moment(
        lambda stage: stage.redis.ask("ACL", "SETUSER", "app", "-hset"),
        ("no-renewals",), ("NoRenewals",), doctor="may not",
    ),
    "back-empty": lambda: Moment(_restart, ("floor", "no-outage-lane"), ("PoolMadeAnew",), settle_s=2),
    "failed-over": lambda: Moment(_fail_over, ("floor", "no-outage-lane"), ("RedisChanged",), settle_s=2),
    "half-cut": lambda: Moment(_cut_half, ("silent",), ("WorkersSilent",), settle_s=12),
    "clock+10s": lambda: Moment(_step(10_000), ("without-ids",), ("WorkersWithoutIds",), with_ids=0),
    "clock-10s": lambda: Moment(_step(-10_000), ("clocks",), ("ClockOff",)),
    "clock+1h": lambda: Moment(_step(3_600_000), ("without-ids",), ("WorkersWithoutIds",), with_ids=0),
    "clock-1h": lambda: Moment(_step(-3_600_000), ("clocks",), ("ClockOff",)),
    "layout-ends": lambda: Moment(lambda _: None, ("layout-ends",), ("LayoutEndsSoon",), options=_ending(86_400)),
    "layout-over": lambda: Moment(
        lambda _: time.sleep(35), ("layout-over",), ("LayoutOver",), with_ids=0, options=_ending(45),
    ),
    "pool-full": lambda: Moment(
        lambda stage: stage.add(4), ("full",), ("ClaimsRefused", "PoolFull"),
        options={"layout": "41/0/2/3/17"}, settle_s=14,
    ),
    "other-settings": lambda: Moment(lambda stage: stage.add(6, ttl=5), ("mismatch",), ("OtherSettings",)),
    "killed": lambda: Moment(
        lambda stage: stage.processes[-1].send_signal(signal.SIGKILL),
        ("deaths",), ("WorkerDied",), deaths=True, with_ids=-1,
    ),
    "lane-near-end": lambda: Moment(_kill, **AWAY, options={"outage_reserve": 40}),
    "lane-over": lambda: Moment(
        _kill, **(AWAY | {"alerts": ("RedisUnavailable", "LeaseRunsOut")}), with_ids=0,
        options={"outage_reserve": 6}, settle_s=12,
    ),
}  # fmt: skip


def scaled_rules() -> str:
    """Return docs/alerts.yml, which is written for a ttl of 30 s, with all times shortened as the ttl is."""

    def shorter(time: re.Match[str]) -> str:
        return f"{max(1, round(int(time[1]) * _UNITS_MS[time[2]] * TTL_S / 30))}ms"

    return _TIME.sub(shorter, (ROOT / "docs" / "alerts.yml").read_text("utf-8"))


def play(name: str, moment: Moment, stage: Stage, page: Page, output: Path) -> tuple[list[str], list[str]]:
    """Play *moment*; return the cells of its row, and what is not true."""
    prometheus = Prometheus(stage.directory / "prometheus", stage.port, scaled_rules(), "2s")
    prometheus.start()
    try:
        scraped = "count_over_time(snowredis_pool_up[1m]) > 1"
        eventually(lambda: prometheus.query(scraped), "a scrape", 30, ignored=(OSError,))
        page.go(f"http://127.0.0.1:{stage.port}/")
        at_s = time.time()
        moment.act(stage)
        settled_s = at_s + moment.settle_s
        while time.time() < settled_s:
            time.sleep(0.1)
            # a probe, and what it must not break
            stage.ask("/readyz")
        with_ids = [0, WORKERS]
        if moment.with_ids >= 0:
            stage.made()
            time.sleep(1)
            with_ids = stage.made()
        made = [stage.ask("/id")[0] == 200 for _ in range(10)]
        ready, body = stage.ask("/readyz")
        status = body["pools"][POOL]["status"]
        shown = page.text("#status-headline")
        page.screenshot(output / f"{name}.png")
        texts = {one: stage.command(*one.split(), "--pool", POOL) for one in ("workers", "doctor")}
        (output / f"{name}.txt").write_text("\n".join(texts.values()) + (stage.directory / "service.log").read_text())
        fired: dict[str, float] = {}
        series = prometheus.query('ALERTS{alertstate="firing"}[10m]')
        for first, alert in sorted((float(one["values"][0][0]), one["metric"]["alertname"]) for one in series):
            fired.setdefault(alert.removeprefix("Snowredis"), first - at_s)
    finally:
        prometheus.stop()
    codes = [one["code"] for one in status["conditions"]]
    said = next((line for line in texts["workers"].splitlines() if line.startswith(("status", "snowredis"))), "")
    found = [line.strip() for line in texts["doctor"].splitlines() if line.startswith("error")]
    advice = status["conditions"][0]["advice"] if status["conditions"] else ""
    cells = [
        name,
        f"{with_ids[0]} of {with_ids[1]}",
        f"{sum(made)} of 10",
        str(ready),
        f"{status['level']}: {status['headline']}",
        shown,
        said[:90],
        found[0][:90] if found else "no error",
        ", ".join(f"{alert} {after:.0f} s" for alert, after in fired.items()) or "none",
        advice[:90],
    ]
    checks = {
        "readiness is what /id does": (ready == 200) == (sum(made) >= 5),
        "workers with ids": moment.with_ids < 0 or with_ids[0] == moment.with_ids,
        "the first condition": bool(codes) and codes[0] in moment.codes,
        "the page shows the status": status["headline"].split(";")[0].lower() in shown.lower(),
        "who died": ("deaths" in codes) is moment.deaths,
        "alerts": set(moment.alerts) <= set(fired),
        "no alert of deaths": moment.deaths or not {"WorkerDied", "WorkersDie"} & set(fired),
        "doctor": moment.doctor in " ".join(texts["doctor"].split()),
        "advice": "restart" not in advice or "do not restart" in advice,
    }
    return cells, [check for check, is_true in checks.items() if not is_true]


@contextlib.contextmanager
def staged(directory: Path, **options: Any) -> Iterator[Stage]:
    stage = Stage(directory, **options)
    try:
        stage.start()
        yield stage
    finally:
        stage.stop()


def main() -> int:
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MOMENTS)}")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "bad-moments")
    options = parser.parse_args()
    if PROMETHEUS is None or set(options.names) - set(MOMENTS):
        parser.error("there is no prometheus on PATH, or no such moment")
    options.output.mkdir(parents=True, exist_ok=True)
    rows, wrong = [], 0
    with tempfile.TemporaryDirectory(prefix="snowredis-") as profile, chromium(Path(profile)) as page:
        for name in options.names or MOMENTS:
            moment = MOMENTS[name]()
            with (
                tempfile.TemporaryDirectory(prefix="snowredis-") as directory,
                staged(Path(directory), **moment.options) as stage,
            ):
                cells, untrue = play(name, moment, stage, page, options.output)
                page.go("about:blank")
            rows.append(cells)
            wrong += bool(untrue)
            print(
                f"{name:<15} {'NOT TRUE: ' if untrue else 'true'}{', '.join(untrue)}", *cells[1:], sep=" | ", flush=True
            )
    (options.output / "table.md").write_text(markdown(HEAD, rows, left=len(HEAD)) + "\n")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
