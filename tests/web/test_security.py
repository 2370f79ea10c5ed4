"""Access to the service, and requests that are refused before any work is done."""

import base64
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

import snowredis
from snowredis.cli import main
from snowredis.web.access import is_loopback
from snowredis.web.service import Service, check_token, create_app
from tests.support.programs import ROOT
from tests.web.conftest import TOKEN, app_of, client_of

BEARER = {"authorization": f"Bearer {TOKEN}"}
OPEN = ["/healthz", "/readyz"]
CLOSED = ["/", "/id", "/ids?count=1", "/decode/1", "/whois/1", "/workers", "/pools", "/events", "/metrics"]
CLOSED += ["/openapi.json", "/nothing", "/static/page.js"]


def basic(password: str, user: str = "any") -> dict[str, str]:
    """Return the header that a browser sends."""
    return {"authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Yield a client of a service for whose limits no time passes: a slow machine reaches them, too."""
    monkeypatch.setattr("snowredis.web.access.time", SimpleNamespace(monotonic=lambda: 1000.0))
    hosts = ["ids.example", "2001:DB8::1", "fe80::1%eth0"]
    with client_of(app_of(token=TOKEN, hosts=hosts)) as client:
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
        basic(TOKEN + "x"),
        basic("", user=TOKEN),
        {"cookie": f"snowredis={TOKEN}"},
    ]
    for headers in wrong:
        answer = guarded.get(path, headers=headers)
        assert answer.status_code == 401, headers
        assert answer.headers.get_list("www-authenticate") == ['Bearer realm="snowredis"', 'Basic realm="snowredis"']
        assert answer.json()["error"] == "Unauthorized"


def test_with_the_token_everything_is(guarded: TestClient) -> None:
    for headers in (BEARER, {"authorization": f"bearer  {TOKEN} "}, basic(TOKEN), basic(TOKEN, user="")):
        for path in ("/id", "/", "/static/page.js", "/pools"):
            answer = guarded.get(path, headers=headers)
            assert answer.status_code == 200, (path, headers)
            # nothing that could outlive a change of the token
            assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("path", OPEN)
def test_probes_need_neither_a_token_nor_a_name(guarded: TestClient, path: str) -> None:
    assert guarded.get(path, headers={"host": "10.1.2.3"}).status_code == 200


def test_strangers_are_told_whether_it_is_ready_and_no_name_even_if_they_guess_it() -> None:
    app = create_app("redis://127.0.0.1:1/0", pools=["secret-pool"], token=TOKEN)
    with client_of(app) as client:
        for headers in ({}, {"authorization": f"Bearer {TOKEN}x"}):
            answers = [
                client.get(f"/readyz{query}", headers=headers) for query in ("", "?pool=secret-pool", "?pool=other")
            ]
            assert [answer.status_code for answer in answers] == [503, 401, 401]
            for answer in answers:
                assert "secret-pool" not in answer.text
                assert "127.0.0.1" not in answer.text
            assert answers[1].text == answers[2].text
        assert client.get("/readyz").json()["error"] == "StoreUnavailable"
        known = client.get("/readyz?pool=secret-pool", headers=BEARER).json()
        assert "127.0.0.1:1" in known["pools"]["secret-pool"]["detail"]


@pytest.mark.parametrize("token", ["日本語-日本語-日本語", "%E6%97%A5", "ü" * 20, "a:b:c"])
def test_a_token_of_any_characters_is_refused_and_counted(guarded: TestClient, token: str) -> None:
    # no time passes for this service
    statuses = [guarded.get("/id", headers=basic(token)).status_code for _ in range(12)]
    assert statuses == [401] * 10 + [429] * 2


def guess(client: TestClient, how: str, token: str) -> int:
    """Send *token* and return the status; of /readyz, which refuses nobody, 200 if the names of the pools are shown."""
    headers = basic(token) if how == "basic" else {"authorization": f"Bearer {token}"}
    response = client.get("/readyz" if how == "/readyz" else "/id", headers=headers)
    return response.status_code if how != "/readyz" else 200 if response.json()["pools"] else 401


