"""`workers --watch` with a thousand workers: it keeps its place, sorts, filters, pages."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from snowredis.cli import workers
from snowredis.cli.browse import SORTS, Browser
from snowredis.cli.keyboard import split_keys
from snowredis.core.layout import Layout
from snowredis.lease.inspect import PoolInfo, WorkerInfo
from snowredis.lease.model import ClaimRequest, PoolConfig
from snowredis.lease.redis_store import RedisStore
from snowredis.lease.replies import Granted, Seen
from snowredis.lease.scripts import pool_keys

THOUSAND = 1_000


def worker(number: int) -> WorkerInfo:
    rate = number * 7 % 1_000
    host = f"web-{number % 40:02}"
    return WorkerInfo(
        number,
        True,
        host,
        100 + number,
        "orders",
        0,
        0,
        0,
        25_000,
        0,
        rate * 9,
        rate,
        0,
        0,
        0,
        "ab",
        5_000,
        "healthy",
    )


FLEET = [worker(number) for number in range(THOUSAND)]
INFO = PoolInfo(
    "p",
    Layout(),
    "ttl_ms=30000 max_clock_lead_ms=2500",
    10**12,
    0,
    0,
    "",
    1,
    1024,
    1000,
    24,
    1000,
    1,
    0,
    0,
    0,
    0,
    0,
    "",
)


def visible(browser: Browser, fleet: list[WorkerInfo], height: int = 20) -> list[int]:
    shown = browser.chosen(fleet)
    first, after = browser.window(shown, height)
    return [one.worker for one in shown[first:after]]


def press(browser: Browser, *keys: str) -> None:
    for key in keys:
        browser.press(key)


def test_pages_and_ends_are_reached_by_keys() -> None:
    browser = Browser()
    assert visible(browser, FLEET) == list(range(20))
    press(browser, "page down")
    assert visible(browser, FLEET) == list(range(20, 40))
    press(browser, "end")
    assert visible(browser, FLEET) == list(range(980, 1000))
    assert browser.cursor == 999
    press(browser, "page down", "down")
    assert browser.cursor == 999 or visible(browser, FLEET)[-1] == 999
    press(browser, "home", "up")
    assert visible(browser, FLEET) == list(range(20))


def test_the_worker_under_the_cursor_stays_where_it_is_while_others_come_and_go() -> None:
    browser = Browser()
    visible(browser, FLEET)
    press(browser, *["down"] * 30)
    before = visible(browser, FLEET)
    assert browser.cursor == 30
    row = before.index(30)
    # some before it end
    fewer = [one for one in FLEET if one.worker not in range(5, 15)]
    assert visible(browser, fewer).index(30) == row
    assert visible(browser, FLEET).index(30) == row
    # it ends itself: the cursor is on the one in its place
    visible(browser, [one for one in FLEET if one.worker != 30])
    assert browser.cursor == 31
    assert visible(browser, []) == []
    assert visible(browser, FLEET[:3]) == [0, 1, 2]


@pytest.mark.parametrize("name", SORTS)
def test_every_sort_is_stable_and_can_be_reversed(name: str) -> None:
    browser = Browser()
    while browser.sort != name:
        press(browser, "s")
    once = [one.worker for one in browser.chosen(FLEET)]
    assert sorted(once) == list(range(THOUSAND))
    assert once == [one.worker for one in browser.chosen(FLEET[::-1])]
    press(browser, "r")
    again = browser.chosen(FLEET)
    assert [SORTS[name](one) for one in again] == sorted((SORTS[name](one) for one in FLEET), reverse=True)


def test_a_filter_is_typed_kept_and_dropped() -> None:
    browser = Browser()
    press(browser, "/", *"web-07 healthy", "enter", "s")
    found = browser.chosen(FLEET)
    assert len(found) == 25
    assert {one.host for one in found} == {"web-07"}
    assert (browser.typing, browser.sort) == (False, "host")
    press(browser, "escape")
    assert len(browser.chosen(FLEET)) == THOUSAND
    # letters are text while a filter is typed
    press(browser, "/", "q", "backspace", "escape")
    assert (browser.quit, browser.words) == (False, "")
    press(browser, "q")
    assert browser.quit


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 10), (60, 8)])
def test_the_screen_is_filled_and_never_more(width: int, height: int) -> None:
    browser = Browser()
    lines = workers._browse("somewhere", FLEET, INFO, browser, width, height)
    assert len(lines) == height
    assert "of 1,000" in "".join(text for text, _ in lines[-1])
    press(browser, "/", *"nobody")
    text = [
        "".join(part for part, _ in line)
        for line in workers._browse("x", FLEET, INFO, browser, width, height)
    ]
    assert "no worker matches the filter" in "".join(text)
    assert "filter: nobody" in text[-1]


def test_columns_stay_where_they_are_on_every_page() -> None:
    browser = Browser()
    heads = set()
    for _ in range(5):
        lines = workers._browse("x", FLEET, INFO, browser, 120, 30)
        heads.add("".join(text for text, _ in lines[3]))
        press(browser, "page down")
    assert len(heads) == 1


def test_keys_are_what_terminals_send() -> None:
    assert split_keys("\x1b[A\x1b[6~j/ä\x7f\r\x1b") == [
        "up",
        "page down",
        "j",
        "/",
        "ä",
        "backspace",
        "enter",
        "escape",
    ]
    # an unknown sequence is swallowed whole, so that its letters are no keys
    assert split_keys("\x1b[1;5Cq\x1b[15~r\x1bOPx") == ["q", "r", "x"]
    assert split_keys("\x1b[") == []


# --- on a terminal ---------------------------------------------------------------------------------


class Terminal:
    """A process on a pseudo-terminal of 30 rows and 100 columns, and what it drew last."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        import fcntl
        import termios

        self._leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.process = subprocess.Popen(
            command, env=environment, stdin=follower, stdout=follower, stderr=follower, start_new_session=True
        )
        os.close(follower)
        self.seen = ""

    def read_until(self, pattern: str) -> str:
        """Everything that was drawn since the last call, up to a frame that has *pattern*."""
        deadline_s, text = time.monotonic() + 30, ""
        while not re.search(pattern, text):
            assert time.monotonic() < deadline_s, text[-2000:]
            ready, _, _ = select.select([self._leader], [], [], 1)
            if ready:
                text += os.read(self._leader, 1 << 16).decode("utf-8", "replace")
        self.seen += text
        return text

    def send(self, keys: str) -> None:
        os.write(self._leader, keys.encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait(10)
        os.close(self._leader)


@pytest.fixture
def thousand(server_url: str, pool_name: str, client: redis.Redis) -> Iterator[str]:
    """A pool with 1,000 living workers."""
    store = RedisStore(server_url, PoolConfig(name=pool_name))
    now, seen = time.time_ns() // 1_000_000, Seen()
    store.create(now)
    for number in range(THOUSAND):
        owner = json.dumps({"host": f"web-{number % 40:02}", "pid": number, "label": "orders"})
        answer = store.claim(ClaimRequest(f"{number:032x}", now, now, 10**9, owner), seen)
        assert isinstance(answer, Granted)
    store.close()
    yield pool_name
    # the server is shared, and other tests count its pools
    client.delete(*pool_keys(pool_name))


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_a_thousand_workers_are_paged_filtered_and_left(
    thousand: str, command: Callable[..., list[str]], process_environment: dict[str, str]
) -> None:
    pytest.importorskip("rich")
    environment: dict[str, Any] = {**process_environment, "LINES": "30", "COLUMNS": "100"}
    terminal = Terminal(command("workers", "--pool", thousand, "--watch", "0.2"), environment)
    try:
        terminal.read_until("1–25 of 1,000")
        terminal.send("\x1b[6~")
        terminal.read_until("26–50 of 1,000")
        terminal.send("/web-07\r")
        terminal.read_until(r"1–25 of 25 \(1,000\).*filter: web-07|of 25 \(1,000\)")
        # nothing clears the screen between two frames: that would flicker
        frames = terminal.seen.split("\x1b[?1049h")[1]
        assert frames.count("\x1b[2J") <= 1
        terminal.send("q")
        terminal.read_until(re.escape("\x1b[?1049l"))
        assert terminal.process.wait(10) == 0
    finally:
        terminal.close()


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_the_terminal_is_as_it_was_after_ctrl_c(
    thousand: str, command: Callable[..., list[str]], process_environment: dict[str, str]
) -> None:
    pytest.importorskip("rich")
    import termios

    leader, follower = pty.openpty()
    before = termios.tcgetattr(follower)
    process = subprocess.Popen(
        command("workers", "--pool", thousand, "--watch", "0.2"),
        env=process_environment,
        stdin=follower,
        stdout=follower,
        stderr=follower,
        start_new_session=True,
    )
    try:
        seen = b""
        while b"of 1,000" not in seen:
            seen += os.read(leader, 1 << 16)
        assert termios.tcgetattr(follower) != before
        process.send_signal(signal.SIGINT)
        while process.poll() is None:
            if select.select([leader], [], [], 0.1)[0]:
                os.read(leader, 1 << 16)
        assert process.returncode == 130
        assert termios.tcgetattr(follower) == before
    finally:
        process.kill()
        process.wait(10)
        os.close(leader)
        os.close(follower)
