"""`run`: run any program with a worker id of a pool, and end it before the reservation of the worker id ends."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from snowredis.cli.commands.ids import settings_of_pool, warnings_on_stderr
from snowredis.cli.exit_codes import CommandError, ExitCode
from snowredis.cli.options import Command, Parser, settings
from snowredis.core.layout import layout_spec
from snowredis.errors import LeaseLost
from snowredis.process.clock import now_ms

if TYPE_CHECKING:
    from snowredis.snowflake.lease.held import OwnLease

# passed on to the program, as far as this system has them
_NAMES = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH")
_PASSED = [known for known in signal.Signals if known.name in _NAMES]
# This process kills the program so long before the end of the reservation, at most a quarter of a ttl. run_killer.py
# does it half as long before.
_KILL_S = 1.0
# time for the program to end after SIGTERM, before SIGKILL; a quarter of a ttl at most
_GRACE_S = 5.0
# signals are passed on, and the end of the program is seen, after this time at most
_EVERY_S = 0.05
_KILLER = Path(__file__).parents[1] / "run_killer.py"


class _Killer:
    """The process that ends the program if this one is killed or stopped."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_KILLER)], stdin=subprocess.PIPE, start_new_session=True
        )
        stdin: Any = self._process.stdin
        self.pipe: int = stdin.fileno()
        os.set_blocking(self.pipe, False)

    def line(self, group: int, left_s: float) -> bytes:
        """Return what tells the killer to end *group* if nothing else does in *left_s*."""
        return f"{group} {time.time() + left_s:.3f} {time.monotonic() + left_s:.3f}\n".encode()

    def tell(self, group: int, left_s: float) -> None:
        """Set what is ended, and when; start another one if somebody killed it, or it was stopped for long."""
        try:
            os.write(self.pipe, self.line(group, left_s))
        except (BrokenPipeError, BlockingIOError):
            self._kill()
            self._start()
            os.write(self.pipe, self.line(group, left_s))

    def close(self) -> None:
        """End the killer."""
        self._process.stdin.close()  # type: ignore[union-attr]
        try:
            self._process.wait(_EVERY_S)
        except subprocess.TimeoutExpired:
            self._kill()

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait()


class _Program:
    """One run of the program, in a process group of its own."""

    def __init__(self, words: list[str], lease: ProgramLease, killer: _Killer) -> None:
        self._killer = killer
        self.kill_s = min(_KILL_S, lease.ttl_ms / 4000)
        variables = {
            "WORKER_ID": lease.worker,
            "DATACENTER": lease.datacenter,
            "LAYOUT": lease.layout_spec,
            "FROM": lease.from_ms,
            "UNTIL": lease.until_ms,
        }
        environment = os.environ | {f"SNOWREDIS_{name}": str(value) for name, value in variables.items()}
        left_s = lease.left_s - self.kill_s / 2

        def begin() -> None:
            # in the child, before the program begins: the killer knows it even if this process is killed here
            os.setpgid(0, 0)
            os.write(killer.pipe, killer.line(os.getpid(), left_s))

        try:
            self._process = subprocess.Popen(words, env=environment, preexec_fn=begin)  # noqa: PLW1509 - see begin()
        except (OSError, subprocess.SubprocessError) as error:
            killer.tell(0, 0)
            raise CommandError(ExitCode.ERROR, f"{words[0]} does not start: {error}") from error
        self.group = self._process.pid

    @property
    def code(self) -> int | None:
        """Its exit code; None: it runs."""
        return self._process.poll()

    def send(self, number: int) -> None:
        """Send a signal to the program."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def end(self, left_s: float, grace_s: float) -> None:
        """End the group: SIGTERM, and after *grace_s*, or ``kill_s`` before the reservation ends, SIGKILL."""
        for number in (signal.SIGTERM, signal.SIGCONT):
            self._send_all(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, min(grace_s, left_s - self.kill_s)))
        self.kill()

    def kill(self) -> None:
        """Kill what is left of the group, and wait for the program. Does nothing when called again."""
        if not self.group:
            # by now, another group may have its number
            return
        self._send_all(signal.SIGKILL)
        self._process.wait()
        self.group = 0
        self._killer.tell(0, 0)

    def _send_all(self, number: int) -> None:
        # macOS: EPERM if only zombies are left
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.group, number)


class ProgramLease:
    """A leased worker id, claimed when it is made, and renewed in the background, while a program makes the ids.

    Which ticks the program used is unknown here, so no mark is ever lowered: after close() the worker id is available
    again when its reservation ends.

    Ids with this worker and datacenter, and 0 in the backup bits, may be made at times from ``from_ms`` on, which have
    passed then, and before ``until_ms``, which each renewal moves on.

    Blocks and raises:
        as SnowflakeGenerator.claim().
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        from snowredis.connection import connect

        # a generator for this lease alone: it makes no ids
        self._ids = connect(**settings)
        try:
            self._ids._lease_manager.slot.lent = True
            self._lease = self._ids.claim()
            # the end of the reservation on the wall clock and on the monotonic one
            self._end = self._end_of(self._lease)
            self.ttl_ms, self.worker = self._ids.ttl_ms, self._lease.worker
            self.layout_spec = layout_spec(self._ids.layout)
            self.datacenter = self._ids._lease_manager.store.config.datacenter
            self.from_ms = self._ids.layout.ms_at(self._lease.opens[0])
            self._wait_for_first_tick()
        except BaseException:
            self.close()
            raise

    def _wait_for_first_tick(self) -> None:
        while (wait_ms := self.from_ms - now_ms()) > 0:
            if not self.left_s:
                raise LeaseLost(self._lease.pool, self.worker, "it was lost before its first tick")
            time.sleep(min(wait_ms / 1000, _EVERY_S))

    @staticmethod
    def _end_of(lease: OwnLease) -> tuple[int, float]:
        return lease.until_ms, time.monotonic() + lease.until_ms / 1000 - time.time()

    @property
    def until_ms(self) -> int:
        """End of the reservation, ms since 1970."""
        return self._end[0]

    @property
    def left_s(self) -> float:
        """Seconds until the reservation ends, if it is not renewed before; 0 if it has, or the worker id is lost."""
        now = self._ids.lease
        if now is None or now.token_hash != self._lease.token_hash:
            return 0.0
        if now.until_ms != self._end[0]:
            self._end = self._end_of(now)
        until_ms, until_s = self._end
        # the clock may be set back
        return max(0.0, min(until_ms / 1000 - time.time(), until_s - time.monotonic()))

    def close(self) -> None:
        """Release the worker id after the end of the program. Never raises, blocks as SnowflakeGenerator.close()."""
        self._ids.close()


