"""Fixtures: crash records in a directory of the test, and pools that were created in a private redis-server."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from snowredis.snowflake.record_files import VARIABLE, FileName
from tests.support.pools import new_pool as make
from tests.support.servers import RedisServer

_numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of the crash records, also of programs that the test starts."""
    path = tmp_path / "records"
    monkeypatch.setenv(VARIABLE, str(path))
    return path


class Owned:
    """The owner of a page of the test."""

    is_writer = True

    def touch(self) -> None: ...
    def close(self, *, records_lease: bool) -> None: ...


def name_of(path: Path) -> FileName:
    """Return what the name of a file of a crash record says."""
    name = FileName.parse(path.name, path.parent.name.partition(".")[2])
    assert name is not None
    return name


def files_in(records: Path) -> list[Path]:
    """Return the files of crash records."""
    return sorted(path for path in records.rglob("*") if path.is_file())


@pytest.fixture
def new_pool(server: RedisServer) -> Callable[..., str]:
    def new_pool(**options: Any) -> str:
        name = f"reclaim{next(_numbers)}"
        make(server.url, name, **options)
        return name

    return new_pool
