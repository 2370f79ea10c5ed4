"""snowredis.generator(): a kind by name, by URL, from the environment, and from another package."""

import sys
from pathlib import Path
from typing import Any

import pytest

import snowredis
from snowredis.kinds.lookup import kind_names, parse_kind, resolve
from snowredis.process_generator import effective_kind

# a package that declares a kind, as installed packages do
OTHER_PACKAGE = {
    "other_ids.py": """
from snowredis.core.description import IdDescription
from snowredis.kinds.base import IdKind
from snowredis.process_generator import effective_kind
from snowredis.kinds.libraries import LocalGenerator

described = IdDescription("coin", str, None, 5, sortable=False, guessable=True)
COIN = IdKind("coin", "heads", {}, lambda _: described, lambda _: LocalGenerator(lambda: "heads", described))
NO_KIND = 7
""",
    "other_ids-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: other-ids\nVersion: 1\n",
    "other_ids-1.dist-info/entry_points.txt": (
        "[snowredis.generators]\ncoin = other_ids:COIN\nbad = other_ids:NO_KIND\ngone = other_ids_gone:X\n"
    ),
}


@pytest.fixture
def _other_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in OTHER_PACKAGE.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "other_ids", raising=False)


@pytest.mark.usefixtures("_other_package")
def test_another_package_adds_its_kind_by_an_entry_point() -> None:
    assert snowredis.generator("coin").next_ids(2) == ["heads", "heads"]
    assert {"coin", "uuid7"} <= set(kind_names())
    with pytest.raises(snowredis.ConfigError, match=r"unknown setting 'form' of coin generators.*: none"):
        snowredis.generator("coin", form="text")
    with pytest.raises(snowredis.ConfigError, match=r"is no snowredis.kinds.base.IdKind but a int"):
        snowredis.generator("bad")
    with pytest.raises(snowredis.ConfigError, match=r"cannot be loaded: .*other_ids_gone"):
        snowredis.generator("gone")


@pytest.mark.parametrize(
    ("kind", "settings", "words"),
    [
        ("uuid8", {}, "unknown kind of ids 'uuid8'. Did you mean 'uuid"),
        ("nanoid", {}, "The kinds are: snowflake, "),
        ("uuid7", {"pool": "x"}, "unknown setting 'pool' of uuid7 generators. The settings are: form"),
        ("uuid7", {"form": "hex"}, "form must be one of uuid, text, bytes, not 'hex'"),
        ("objectid", {"form": "uuid"}, "form must be one of text, bytes, not 'uuid'"),
        ("snowflake", {"pol": "x"}, "unknown setting 'pol' of snowflake generators. Did you mean 'pool'?"),
        ("uuid7:?frm=text", {}, "unknown setting 'frm' of uuid7 generators. Did you mean 'form'?"),
        ("uuid7+redis://localhost", {}, "uuid7 generators need no server"),
        ("redis://localhost/0", {}, "names no kind of ids. Pass it as url=…"),
        ({"url": "redis://localhost/0"}, {}, "a kind of ids is a str, not a dict. Pass settings by name"),
        ("snowflake+redis://localhost/0?ttl=soon", {}, "ttl must be seconds, .*, not 'soon'"),
        ("snowflake+ftp://localhost/0", {}, "ftp"),
        ("snowflake+redis://localhost/0?pol=x", {}, "pol"),
        ("", {}, "unknown kind of ids ''"),
    ],
)
def test_what_cannot_work_is_refused_with_a_reason(kind: Any, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(snowredis.ConfigError, match=words):
        snowredis.generator(kind, **settings)


def test_a_missing_library_is_an_error_with_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ulid_transform", None)
    with pytest.raises(snowredis.ConfigError, match=r"pip install 'snowredis\[ulid\]'"):
        snowredis.generator("ulid")


@pytest.mark.parametrize(
    ("url", "settings"),
    [
        ("snowflake", {}),
        ("snowflake:", {}),
        ("snowflake:?pool=a", {"pool": "a"}),
        ("snowflake+redis://h:1/0", {"url": "redis://h:1/0"}),
        ("snowflake+redis://h:1/0?pool=a&ttl=5", {"url": "redis://h:1/0", "pool": "a", "ttl": 5.0}),
        (
            "snowflake+rediss://u:p%40@h:1/0?pool=a&socket_timeout=2",
            {"url": "rediss://u:p%40@h:1/0?socket_timeout=2", "pool": "a"},
        ),
        ("snowflake+unix:///run/redis.sock?db=1&pool=a", {"url": "unix:///run/redis.sock?db=1", "pool": "a"}),
        ("segment+redis://a/0?tag=p redis://b/0", {"url": "redis://a/0 redis://b/0", "tag": "p"}),
        ("snowflake+sentinel://h:1,i:2/m/0?pool=a", {"url": "sentinel://h:1,i:2/m/0", "pool": "a"}),
        ("uuid7:?form=text", {"form": "text"}),
    ],
)
def test_a_url_names_the_kind_and_its_settings(url: str, settings: dict[str, Any]) -> None:
    assert parse_kind(url).settings == settings


def test_without_a_kind_the_environment_names_it_and_what_is_not_given() -> None:
    environment = {"SNOWREDIS_KIND": "uuid7", "SNOWREDIS_FORM": "text", "SNOWREDIS_POOL": "orders"}
    assert resolve(None, {}, environment).settings == {"form": "text"}
    assert resolve(None, {"form": "bytes"}, environment).settings == {"form": "bytes"}
    assert resolve("uuid4", {}, {}).settings == {}
    found = resolve(None, {"ttl": 9}, {"SNOWREDIS_POOL": "orders", "SNOWREDIS_TTL": "5"})
    assert (found.kind.name, found.settings) == ("snowflake", {"pool": "orders", "ttl": 9})
    by_url = {"SNOWREDIS_KIND": "snowflake+redis://h/0?pool=a", "SNOWREDIS_POOL": "b", "SNOWREDIS_URL": "x"}
    assert resolve(None, {}, by_url).settings == {"url": "redis://h/0", "pool": "a"}


def test_another_kind_takes_the_server_of_the_process_and_no_tag_or_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNOWREDIS_KIND", "segment")
    monkeypatch.setenv("SNOWREDIS_URL", "redis://shared/0")
    monkeypatch.setenv("SNOWREDIS_TAG", "invoices")
    monkeypatch.setenv("SNOWREDIS_STEP", "500")
    assert effective_kind("dated").settings == {"url": "redis://shared/0"}
    assert effective_kind("segment").settings["tag"] == "invoices"
    assert effective_kind().settings["step"] == 500