def _add_arguments(parser: Parser) -> None:
    parser.add_redis()
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="-- PROGRAM …")


def _run(args: argparse.Namespace) -> int:
    """Run any program of one process with a worker id of a pool.

    Claims a worker id, and runs the program with SNOWREDIS_WORKER_ID, SNOWREDIS_DATACENTER, SNOWREDIS_LAYOUT,
    SNOWREDIS_FROM and SNOWREDIS_UNTIL (ms since 1970). The worker id is for one process: others of the program inherit
    the variable, and would repeat its ids. Signals and the exit code are passed on. The program is ended before its
    reservation ends, if that cannot be renewed: exit code 8.

    examples:
      snowredis run --pool orders -- node server.js  one process
    """
    words = args.program[1:] if args.program[:1] == ["--"] else args.program
    if not words:
        raise CommandError(ExitCode.USAGE, "no program is named. Write it after --.")
    if os.name != "posix":
        raise CommandError(ExitCode.ERROR, "`snowredis run` needs process groups, which this system does not have")
    if shutil.which(words[0]) is None:
        # before a worker id is claimed, which would be reserved for one ttl
        raise CommandError(ExitCode.ERROR, f"{words[0]} does not start: it is not found, or may not be run")
    url, options = settings(args)
    options = {"label": f"snowredis run {Path(words[0]).name}"[:100]} | settings_of_pool(args) | options
    killer = _Killer()
    try:
        # before the handlers: until there is a program, signals end this process
        with warnings_on_stderr(), contextlib.closing(ProgramLease({"url": url, **options})) as lease:
            arrived: list[int] = []
            for number in _PASSED:
                # ignored, as by nohup: it stays so for the program, too
                if signal.getsignal(number) != signal.SIG_IGN:
                    signal.signal(number, lambda number, _: arrived.append(number))
            return _supervise(_Program(words, lease, killer), lease, killer, arrived)
    finally:
        killer.close()


def _supervise(program: _Program, lease: ProgramLease, killer: _Killer, arrived: list[int]) -> int:
    """Wait for the end of the program; return its exit code. Raises CommandError if it had to be ended.

    Args:
        arrived: signals to pass on.
    """
    grace_s = min(_GRACE_S, lease.ttl_ms / 4000)
    try:
        while (code := program.code) is None:
            left_s = lease.left_s
            if left_s <= grace_s + program.kill_s:
                program.end(left_s, grace_s)
                why = "could not be renewed in time" if left_s else "was lost"
                raise CommandError(ExitCode.LEASE_OR_CLOCK, f"worker id {lease.worker} {why}; the program was ended")
            killer.tell(program.group, left_s - program.kill_s / 2)
            while arrived:
                program.send(arrived.pop(0))
            time.sleep(_EVERY_S)
    finally:
        program.kill()
    return code if code >= 0 else 128 - code


RUN = Command("run", _run, _add_arguments)
