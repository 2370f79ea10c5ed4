"""What can be wrong with this host: its clock, its randomness, what it shares with its clones. Reads only."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import socket
import sys
from pathlib import Path

from snowredis.monitor.findings import Finding, error, ok, unknown, warning

# STA_UNSYNC of adjtimex(2)
_UNSYNCHRONIZED = 0x40
# of struct timex: modes, offset, freq, maxerror, esterror, status; then what is of no interest here
_STATUS_AT, _MAXERROR_AT, _TIMEX_BYTES = (
    5 * ctypes.sizeof(ctypes.c_long),
    3 * ctypes.sizeof(ctypes.c_long),
    512,
)
# the kernel says so much for a clock that nobody disciplines any more
_MAX_ERROR_US = 16_000_000


def look_at_host() -> list[Finding]:
    """All checks of this host; blocks for some ms, raises nothing."""
    return [_ntp(), _random(), _names(), _forks(), _virtual()]


def _ntp() -> Finding:
    what = "ntp"
    state = kernel_clock()
    if state is None:
        return unknown(what, "this system does not say whether its clock is synchronized")
    status, error_us = state
    if status & _UNSYNCHRONIZED or error_us >= _MAX_ERROR_US:
        return warning(
            what,
            "the kernel says that nobody synchronizes this clock",
            "start chrony, systemd-timesyncd or ntpd on the host (a container has its host's clock), and let it slew, "
            "not step",
        )
    return ok(what, f"the clock is synchronized, to {error_us / 1000:.0f} ms at the worst")


def kernel_clock() -> tuple[int, int] | None:
    """Status bits and the greatest error in µs, of adjtimex(2), which only reads here; None if there is none."""
    if not sys.platform.startswith("linux"):
        return None
    buffer = (ctypes.c_byte * _TIMEX_BYTES)()
    try:
        answer = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(buffer))
    except (OSError, AttributeError):
        return None
    if answer < 0:
        return None
    status = ctypes.c_int.from_buffer(buffer, _STATUS_AT).value
    return status, ctypes.c_long.from_buffer(buffer, _MAXERROR_AT).value


def _random() -> Finding:
    what = "randomness"
    getrandom = getattr(os, "getrandom", None)
    if getrandom is None:
        return ok(what, "the system's own generator is used")
    try:
        getrandom(16, os.GRND_NONBLOCK)
    except BlockingIOError:
        return error(
            what,
            "the kernel has gathered no randomness yet",
            "claims would wait for it, and clones could draw equal tokens: give the machine a virtio-rng or a seed",
        )
    except OSError as failure:
        return unknown(what, f"getrandom() is refused: {failure}")
    return ok(what, "the kernel's generator is ready")


def _names() -> Finding:
    what, name, machine = "names", socket.gethostname(), _read("/etc/machine-id")
    if name in ("", "localhost", "localhost.localdomain"):
        return warning(
            what,
            f"this host is called {name!r}, as others may be",
            "ids stay unique, but `workers` and `whois` cannot tell such hosts apart: set the host name, or a label",
        )
    if machine == "uninitialized":
        return warning(
            what,
            "/etc/machine-id is not initialized",
            "this is an image that was never booted properly: see machine-id(5)",
        )
    return ok(what, f"host {name}" + (f", machine {machine[:8]}…" if machine else ""))


def _forks() -> Finding:
    what, release = "forks", platform.release()
    match = re.match(r"(\d+)\.(\d+)", release)
    if sys.platform.startswith("linux") and match and (int(match[1]), int(match[2])) < (4, 14):
        return warning(
            what,
            f"Linux {release} knows no MADV_WIPEONFORK",
            "forks made by C code are noticed by the pid only, once a tick: fork from Python, or use "
            "Linux 4.14 or later",
        )
    inner = re.search(r"^NSpid:\s+(.*)$", _read("/proc/self/status"), re.MULTILINE)
    nested = inner is not None and len(inner[1].split()) > 1
    container = (
        nested or os.getpid() == 1 or Path("/.dockerenv").exists() or Path("/run/.containerenv").exists()
    )
    if container:
        return ok(
            what, "in a container: pids are its own, so several may be equal; worker ids do not rest on them"
        )
    return ok(what, "forked children claim worker ids of their own")


def _virtual() -> Finding:
    what = "clones"
    if "hypervisor" not in _read("/proc/cpuinfo")[:20_000]:
        return ok(what, "no virtual machine")
    return ok(
        what,
        "a virtual machine: if it is ever snapshotted while it runs, call suspend() before and resume() after, or its "
        "clones repeat ids for up to one ttl",
    )


def _read(path: str) -> str:
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            return file.read(100_000).strip()
    except OSError:
        return ""
