"""Access to the service, and requests that are refused before any work is done."""

from __future__ import annotations

import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

import snowredis
from snowredis.cli import main
from snowredis.testing import memory_pool
from snowredis.web.access import COOKIE_LIFE_S, HostCheck, TokenAuth, is_loopback
from snowredis.web.service import Service, create_app
from snowredis.web.settings import check_token
from tests.support.pools import new_pool
from tests.support.servers import RedisServer
from tests.support.waiting import eventually
from tests.web.conftest import ROOT, TOKEN, client_of

BEARER = {"authorization": f"Bearer {TOKEN}"}
OPEN = ["/healthz", "/readyz"]
CLOSED = ["/id", "/ids?count=1", "/decode/1", "/whois/1", "/workers", "/pools", "/events", "/live", "/metrics"]
CLOSED += ["/openapi.json", "/nothing", "/static/dashboard.js"]


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Yield a client of a service for whose rates no time passes: a slow machine reaches them, too."""
    monkeypatch.setattr("snowredis.web.access.time", SimpleNamespace(monotonic=lambda: 1000.0, time=time.time))
    with client_of(create_app(memory_pool(), token=TOKEN, hosts=["ids.example"])) as client:
        yield client


# --- the token -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", CLOSED)
def test_nothing_is_told_without_the_token(guarded: TestClient, path: str) -> None:
    wrong: list[dict[str, str]] = [
        {},
        {"authorization": TOKEN},
        {"authorization": "Bearer"},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": f"Bearer {TOKEN}x"},
        {"cookie": "snowredis=99999999999.00"},
    ]
    for headers in wrong:
        answer = guarded.get(path, headers=headers)
        assert answer.status_code == 401, headers
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert answer.json()["error"] == "Unauthorized"


def test_with_the_token_everything_is(guarded: TestClient) -> None:
    assert guarded.get("/id", headers=BEARER).status_code == 200
    assert guarded.get("/id", headers={"authorization": f"bearer  {TOKEN} "}).status_code == 200
    assert guarded.get("/", headers=BEARER).status_code == 200


@pytest.mark.parametrize("path", OPEN)
def test_probes_need_neither_a_token_nor_a_name(guarded: TestClient, path: str) -> None:
    assert guarded.get(path, headers={"host": "10.1.2.3"}).status_code == 200


def test_the_form_for_the_token_has_all_its_files_without_a_token(guarded: TestClient) -> None:
    names = re.findall(r'(?:href|src)="([^"]+)"', guarded.get("/login").text)
    assert "static/theme.css" in names
    for name in names:
        assert guarded.get(f"/{name}").status_code == 200, name


def test_strangers_are_told_whether_it_is_ready_and_neither_names_nor_addresses() -> None:
    app = create_app("redis://127.0.0.1:1/0", pools=["secret-pool"], token=TOKEN)
    with client_of(app) as client:
        for headers in ({}, {"authorization": f"Bearer {TOKEN}x"}):
            for query in ("", "?pool=secret-pool", "?pool=other"):
                answer = client.get(f"/readyz{query}", headers=headers)
                assert answer.status_code == (404 if "other" in query else 503)
                assert "secret-pool" not in answer.text
                assert "127.0.0.1" not in answer.text
        assert client.get("/readyz").json()["error"] == "StoreUnavailable"
        known = client.get("/readyz", headers=BEARER).json()
        assert "127.0.0.1:1" in known["pools"]["secret-pool"]["detail"]


@pytest.mark.parametrize("token", ["日本語-日本語-日本語", "%E6%97%A5", "%ff%00", "ü" * 20])
def test_a_token_of_any_characters_is_refused_and_counted(token: str) -> None:
    with client_of(create_app(memory_pool(), token=TOKEN)) as client:
        statuses = [
            client.post(
                "/login",
                content=f"token={token}".encode(),
                headers={"content-type": "application/x-www-form-urlencoded"},
            ).status_code
            for _ in range(30)
        ]
    assert statuses[:5] == [401] * 5
    assert set(statuses) == {401, 429}


FORM = {"content-type": "application/x-www-form-urlencoded"}


def guess(client: TestClient, how: str, token: str) -> int:
    """Send *token* and return the status; of /readyz, which refuses nobody, 200 if the names of the pools are shown."""
    if how == "form":
        return client.post("/login", content=f"token={token}", headers=FORM, follow_redirects=False).status_code
    response = client.get(how, headers={"authorization": f"Bearer {token}"})
    return response.status_code if how == "/id" else 200 if response.json()["pools"] else 401


@pytest.mark.parametrize("how", ["/id", "/readyz", "form"])
def test_above_the_limit_no_guess_is_told_from_the_right_token(
    guarded: TestClient, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    right = 303 if how == "form" else 200
    # a right one does not count
    assert [guess(guarded, how, TOKEN) for _ in range(30)] == [right] * 30
    wrong = [guess(guarded, how, f"wrong-{number:016}") for number in range(30)]
    assert wrong == [401] * 10 + [401 if how == "/readyz" else 429] * 20
    assert guess(guarded, how, TOKEN) == wrong[-1]
    assert guarded.get("/id", headers=BEARER).status_code == 429
    assert len([one for one in caplog.messages if "tokens from testclient are refused" in one]) == 1


@pytest.mark.parametrize(
    ("other", "is_kept_out"),
    [
        ("2001:db8::9", True),
        ("2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", False),
        ("192.0.2.1", False),
        ("not an address: at all", False),
    ],
)
def test_wrong_tokens_of_one_network_do_not_keep_out_another(
    monkeypatch: pytest.MonkeyPatch, other: str, is_kept_out: bool
) -> None:
    monkeypatch.setattr("snowredis.web.access.time", SimpleNamespace(monotonic=lambda: 1000.0, time=time.time))
    app = create_app(memory_pool(), token=TOKEN)
    with client_of(app):
        # the second one is what a socket of both families makes of an IPv4 address
        for address in ("2001:db8::1%eth0", "::ffff:192.0.2.9"):
            client = client_of(app, client=(address, 5))
            assert {guess(client, "/id", "0" * 16) for _ in range(30)} == {401, 429}
        assert guess(client_of(app, client=(other, 5)), "/id", TOKEN) == (429 if is_kept_out else 200)


def test_the_token_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    import hmac

    compared: list[tuple[Any, Any]] = []
    real = hmac.compare_digest

    def noted(a: Any, b: Any) -> bool:
        compared.append((a, b))
        return real(a, b)

    monkeypatch.setattr(hmac, "compare_digest", noted)
    assert not TokenAuth(TOKEN).is_token(b"x")
    assert TokenAuth(TOKEN).is_token(TOKEN.encode())
    # digests are compared, so not even its length shows
    assert [(len(a), len(b)) for a, b in compared] == [(32, 32)] * 2


@pytest.mark.parametrize("token", ["short", "a" * 15, "with blanks in the middle", "ümlaut-und-noch-mehr"])
def test_a_token_that_is_easy_to_guess_or_to_garble_is_refused(token: str) -> None:
    with pytest.raises(snowredis.ConfigError, match="token"):
        check_token(token)
    assert check_token(" \n") is None


# --- the browser -----------------------------------------------------------------------------------


def test_a_browser_gets_in_by_the_form_and_out_again(guarded: TestClient) -> None:
    first = guarded.get("/")
    assert first.status_code == 401
    assert 'name="token"' in first.text
    answer = guarded.post("/login", data={"token": TOKEN}, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "./")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in cookie
    page = guarded.get("/")
    assert page.status_code == 200
    assert "Look up an id" in page.text
    assert 'id="logout">' in page.text
    assert guarded.get("/pools").status_code == 200
    guarded.post("/logout")
    assert guarded.get("/pools").status_code == 401


def test_a_logout_ends_the_session_in_every_process(server: RedisServer) -> None:
    new_pool(server.url, "sessions")
    apps = [create_app(server.url, pools=["sessions"], token=TOKEN) for _ in range(2)]
    with client_of(apps[0]) as here, client_of(apps[1]) as there:
        for client in (here, there):
            client.post("/login", data={"token": TOKEN})
        stolen = {"cookie": f"snowredis={here.cookies['snowredis']}"}
        other = {"cookie": f"snowredis={there.cookies['snowredis']}"}
        here.cookies.clear()
        there.cookies.clear()
        assert there.get("/pools", headers=stolen).status_code == 200
        here.post("/logout", headers=stolen)
        assert here.get("/pools", headers=stolen).status_code == 401
        assert here.get("/", headers=stolen).status_code == 401
        eventually(lambda: there.get("/pools", headers=stolen).status_code == 401, "the end there", 10)
        # this request is refused in one session, not in all
        assert here.get("/pools", headers=other).status_code == there.get("/pools", headers=other).status_code == 200
    # a process that is started later knows it from its first request on
    with client_of(create_app(server.url, pools=["sessions"], token=TOKEN)) as later:
        assert later.get("/pools", headers=stolen).status_code == 401
        assert later.get("/pools", headers=other).status_code == 200


@pytest.mark.parametrize(("trusted", "secure"), [([], False), (["10.0.0.0/8"], True), (["10.0.0.2"], False)])
def test_only_a_trusted_proxy_says_what_the_client_uses(trusted: list[str], secure: bool) -> None:
    app = create_app(memory_pool(), token=TOKEN, trusted_proxies=trusted)
    with TestClient(app, base_url="http://127.0.0.1:8600", client=("10.0.0.1", 5)) as client:
        headers = {"x-forwarded-proto": "https", "x-forwarded-for": "192.0.2.1"}
        answer = client.post("/login", data={"token": TOKEN}, headers=headers, follow_redirects=False)
        assert ("Secure" in answer.headers["set-cookie"]) == secure
    assert app.proxies.trusts("10.0.0.1") == secure


@pytest.mark.parametrize("address", ["proxy", "10.0.0.300", "10.0.0.1/33"])
def test_a_trusted_proxy_is_an_address(address: str) -> None:
    with pytest.raises(snowredis.ConfigError, match="trusted_proxies"):
        create_app(memory_pool(), trusted_proxies=[address])


def test_over_https_the_cookie_stays_there() -> None:
    with TestClient(create_app(memory_pool(), token=TOKEN), base_url="https://localhost") as client:
        answer = client.post("/login", data={"token": TOKEN}, follow_redirects=False)
        assert "Secure" in answer.headers["set-cookie"]


def test_a_wrong_token_in_the_form_gets_no_cookie(guarded: TestClient) -> None:
    answer = guarded.post("/login", data={"token": "x" * 20})
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert 'id="wrong">' in answer.text
    assert 429 in {guarded.post("/login", data={"token": "x"}).status_code for _ in range(30)}


def test_a_form_of_another_page_is_refused(guarded: TestClient) -> None:
    for path in ("/login", "/logout"):
        answer = guarded.post(path, data={"token": TOKEN}, headers={"origin": "http://evil.example"})
        assert answer.status_code == 403
    assert guarded.post("/login", data={"token": TOKEN}, headers={"origin": "http://127.0.0.1:8600"}).status_code == 200


def test_a_cookie_ends_and_cannot_be_made_longer() -> None:
    keys, other = TokenAuth(TOKEN), TokenAuth(TOKEN + "x")
    value = keys.make_cookie(1_000.0)
    header = f"a=b; snowredis={value}; c".encode()
    session = keys.session_of(header, 1_000.0)
    assert session is not None
    assert keys.session_of(header, 999.0 + COOKIE_LIFE_S) == session
    assert keys.session_of(header, 1_000.0 + COOKIE_LIFE_S) is None
    assert other.session_of(header, 1_000.0) is None
    until, name, proof = value.split(".")
    assert name == session
    for wrong in (
        f"{int(until) + 1}.{name}.{proof}",
        f"{until}.{'0' * len(name)}.{proof}",
        f"{until}.{name}.",
        f"{until}.{proof}",
        until,
        f".{name}.{proof}",
        f"{until}.{name}.{proof}é",
        f"٣.{name}.{proof}",
    ):
        assert keys.session_of(f"snowredis={wrong}".encode(), 1_000.0) is None


def test_without_a_token_there_is_no_form() -> None:
    with client_of(create_app(memory_pool())) as client:
        assert 'id="logout" hidden>' in client.get("/").text
        assert client.get("/login", follow_redirects=False).status_code == 303
        assert client.post("/login", data={"token": "x"}, follow_redirects=False).status_code == 303


# --- from where ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "LOCALHOST:1", "[::1]:8600", "ids.example", "ids.example.:80"]
)
def test_the_names_of_the_service_are_known(host: str) -> None:
    assert HostCheck(["ids.example"]).allows(host.encode())


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "localhost@evil", "localhost:80:80"]
    + ["127.0.0.1\\@evil", "localhost/", "[::1", "10.0.0.1", "localhost:port", "x" * 1000],
)
def test_a_name_that_was_rebound_is_not(guarded: TestClient, host: str) -> None:
    check = HostCheck(["ids.example"])
    assert not check.allows(host.encode())
    assert not check.allows(None)
    answer = guarded.get("/id", headers=BEARER | {"host": host})
    assert (answer.status_code, answer.json()["error"]) == (403, "WrongHost")


def test_any_name_will_do_only_if_that_was_asked_for() -> None:
    assert HostCheck(["*"]).allows(b"any.example")
    assert HostCheck(["2001:db8::1"]).allows(b"[2001:db8::1]:80")


def request_scope(server: tuple[str, int | None] | None) -> dict[str, Any]:
    return {"path": "/id", "headers": [(b"host", b"localhost")], "query_string": b"", "server": server}


@pytest.mark.parametrize("server", ["127.0.0.1", "127.1.2.3", "::1", "/run/a.sock"])
def test_without_a_token_this_machine_may_ask(server: str) -> None:
    create_app(memory_pool()).guard.check(request_scope((server, 1)))
    assert is_loopback(server)


@pytest.mark.parametrize("server", ["10.0.0.1", "0.0.0.0", "2001:db8::1", "host.example"])
def test_without_a_token_nobody_else_may_under_any_server(server: str) -> None:
    """Gunicorn or uvicorn may be told to listen anywhere."""
    scope = request_scope((server, 1))
    with pytest.raises(Exception, match="TokenNeeded"):
        create_app(memory_pool()).guard.check(scope)
    create_app(memory_pool(), insecure=True).guard.check(scope)
    scope["headers"].append((b"authorization", f"Bearer {TOKEN}".encode()))
    create_app(memory_pool(), token=TOKEN).guard.check(scope)


def test_pages_of_other_sites_may_not_ask(guarded: TestClient) -> None:
    for path in ("/id", "/pools", "/login"):
        for site in ("cross-site", "same-site"):
            assert guarded.get(path, headers=BEARER | {"sec-fetch-site": site}).status_code == 403
        assert guarded.get(path, headers=BEARER | {"sec-fetch-site": "none"}).status_code != 403
    # a link to the page is fine
    assert guarded.get("/", headers={"sec-fetch-site": "cross-site"}).status_code == 401
    for header in ("access-control-allow-origin", "access-control-allow-credentials"):
        assert header not in guarded.get("/id", headers=BEARER | {"origin": "http://evil.example"}).headers


# --- how much --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/id", "/ids?count=1", "/workers", "/login"])
def test_a_body_is_refused_by_its_length_alone(guarded: TestClient, path: str) -> None:
    for headers in ({"content-length": "5000"}, {"content-length": "x"}, {"transfer-encoding": "chunked"}):
        method = "POST" if path == "/login" else "GET"
        answer = guarded.request(method, path, headers=BEARER | headers)
        assert (answer.status_code, answer.json()["error"]) == (413, "BodyTooLarge")
        assert answer.headers["connection"] == "close"


def test_an_address_that_is_too_long_is_refused(guarded: TestClient) -> None:
    assert guarded.get("/id?x=" + "y" * 3000, headers=BEARER).status_code == 414
    assert guarded.get("/decode/" + "y" * 3000, headers=BEARER).status_code == 414


def test_a_query_of_many_fields_is_refused(guarded: TestClient) -> None:
    answer = guarded.get("/id?" + "&".join("a=1" for _ in range(100)), headers=BEARER)
    assert (answer.status_code, answer.json()["error"]) == (400, "BadQuery")


# --- what the answers say --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/", "/login", "/static/page.css", "/static/dashboard.js", "/id", "/nothing", "/decode/x!"]
)
def test_every_answer_tells_the_browser_to_trust_nothing(path: str) -> None:
    for token in (None, TOKEN):
        with client_of(create_app(memory_pool(), token=token)) as client:
            answer = client.get(path, follow_redirects=False)
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'")
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] in {"no-referrer", "same-origin"}
            assert answer.headers["cache-control"] == "no-store"


def test_the_pages_use_nothing_that_the_policy_forbids() -> None:
    for page in (ROOT / "snowredis/web/static").iterdir():
        text = page.read_text()
        assert "http://" not in text.replace("http://www.w3.org/", ""), page.name
        assert "https://" not in text, page.name
        for forbidden in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "eval(",
            "document.write",
            " onclick=",
            " style=",
        ):
            assert forbidden not in text, (page.name, forbidden)


# --- the command -----------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_another_address_than_loopback_needs_a_token(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--host", host, "--port", "1"]) == 3
    assert "--token-file, or --insecure" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["empty", "missing"])
def test_a_token_file_without_a_token_stops_the_start(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").write_text("\n")
    assert main(["serve", "--token-file", str(tmp_path / name)]) == 3
    assert "was not started" in capsys.readouterr().err


def test_a_service_is_told_apart_from_its_settings(guarded: TestClient) -> None:
    app = guarded.app
    assert isinstance(app, Service)
    assert TOKEN not in repr(vars(app)) + repr(vars(app.guard))
