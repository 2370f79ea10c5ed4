"""The supervisor process of an embedded server: starts it, and ends it when nobody uses it any more.

snowredis.embedded.start() runs ``python -m snowredis.embedded.supervisor DIRECTORY PROGRAM KIND LINGER_S`` and holds
the start lock meanwhile; the process prints its state as one line of JSON when the server replies. However this
process ends, its server ends with it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

from snowredis.embedded import is_ready
from snowredis.embedded.home import Home, wait_until
from snowredis.errors import StoreUnavailable

# how often it checks for users
_POLL_S = 0.5
# how often it keeps the lock files young, in polls: every hour
_POLLS_UNTIL_OLD = 7_200
# until the server replies; until it has ended on SIGTERM, before SIGKILL
_READY_LIMIT_S, _END_LIMIT_S = 10.0, 3.0
# from <linux/prctl.h>
_PR_SET_PDEATHSIG = 1


class _ServerProgram:
    """redis-server or valkey-server: a child process on a unix socket."""

    def __init__(self, home: Home, program: str) -> None:
        supervisor = os.getpid()
        # loaded now: nothing may be loaded between fork and exec
        prctl = _prctl()

        def end_with_supervisor() -> None:
            # the kernel sends the signal when the thread that forked ends: here, the main thread
            if prctl and (prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) or os.getppid() != supervisor):
                os._exit(1)

        self._child = subprocess.Popen(
            [program, "--port", "0", "--unixsocket", str(home.socket), "--unixsocketperm", "700"]
            # nothing that was acknowledged is lost, even if the machine loses power
            + ["--save", "", "--appendonly", "yes", "--appendfsync", "always"]
            + ["--daemonize", "no", "--dir", str(home.path)],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            preexec_fn=end_with_supervisor,  # noqa: PLW1509  (no second thread here)
        )

    def is_alive(self) -> bool:
        return self._child.poll() is None

    def end(self) -> None:
        self._child.terminate()
        try:
            self._child.wait(_END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


def _prctl() -> Any:
    """Return prctl() of Linux; None on other systems, and in a Python that was built without libffi."""
    try:
        import ctypes
    except ImportError:
        return None
    return ctypes.CDLL(None).prctl if sys.platform == "linux" else None


class _Fake:
    """fakeredis: threads of this process, on a unix socket that only this user can reach."""

    def __init__(self, home: Home) -> None:
        import threading

        from fakeredis import TcpFakeServer

        class UnixFakeServer(TcpFakeServer):
            address_family = socket.AF_UNIX

            def server_bind(self) -> None:
                super().server_bind()
                home.socket.chmod(0o700)

            def get_request(self) -> tuple[socket.socket, object]:
                connection, _ = super().get_request()
                # fakeredis tells connections apart by their addresses
                return connection, (str(home.socket), connection.fileno())

        install_info()
        # a path in place of host and port, as the address family has it
        server = UnixFakeServer(str(home.socket), server_version=(7, 0, 0))  # type: ignore[arg-type]
        server.daemon_threads = True
        self._thread = threading.Thread(target=server.serve_forever, daemon=True)
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def end(self) -> None:
        """Do nothing: the threads end with the process, at once."""


def _supervise(home: Home, program: str, kind: str, linger_s: float) -> None:
    """Run the server until nobody uses it any more. Raises StoreUnavailable if it does not start."""
    # at the end, in this order: end the server, release the supervisor's lock, release the start lock
    with contextlib.ExitStack() as start_lock, home.be_supervisor() as write_state:
        state: dict[str, object] = {"pid": os.getpid(), "kind": kind}
        write_state(state)
        url = f"unix://{quote(str(home.socket))}"
        running = _ServerProgram(home, program) if program else _Fake(home)
        try:
            wait_until(lambda: is_ready(url) or not running.is_alive(), _READY_LIMIT_S)
            if not is_ready(url):
                raise StoreUnavailable(url, "it was started but does not reply")
            state["url"] = url
            write_state(state)
            print(json.dumps(state), flush=True)
            # this closes stdout: the process that started this one reads until the end of the file
            os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
            _wait_for_disuse(home, running, linger_s, start_lock)
        finally:
            running.end()


def _wait_for_disuse(
    home: Home, running: _ServerProgram | _Fake, linger_s: float, start_lock: contextlib.ExitStack
) -> None:
    """Block until there was no user for *linger_s*, or the server has ended, or its files were removed.

    In the first case, *start_lock* holds the start lock afterwards, so that no process becomes a user.
    """
    used_s = time.monotonic()
    for poll in itertools.count():
        # a process that finds no socket waits until this server has ended
        if not (running.is_alive() and home.socket.exists()):
            return
        if poll % _POLLS_UNTIL_OLD == 0:
            home.keep_young()
        time.sleep(_POLL_S)
        try:
            start_lock.enter_context(home.start_lock(limit_s=0))
        except StoreUnavailable:
            # a process is about to use it
            used_s = time.monotonic()
            continue
        if home.has_users():
            used_s = time.monotonic()
        elif time.monotonic() - used_s >= linger_s:
            return
        start_lock.close()


def _end_on_signal() -> None:
    """Let SIGTERM and SIGINT end this process by SystemExit, so that its finally blocks run."""

    def end(number: int, _frame: object) -> NoReturn:
        # a second signal must not interrupt those blocks
        signal.signal(number, signal.SIG_IGN)
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def main(directory: str, program: str, kind: str, linger_s: str) -> None:
    """Supervise a server of *program*, or fakeredis if that is empty, in a forked child. Never returns."""
    # the process that started this one waits for the parent only, so that it has no child to reap later
    if os.fork():
        os._exit(0)
    _end_on_signal()
    try:
        _supervise(Home(Path(directory)), program, kind, float(linger_s))
    except Exception:  # noqa: BLE001  (all errors go to the log)
        import traceback

        traceback.print_exc()
    finally:
        # sys.exit() would wait for the threads of fakeredis, which do not end
        sys.stderr.flush()
        os._exit(0)


def install_info() -> None:
    """Add ``INFO`` to every fakeredis server of this process, unless fakeredis has it.

    It is the one command that the Lua scripts need and fakeredis does not have. It is registered as fakeredis registers
    its own commands, so that clients and scripts can use it, in process and over TCP.

    The reply has ``redis_version``, ``run_id`` and ``master_replid``, whatever section is requested. Both ids are
    random, and the same for all calls on one ``FakeServer``. Servers may be created before or after the call.

    Raises:
        ImportError: fakeredis is not installed, or its registry of commands has moved.
    """
    import secrets

    from fakeredis._commands import SUPPORTED_COMMANDS, command
    from fakeredis.commands_mixins.server_mixin import ServerCommandsMixin

    if "info" in SUPPORTED_COMMANDS:
        return

    def info(self: ServerCommandsMixin, *_sections: bytes) -> bytes:
        server = self._server
        # setdefault is atomic: two threads get the same ids
        run_id, replication_id = vars(server).setdefault(
            "_snowredis_ids", (secrets.token_hex(20), secrets.token_hex(20))
        )
        version = ".".join(str(part) for part in (*server.version, 0, 0)[:3])
        return (
            f"# Server\r\nredis_version:{version}\r\nredis_mode:standalone\r\nrun_id:{run_id}\r\n"
            f"# Replication\r\nrole:master\r\nmaster_replid:{replication_id}\r\n"
        ).encode()

    # the method is added before the command, so that a thread that finds the command finds the method
    ServerCommandsMixin.info = info  # type: ignore[attr-defined]
    command((), (bytes,))(info)


if __name__ == "__main__":
    main(*sys.argv[1:])
