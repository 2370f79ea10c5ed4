"""The process that owns an embedded server: starts it, counts users, ends it.

Run by snowredis.embedded.start(), with the start lock held for it, as
``python -m snowredis.embedded.supervisor DIRECTORY PROGRAM KIND LINGER_S``; prints the state as
one line of JSON when the server answers. However this process ends, its server ends with it. If
it can, it notes before what was reserved there.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import NoReturn, Protocol

from snowredis.embedded.home import Home, wait_until
from snowredis.embedded.reserved import seal_script
from snowredis.embedded.server import FRESH_KEY, answers, ask
from snowredis.errors import StoreUnavailable

# how often it looks whether there are users
_POLL_S = 0.5
# for the server to answer; to end on SIGTERM before SIGKILL
_READY_LIMIT_S, _END_LIMIT_S = 10.0, 3.0
# from <linux/prctl.h>
_PR_SET_PDEATHSIG = 1


class _Running(Protocol):
    url: str

    def is_alive(self) -> bool: ...

    def end(self) -> None: ...


class _Program:
    """redis-server, valkey-server: a child process on a socket."""

    def __init__(self, home: Home, program: str) -> None:
        import ctypes
        import signal
        import subprocess
        from urllib.parse import quote

        supervisor = os.getpid()
        # loaded before the fork: between fork and exec nothing may be
        prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None

        def end_with_supervisor() -> None:
            # the kernel sends it when the thread that forked ends: the main one, here
            if prctl and (prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) or os.getppid() != supervisor):
                os._exit(1)

        self.url = f"unix://{quote(str(home.socket))}"
        self._child = subprocess.Popen(
            [program, "--port", "0", "--unixsocket", str(home.socket), "--unixsocketperm", "700"]
            + ["--save", "", "--appendonly", "no", "--daemonize", "no", "--dir", str(home.path)],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            preexec_fn=end_with_supervisor,  # noqa: PLW1509  (no second thread here)
        )

    def is_alive(self) -> bool:
        return self._child.poll() is None

    def end(self) -> None:
        import subprocess

        self._child.terminate()
        try:
            self._child.wait(_END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


class _Fake:
    """fakeredis: threads of this very process, on a TCP port of the loopback interface."""

    def __init__(self) -> None:
        import threading

        from fakeredis import TcpFakeServer
        from fakeredis._clients._tcp_server import TCPFakeRequestHandler

        from snowredis.embedded.fake_info import install_info

        install_info()
        # else each MULTI takes 44 ms
        TCPFakeRequestHandler.disable_nagle_algorithm = True
        server = TcpFakeServer(("127.0.0.1", 0), server_version=(7, 0, 0))
        server.daemon_threads = True
        self.url = f"redis://127.0.0.1:{server.server_address[1]}"
        self._thread = threading.Thread(target=server.serve_forever, daemon=True)
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def end(self) -> None:
        """Nothing: it ends with the process, which is about to."""


def _supervise(home: Home, program: str, kind: str, linger_s: float) -> None:
    # left in this order: the server ends, the supervisor's lock goes, the start lock goes
    with contextlib.ExitStack() as start_lock, home.be_supervisor() as write_state:
        state: dict[str, object] = {"pid": os.getpid(), "kind": kind}
        write_state(state)
        running: _Running = _Program(home, program) if program else _Fake()
        try:
            wait_until(lambda: answers(running.url) or not running.is_alive(), _READY_LIMIT_S)
            if not answers(running.url):
                raise StoreUnavailable(running.url, "it was started and does not answer")
            state["url"] = running.url
            write_state(state)
            print(json.dumps(state), flush=True)
            # the starter reads to the end
            os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
            _wait_for_disuse(home, running, linger_s, start_lock)
        finally:
            _note_end(home, running)
            running.end()


def _note_end(home: Home, running: _Running) -> None:
    """Note what was reserved, read in one step with the end of all pools. Without it the file says "running" still."""
    try:
        answer = ask(running.url, "EVAL", seal_script(), "0", FRESH_KEY)
    except StoreUnavailable:
        return
    if re.fullmatch(rb":\d+", answer):
        home.reserved.end(int(answer[1:]))


def _wait_for_disuse(
    home: Home, running: _Running, linger_s: float, start_lock: contextlib.ExitStack
) -> None:
    """Return when there was no user for so long, with the start lock held so that none comes; or without it
    when the server ended by itself."""
    used_s = time.monotonic()
    while running.is_alive():
        time.sleep(_POLL_S)
        try:
            start_lock.enter_context(home.start_lock(limit_s=0))
        except StoreUnavailable:
            # somebody is about to use it
            used_s = time.monotonic()
            continue
        home.reserved.note_time()
        if home.has_users():
            used_s = time.monotonic()
        elif time.monotonic() - used_s >= linger_s:
            return
        start_lock.close()


def _end_on_signal() -> None:
    import signal

    def end(number: int, _frame: object) -> NoReturn:
        # a second one must not interrupt what this one begins
        signal.signal(number, signal.SIG_IGN)
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def main(directory: str, program: str, kind: str, linger_s: str) -> None:
    # the starter waits for the first half only, so that it has no child to reap later
    if os.fork():
        os._exit(0)
    _end_on_signal()
    try:
        _supervise(Home(Path(directory)), program, kind, float(linger_s))
    except Exception:  # noqa: BLE001  (into the log, whatever it is)
        import traceback

        traceback.print_exc()
    finally:
        # without a wait for threads: those of fakeredis end by no other means
        sys.stderr.flush()
        os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
