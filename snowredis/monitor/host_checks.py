"""Results of checks: how serious each is, and what to do.

Check this host: its clock, its randomness, its name, forks, virtual machines. Only reads.
"""

from __future__ import annotations

import os
import platform
import re
import socket
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from snowredis.errors import SnowredisError, StoreRefused

# from least to most serious
SEVERITIES = ("ok", "unknown", "warning", "error")


class Result(NamedTuple):
    """Result of a check.

    Attributes:
        severity: one of SEVERITIES. unknown: the check was not possible.
        text: what was found; may contain untrusted text.
        advice: what to do; empty if nothing is wrong.
    """

    severity: str
    text: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of a check, with the name of the check; the other fields are those of Result."""

    check: str
    severity: str
    text: str
    advice: str = ""


def ok(text: str) -> Result:
    """Return a result of severity "ok"."""
    return Result("ok", text)


def unknown(text: str, advice: str = "") -> Result:
    """Return the result of a check that was not possible."""
    return Result("unknown", text, advice)


def not_checked(failure: SnowredisError, what: str = "") -> Result:
    """Return the result of a check, of *what*, that *failure* made impossible: a command was refused, or Redis left."""
    reason = failure.reason if isinstance(failure, StoreRefused) else str(failure)
    return unknown(f"{what}{' was ' if what else ''}not checked: {reason}")


def warning(text: str, advice: str) -> Result:
    """Return a result of severity "warning"."""
    return Result("warning", text, advice)


def error(text: str, advice: str) -> Result:
    """Return a result of severity "error"."""
    return Result("error", text, advice)


def worst(findings: Sequence[Finding]) -> str:
    """Return the highest severity in *findings*; "ok" if there are none."""
    return max((finding.severity for finding in findings), key=SEVERITIES.index, default="ok")


# STA_UNSYNC of adjtimex(2)
_UNSYNCHRONIZED = 0x40
# the first fields of struct timex: modes, offset, freq, maxerror, esterror, status
_TIMEX = "@Illlli"
_TIMEX_BYTES = 512
# the kernel reports this maximum error for a clock that is not synchronized any more
_MAX_ERROR_US = 16_000_000


def check_host() -> list[Finding]:
    """Run all checks of this host. Blocks for a few ms; raises nothing."""
    return [Finding(check, *run()) for check, run in _CHECKS.items()]


def _ntp() -> Result:
    state = kernel_clock()
    if state is None:
        return unknown("this system does not report whether its clock is synchronized")
    status, error_us = state
    if status & _UNSYNCHRONIZED or error_us >= _MAX_ERROR_US:
        return warning(
            "the kernel reports that this clock is not synchronized",
            "start chrony, systemd-timesyncd or ntpd on the host (a container has its host's clock), and let it slew, "
            "not step",
        )
    return ok(f"the clock is synchronized, with an error of {error_us / 1000:.0f} ms at most")


def kernel_clock() -> tuple[int, int] | None:
    """Return status bits and maximum error in µs from adjtimex(2), which only reads here; None if unavailable."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        # not at the top: a Python that was built without libffi has none
        import ctypes

        buffer = ctypes.create_string_buffer(_TIMEX_BYTES)
        result = ctypes.CDLL(None, use_errno=True).adjtimex(buffer)
    except (ImportError, OSError, AttributeError):
        return None
    _, _, _, error_us, _, status = struct.unpack_from(_TIMEX, buffer)
    return (status, error_us) if result >= 0 else None


def _random() -> Result:
    getrandom = getattr(os, "getrandom", None)
    if getrandom is None:
        return ok("the random generator of the system is used")
    try:
        getrandom(16, os.GRND_NONBLOCK)
    except BlockingIOError:
        return error(
            "the kernel has gathered no randomness yet",
            "claims would wait, and clones could draw equal tokens: give the machine a virtio-rng or a seed",
        )
    except OSError as failure:
        return unknown(f"getrandom() is refused: {failure}")
    return ok("the random generator of the kernel is ready")


def _names() -> Result:
    name, machine = socket.gethostname(), _read("/etc/machine-id")
    if name in ("", "localhost", "localhost.localdomain"):
        return warning(
            f"the name of this host is {name!r}, which others may share",
            "ids stay unique, but `workers` and `whois` cannot tell such hosts apart: set a host name or a label",
        )
    if machine == "uninitialized":
        advice = "this image was never fully booted: see machine-id(5)"
        return warning("/etc/machine-id is not initialized", advice)
    return ok(f"host {name}" + (f", machine {machine[:8]}…" if machine else ""))


def _forks() -> Result:
    release = platform.release()
    match = re.match(r"(\d+)\.(\d+)", release)
    if sys.platform.startswith("linux") and match and (int(match[1]), int(match[2])) < (4, 14):
        return warning(
            f"Linux {release} does not support MADV_WIPEONFORK",
            "forks by C code are detected by the pid only, once a tick: fork from Python, or use Linux 4.14 or later",
        )
    inner = re.search(r"^NSpid:\s+(.*)$", _read("/proc/self/status"), re.MULTILINE)
    nested = inner is not None and len(inner[1].split()) > 1
    marked = any(Path(path).exists() for path in ("/.dockerenv", "/run/.containerenv"))
    if nested or marked or os.getpid() == 1:
        return ok("in a container: other containers may have equal pids; worker ids do not depend on them")
    return ok("forked children claim worker ids of their own")


def _virtual() -> Result:
    if "hypervisor" not in _read("/proc/cpuinfo")[:20_000]:
        return ok("not a virtual machine")
    return ok(
        "a virtual machine: if it is ever snapshotted while it runs, call suspend() before and resume() after, or its "
        "clones repeat ids for up to one ttl",
    )


def _read(path: str) -> str:
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            return file.read(100_000).strip()
    except OSError:
        return ""


_CHECKS: Mapping[str, Callable[[], Result]] = {
    "ntp": _ntp,
    "randomness": _random,
    "names": _names,
    "forks": _forks,
    "clones": _virtual,
}
