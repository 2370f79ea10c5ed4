#!/usr/bin/env python3
"""Play every bad moment of a fleet, and compare what each view says of it with what the processes do.

    scripts/bad_moments.py                              all, into build/bad-moments
    scripts/bad_moments.py full half-cut                only these

Each moment gets a redis-server, six workers with a ttl of 3 s and `snowredis serve` of its own. A Prometheus evaluates
docs/alerts.yml, with its times shortened as the ttl is, and a headless Chromium looks at the dashboard. table.md has
what each view says; NAME.txt the terminal and the logs, NAME.png the page. Exit code 1 if a view is not true: readiness
and ids, the page and the status, who died, the condition, its alert and its advice, and the words of the page, of
`workers`, `events`, `doctor` and the log. Takes about 25 minutes; needs Linux, Chromium, redis-server, prometheus and
snowredis[web,prometheus].
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import logging
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import prometheus_client  # noqa: E402

import snowredis  # noqa: E402
from scripts._bench.tables import markdown  # noqa: E402
from snowredis.cli.fleet import StepClock  # noqa: E402
from snowredis.integrations import prometheus  # noqa: E402
from snowredis.integrations.claims import claim_within  # noqa: E402
from snowredis.snowflake.lease import requests as lease_manager  # noqa: E402
from snowredis.snowflake.protocol.messages import KILLED, ClaimRequest, Granted, ReleaseRequest, Seen, WorkerStats  # noqa: E402
from snowredis.snowflake.protocol.open import pool_config  # noqa: E402
from snowredis.snowflake.protocol.redis_store import RedisStore  # noqa: E402
from tests.lab.chaos.proxy import Proxy  # noqa: E402
from tests.monitor.moments import EXPECTED, WORKERS, Expected  # noqa: E402
from tests.support.ha import Node  # noqa: E402
from tests.support.pools import new_pool  # noqa: E402
from tests.support.ports import free_port  # noqa: E402
from tests.support.prometheus import PROMETHEUS, Prometheus  # noqa: E402
from tests.support.waiting import becomes_true, eventually  # noqa: E402
from tests.web.chromium import Page, chromium  # noqa: E402

TTL_S, POOL = 3.0, "orders"
# user of the fleet and its views, as options of a server
USER = ("--user", "app", "on", ">secret", "~*", "+@all")
# a busy machine starts the fleet and its service within this
START_S = 180.0
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
    logging.basicConfig(level=logging.INFO, format=f"{os.getpid()} %(levelname)s %(message)s")
    os.set_blocking(0, False)
    clock, made, refused, buffer = StepClock(), 0, 0, b""
    options, extra = json.loads(os.environ["POOL_OPTIONS"]), json.loads(os.environ["WORKER"])
    if version := extra.get("version"):
        vars(lease_manager)["VERSION"] = version
    options = {"claim_timeout": 0.5, "label": extra.get("label", "")} | options
    all_ids = [snowredis.connect(url, pool=POOL, clock=clock, **options) for _ in range(extra.get("generators", 1))]
    if port := extra.get("metrics"):
        prometheus.register()
        prometheus_client.start_http_server(port, "127.0.0.1")
    claim_within(1.0, all_ids)
    while True:
        try:
            for ids in all_ids:
                ids.next_id()
            made += 1
        except snowredis.SnowredisError:
            refused += 1
        time.sleep(0.02)
        part = os.read(0, 1000) if _readable() else None
        if part == b"":
            for ids in all_ids:
                ids.close()
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
        self.records = directory / "records"
        self.records.mkdir(0o700)
        self.environment = os.environ | {"SNOWREDIS_CRASH_RECORDS": str(self.records)}
        self.standby: Node | None = None
        self.redis = Node(directory / "redis", *USER, "--unixsocket", str(directory / "redis.sock"))
        self.link, self.proxies = directory / "link.sock", [Proxy(directory / "link.sock") for _ in range(2)]
        self.processes: list[subprocess.Popen[str]] = []
        # the ports of the service, and of a worker that exports metrics
        self.port, self.metrics_port = free_port(), free_port()
        self.service: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.redis.start()
        self.point_to(self.directory / "redis.sock")
        for proxy in self.proxies:
            proxy.start()
        new_pool(self.redis.url, POOL, **self.options)
        self.add(WORKERS)
        environment = self.environment | {"SNOWREDIS_URL": self.url(0)}
        with (self.directory / "service.log").open("wb") as log:
            command = [sys.executable, "-m", "snowredis", "serve", "--port", str(self.port), "--pool", POOL]
            self.service = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=log, stderr=log)
        eventually(lambda: self.ask("/readyz")[0] == 200, "the service", START_S, ignored=(OSError,))
        self.tell("")
        eventually(lambda: self.made() == [WORKERS, WORKERS], "ids of all workers", START_S)
        time.sleep(TTL_S / 2)

    def url(self, number: int) -> str:
        return f"redis://app:secret@127.0.0.1:{self.proxies[number % 2].port}/0"

    def add(self, count: int, url: str = "", extra: dict[str, Any] | None = None, **options: Any) -> None:
        """Start *count* workers. *extra*: what else they are told, see worker()."""
        given = {"POOL_OPTIONS": json.dumps(self.options | options, default=str), "WORKER": json.dumps(extra or {})}
        for _ in range(count):
            command = [sys.executable, str(Path(__file__)), "--worker", url or self.url(len(self.processes))]
            with (self.directory / "workers.log").open("ab") as log:
                process = subprocess.Popen(
                    command,
                    env=self.environment | given,
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

    def report(self) -> dict[str, Any] | None:
        code, found = self.ask(f"/workers?pool={POOL}")
        return found if code == 200 else None

    def command(self, *arguments: str) -> str:
        environment = self.environment | {"SNOWREDIS_URL": self.url(0), "COLUMNS": "200"}
        done = subprocess.run(
            [sys.executable, "-m", "snowredis", *arguments], check=False, cwd=ROOT, env=environment,
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        return done.stdout + done.stderr

    def wait_for_leases(self, count: int) -> None:
        with contextlib.closing(snowredis.WorkerPool(self.redis.url, POOL)) as pool:
            eventually(lambda: pool.info().used == count, f"{count} leases", START_S)

    def end(self, number: int) -> None:
        """Let a worker end in order: its stdin ends, and it releases."""
        process = self.processes[number]
        assert process.stdin is not None
        process.stdin.close()
        process.wait(20)

    def stop(self) -> None:
        started: list[subprocess.Popen[Any]] = [*self.processes, *([self.service] if self.service else [])]
        for process in started:
            process.kill()
            process.wait(10)
        for node in (self.redis, self.standby):
            if node is not None:
                node.kill()


class Moment(NamedTuple):
    """Event of a moment, and the settings of its pool. tests/monitor/moments.py has what is true then."""

    act: Callable[[Stage], object]
    options: Mapping[str, Any] = MappingProxyType({})


def _config(name: str, value: int) -> Callable[[Stage], object]:
    return lambda stage: stage.redis.ask("CONFIG", "SET", name, value)


def _kill(stage: Stage) -> None:
    stage.redis.kill()


def _restart(stage: Stage) -> None:
    """Let Redis be away for longer than a ttl, and come back empty."""
    stage.redis.kill()
    time.sleep(1.5 * stage.options["ttl"])
    (stage.directory / "redis.sock").unlink(missing_ok=True)
    stage.redis.start()


def _lose(stage: Stage) -> None:
    """Restart Redis empty; each process hears that it has lost its lease before anybody looks."""
    _restart(stage)
    with contextlib.closing(snowredis.WorkerPool(stage.redis.url, POOL)) as pool:
        heard = lambda: pool.info().lost == WORKERS + 1  # noqa: E731
        eventually(heard, "lost leases", START_S, ignored=(snowredis.SnowredisError,))


def _fail_over(stage: Stage) -> None:
    stage.standby = Node(stage.directory / "standby", *USER, "--unixsocket", str(stage.directory / "standby.sock"),
                         "--replicaof", "127.0.0.1", str(stage.redis.port))  # fmt: skip
    standby = stage.standby
    standby.start()
    eventually(lambda: standby.info("replication").get("master_link_status") == "up", "a replica", 30)
    stage.redis.kill()
    standby.ask("REPLICAOF", "NO", "ONE")
    stage.point_to(stage.directory / "standby.sock")


def _cut_half(stage: Stage) -> None:
    # the service is behind the other one
    stage.proxies[1].set("stall")


def _slow(delay_s: float) -> Callable[[Stage], object]:
    def slow(stage: Stage) -> None:
        for proxy in stage.proxies:
            proxy.set("delay", delay_s)

    return slow


def _one_more(stage: Stage) -> None:
    """Start a worker while Redis is away: an autoscaler, or TTIN."""
    stage.redis.kill()
    stage.add(1)


def _never_claims(stage: Stage) -> None:
    stage.add(1, url=f"redis://app:wrong@127.0.0.1:{stage.redis.port}/0", extra={"metrics": stage.metrics_port})


def _roll(stage: Stage) -> None:
    """Start one worker more than there are worker ids; an old one ends while it waits."""
    stage.add(1)
    stage.wait_for_leases(WORKERS + 2)
    stage.add(1, extra={"metrics": stage.metrics_port}, claim_timeout=60)
    log = stage.directory / "workers.log"
    eventually(lambda: "waiting for a worker id" in log.read_text(), "a wait", START_S)
    stage.end(WORKERS)
    stage.wait_for_leases(WORKERS + 2)


def _kill_one_of_three(stage: Stage) -> None:
    """Kill a process that has three generators, and so three worker ids."""
    stage.add(1, extra={"generators": 3})
    stage.wait_for_leases(WORKERS + 4)
    # a claim that was never renewed counts as one whose reply was lost
    time.sleep(TTL_S)
    stage.processes[-1].kill()


def _first_replica(stage: Stage) -> None:
    stage.standby = Node(stage.directory / "standby", "--replicaof", "127.0.0.1", str(stage.redis.port))
    stage.standby.start()


def _memory(stage: Stage) -> None:
    # 2 % of it are more than the connections of the views take
    stage.redis.ask("SET", "other", "x" * 64_000_000)
    used = stage.redis.info("memory")["used_memory"]
    stage.redis.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
    stage.redis.ask("CONFIG", "SET", "maxmemory", used * 100 // 98)


def _rotate(stage: Stage) -> None:
    """Rotate the password of the fleet, whose connections break."""
    stage.redis.ask("ACL", "SETUSER", "app", "resetpass", ">other")
    stage.redis.ask("CLIENT", "KILL", "USER", "app")


def _many_deaths(stage: Stage) -> None:
    """Let a thousand processes of other hosts die, which their neighbors see."""
    store = RedisStore(stage.redis.url, pool_config({"pool": POOL} | stage.options))
    seen = Seen()
    for number in range(1_000):
        now_ms = time.time_ns() // 1_000_000
        token, owner = f"{number:032x}", json.dumps({"host": f"web-{number % 50}", "pid": number + 1, "label": "api"})
        granted = store.ask(ClaimRequest(seen, now_ms, token, owner))
        assert isinstance(granted, Granted), granted
        store.ask(ReleaseRequest(granted.seen, now_ms, token, granted.terms, "", KILLED, WorkerStats(7)))
    store.close()


def _crash_loop(stage: Stage) -> None:
    for _ in range(3):
        stage.add(1)
        stage.wait_for_leases(WORKERS + 2)
        time.sleep(TTL_S / 2)
        stage.processes[-1].kill()
        stage.wait_for_leases(WORKERS + 1)


def _mode(stage: Stage) -> None:
    """Let others into the directory of crash records, as if another user had made it, and start workers."""
    stage.records.chmod(0o755)
    stage.add(2)


def _add_others(count: int, **extra: Any) -> Callable[[Stage], object]:
    def add(stage: Stage) -> None:
        stage.add(count, extra=extra)
        stage.wait_for_leases(WORKERS + 1 + count)

    return add


def _stop_half(stage: Stage) -> None:
    for process in stage.processes[: WORKERS // 2]:
        process.send_signal(signal.SIGSTOP)


def _flap(stage: Stage) -> None:
    for _ in range(8):
        for proxy in stage.proxies:
            proxy.cut()
        time.sleep(0.5)


def _step(ms: int) -> Callable[[Stage], object]:
    return lambda stage: stage.tell(str(ms))


def _ending(seconds: float) -> dict[str, Any]:
    """Return a layout that ends in *seconds*, from the start of this program's moment on."""
    end_ms = int((time.time() + seconds) * 1000)
    return {"layout": f"38/0/2/13/10;epoch_ms={end_ms - (1 << 38)}"}


