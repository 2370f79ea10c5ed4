"""The wait for a pool that Redis does not know is visible: a warning, and in a terminal a countdown."""

from __future__ import annotations

import logging
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from snowredis.snowflake.slow_path import WaitNotice
from tests.support.servers import RedisServer

PROGRAM = Path(__file__).with_name("first_id.py")
WARNING = (
    "pool {0}: new workers wait 1.2 s, so that no id is repeated: Redis did not know the pool, or was restarted. "
    "A pool that no process has used before is created without this wait by: snowredis pool create {0}"
)


def start(server: RedisServer, pool: str, stderr: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, PROGRAM, server.url, pool],
        cwd=PROGRAM.parents[2],
        env={**os.environ, "PYTHONPATH": str(PROGRAM.parents[2]), "TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )


def test_the_first_wait_is_a_warning_on_stderr_and_on_a_terminal_a_countdown(server: RedisServer) -> None:
    leader, follower = pty.openpty()
    piped = start(server, "first-piped", subprocess.PIPE)
    shown = start(server, "first-shown", follower)
    os.close(follower)
    output, errors = piped.communicate(timeout=30)
    assert int(output) > 0
    # logging is not configured there
    assert errors == WARNING.format("first-piped") + "\n"
    assert int(shown.communicate(timeout=30)[0]) > 0
    written = b""
    while not written.endswith(b"\r\x1b[K"):
        written += os.read(leader, 65536)
    os.close(leader)
    warning, *drawn = written.decode().split("\r\x1b[K")
    assert warning.strip() == WARNING.format("first-shown")
    texts = [f"snowredis: pool first-shown: {seconds} s until the first id …" for seconds in (2, 1)]
    assert drawn in ([*texts, ""], [*texts[1:], ""])


def test_one_warning_a_wait_and_another_for_the_next(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 0.0
    notice = WaitNotice("p", lambda: now_s)
    for now_s in (0.0, 5.0, 29.9):
        notice.show(30_000 - 1000 * now_s)
    now_s = 100.0
    notice.show(900)
    notice.show(30_000)
    notice.end()
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
