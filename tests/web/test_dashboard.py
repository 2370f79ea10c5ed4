"""The dashboard in a real headless Chromium: what a person sees, and what text from Redis cannot do."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import snowredis
from snowredis.snowflake.open import pool_config
from snowredis.snowflake.protocol import ClaimRequest
from snowredis.snowflake.record import LeaseRecord
from snowredis.snowflake.redis_store import RedisStore
from snowredis.snowflake.replies import Granted, Seen
from tests.support import warm
from tests.support.pools import new_pool
from tests.support.servers import RedisServer
from tests.web.chromium import PROGRAM, Page, chromium
from tests.web.conftest import ROOT, TOKEN, Serve

pytest.importorskip("uvicorn")
if PROGRAM is None:
    pytest.skip("no chromium or google-chrome on PATH", allow_module_level=True)

WORKER = Path(__file__).parent / "programs" / "worker.py"
CONTRAST = Path(__file__).with_name("contrast.js").read_text()
EVIL = (
    "<img src=x onerror=window.evil=1>",
    "<script>window.evil=1</script>",
    "'\"><svg onload=window.evil=1>",
    "javascript:window.evil=1",
    "\u202egnp.exe\u0000\u001b[31m",
)

EVIL_HOST = "<img src=x onerror=window.evil=2>"

# the shape of its badge; see icon-warning.svg
ICON_OF_WARNING = "M23 13l9.5 18h-19z"


def choose(selector: str, value: str) -> str:
    """Return JavaScript that sets a field as a person does."""
    field = f"document.querySelector({selector!r})"
    return f"{field}.value = {value!r}; {field}.dispatchEvent(new Event('change'))"


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
    process = warm.Popen(
        [sys.executable, WORKER, url, pool, label],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        # as one on another machine: nobody here releases its worker id when it is killed
        env={**os.environ, "SNOWREDIS_CRASH_RECORDS": "off"},
    )
    try:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate(timeout=10)


@contextlib.contextmanager
def proxy(prefix: str, port: int) -> Iterator[int]:
    """Forward what lies below *prefix* to the service on *port*, without the prefix; yield the proxy's port."""

    class Proxy(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not self.path.startswith(f"{prefix}/"):
                # as a proxy that has another page there
                self.send_response(200 if self.path == prefix else 404)
                self.end_headers()
                if self.path == prefix:
                    self.wfile.write((ROOT / "snowredis/web/static/index.html").read_bytes())
                return
            length = int(self.headers.get("content-length", 0))
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            with contextlib.closing(connection), contextlib.suppress(OSError):
                path = self.path.removeprefix(prefix)
                connection.request(self.command, path, self.rfile.read(length), dict(self.headers))
                response = connection.getresponse()
                self.send_response(response.status)
                for name, value in response.getheaders():
                    self.send_header(name, value)
                self.end_headers()
                while part := response.read1():
                    self.wfile.write(part)

        do_POST = do_GET  # noqa: N815 - the name that http.server calls

        def log_message(self, *_args: Any) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield int(server.server_port)
        server.shutdown()


def test_the_page_with_its_form_works_below_a_prefix_of_a_proxy_and_says_what_is_wrong(
    page: Page, server: RedisServer, pool: str, serve: Serve, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    served = serve("--pool", pool, "--token-file", str(tmp_path / "token"), url=server.url)
    with proxy("/ops/ids", served.port) as port:
        page.go(f"http://127.0.0.1:{port}/ops/ids/")
        page.wait("document.querySelector('#token') !== null")
        page.fill("#token", "wrong-wrong-wrong-wrong")
        page.key("Enter")
        page.wait("document.querySelector('.wrong')?.checkVisibility()")
        page.fill("#token", TOKEN)
        page.click("button[type=submit]")
        page.wait("document.querySelector('#link')?.textContent == 'live'")
        assert page.evaluate("location.pathname") == "/ops/ids/"
        assert page.evaluate("document.cookie") == ""
        page.wait("document.querySelectorAll('.tile').length == 1")
        assert page.evaluate("getComputedStyle(document.querySelector('#loading')).display") == "none"
        page.fill("#id", "1")
        page.click("#do-decode")
        page.wait("document.querySelector('.bits') !== null")
        page.click("form[action=logout] button")
        page.wait("document.querySelector('#token') !== null")
        # without the slash there is nothing below it
        page.go(f"http://127.0.0.1:{port}/ops/ids")
        page.wait("document.querySelector('#loading') !== null")
        assert "must end with a slash" in page.text("#loading")
        assert page.evaluate("getComputedStyle(document.querySelector('#loading')).visibility") == "visible"


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
        assert str(an_id) in page.text("#answer")
        page.click("#do-whois")
        page.wait("document.querySelector('#answer .certain') !== null")
        assert "the-maker" in page.text("#answer")
        assert str(process.pid) in page.text("#answer")
        page.click("#answer .note a")
        page.wait("!document.querySelector('#drawer').hidden")
        page.wait("document.querySelector('#drawer-events').innerText.includes('claimed')")
        assert "the-maker" in page.text("#drawer-facts")
        assert page.evaluate("location.hash") == f"#/pool/{pool}/worker/1"
        assert page.evaluate("document.activeElement.id") == "drawer-title"
        page.evaluate("history.back()")
        page.wait("document.querySelector('#drawer').hidden")
        assert page.evaluate("location.hash").startswith(f"#/pool/{pool}/id/")
        # the link of an id opens a page that looks it up, without naming the pool too
        page.go("about:blank")
        page.go(f"{served.url}/#/id/{an_id}")
        page.wait("document.querySelector('#answer').innerText.includes('the-maker')")
        # a link to a worker opens it
        page.go("about:blank")
        page.go(f"{served.url}/#/pool/{pool}/worker/1")
        page.wait("document.querySelector('#drawer-facts').innerText.includes('the-maker')")
        page.click("#drawer-close")
        page.wait("document.querySelector('#drawer').hidden")
        page.evaluate("location.hash = '#/pool/another/worker/1'")
        page.wait("document.querySelector('#problem').innerText.includes('no pool another')")
        assert page.evaluate("document.querySelector('#drawer').hidden")
        page.fill("#id", "<b>no id</b>")
        page.key("Enter")
        page.wait("document.querySelector('#answer').innerText.includes('is not a valid id')")
        assert page.evaluate("document.querySelectorAll('#answer b').length") == 0
    # that the service refuses what is no id is in the console, and nothing else
    assert all("400 (Bad Request)" in line for line in page.console)


def test_a_worker_is_found_by_state_host_label_and_event(
    page: Page, server: RedisServer, pool: str, serve: Serve
) -> None:
    served = serve("--pool", pool, url=server.url)
    with contextlib.ExitStack() as stack:
        for label in ("web", "web", "mail"):
            stack.enter_context(snowredis.connect(server.url, pool=pool, label=label, ttl=3)).next_id()
        page.go(served.url)
        page.wait("document.querySelectorAll('.tile').length == 4")
        page.fill("#filter", "web")
        page.wait("document.querySelectorAll('.tile').length == 2")
        assert page.evaluate("document.querySelectorAll('#rows tr').length") == 2
        page.click(".chip[data-state=dead]")
        page.wait("document.querySelectorAll('.tile').length == 0")
        assert page.text("#empty") == "No worker matches."
        page.click("#clear")
        page.wait("document.querySelectorAll('.tile').length == 4")
        page.evaluate(choose("#group", "label"))
        page.wait("document.querySelectorAll('.group').length == 3")
        names = "[...document.querySelectorAll('.group h3')].map(head => head.textContent)"
        assert page.evaluate(names) == ["mail, 1 worker", "snowredis serve, 1 worker", "web, 2 workers"]
        # parts that cannot be seen are not drawn
        page.evaluate("document.querySelector('#events-card').scrollIntoView()")
        page.evaluate(choose("#event-worker", "3"))
        page.wait("document.querySelectorAll('#events li').length == 1")
        assert "mail" in page.text("#events")
        page.evaluate(choose("#event-kind", "released"))
        page.wait("document.querySelector('#no-events').checkVisibility()")
        page.click("#ranges button[value='24h']")
        page.wait("document.querySelector('#chart').ariaLabel.includes('over 24.0 h')")
        page.wait("document.querySelector('#chart-note').textContent.startsWith('now ')")
        # UTC by default; in the zone of the browser after a click
        page.send("Emulation.setTimezoneOverride", timezoneId="Asia/Kolkata")
        assert "+5:30" not in page.text("#state")
        page.click("#zone")
        page.wait("document.querySelector('#state').innerText.includes('UTC+5:30')")
        page.click("#zone")
        page.send("Emulation.setTimezoneOverride", timezoneId="")
    assert page.console == []


def test_text_from_redis_is_text(page: Page, server: RedisServer, pool: str, serve: Serve) -> None:
    served = serve("--pool", pool, url=server.url)
    with contextlib.ExitStack() as stack:
        ids = [
            stack.enter_context(snowredis.connect(server.url, pool=pool, label=label, ttl=3)).next_id()
            for label in EVIL
        ]
        # hosts are whatever a process says, and it need not be one of ours; this one dies after a ttl
        now_ms = time.time_ns() // 1_000_000
        owner = json.dumps({"host": EVIL_HOST, "pid": 1, "label": EVIL[2]})
        with contextlib.closing(snowredis.WorkerPool(server.url, pool)) as monitor:
            config = pool_config({"pool": pool} | monitor.info().options)
        reply = RedisStore(server.url, config).ask(ClaimRequest(Seen(), now_ms, "f" * 32, owner))
        assert isinstance(reply, Granted)
        client: Any = server.client()
        key = f"snowredis:{{{pool}}}"
        # as if it had renewed
        record = LeaseRecord.parse(client.hget(key, f"w:{reply.terms.worker}"))
        assert record is not None
        client.hset(key, f"w:{reply.terms.worker}", record._replace(claimed_ms=record.claimed_ms - 1).pack())
        stack.callback(client.close)
        client.xadd(
            f"{key}:events", {"event": "alarm", "worker": "-1", "owner": "{}", "reason": EVIL[0], "at": "1795000000000"}
        )
        client.hset(key, mapping={"alarms": 1, "alarm": EVIL[1]})
        page.go(served.url)
        page.wait(f"document.querySelectorAll('.tile').length == {len(EVIL) + 2}")
        page.wait("document.querySelector('#events').innerText.includes('alarm')")
        for an_id in ids:
            page.fill("#id", str(an_id))
            page.click("#do-whois")
            page.wait(f"document.querySelector('#answer').innerText.includes('{an_id}')")
        page.fill("#filter", "<img")
        for part in ("#rows", "#graves-list"):
            page.wait(f"document.querySelector('{part}').innerText.includes({json.dumps(EVIL_HOST)})")
        assert EVIL[0] in page.text("body")
        assert EVIL[1] in page.text("#state")
        assert page.evaluate("window.evil === undefined")
        assert page.evaluate("document.querySelectorAll('main img, main script, #grid svg, td svg').length") == 0
        # nothing was even tried
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
        assert [stop for stop in stops if stop in {"pool", "zone", "filter", "group"}] == [
            *("pool", "zone", "filter", "group")
        ]
        assert page.evaluate("document.activeElement.matches(':focus-visible')")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        page.key("ArrowRight")
        page.key("ArrowRight")
        page.key("Enter")
        page.wait("document.querySelector('tr.picked td').textContent == '2'")
        page.wait("document.activeElement.id == 'drawer-title'")
        page.key("Escape")
        page.wait("document.querySelector('#drawer').hidden")
        page.wait("document.activeElement.dataset.worker == '2'")
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
        page.wait("document.querySelectorAll('.tile').length == 3")
        other.send_signal(signal.SIGKILL)
        page.wait("document.querySelectorAll('.tile.s-dead').length == 1")
        process.send_signal(signal.SIGSTOP)
        page.wait("document.querySelectorAll('.tile.s-silent').length == 1")
        # voice control calls a tile by what is seen of it; the letter is that of the state
        for seen, name in page.evaluate(
            "[...document.querySelectorAll('.tile')].map(t => [t.textContent, t.ariaLabel])"
        ):
            assert len(seen.split()) > 2
            words, said = seen.replace("✕", "").replace(",", "").lower().split(), name.replace(",", "").lower()
            assert " ".join(words) in said
        for width, dark in itertools.product((390, 1280), (False, True)):
            page.size(width, 844, dark=dark, phone=width < 500)
            page.wait(f"innerWidth == {width}")
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
    page.wait("document.querySelectorAll('.tile').length == 1")
    page.wait("document.querySelector('#status').dataset.level == 'ok'")
    with page.in_background():
        own_server.kill()
        # the title and the icon are all that is to be seen of a tab in the background
        page.wait("document.title.includes('Redis')")
    page.wait("document.querySelector('#status').dataset.codes == 'redis-unavailable'")
    # unknown is not 0 and not green
    page.wait("document.querySelectorAll('.tile.s-unknown').length == 1")
    assert [page.text(f"#f-{name}") for name in ("rate", "alive", "used")] == ["unknown"] * 3
    assert page.text("#f-alive-note") == "1 when it was last known"
    assert "ids for about" in page.text("#status-list")
    page.wait("document.querySelector('#chart-note').textContent.startsWith('now unknown')")
    own_server.start()
    new_pool(own_server.url, pool_name)
    page.wait("document.querySelector('#link').textContent == 'live'")
    # two lines with a gap between
    page.wait("document.querySelectorAll('#chart .area').length == 2")


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
    # the icon cannot be fetched any more
    page.wait("document.querySelector('#icon').href.startsWith('data:')")
    serve("--pool", pool, url=server.url, command=["-m", "snowredis", "serve", "--port", str(served.port)], ready="")
    page.wait("document.querySelector('#link').textContent == 'live'")
