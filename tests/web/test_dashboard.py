"""The page in a real headless Chromium: what a person sees, and what text from Redis cannot do."""

import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import snowredis
from snowredis.snowflake.protocol.messages import KILLED, ClaimRequest, Granted, ReleaseRequest, Seen, WorkerStats
from snowredis.snowflake.protocol.open import pool_config
from snowredis.snowflake.protocol.redis_store import RedisStore
from tests.support.pools import new_pool
from tests.support.programs import start
from tests.support.servers import RedisServer
from tests.web.chromium import PROGRAM, Page, chromium
from tests.web.conftest import TOKEN, Serve

pytest.importorskip("uvicorn")
if PROGRAM is None:
    pytest.skip("no chromium or google-chrome on PATH", allow_module_level=True)

CONTRAST = Path(__file__).with_name("contrast.js").read_text()
EVIL = (
    "<img src=x onerror=window.evil=1>",
    "<script>window.evil=1</script>",
    "'\"><svg onload=window.evil=1>",
    "javascript:window.evil=1",
    "\u202egnp.exe\u0000\u001b[31m",
)
EVIL_HOST = "<img src=x onerror=window.evil=2>"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with chromium(tmp_path_factory.mktemp("chromium")) as page:
        yield page


@pytest.fixture
def page(browser: Page) -> Iterator[Page]:
    browser.go("about:blank")
    browser.size(1280, 1000)
    browser.console.clear()
    browser.requested.clear()
    yield browser
    browser.go("about:blank")


@pytest.fixture
def pool(server: RedisServer, pool_name: str) -> str:
    # short, so that what is killed is seen to be gone soon
    new_pool(server.url, pool_name, ttl=3)
    return pool_name