@pytest.mark.parametrize("how", ["bearer", "basic", "/readyz"])
def test_above_the_limit_no_guess_is_told_from_the_right_token(
    guarded: TestClient, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    # a right one does not count
    assert [guess(guarded, how, TOKEN) for _ in range(12)] == [200] * 12
    wrong = [guess(guarded, how, f"wrong-{number:016}") for number in range(12)]
    assert wrong == [401] * 10 + [401 if how == "/readyz" else 429] * 2
    assert guess(guarded, how, TOKEN) == wrong[-1]
    assert guarded.get("/id", headers=BEARER).status_code == 429
    assert len([one for one in caplog.messages if "tokens from testclient are refused" in one]) == 1


def test_wrong_tokens_of_one_network_do_not_keep_out_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snowredis.web.access.time", SimpleNamespace(monotonic=lambda: 1000.0))
    app = app_of(token=TOKEN)
    with client_of(app):
        # the second one is what a socket of both families makes of an IPv4 address
        for address in ("2001:db8::1%eth0", "::ffff:192.0.2.9"):
            client = client_of(app, client=(address, 5))
            assert {guess(client, "bearer", "0" * 16) for _ in range(12)} == {401, 429}
        others = ("2001:db8::9", "2001:db8:0:1::1", "::ffff:192.0.2.1", "192.0.2.1", "not an address: at all")
        statuses = [guess(client_of(app, client=(other, 5)), "bearer", TOKEN) for other in others]
    assert statuses == [429, 200, 200, 200, 200]


def test_the_token_is_compared_in_constant_time(guarded: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    import hmac

    compared: list[tuple[Any, Any]] = []
    real = hmac.compare_digest

    def noted(a: Any, b: Any) -> bool:
        compared.append((a, b))
        return real(a, b)

    monkeypatch.setattr(hmac, "compare_digest", noted)
    assert [guess(guarded, "bearer", token) for token in ("x", TOKEN)] == [401, 200]
    # digests are compared, so not even its length shows
    assert [(len(a), len(b)) for a, b in compared] == [(32, 32)] * 2


@pytest.mark.parametrize("token", ["short", "a" * 15, "with blanks in the middle", "ümlaut-und-noch-mehr"])
def test_a_token_that_is_easy_to_guess_or_to_garble_is_refused(token: str) -> None:
    with pytest.raises(snowredis.ConfigError, match="token"):
        check_token(token)
    assert check_token(" \n") is None


# --- from where ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "LOCALHOST:1", "[::1]:8600", "ids.example", "ids.example:80", "[2001:db8::1]:80"]
)
def test_the_names_of_the_service_are_known(guarded: TestClient, host: str) -> None:
    assert guarded.get("/id", headers=BEARER | {"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "localhost@evil", "localhost:80:80"]
    + ["127.0.0.1\\@evil", "localhost/", "[::1", "10.0.0.1", "x" * 1000],
)
def test_a_name_that_was_rebound_is_not(guarded: TestClient, host: str) -> None:
    for path in ("/id", "/", "/workers", "/nothing"):
        answer = guarded.get(path, headers=BEARER | {"host": host})
        assert (answer.status_code, answer.json()["error"]) == (400, "UnknownHost")


def test_any_name_will_do_only_if_that_was_asked_for() -> None:
    with client_of(app_of(hosts=["*"]), host="any.example") as client:
        assert client.get("/id").status_code == 403  # this is not loopback
    with client_of(app_of(hosts=["*"], insecure=True), host="any.example") as client:
        assert client.get("/id").status_code == 200


def request_scope(server: tuple[str, int | None] | None) -> dict[str, Any]:
    return {"path": "/id", "headers": [(b"host", b"localhost")], "query_string": b"", "server": server}


@pytest.mark.parametrize("server", ["127.0.0.1", "127.1.2.3", "::1", "/run/a.sock"])
def test_without_a_token_this_machine_may_ask(server: str) -> None:
    app_of().guard.check(request_scope((server, 1)))
    assert is_loopback(server)


@pytest.mark.parametrize("server", ["10.0.0.1", "0.0.0.0", "2001:db8::1", "host.example"])
def test_without_a_token_nobody_else_may_under_any_server(server: str) -> None:
    """Gunicorn or uvicorn may be told to listen anywhere."""
    scope = request_scope((server, 1))
    with pytest.raises(Exception, match="TokenNeeded"):
        app_of().guard.check(scope)
    app_of(insecure=True).guard.check(scope)
    scope["headers"].append((b"authorization", f"Bearer {TOKEN}".encode()))
    app_of(token=TOKEN).guard.check(scope)


def test_pages_of_other_sites_learn_nothing_and_can_change_nothing(guarded: TestClient) -> None:
    for method in ("GET", "OPTIONS", "POST", "PUT", "DELETE", "PATCH"):
        answer = guarded.request(method, "/workers", headers=BEARER | {"origin": "http://evil.example"})
        assert answer.status_code == (200 if method == "GET" else 405)
        for header in ("access-control-allow-origin", "access-control-allow-credentials"):
            assert header not in answer.headers
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"


def test_a_query_of_many_fields_is_refused(guarded: TestClient) -> None:
    answer = guarded.get("/id?" + "&".join("a=1" for _ in range(100)), headers=BEARER)
    assert (answer.status_code, answer.json()["error"]) == (400, "BadQuery")


def test_a_warning_that_strangers_cause_is_logged_once_a_minute(
    guarded: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    log = logging.getLogger("uvicorn.error")
    for _ in range(100):
        log.warning("Invalid HTTP request received, for this test.")
        log.error("an error of the server, for this test")
    said = [record.getMessage() for record in caplog.records if "for this test" in record.getMessage()]
    assert (len(said), len(set(said))) == (101, 2)


# --- what the answers say --------------------------------------------------------------------------


@pytest.mark.parametrize("token", [None, TOKEN])
def test_every_answer_tells_the_browser_to_trust_nothing(token: str | None) -> None:
    with client_of(app_of(token=token)) as client:
        for path in (
            *("/", "/static/style.css", "/static/page.js", "/static/icon.svg"),
            *("/id", "/nothing", "/decode/x!", "/workers"),
        ):
            answer = client.get(path, follow_redirects=False)
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'")
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] in {"no-referrer", "same-origin"}
            assert answer.headers["cache-control"] in {"no-store", "no-cache"}


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
    assert "--token-file, or set SNOWREDIS_SERVE_INSECURE=1" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["*", "0.0.0.0/0", "::/0", "proxy", "10.0.0.300", "10.0.0.1/33"])
def test_a_trusted_proxy_is_an_address_and_not_everybody(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--port", "1", "--url", "redis://127.0.0.1:1/0", "--trust-proxy", address]) == 3
    assert "is not the address of a proxy" in capsys.readouterr().err


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
