"""configure(): the settings of snowredis.next_id(), given in code."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import snowredis
from snowredis.errors import ConfigError
from snowredis.process_generator import process_generator
from snowredis.testing import memory_pool


@pytest.fixture(autouse=True)
def unconfigured() -> Iterator[None]:
    yield
    snowredis.close()
    snowredis.configure()


def test_what_is_configured_is_used_before_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNOWREDIS_POOL", "of-the-environment")
    monkeypatch.setenv("SNOWREDIS_LABEL", "of-the-environment")
    snowredis.configure(url=memory_pool(), pool="of-the-code")
    assert snowredis.next_id() > 0
    assert process_generator().pool == "of-the-code"
    assert process_generator()._lease_manager._label == "of-the-environment"


def test_an_unknown_setting_is_refused_with_the_known_ones() -> None:
    text = r"unknown setting 'pol'. Did you mean 'pool'.*: url, pool, layout"
    with pytest.raises(ConfigError, match=text):
        snowredis.configure(pol="orders")  # type: ignore[call-arg]


def test_other_settings_are_refused_once_ids_are_made_and_the_same_are_not() -> None:
    pool = memory_pool()
    snowredis.configure(url=pool)
    snowredis.next_id()
    snowredis.configure(url=pool)
    with pytest.raises(ConfigError, match="already makes ids with other settings"):
        snowredis.configure(url=pool, label="web")
    snowredis.close()
    snowredis.configure(url=pool, label="web")
