"""Check this host: its clock, its randomness, its name, forks, virtual machines. Reads only."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import socket
import sys
from pathlib import Path

from snowredis.monitor.health.finding import Finding, error, ok, unknown, warning

# STA_UNSYNC of adjtimex(2)
_UNSYNCHRONIZED = 0x40
# of struct timex: modes, offset, freq, maxerror, esterror, status; the rest is not used
_STATUS_AT, _MAXERROR_AT, _TIMEX_BYTES = (
    5 * ctypes.sizeof(ctypes.c_long),
    3 * ctypes.sizeof(ctypes.c_long),
    512,
)
# the kernel reports this maximum error for a clock that is not synchronized any more
_MAX_ERROR_US = 16_000_000


def check_host() -> list[Finding]:
    """Run all checks of this host. Blocks for a few ms; raises nothing."""
    return [_ntp(), _random(), _names(), _forks(), _virtual()]


def _ntp() -> Finding:
    what = "ntp"
    state = kernel_clock()
    if state is None:
        return unknown(what, "this system does not report whether its clock is synchronized")
    status, error_us = state
    if status & _UNSYNCHRONIZED or error_us >= _MAX_ERROR_US:
        return warning(
            what,
            "the kernel reports that this clock is not synchronized",
            "start chrony, systemd-timesyncd or ntpd on the host (a container has its host's clock), and let it slew, "
            "not step",
        )
    return ok(what, f"the clock is synchronized, with an error of {error_us / 1000:.0f} ms at most")


def kernel_clock() -> tuple[int, int] | None:
    """Return status bits and maximum error in µs from adjtimex(2), which only reads here; None if unavailable."""
    if not sys.platform.startswith("linux"):
        return None
    buffer = (ctypes.c_byte * _TIMEX_BYTES)()
    try:
        result = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(buffer))
    except (OSError, AttributeError):
        return None
    if result < 0:
        return None
    status = ctypes.c_int.from_buffer(buffer, _STATUS_AT).value
    return status, ctypes.c_long.from_buffer(buffer, _MAXERROR_AT).value


def _random() -> Finding:
    what = "randomness"
    getrandom = getattr(os, "getrandom", None)
    if getrandom is None:
        return ok(what, "the random generator of the system is used")
    try:
        getrandom(16, os.GRND_NONBLOCK)
    except BlockingIOError:
        return error(
            what,
            "the kernel has gathered no randomness yet",
            "claims would wait, and clones could draw equal tokens: give the machine a virtio-rng or a seed",
        )
    except OSError as failure:
        return unknown(what, f"getrandom() is refused: {failure}")
    return ok(what, "the random generator of the kernel is ready")


def _names() -> Finding:
    what, name, machine = "names", socket.gethostname(), _read("/etc/machine-id")
    if name in ("", "localhost", "localhost.localdomain"):
        return warning(
            what,
            f"the name of this host is {name!r}, which others may share",
            "ids stay unique, but `workers` and `whois` cannot tell such hosts apart: set a host name or a label",
        )
    if machine == "uninitialized":
        return warning(
            what,
            "/etc/machine-id is not initialized",
            "this image was never fully booted: see machine-id(5)",
        )
    return ok(what, f"host {name}" + (f", machine {machine[:8]}…" if machine else ""))


def _forks() -> Finding:
    what, release = "forks", platform.release()
    match = re.match(r"(\d+)\.(\d+)", release)
    if sys.platform.startswith("linux") and match and (int(match[1]), int(match[2])) < (4, 14):
        return warning(
            what,
            f"Linux {release} does not support MADV_WIPEONFORK",
            "forks by C code are detected by the pid only, once a tick: fork from Python, or use Linux 4.14 or later",
        )
    inner = re.search(r"^NSpid:\s+(.*)$", _read("/proc/self/status"), re.MULTILINE)
    nested = inner is not None and len(inner[1].split()) > 1
    container = (
        nested or os.getpid() == 1 or Path("/.dockerenv").exists() or Path("/run/.containerenv").exists()
    )
    if container:
        return ok(
            what, "in a container: other containers may have equal pids; worker ids do not depend on them"
        )
    return ok(what, "forked children claim worker ids of their own")


def _virtual() -> Finding:
    what = "clones"
    if "hypervisor" not in _read("/proc/cpuinfo")[:20_000]:
        return ok(what, "not a virtual machine")
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
