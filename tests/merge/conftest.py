"""The command run in this process, without the user's own settings."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import NamedTuple

import pytest

from snowredis.cli import build_parser, main

# it is the same for all command lines with the same command
build_parser_once = functools.cache(build_parser)


class Result(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def offline(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run a command; return its exit code and what it printed."""
    monkeypatch.setattr("snowredis.cli.build_parser", build_parser_once)
    for name in list(os.environ):
        if name.startswith("SNOWREDIS_"):
            monkeypatch.delenv(name)

    def run(*argv: str) -> Result:
        code = main(argv)
        return Result(code, *capsys.readouterr())

    return run
