"""`top`: sorting, filtering, scrolling, details, an outage of Redis; and the terminal after it."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import redis

from snowredis.core.layout import Layout
from snowredis.errors import StoreUnavailable
from snowredis.monitor.polling import PoolWatch, Reading
from snowredis.monitor.snapshot import EndedLease, PoolInfo, Snapshot, WorkerInfo
from snowredis.snowflake.protocol import ClaimRequest, PoolConfig, pool_keys
from snowredis.snowflake.redis_store import RedisStore
from snowredis.snowflake.replies import Granted, Seen

pytest.importorskip("textual")

from textual.pilot import Pilot
from textual.widgets import Static

from snowredis.cli import top_view
from snowredis.cli.pool_text import COLUMNS, SORT_KEYS
from snowredis.cli.top_view import TopView, WorkerTable

Cli = Callable[..., Any]
THOUSAND = 1_000


def worker(number: int) -> WorkerInfo:
    rate = number * 7 % 1_000
    return WorkerInfo(
        worker=number, alive=True, host=f"web-{number % 40:02}", pid=100 + number, label="orders", claimed_ms=0,
        renewed_ms=0, lease_end_ms=0, lease_left_ms=25_000, reserved_until_ms=0, ids_made=rate * 9,
        ids_per_second=rate, clock_offset_ms=0, namespace=0, clock_backs=0, token_hash="ab",
        heartbeat_age_ms=5_000, state="healthy",
    )  # fmt: skip


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
    4096,
    1000,
    3096,
    1000,
    1,
    0,
    0,
    0,
    0,
    0,
    "",
)


class FakePool:
    """Source of the view: workers that a test sets, or an error; reading can be blocked."""

    def __init__(self, workers: list[WorkerInfo]) -> None:
        self.workers = workers
        self.error: StoreUnavailable | None = None
        self.asked_for_all = False
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.deaths: tuple[EndedLease, ...] = ()
        watched: Any = self
        self._watch = PoolWatch(watched)
        self.first = self._watch.read()

    def read(self, show_all: bool) -> Reading:
        assert threading.current_thread() is not threading.main_thread()
        self.asked_for_all = show_all
        assert self.may_answer.wait(30)
        return self._watch.read(idle=show_all)

    def snapshot(self, *, idle: bool) -> Snapshot:
        if self.error is not None:
            raise self.error
        return Snapshot(INFO, tuple(self.workers), deaths=self.deaths)


def run(
    scenario: Callable[[Pilot[int], FakePool], Awaitable[None]],
    workers: list[WorkerInfo],
    size: tuple[int, int] = (120, 30),
) -> int | None:
    """Open the view of *workers*, which reads only when Space is pressed, and return its exit code."""

    async def main() -> int | None:
        pool = FakePool(workers)
        view = TopView(
            pool.read,
            "somewhere",
            interval_s=3600,
            show_all=False,
            first=pool.first,
        )
        async with view.run_test(size=size) as pilot:
            await pilot.pause()
            await scenario(pilot, pool)
        return view.return_value

    return asyncio.run(main())


async def read_again(pilot: Pilot[int]) -> None:
    await pilot.press("space")
    await pilot.app.workers.wait_for_complete()
    await pilot.pause()


def numbers(pilot: Pilot[int]) -> list[int]:
    """Worker ids in the order of the table."""
    table = pilot.app.query_one(WorkerTable)
    return [int(table.get_row_at(at)[0].plain) for at in range(table.row_count)]


def text_of(pilot: Pilot[int], query: str) -> str:
    return str(pilot.app.query_one(query, Static).render())


def test_every_column_can_be_sorted_by_and_reversed() -> None:
    fleet = [replace(one, namespace=one.worker % 3, clock_backs=one.worker % 5) for one in FLEET[:12]]

    async def scenario(pilot: Pilot[int], _: FakePool) -> None:
        for column in COLUMNS:
            key = SORT_KEYS[column.title]
            in_order = [one.worker for one in sorted(fleet, key=key)]
            assert f"by {column.title}" in text_of(pilot, "#status")
            assert numbers(pilot) == in_order
            await pilot.press("r")
            assert [key(fleet[at]) for at in numbers(pilot)] == [key(fleet[at]) for at in in_order[::-1]]
            await pilot.press("s")
        await pilot.press("S")
        assert f"by {COLUMNS[-1].title}" in text_of(pilot, "#status")

    run(scenario, fleet)


def test_a_click_on_a_title_sorts_and_a_second_one_reverses() -> None:
    async def scenario(pilot: Pilot[int], _: FakePool) -> None:
        for order in ([2, 1, 0], [0, 1, 2]):
            # the first row of the table is its head; "ids" is the eighth column
            table = pilot.app.query_one(WorkerTable)
            x = sum(table.columns[key].width for key in list(table.columns)[:7]) + 1
            await pilot.click(WorkerTable, offset=(x, 0))
            await pilot.pause()
            assert numbers(pilot) == order

    run(scenario, FLEET[:3])


def test_a_filter_is_typed_kept_and_cleared() -> None:
    async def scenario(pilot: Pilot[int], _: FakePool) -> None:
        await pilot.press("slash", *"web-07 healthy")
        assert numbers(pilot) == list(range(7, 200, 40))
        # letters are commands again, and the filter stays
        await pilot.press("enter", "r")
        assert numbers(pilot) == list(range(167, 0, -40))
        assert "5 of 200 workers" in text_of(pilot, "#status")
        await pilot.press("escape")
        assert len(numbers(pilot)) == 200

    run(scenario, FLEET[:200])


def test_the_worker_under_the_cursor_stays_where_it_is_while_others_come_and_go() -> None:
    async def scenario(pilot: Pilot[int], pool: FakePool) -> None:
        table = pilot.app.query_one(WorkerTable)

        def place() -> tuple[int, float]:
            return numbers(pilot)[table.cursor_row], table.cursor_row - table.scroll_y

        await pilot.press("pagedown", "pagedown", "pagedown", "down")
        await pilot.pause()
        before = place()
        for gone in (range(5, 15), range(0), range(30), range(120, 200)):
            pool.workers = [one for one in FLEET[:200] if one.worker not in gone]
            await read_again(pilot)
            assert place() == before
        pool.workers = []
        await read_again(pilot)
        assert numbers(pilot) == []

    run(scenario, FLEET[:200])


def test_the_first_and_the_last_of_a_thousand_are_reached() -> None:
    async def scenario(pilot: Pilot[int], _: FakePool) -> None:
        table = pilot.app.query_one(WorkerTable)
        await pilot.press("end")
        assert (table.cursor_row, table.scroll_y) == (999, table.max_scroll_y)
        await pilot.press("home", "down")
        assert (table.cursor_row, table.scroll_y) == (1, 0)

    run(scenario, FLEET)


def test_more_workers_than_rows_are_all_sorted_and_filtered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top_view, "MAX_ROWS", 10)

    async def scenario(pilot: Pilot[int], _: FakePool) -> None:
        assert "1,000 workers, the first 10 are shown" in text_of(pilot, "#status")
        await pilot.press("r")
        assert numbers(pilot) == list(range(999, 989, -1))
        await pilot.press("slash", *"web-07")
        assert numbers(pilot) == list(range(967, 567, -40))

    run(scenario, FLEET)


def test_the_table_fits_into_the_width() -> None:
    async def scenario(pilot: Pilot[int], pool: FakePool) -> None:
        table = pilot.app.query_one(WorkerTable)
        for size in ((160, 50), (100, 30), (80, 24)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            assert table.max_scroll_x == 0
            assert ("ns" in table.columns) == (size[0] >= 100)

    run(scenario, [replace(one, label="l" * 100, clock_offset_ms=-9_999) for one in FLEET[:100]])


def test_redis_that_does_not_answer_is_named_and_the_last_state_stays() -> None:
    async def scenario(pilot: Pilot[int], pool: FakePool) -> None:
        assert not pilot.app.query_one("#error").display
        pool.error = StoreUnavailable("here", "\x1b[31m[bold]gone[/bold]")
        await read_again(pilot)
        shown = text_of(pilot, "#error")
        assert re.search(r"^critical: Redis does not answer since \d{4}-\d\d-\d\dT[\d:.]+Z; ", shown)
        assert "critical: Redis does not answer" in text_of(pilot, "#pool")
        assert r"\x1b[31m[bold]gone[/bold]" in shown
        assert len(numbers(pilot)) == 3
        since = shown.partition(";")[0]
        await read_again(pilot)
        assert text_of(pilot, "#error").partition(";")[0] == since
        pool.error, pool.workers = None, FLEET[:2]
        await read_again(pilot)
        assert not pilot.app.query_one("#error").display
        assert numbers(pilot) == [0, 1]

    run(scenario, FLEET[:3])


def test_who_died_is_said_on_top_and_listed() -> None:
    async def scenario(pilot: Pilot[int], pool: FakePool) -> None:
        assert "ok: 3 workers alive" in text_of(pilot, "#pool")
        pool.deaths = tuple(
            EndedLease(10**12 - number, number, "web-\x1b[31m", 1, "[bold]", "expired", 10**12, None, 0, 7)
            for number in range(4)
        )
        pool.workers = FLEET[1:3]
        await pilot.press("enter")
        pilot.app.action_read()  # type: ignore[attr-defined]
        await pilot.app.workers.wait_for_complete()
        await pilot.pause()
        assert "it died" in str(pilot.app.screen.query_one(Static).render())
        # the raw field, 0 where it is not known
        assert "reserved from" not in str(pilot.app.screen.query_one(Static).render())
        await pilot.press("escape")
        assert "critical: 4 died" in text_of(pilot, "#pool")
        assert "critical: 4 workers died in the last hour" in text_of(pilot, "#error")

    run(scenario, FLEET[:3])


def test_keys_work_while_redis_is_read() -> None:
    async def scenario(pilot: Pilot[int], pool: FakePool) -> None:
        pool.may_answer.clear()
        await pilot.press("a", "r")
        assert numbers(pilot) == [2, 1, 0]
        pool.workers = FLEET[:4]
        pool.may_answer.set()
        await pilot.app.workers.wait_for_complete()
        await pilot.pause()
        assert (numbers(pilot), pool.asked_for_all) == ([3, 2, 1, 0], True)

    run(scenario, FLEET[:3])


def test_enter_shows_one_worker_in_full_and_follows_it() -> None:
    async def scenario(pilot: Pilot[int], pool: FakePool) -> None:
        def details() -> str:
            return str(pilot.app.screen.query_one(Static).render())

        await pilot.press("down", "enter")
        assert re.search(r"^process +web-01:101$", details(), re.MULTILINE)
        pool.workers = [FLEET[0], replace(FLEET[1], ids_made=123_456)]
        pilot.app.action_read()  # type: ignore[attr-defined]
        await pilot.app.workers.wait_for_complete()
        await pilot.pause()
        assert re.search(r"^ids +123,456;", details(), re.MULTILINE)
        pool.workers = [FLEET[0]]
        pilot.app.action_read()  # type: ignore[attr-defined]
        await pilot.app.workers.wait_for_complete()
        await pilot.pause()
        assert "not alive any more" in details()
        await pilot.press("escape")
        assert numbers(pilot) == [0]

    run(scenario, FLEET[:3])


def test_hostile_hosts_and_labels_are_text() -> None:
    hostile = [
        "\x1b]0;owned\x07",
        "\x9b2J",
        "\u202egnp",
        "[bold red]x[/]",
        "[link=http://a.example]y[/link]",
        "日" * 30,
    ]
    workers = [replace(FLEET[at], host=text, label=text) for at, text in enumerate(hostile)]

    async def scenario(pilot: Pilot[int], _: FakePool) -> None:
        table = pilot.app.query_one(WorkerTable)
        for at in range(len(hostile)):
            cells = table.get_row_at(at)
            # one style for the whole cell, or none: nothing was read as markup
            assert all(cell.plain.isprintable() and not cell.spans for cell in cells)
        assert "[bold red]x[/]" in table.get_row_at(3)[2].plain
        await pilot.press("end", "up", "up", "up", "up", "up", "enter")
        assert all(line.isprintable() for line in str(pilot.app.screen.query_one(Static).render()).splitlines())
        await pilot.press("escape", "end", "up", "up", "enter")
        assert "[bold red]x[/]" in str(pilot.app.screen.query_one(Static).render())

    run(scenario, workers, (200, 40))


@pytest.mark.parametrize(("key", "code"), [("q", 0), ("ctrl+c", 130)])
def test_it_ends_with_the_exit_code_of_the_command(key: str, code: int) -> None:
    async def scenario(pilot: Pilot[int], _: FakePool) -> None:
        await pilot.press(key)

    assert run(scenario, FLEET[:3]) == code


@pytest.mark.parametrize("before", [["slash", "q"], ["enter"]], ids=["filter", "details"])
def test_ctrl_c_ends_it_whatever_has_the_focus(before: list[str]) -> None:
    async def scenario(pilot: Pilot[int], _: FakePool) -> None:
        await pilot.press(*before, "ctrl+c")

    assert run(scenario, FLEET[:3]) == 130


# --- the command -----------------------------------------------------------------------------------


def test_without_a_terminal_it_says_what_to_use_instead(cli: Cli, pool_name: str) -> None:
    cli("pool", "create", pool_name)
    result = cli("top", "--pool", pool_name)
    assert (result.code, result.out) == (2, "")
    assert "snowredis workers --watch" in result.err


def test_without_textual_it_says_how_to_install_it(offline: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.delitem(sys.modules, "snowredis.cli.top_view")
    monkeypatch.setitem(sys.modules, "textual.app", None)
    result = offline("top")
    assert result.code == 1
    assert "textual is not installed. Install it with: pip install 'snowredis[cli]', or in a checkout: " in result.err


class Terminal:
    """A process on a pseudo-terminal of 30 rows and 100 columns, and what it drew."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        import fcntl

        self._leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.modes_before = termios.tcgetattr(follower)
        self.process = subprocess.Popen(
            command, env=environment, stdin=follower, stdout=follower, stderr=follower, start_new_session=True
        )
        # it stays open here: its modes are looked at after the process ended
        self._follower = follower
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

    def modes(self) -> list[Any]:
        return termios.tcgetattr(self._follower)

    def wait(self) -> int:
        """Return the exit code; what is drawn until then is read, so that the process can end."""
        while self.process.poll() is None:
            if select.select([self._leader], [], [], 0.1)[0]:
                self.seen += os.read(self._leader, 1 << 16).decode("utf-8", "replace")
        return self.process.returncode

    def close(self) -> None:
        self.process.kill()
        self.process.wait(10)
        os.close(self._leader)
        os.close(self._follower)


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
@pytest.mark.parametrize("end", ["ctrl-c", "SIGTERM"])
def test_a_real_terminal_shows_a_thousand_workers_and_is_as_it_was_after_it(
    end: str, thousand: str, command: Callable[..., list[str]], process_environment: dict[str, str]
) -> None:
    terminal = Terminal(command("top", "--pool", thousand, "--interval", "0.2"), process_environment)
    try:
        terminal.read_until("1,000 of 1,024 worker ids leased")
        terminal.read_until("1,000 workers")
        assert terminal.modes() != terminal.modes_before
        if end == "SIGTERM":
            terminal.process.send_signal(signal.SIGTERM)
        else:
            terminal.send("\x03")
        # the screen that was there before, and the cursor
        terminal.read_until(re.escape("\x1b[?1049l"))
        assert terminal.wait() == 130
        assert "\x1b[?25h" in terminal.seen
        assert terminal.modes() == terminal.modes_before
    finally:
        terminal.close()
