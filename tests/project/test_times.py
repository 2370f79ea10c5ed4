"""Times on pages follow from the settings, such as those of the time line in redis-unavailable.md."""

import re
from pathlib import Path

import pytest

from snowredis.settings import SETTINGS
from snowredis.snowflake.protocol.pool_config import PoolConfig
from tests.support.programs import ROOT

# decisions and the changelog tell what was, the translations follow the English pages
PAGES = [
    path
    for path in (
        ROOT / "README.md",
        *sorted((ROOT / "docs").rglob("*.md")),
        ROOT / "docs/llms.txt",
        ROOT / "docs/alerts.yml",
    )
    if "/zh/" not in str(path) and path.name not in ("changelog.md", "decisions.md")
]
DEFAULT = PoolConfig(name="orders")
# as redis-unavailable.md measures failovers
SENTINEL = [
    PoolConfig(name="orders", ttl_ms=ttl_ms, failover_slack_ms=ttl_ms // 12 + 15_000) for ttl_ms in (30_000, 60_000)
]
HOUR_MS = 3_600_000


def seconds(ms: int) -> str:
    return f"{ms // 1000}"


FLOORS = {seconds(config.floor_ms) for config in (DEFAULT, *SENTINEL)}
# from when Redis is gone: the last heartbeat was up to a heartbeat before
RUNS_OUT = f"{seconds(DEFAULT.ttl_ms - DEFAULT.heartbeat_ms)} to {seconds(DEFAULT.ttl_ms)}"
# a lease is adopted while more than the three is left of it that a floor adds to a ttl
TAKES_LESS = seconds(2 * SENTINEL[0].ttl_ms - SENTINEL[0].floor_ms - SENTINEL[0].heartbeat_ms)
# what a statement looks like -> the values that it can have
STATEMENTS = {
    r"(?:`?LeaseExpired`?|ids end|[Ww]ithout|lane)[^.|]*?(\d+ to \d+) s\b": {RUNS_OUT},
    r"\|\s*(\d+ to \d+) s[^|]*\|\s*its reservation ends": {RUNS_OUT},
    r"\b(?:workers?|ones|process|pool|starts|they|id)\b[^.|]{0,30}\bwaits?(?: once)?(?: for)? (\d+) s\b": FLOORS,
    r"(?<!silent after )(?<!less than )\b(\d+) s(?: after Redis is back)? at the defaults": {seconds(DEFAULT.floor_ms)},
    # as lease_of() of snowredis.monitor.lease
    r"\bsilent after (\d+) s\b": {seconds(2 * DEFAULT.ttl_ms // 3)},
    r"\bfailover should take less than (\d+) s\b": {TAKES_LESS},
    r"\bheartbeats?[^.|]{0,20}\bevery (\d+) s": {seconds(DEFAULT.heartbeat_ms)},
    r"\b(?:outage|reserve)[^.|]{0,60}?\b(\d+) h\b": {f"{DEFAULT.outage_reserve_ms // HOUR_MS}"},
    r"`claim_timeout` \((\d+) s\)": {f"{SETTINGS['claim_timeout'].default:g}"},
    r"default settings \(`ttl` (\d+) s\)": {seconds(DEFAULT.ttl_ms)},
    r"within (\d+) s \| its heartbeat fails": {seconds(DEFAULT.heartbeat_ms)},
}


def sentences(path: Path) -> list[str]:
    """Return the sentences and table rows of a page, without its code blocks."""
    text = re.sub(r"```.*?```", "", path.read_text("utf-8"), flags=re.DOTALL)
    blocks = re.split(r"\n(?:\n|(?=[|#*-]\s?))", text)
    return [" ".join(part.split()) for block in blocks for part in re.split(r"(?<=[.!?])\s", block)]


@pytest.mark.parametrize(("statement", "values"), STATEMENTS.items())
def test_a_time_on_a_page_is_that_of_the_settings(statement: str, values: set[str]) -> None:
    found = [
        (str(path.relative_to(ROOT)), match[1], sentence)
        for path in PAGES
        for sentence in sentences(path)
        for match in re.finditer(statement, sentence)
    ]
    assert found
    assert [each for each in found if each[1] not in values] == []


def test_no_page_says_that_ids_end_soon_after_redis_without_a_word_of_the_outage_lane() -> None:
    """The mistake that pages of before made: ids end with the ordinary reservation."""
    for path in PAGES:
        text = " ".join(sentences(path))
        for match in re.finditer(r"LeaseExpired|stops all workers|ids end\b", text):
            near = text[max(0, match.start() - 150) : match.end() + 150]
            around = text[max(0, match.start() - 500) : match.end() + 300]
            if re.search(r"\b\d+(?: to \d+)? s\b|\bone second\b", near):
                assert re.search(r"\boutage[\s_]+(?:lane|reserve)|\boutage lanes?\b", around), (path.name, around)
