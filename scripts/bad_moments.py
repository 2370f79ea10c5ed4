#!/usr/bin/env python3
"""Play every bad moment of a fleet, and look at what the dashboard and the terminal show of it.

    scripts/bad_moments.py                              all, into build/bad-moments
    scripts/bad_moments.py killed redis-hung            only these
    scripts/bad_moments.py --output /tmp/moments
    scripts/bad_moments.py --prometheus                 also which alerts fire when, in a real Prometheus

Each moment gets a redis-server, 14 workers with a ttl of 6 s, and `snowredis serve` of its own; a headless Chromium
looks at the dashboard. For each there are NAME.png (the page as soon as it reports the moment) and NAME.txt (what
`snowredis workers` and `snowredis pool show` print then); table.md says after how long, counted from the act and from
when it can be known. Exit code 1 if the page needs more than 2 s from then on. Takes about 3 minutes; needs Linux,
Chromium, redis-server and snowredis[web].

With --prometheus, a real one scrapes the service every 2 s and evaluates docs/alerts.yml every second, with its times
shortened as the ttl is. Takes about 8 minutes, and needs prometheus and snowredis[prometheus], too. The table of
docs/how-to/monitoring.md is alerts.md of such a run.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts._bench.tables import markdown
from scripts._moments.moments import MOMENTS, Moment, Played
from scripts._moments.prometheus import Alerts
from scripts._moments.stage import Stage, stage, wait_until
from tests.web.chromium import Page, chromium

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "build" / "bad-moments"
# from when it can be known until it is on the page
GOAL_S = 2.0
# a busy machine, and a Redis that hangs, take longer
LIMIT_S = 30.0
# from a moment until no other alert is to fire: the longest "for" of one of them is a minute at a ttl of 30 s
ALERTS_TTLS = 5
COMMANDS = (("workers", "--pool", "orders"), ("pool", "show", "orders"))
HEAD = ("moment", "can be known after", "on the page after", "headline", "first line of `snowredis workers`")
ALERTS_HEAD = "alerts, fired after"


@dataclass(frozen=True)
class Seen:
    """Result of one moment: what was visible, and when, in s since 1970."""

    moment: Moment
    played: Played
    seen_s: float
    headline: str
    terminal: str
    alerts: dict[str, float] | None = None

    @property
    def late_s(self) -> float:
        """Delay between the moment when it could be known and when it was on the page, in s."""
        return self.seen_s - self.played.known_s

    def row(self) -> tuple[str, ...]:
        known_s = max(0.0, self.played.known_s - self.played.at_s)
        seen_s = self.seen_s - self.played.at_s
        row = (self.moment.title, f"{known_s:.1f} s", f"{seen_s:.1f} s", self.headline, f"`{self.terminal}`")
        return row if self.alerts is None else (*row, self.fired)

    @property
    def fired(self) -> str:
        """The alerts, each with the time from the act to its firing."""
        fired = (
            f"{name.removeprefix('Snowredis')} {at_s - self.played.at_s:.0f} s"
            for name, at_s in (self.alerts or {}).items()
        )
        return ", ".join(fired) or "none"


def look_at(moment: Moment, fleet: Stage, page: Page, output: Path, alerts: Alerts | None = None) -> Seen:
    """Play *moment* and return what is seen of it; writes its picture and its text."""
    page.go(fleet.dashboard)
    page.wait(f"document.querySelectorAll('.tile').length > {len(fleet.workers)}")
    page.wait("document.querySelector('#status').dataset.level != 'unknown'")
    if alerts is not None:
        alerts.start()
    played = moment.play(fleet)
    page.wait(f"document.querySelector('#status').dataset.codes.split(' ').includes('{moment.code}')", LIMIT_S)
    page.wait(f"document.querySelectorAll('.tile.s-dead').length >= {moment.deaths}", LIMIT_S)
    seen_s = time.time()
    page.screenshot(output / f"{moment.name}.png")
    headline = page.text("#status-headline")
    wait_until(played.known_s)
    texts = [fleet.command(*command) for command in COMMANDS]
    (output / f"{moment.name}.txt").write_text(
        "\n".join(f"$ snowredis {' '.join(command)}\n{text}" for command, text in zip(COMMANDS, texts, strict=True))
    )
    assert page.console == [], page.console
    # before the service ends, so that it is none of the errors of the next page
    page.go("about:blank")
    fired = None
    if alerts is not None:
        wait_until(played.known_s + ALERTS_TTLS * fleet.ttl_s)
        fired = alerts.fired()
    return Seen(moment, played, seen_s, headline, first_line(texts[0]), fired)


@contextlib.contextmanager
def watched(fleet: Stage, wanted: bool) -> Iterator[Alerts | None]:
    """Yield a Prometheus that is not started yet, if one is *wanted*, and stop it."""
    if not wanted:
        yield None
        return
    alerts = Alerts(fleet.directory / "prometheus", fleet.port, fleet.ttl_s)
    try:
        yield alerts
    finally:
        alerts.stop()


def first_line(text: str) -> str:
    """Return the first line, without the path of the server."""
    return re.sub(r"unix://\S+", "unix://…", text.strip().partition("\n")[0])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MOMENTS)}")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--prometheus", action="store_true", help="also record which alerts fire when")
    options = parser.parse_args()
    if options.prometheus and not Alerts.available():
        parser.error("there is no prometheus on PATH; on Debian: apt-get install prometheus")
    if unknown := set(options.names) - set(MOMENTS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(MOMENTS)}")
    options.output.mkdir(parents=True, exist_ok=True)
    all_seen: list[Seen] = []
    with tempfile.TemporaryDirectory(prefix="snowredis-") as profile, chromium(Path(profile)) as page:
        page.size(1280, 900)
        for name in options.names or MOMENTS:
            moment = MOMENTS[name]
            with (
                tempfile.TemporaryDirectory(prefix="snowredis-") as directory,
                stage(Path(directory), **moment.stage) as fleet,
                watched(fleet, options.prometheus) as alerts,
            ):
                seen = look_at(moment, fleet, page, options.output, alerts)
            all_seen.append(seen)
            print(f"{name:<14} {seen.late_s:+5.1f} s  {seen.headline}  |  {seen.terminal}", flush=True)
            if seen.alerts is not None:
                print(f"{'':<14} {seen.fired}", flush=True)
    head = (*HEAD, ALERTS_HEAD) if options.prometheus else HEAD
    table = markdown(head, [seen.row() for seen in all_seen], left=len(head))
    (options.output / "table.md").write_text(table + "\n")
    if options.prometheus:
        rows = [(*seen.row()[:4], seen.fired) for seen in all_seen]
        table = markdown((*HEAD[:4], ALERTS_HEAD), rows, left=len(HEAD))
        (options.output / "alerts.md").write_text(table + "\n")
    return int(any(seen.late_s > GOAL_S for seen in all_seen))


if __name__ == "__main__":
    sys.exit(main())
