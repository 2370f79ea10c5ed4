#!/usr/bin/env python3
"""Play every bad moment of a fleet, and look at what the dashboard and the terminal show of it.

    scripts/bad_moments.py                              all, into build/bad-moments
    scripts/bad_moments.py killed redis-hung            only these
    scripts/bad_moments.py --output /tmp/moments

Each moment gets a redis-server, 14 workers with a ttl of 6 s, and `snowredis serve` of its own; a headless Chromium
looks at the dashboard. For each there are NAME.png (the page as soon as it reports the moment) and NAME.txt (what
`snowredis workers` and `snowredis pool show` print then); table.md says after how long, counted from the act and from
when it can be known. Exit code 1 if the page needs more than 2 s from then on. Takes about 3 minutes; needs Linux,
Chromium, redis-server and snowredis[web].
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts._bench.page import markdown
from scripts._moments.moments import MOMENTS, Moment, Played
from scripts._moments.stage import Stage, stage, wait_until
from tests.web.chromium import Page, chromium

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "build" / "bad-moments"
# from when it can be known until it is on the page
GOAL_S = 2.0
# a busy machine, and a Redis that hangs, take longer
LIMIT_S = 30.0
COMMANDS = (("workers", "--pool", "orders"), ("pool", "show", "orders"))
HEAD = ("moment", "can be known after", "on the page after", "headline", "first line of `snowredis workers`")


@dataclass(frozen=True)
class Seen:
    """What was to be seen of a moment, and when, in s since 1970."""

    moment: Moment
    played: Played
    seen_s: float
    headline: str
    terminal: str

    @property
    def late_s(self) -> float:
        """How long after it could be known it was on the page."""
        return self.seen_s - self.played.known_s

    def row(self) -> tuple[str, ...]:
        known_s = max(0.0, self.played.known_s - self.played.at_s)
        seen_s = self.seen_s - self.played.at_s
        return self.moment.title, f"{known_s:.1f} s", f"{seen_s:.1f} s", self.headline, f"`{self.terminal}`"


def look_at(moment: Moment, fleet: Stage, page: Page, output: Path) -> Seen:
    """Play *moment* and return what is seen of it; writes its picture and its text."""
    page.go(fleet.dashboard)
    page.wait(f"document.querySelectorAll('.tile').length > {len(fleet.workers)}")
    page.wait("document.querySelector('#status').dataset.level != 'unknown'")
    played = moment.play(fleet)
    page.wait(
        f"document.querySelector('#status').dataset.codes.split(' ').includes('{moment.code}')", LIMIT_S
    )
    seen_s = time.time()
    page.screenshot(output / f"{moment.name}.png")
    headline = page.text("#status-headline")
    wait_until(played.known_s)
    texts = [fleet.command(*command) for command in COMMANDS]
    (output / f"{moment.name}.txt").write_text(
        "\n".join(
            f"$ snowredis {' '.join(command)}\n{text}" for command, text in zip(COMMANDS, texts, strict=True)
        )
    )
    assert page.console == [], page.console
    # before the service ends, so that it is none of the errors of the next page
    page.go("about:blank")
    return Seen(moment, played, seen_s, headline, first_line(texts[0]))


def first_line(text: str) -> str:
    """Return the first line, without the path of the server."""
    return re.sub(r"unix://\S+", "unix://…", text.strip().partition("\n")[0])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MOMENTS)}")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
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
            ):
                seen = look_at(moment, fleet, page, options.output)
            all_seen.append(seen)
            print(f"{name:<14} {seen.late_s:+5.1f} s  {seen.headline}  |  {seen.terminal}", flush=True)
    table = markdown(HEAD, [seen.row() for seen in all_seen], left=len(HEAD))
    (options.output / "table.md").write_text(table + "\n")
    return int(any(seen.late_s > GOAL_S for seen in all_seen))


if __name__ == "__main__":
    sys.exit(main())
