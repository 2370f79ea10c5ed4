"""The dashboard in a real headless Chromium: what a person sees, and what text from Redis cannot do."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import snowredis
from tests.support.pools import new_pool
from tests.support.servers import RedisServer
from tests.web.chromium import PROGRAM, Page, chromium
from tests.web.conftest import ROOT, TOKEN, Serve

pytest.importorskip("uvicorn")
if PROGRAM is None:
    pytest.skip("no chromium or google-chrome on PATH", allow_module_level=True)

WORKER = Path(__file__).parent / "programs" / "worker.py"
EVIL = (
    "<img src=x onerror=window.evil=1>",
    "<script>window.evil=1</script>",
    "'\"><svg onload=window.evil=1>",
    "javascript:window.evil=1",
    "\u202egnp.exe\u0000\u001b[31m",
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with chromium(tmp_path_factory.mktemp("chromium")) as page:
        yield page


@pytest.fixture
def page(browser: Page) -> Iterator[Page]:
    browser.go("about:blank")
    browser.send("Network.clearBrowserCookies")
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
    process = subprocess.Popen(
        [sys.executable, WORKER, url, pool, label],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate(timeout=10)


def test_a_worker_appears_and_one_that_is_killed_goes(
    page: Page, server: RedisServer, pool: str, serve: Serve
) -> None:
    served = serve("--pool", pool, url=server.url)
    page.go(served.url)
    page.wait("document.querySelector('#link').textContent == 'live'")
    page.wait("document.querySelectorAll('.tile').length == 1")
    assert page.text("#f-alive") == "1"
    with worker(server.url, pool, "shop") as (process, _):
        page.wait("document.querySelectorAll('.tile').length == 2")
        assert "shop" in page.text("#rows")
        assert "claimed" in page.text("#events")
        process.send_signal(signal.SIGKILL)
        page.wait("document.querySelectorAll('.tile.s-late, .tile.s-suspect').length > 0")
        page.wait("document.querySelectorAll('.tile.s-gone').length == 1")
        page.wait("document.querySelector('#f-alive').textContent == '1'")
    assert page.console == []
    assert {url for url in page.requested if not url.startswith((served.url, "about:", "data:"))} == set()


def test_an_id_is_decoded_and_its_maker_named(
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
        assert str(an_id) in page.text("#answer")
        page.click("#do-whois")
        page.wait("document.querySelector('#answer .certain') !== null")
        assert "the-maker" in page.text("#answer")
        assert str(process.pid) in page.text("#answer")
        page.fill("#id", "<b>no id</b>")
        page.key("Enter")
        page.wait("document.querySelector('#answer').innerText.includes('is not a valid id')")
        assert page.evaluate("document.querySelectorAll('#answer b').length") == 0
    # that the service refuses what is no id is in the console, and nothing else
    assert all("400 (Bad Request)" in line for line in page.console)


def test_text_from_redis_is_text(page: Page, server: RedisServer, pool: str, serve: Serve) -> None:
    served = serve("--pool", pool, url=server.url)
    with contextlib.ExitStack() as stack:
        ids = [
            stack.enter_context(snowredis.connect(server.url, pool=pool, label=label, ttl=3)).next_id()
            for label in EVIL
        ]
        # hosts are whatever a process says, and it need not be one of ours
        client: Any = server.client()
        key = f"snowredis:{{{pool}}}"
        stack.callback(client.close)
        for field, record in dict(client.hgetall(key)).items():
            if field.startswith("w:"):
                client.hset(
                    key, field, record.replace('"host":"', '"host":"<img src=x onerror=window.evil=2>')
                )
        client.xadd(
            f"{key}:events",
            {"event": "alarm", "worker": "-1", "owner": "{}", "reason": EVIL[0], "at": "1795000000000"},
        )
        client.hset(key, mapping={"alarms": 1, "alarm": EVIL[1]})
        page.go(served.url)
        page.wait(f"document.querySelectorAll('.tile').length == {len(EVIL) + 1}")
        page.wait("document.querySelector('#events').innerText.includes('alarm')")
        for an_id in ids:
            page.fill("#id", str(an_id))
            page.click("#do-whois")
            page.wait(f"document.querySelector('#answer').innerText.includes('{an_id}')")
        page.fill("#filter", "<img")
        seen = page.text("body")
        assert EVIL[0] in seen
        assert "<img src=x onerror=window.evil=2>" in seen
        assert EVIL[1] in page.text("#state")
        assert page.evaluate("window.evil === undefined")
        assert (
            page.evaluate("document.querySelectorAll('main img, main script, #grid svg, td svg').length") == 0
        )
        # not even tried
        assert [line for line in page.console if "Content Security" in line] == []


def test_it_can_be_worked_by_keyboard(page: Page, server: RedisServer, pool: str, serve: Serve) -> None:
    served = serve("--pool", pool, url=server.url)
    with contextlib.ExitStack() as stack:
        for label in ("one", "two", "three"):
            stack.enter_context(snowredis.connect(server.url, pool=pool, label=label, ttl=3)).next_id()
        page.go(served.url)
        page.wait("document.querySelectorAll('.tile').length == 4")
        stops = []
        for _ in range(40):
            page.key("Tab")
            stops.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
            if stops[-1].startswith("tile"):
                break
        assert stops[0] == "skip"
        assert [stop for stop in stops if stop in {"pool", "chart", "id", "do-decode", "do-whois"}] == [
            *("pool", "chart", "id", "do-decode", "do-whois"),
        ]
        assert page.evaluate("document.activeElement.matches(':focus-visible')")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        page.key("ArrowRight")
        page.key("ArrowRight")
        page.key("Enter")
        assert page.evaluate("document.activeElement.dataset.worker") == "2"
        page.wait("document.querySelector('tr.picked td').textContent == '2'")
        unnamed = """[...document.querySelectorAll('button, input, select, [role=listbox], [role=img], [tabindex="0"]')]
            .filter(e => !e.closest('[hidden]') && !(e.innerText || e.ariaLabel || e.labels?.length
                || e.getAttribute('aria-labelledby'))).map(e => e.outerHTML)"""
        assert page.evaluate(unnamed) == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_a_phone_and_a_desk_in_light_and_dark(
    page: Page, server: RedisServer, pool: str, serve: Serve, width: int, dark: bool
) -> None:
    served = serve("--pool", pool, url=server.url)
    page.size(width, 844, dark=dark, phone=width < 500)
    page.go(served.url)
    page.wait("document.querySelectorAll('.tile').length == 1")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    back = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number)")
    assert (max(back) < 60) is dark


def test_a_browser_without_the_token_sees_a_form_and_gets_in_by_it(
    page: Page, server: RedisServer, pool: str, serve: Serve, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    served = serve("--pool", pool, "--token-file", str(tmp_path / "token"), url=server.url)
    page.go(served.url)
    page.wait("document.querySelector('#token') !== null")
    page.fill("#token", "wrong-wrong-wrong-wrong")
    page.key("Enter")
    page.wait("document.querySelector('.wrong')?.checkVisibility()")
    page.fill("#token", TOKEN)
    page.key("Enter")
    page.wait("document.querySelectorAll('.tile').length == 1")
    assert page.evaluate("document.cookie") == ""
    page.click("header form button")
    page.wait("document.querySelector('#token') !== null")


def test_it_says_that_redis_is_away_and_goes_on_when_it_is_back(
    page: Page, own_server: RedisServer, pool_name: str, serve: Serve
) -> None:
    new_pool(own_server.url, pool_name)
    served = serve("--pool", pool_name, url=own_server.url)
    page.go(served.url)
    page.wait("document.querySelectorAll('.tile').length == 1")
    own_server.kill()
    page.wait("!document.querySelector('#problem').hidden")
    assert "The data below is out of date" in page.text("#problem")
    own_server.start()
    new_pool(own_server.url, pool_name)
    page.wait("document.querySelector('#problem').hidden")
    page.wait("document.querySelector('#link').textContent == 'live'")


def test_it_comes_back_by_itself_when_the_service_does(
    page: Page, server: RedisServer, pool: str, serve: Serve
) -> None:
    served = serve("--pool", pool, url=server.url)
    page.go(served.url)
    page.wait("document.querySelector('#link').textContent == 'live'")
    served.stop()
    page.wait("document.querySelector('#link').dataset.state == 'problem'")
    serve(
        "--pool",
        pool,
        url=server.url,
        command=["-m", "snowredis", "serve", "--port", str(served.port)],
        ready="",
    )
    page.wait("document.querySelector('#link').textContent == 'live'")