def _nothing(_stage: Stage) -> None:
    pass


def _batch_job(stage: Stage) -> None:
    """Run an ordinary batch job: at the end of `with Pool(4)`, its children are ended by their parent."""
    script = (
        "import multiprocessing, snowredis\nsnowredis.preload()\n"
        "def f(n): return len(snowredis.next_ids(n))\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('fork').Pool(4) as pool: pool.map(f, [500] * 40)\n"
        "    snowredis.next_id()\n"
    )
    path = stage.directory / "job.py"
    path.write_text(script)
    environment = stage.environment | {"SNOWREDIS_URL": stage.url(0), "SNOWREDIS_POOL": POOL, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, str(path)], env=environment | {"SNOWREDIS_TTL": str(TTL_S)}, check=True, timeout=60)


_SMALL = {"layout": "41/0/2/3/17"}
MOMENTS: dict[str, Callable[[], Moment]] = {
    "dead": lambda: Moment(_kill),
    "hung": lambda: Moment(lambda stage: stage.redis.kill(signal.SIGSTOP)),
    "slow": lambda: Moment(_slow(0.5)),
    "full": lambda: Moment(_config("maxmemory", 1)),
    "read-only": lambda: Moment(lambda stage: stage.redis.ask("REPLICAOF", "127.0.0.1", "1")),
    "no-replicas": lambda: Moment(_config("min-replicas-to-write", 1)),
    "no-rights": lambda: Moment(lambda stage: stage.redis.ask("ACL", "SETUSER", "app", "-hset")),
    "back-empty": lambda: Moment(_restart),
    "failed-over": lambda: Moment(_fail_over),
    "half-cut": lambda: Moment(_cut_half),
    "clock+10s": lambda: Moment(_step(10_000)),
    "clock-10s": lambda: Moment(_step(-10_000)),
    "clock+1h": lambda: Moment(_step(3_600_000)),
    "clock-1h": lambda: Moment(_step(-3_600_000)),
    "layout-ends": lambda: Moment(_nothing, _ending(86_400)),
    "layout-over": lambda: Moment(lambda _: time.sleep(35), _ending(45)),
    "pool-full": lambda: Moment(lambda stage: stage.add(4), _SMALL),
    "other-settings": lambda: Moment(lambda stage: stage.add(6, ttl=5)),
    "killed": lambda: Moment(lambda stage: stage.processes[-1].send_signal(signal.SIGKILL)),
    "with-pool": lambda: Moment(_batch_job),
    "lane-near-end": lambda: Moment(_kill, {"outage_reserve": 40}),
    "lane-over": lambda: Moment(_kill, {"outage_reserve": 6}),
    "start-away": lambda: Moment(_one_more),
    "start-full": lambda: Moment(lambda stage: stage.add(3), _SMALL),
    "never-claims": lambda: Moment(_never_claims),
    "rolling": lambda: Moment(_roll, _SMALL),
    "hung-worker": lambda: Moment(lambda stage: stage.processes[-1].send_signal(signal.SIGSTOP), {"outage_reserve": 0}),
    "three-generators": lambda: Moment(_kill_one_of_three),
    "one-holds-most": lambda: Moment(
        lambda stage: stage.add(1, extra={"generators": 25, "label": "import"}), {"layout": "41/0/2/5/15"}
    ),
    "records-off": lambda: Moment(_mode),
    # no process has ids until the floor has passed: longer than it takes to read the views
    "no-lanes": lambda: Moment(_lose, {"outage_reserve": 0, "ttl": 15}),
    "first-replica": lambda: Moment(_first_replica),
    "may-i": lambda: Moment(_nothing),
    "versions": lambda: Moment(_add_others(6, version="0.0.9")),
    "slow-2s": lambda: Moment(_slow(1.0)),
    "clock+20s": lambda: Moment(_step(20_000)),
    "memory-98": lambda: Moment(_memory),
    "password": lambda: Moment(_rotate),
    "two-environments": lambda: Moment(_add_others(4, label="staging")),
    "pool-deleted": lambda: Moment(lambda stage: stage.command("pool", "delete", POOL, "--yes", "--force")),
    "1000-deaths": lambda: Moment(_many_deaths, {"layout": "41/0/2/11/9"}),
    "crash-loop": lambda: Moment(_crash_loop),
    "flapping": lambda: Moment(_flap),
    "half-stopped": lambda: Moment(_stop_half),
}