@contextlib.contextmanager
def worker(url: str, pool: str, label: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process with a worker id, and an id that it made."""
    # as one on another machine: nobody here releases its worker id when it is killed
    environment = {**os.environ, "SNOWREDIS_CRASH_RECORDS": "off"}
    process = start("tests.web.programs.worker", url, pool, label, env=environment)
    try:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate(timeout=10)


def tiles_are(page: Page, count: int, state: str = "") -> None:
    page.wait(f"document.querySelectorAll('.tile{state and f'.s-{state}'}').length == {count}")


def test_a_worker_appears_falls_silent_and_is_among_the_dead_for_an_hour(
    page: Page, server: RedisServer, pool: str, serve: Serve
) -> None:
    # without outage lanes a process has no ids any more when its lease has ended
    new_pool(server.url, pool, ttl=3, outage_reserve=0)
    served = serve("--pool", pool, url=server.url)
    page.go(served.url)
    page.wait("document.querySelector('#link').textContent == 'live'")
    tiles_are(page, 1)
    page.wait("document.querySelector('#status').dataset.level == 'ok'")
    # the service is no worker of the fleet
    page.wait("document.querySelector('#f-alive').textContent == '0'")
    assert "1 process of this service" in page.text("#f-alive-note")
    assert "this service" in page.text(".tile.service")
    with worker(server.url, pool, "shop with a long label that nobody may cut") as (process, _):
        tiles_are(page, 2)
        page.wait("document.querySelector('#events').innerText.includes('shop')")
        assert "shop with a long label that nobody may cut" in page.text("#grid")
        process.send_signal(signal.SIGSTOP)
        tiles_are(page, 1, "silent")
        assert "silent for" in page.text(".tile.s-silent")
        assert "undefined" not in page.text("body")
        process.send_signal(signal.SIGKILL)
        tiles_are(page, 1, "expired")
    page.wait("document.querySelector('#ended').checkVisibility()")
    assert "shop" in page.text("#ended-list")
    # it says where and when, with date and zone
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", page.text("#ended-list"))
    page.wait("document.querySelector('#status').dataset.level != 'ok'")
    page.wait("!document.querySelector('#icon').href.includes('icon-ok')")
    assert page.console == []
    assert {url for url in page.requested if not url.startswith((served.url, "about:"))} == set()


def test_an_id_leads_to_its_maker_and_the_maker_has_a_link(
    page: Page, server: RedisServer, pool: str, serve: Serve
) -> None:
    served = serve("--pool", pool, url=server.url)
    with worker(server.url, pool, "the-maker") as (process, an_id):
        page.go(served.url)
        page.wait("document.querySelector('#pool').value != ''")
        page.fill("#id", snowredis.encode(an_id, "base62"))
        page.key("Enter")
        page.wait("document.querySelectorAll('.bits .field').length == 5")
        bits = page.evaluate("[...document.querySelectorAll('.bits b')].map(b => b.textContent).join('')")
        assert int(bits, 2) == an_id
        page.click("#do-whois")
        page.wait("document.querySelector('#answer .said') !== null")
        assert "the-maker" in page.text("#answer")
        assert str(process.pid) in page.text("#answer")
        page.click("#answer .note a")
        page.wait("!document.querySelector('#drawer').hidden")
        page.wait("document.querySelector('#drawer-events').innerText.includes('claimed')")
        assert "the-maker" in page.text("#drawer-facts")
        assert page.evaluate("location.hash") == f"#/pool/{pool}/worker/1"
        assert page.evaluate("document.activeElement.id") == "drawer-title"
        page.key("Escape")
        page.wait("document.querySelector('#drawer').hidden")
        # the link of an id opens a page that looks it up, without naming the pool too
        page.go("about:blank")
        page.go(f"{served.url}/#/id/{an_id}")
        page.wait("document.querySelector('#answer').innerText.includes('the-maker')")
        page.evaluate("location.hash = '#/pool/another/worker/1'")
        page.wait("document.querySelector('#problem').innerText.includes('no pool another')")
        page.fill("#id", "<b>no id</b>")
        page.click("#ask button[type=submit]")
        page.wait("document.querySelector('#answer').innerText.includes('is not a valid id')")
        assert page.evaluate("document.querySelectorAll('#answer b').length") == 0
    # that the service refuses what is no id is in the console, and nothing else
    assert all("400 (Bad Request)" in line for line in page.console)


def test_a_worker_is_found_by_state_and_name_as_tiles_and_in_a_table_but_not_in_both(
    page: Page, server: RedisServer, pool: str, serve: Serve
) -> None:
    served = serve("--pool", pool, url=server.url)
    with contextlib.ExitStack() as stack:
        for label in ("web", "web", "mail"):
            stack.enter_context(snowredis.connect(server.url, pool=pool, label=label, ttl=3)).next_id()
        page.go(served.url)
        tiles_are(page, 4)
        page.fill("#filter", "web")
        tiles_are(page, 2)
        assert not page.evaluate("document.querySelector('#table').checkVisibility()")
        page.click("#as-table")
        page.wait("document.querySelectorAll('#rows tr').length == 2")
        assert not page.evaluate("document.querySelector('#grid').checkVisibility()")
        page.fill("#filter", "nobody")
        page.wait("document.querySelector('#empty').checkVisibility()")
        assert page.text("#empty") == "No worker matches."
        page.fill("#filter", " ")
        page.wait("document.querySelectorAll('#rows tr').length == 4")
        for order in ("ascending", "descending"):
            page.click("th[data-key=label] button")
            assert page.evaluate("document.querySelector('th[data-key=label]').ariaSort") == order
        assert page.text("#rows td.name") == "web"
        page.click(".chip[data-state=alive]")
        page.wait("document.querySelector('.chip[data-state=alive]').ariaPressed == 'true'")
        page.wait("document.querySelector('#chart-note').textContent.startsWith('now ')")
    assert page.console == []


def test_of_more_workers_than_a_page_can_show_the_first_are_shown_and_others_are_found(
    page: Page, server: RedisServer, pool_name: str, serve: Serve
) -> None:
    new_pool(server.url, pool_name, layout="41/0/2/11/9", ttl=600)
    with contextlib.closing(snowredis.WorkerPool(server.url, pool_name)) as monitor:
        store = RedisStore(server.url, pool_config({"pool": pool_name} | monitor.info().options))
    for number in range(1130):
        now_ms = time.time_ns() // 1_000_000
        owner, token = json.dumps({"host": "h", "pid": number + 1, "label": f"w-{number}."}), f"{number:032x}"
        granted = store.ask(ClaimRequest(Seen(), now_ms, token, owner))
        assert isinstance(granted, Granted)
        if number >= 1100:
            store.ask(ReleaseRequest(granted.seen, now_ms, token, granted.terms, "", KILLED, WorkerStats(7)))
    served = serve("--pool", pool_name, url=server.url)
    page.go(served.url)
    page.wait("document.querySelector('#shown').textContent.startsWith('931 workers more')")
    tiles_are(page, 200)
    assert page.text("#f-alive") == "1,100"
    # whatever is wrong is shown first, and counted as the status counts it
    tiles_are(page, 30, "died")
    assert "30 died in the last hour" in page.text("#status-headline")
    assert page.text("#ended-title").endswith(": 30 died")
    chips = [page.text(f".chip[data-state={state}] b") for state in ("alive", "died")]
    assert chips == ["1,101", "30"]
    page.fill("#filter", "w-1077.")
    tiles_are(page, 1)
    page.wait("document.querySelector('.tile').textContent.includes('w-1077.')")


def test_text_from_redis_is_text(page: Page, server: RedisServer, pool: str, serve: Serve) -> None:
    served = serve("--pool", pool, url=server.url)
    with contextlib.ExitStack() as stack:
        ids = [
            stack.enter_context(snowredis.connect(server.url, pool=pool, label=label, ttl=3)).next_id()
            for label in EVIL
        ]
        # hosts are whatever a process says, and it need not be one of ours
        now_ms = time.time_ns() // 1_000_000
        owner = json.dumps({"host": EVIL_HOST, "pid": 1, "label": EVIL[2]})
        with contextlib.closing(snowredis.WorkerPool(server.url, pool)) as monitor:
            config = pool_config({"pool": pool} | monitor.info().options)
        reply = RedisStore(server.url, config).ask(ClaimRequest(Seen(), now_ms, "f" * 32, owner))
        assert isinstance(reply, Granted)
        client: Any = server.client()
        stack.callback(client.close)
        fields = {"event": "alarm", "worker": "-1", "owner": "{}", "reason": EVIL[0], "at": "1795000000000"}
        client.xadd(f"snowredis:{{{pool}}}:events", fields)
        page.go(f"{served.url}/#/pool/{pool}/worker/1")
        page.wait(f"document.querySelectorAll('.tile').length > {len(EVIL)}")
        page.wait("document.querySelector('#events').innerText.includes('alarm')")
        for an_id in ids:
            page.fill("#id", str(an_id))
            page.click("#do-whois")
            page.wait(f"document.querySelector('#answer').innerText.includes('{an_id}')")
        page.click("#as-table")
        for text in (*EVIL[:4], EVIL_HOST):
            page.wait(f"document.body.innerText.includes({json.dumps(text)})")
        assert page.evaluate("window.evil === undefined")
        assert page.evaluate("document.querySelectorAll('main img, main script, #grid svg, td svg').length") == 0
        # nothing was even tried
        assert [line for line in page.console if "Content Security" in line] == []


def test_it_can_be_worked_by_keyboard(page: Page, server: RedisServer, pool: str, serve: Serve) -> None:
    served = serve("--pool", pool, url=server.url)
    with snowredis.connect(server.url, pool=pool, label="one", ttl=3) as ids:
        ids.next_id()
        page.go(served.url)
        tiles_are(page, 2)
        stops = []
        for _ in range(40):
            page.key("Tab")
            stops.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
            if stops[-1].startswith("tile"):
                break
        assert stops[0] == "skip"
        assert [stop for stop in stops if stop in {"pool", "filter", "as-table"}] == ["pool", "filter", "as-table"]
        assert page.evaluate("document.activeElement.matches(':focus-visible')")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        page.key("Enter")
        page.wait("document.activeElement.id == 'drawer-title'")
        page.key("Escape")
        page.wait("document.querySelector('#drawer').hidden")
        page.wait("document.activeElement.className.startsWith('tile')")
        unnamed = """[...document.querySelectorAll('button, input, select, [role=img], [tabindex="0"]')]
            .filter(e => !e.closest('[hidden]') && !(e.innerText || e.ariaLabel || e.labels?.length
                || e.getAttribute('aria-labelledby'))).map(e => e.outerHTML)"""
        assert page.evaluate(unnamed) == []


def test_it_fits_a_phone_and_a_desk_and_every_text_can_be_read_in_light_and_dark(
    page: Page, server: RedisServer, pool: str, serve: Serve
) -> None:
    new_pool(server.url, pool, ttl=3, outage_reserve=0)
    served = serve("--pool", pool, url=server.url)
    with worker(server.url, pool, "stopped") as (process, an_id), worker(server.url, pool, "killed") as (other, _):
        page.go(f"{served.url}/#/id/{an_id}")
        tiles_are(page, 3)
        other.send_signal(signal.SIGKILL)
        tiles_are(page, 1, "expired")
        process.send_signal(signal.SIGSTOP)
        tiles_are(page, 1, "silent")
        for width, dark, view in itertools.product((390, 1280), (False, True), ("as-tiles", "as-table")):
            page.size(width, 844, dark=dark, phone=width < 500)
            page.wait(f"innerWidth == {width}")
            page.click(f"#{view}")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            back = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number)")
            assert (max(back) < 60) is dark
            result = page.evaluate(CONTRAST)
            assert result["checked"] > 100
            assert result["found"] == []
        process.send_signal(signal.SIGCONT)


def test_it_says_that_redis_is_away_and_goes_on_when_it_is_back(
    page: Page, own_server: RedisServer, pool_name: str, serve: Serve
) -> None:
    new_pool(own_server.url, pool_name)
    served = serve("--pool", pool_name, url=own_server.url)
    page.go(served.url)
    tiles_are(page, 1)
    page.wait("document.querySelector('#status').dataset.level == 'ok'")
    with page.in_background():
        own_server.kill()
        # the title and the icon are all that is to be seen of a tab in the background
        page.wait("document.title.includes('Redis does not answer')")
    page.wait("document.querySelector('#status').dataset.level == 'warning'")
    assert "the 1 worker that was alive then has ids for about 24.0 h more" in page.text("#status-list")
    # unknown is not 0 and not green
    tiles_are(page, 1, "unknown")
    assert [page.text(f"#f-{name}") for name in ("rate", "alive", "used")] == ["unknown"] * 3
    assert "when it was last known" in page.text("#f-alive-note")
    page.wait("document.querySelector('#chart-note').textContent.startsWith('now unknown')")
    own_server.start()
    new_pool(own_server.url, pool_name)
    page.wait("document.querySelector('#link').textContent == 'live'")
    # two lines with a gap between
    page.wait("document.querySelectorAll('#chart .area').length == 2")


def test_who_comes_while_redis_is_away_sees_what_was_known_last(
    page: Page, own_server: RedisServer, pool_name: str, serve: Serve
) -> None:
    new_pool(own_server.url, pool_name)
    worker = snowredis.connect(own_server.url, pool=pool_name)
    worker.claim()
    served = serve("--pool", pool_name, url=own_server.url)
    page.go(served.url)
    tiles_are(page, 2)
    while page.text("#f-rate") == "0":
        worker.next_ids(1_000)
        worker._beat()
    own_server.kill()
    page.wait("document.querySelector('#status').dataset.level == 'warning'")
    page.go(served.url)
    tiles_are(page, 2, "unknown")
    assert re.fullmatch("[1-9].*, when it was last known", page.text("#f-rate-note"))
    worker.close()


def test_it_comes_back_by_itself_when_the_service_does(
    page: Page, server: RedisServer, pool: str, serve: Serve
) -> None:
    served = serve("--pool", pool, url=server.url)
    page.go(served.url)
    page.wait("document.querySelector('#link').textContent == 'live'")
    served.stop()
    page.wait("document.querySelector('#link').dataset.state == 'problem'")
    page.wait("document.querySelector('#status').dataset.level == 'unknown'")
    assert "the service does not respond" in page.evaluate("document.title")
    serve("--pool", pool, url=server.url, command=["-m", "snowredis", "serve", "--port", str(served.port)], ready="")
    page.wait("document.querySelector('#link').textContent == 'live'")


def test_a_browser_sends_the_token_as_a_password(
    page: Page, server: RedisServer, pool: str, serve: Serve, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    served = serve("--pool", pool, "--token-file", str(tmp_path / "token"), url=server.url)
    page.go(f"http://any:{TOKEN}@127.0.0.1:{served.port}/")
    page.wait("document.querySelector('#link')?.textContent == 'live'")
    tiles_are(page, 1)
    assert page.evaluate("document.cookie") == ""