def scaled_rules() -> str:
    """Return docs/alerts.yml, which is written for a ttl of 30 s, with all times shortened as the ttl is."""

    def shorter(time: re.Match[str]) -> str:
        return f"{max(1, round(int(time[1]) * _UNITS_MS[time[2]] * TTL_S / 30))}ms"

    return _TIME.sub(shorter, (ROOT / "docs" / "alerts.yml").read_text("utf-8"))


def play(
    name: str, moment: Moment, expected: Expected, stage: Stage, page: Page, output: Path
) -> tuple[list[str], list[str]]:
    """Play *moment*; return the cells of its row, and what is not true."""
    targets = stage.port, stage.metrics_port
    watching = Prometheus(stage.directory / "prometheus", *targets, rules=scaled_rules(), scrape="2s")
    watching.start()
    try:
        scraped = "count_over_time(snowredis_pool_up[1m]) > 1"
        eventually(lambda: watching.query(scraped), "a scrape", 30, ignored=(OSError,))
        page.go(f"http://127.0.0.1:{stage.port}/")
        at_s = time.time()
        moment.act(stage)
        settled_s = time.time() + expected.settle_s
        while time.time() < settled_s:
            time.sleep(0.1)
            # a probe, and what it must not break
            stage.ask("/readyz")
        with_ids = [0, WORKERS]
        if expected.with_ids >= 0:
            stage.made()
            time.sleep(1)
            with_ids = stage.made()
        # at once: where there are none, each waits for two seconds
        with ThreadPoolExecutor(10) as executor:
            made = [code == 200 for code, _ in executor.map(stage.ask, ["/id"] * 10)]
        ready, _ = stage.ask("/readyz")
        # a Redis that is slow answers not each time
        status = eventually(stage.report, "a report", 30)["status"]
        # the page asks every two seconds
        headline = status["headline"].split(";")[0].lower()
        becomes_true(lambda: headline in page.text("#status-headline").lower(), 3)
        shown = page.text("#status-headline")
        page.screenshot(output / f"{name}.png")
        texts = {one: stage.command(one, "--pool", POOL) for one in ("workers", "doctor", "events")}
        # parts that are off the screen are not drawn
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
        time.sleep(1.5)
        texts["page"] = page.text("main")
        logs = [stage.directory / f"{of}.log" for of in ("workers", "service")]
        texts["log"] = "".join(log.read_text() for log in logs)
        (output / f"{name}.txt").write_text("\n".join(f"--- {one}\n{text}" for one, text in texts.items()))
        fired: dict[str, float] = {}
        series = watching.query('ALERTS{alertstate="firing"}[10m]')
        for first, alert in sorted((float(one["values"][0][0]), one["metric"]["alertname"]) for one in series):
            fired.setdefault(alert.removeprefix("Snowredis"), first - at_s)
    finally:
        watching.stop()
    worst = {one["code"] for one in status["conditions"][:1]}
    said = next((line for line in texts["workers"].splitlines() if line.startswith(("status", "snowredis"))), "")
    found = [line.strip() for line in texts["doctor"].splitlines() if line.startswith("critical")]
    advice = status["conditions"][0]["advice"] if status["conditions"] else ""
    cells = [
        name,
        f"{with_ids[0]} of {with_ids[1]}",
        f"{sum(made)} of 10",
        str(ready),
        f"{status['level']}: {status['headline']}",
        shown,
        said[:90],
        found[0][:90] if found else "nothing critical",
        ", ".join(f"{alert} {after:.0f} s" for alert, after in fired.items()) or "none",
        advice[:90],
    ]
    flat = {view: " ".join(text.split()) for view, text in texts.items()}
    checks = {
        "readiness is what /id does": (ready == 200) == (sum(made) >= 5),
        "workers with ids": expected.with_ids < 0 or with_ids[0] == expected.with_ids,
        "the first condition": bool(worst & set(expected.codes)) if expected.codes else status["level"] == "ok",
        "the page shows the status": headline in shown.lower(),
        "who died": (" died in the last hour" in texts["workers"]) is expected.died,
        "alerts": set(expected.alerts) <= set(fired),
        "no alert of deaths": expected.died or "WorkerDied" not in fired,
        "doctor": expected.doctor in " ".join(texts["doctor"].split()),
        "advice": "restart" not in advice or "do not restart" in advice,
        "quiet alerts": not set(expected.quiet) & set(fired),
    }
    for view, wanted in expected.says.items():
        checks |= {f"{view} says {text!r}": text in flat[view] for text in wanted}
    for view, unwanted in expected.never.items():
        checks |= {f"{view} never says {text!r}": text not in flat[view] for text in unwanted}
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
                cells, untrue = play(name, moment, EXPECTED[name], stage, page, options.output)
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
