"""The names of a process: one that tells whether it has ended, the text that people see in Redis, and random ones.

A pid alone says little: it is used again, and other containers have processes with the same. So a process is named by
its pid, the time of its start, and the namespace in which both hold. Another process of this machine tells by that
name whether it has ended, without being its parent and without a descriptor. Whatever is uncertain counts as alive:
the lease of a process that lives must never be released.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import NamedTuple

from snowredis.process.clock import Clock


class ProcessName(NamedTuple):
    """Name of a process that no other process of this machine has, had or will have, as long as it runs.

    Attributes:
        namespace: where the other two hold.
        pid: its process id.
        started: when it started, in ticks of the kernel; "0" where that is unknown.
        image: address of its stack, another one after each exec; "" where that is unknown.
    """

    namespace: str
    pid: int
    started: str
    image: str = ""


def own_name() -> ProcessName | None:
    """Return the name of this process; None where the end of a process cannot be told with certainty."""
    pid, platform = os.getpid(), sys.platform
    if platform == "darwin":
        # no namespaces of pids
        return ProcessName(platform, pid, "0")
    status, namespace = _status(pid), _namespace(pid)
    if status is None or not namespace:
        return None
    return ProcessName(namespace, pid, status.started, status.image)


@functools.lru_cache(maxsize=1)
def parent_name(own: ProcessName) -> ProcessName | None:
    """Return the name of the process that started this one; None if it is unknown.

    As the first call finds it: after the end of its parent, a process has another one.
    """
    while True:
        pid = os.getppid()
        # 0: it is in another namespace
        status = _status(pid) if pid and sys.platform != "darwin" else ProcessStatus("0", False)
        # otherwise the parent ended meanwhile, and another process may have its pid
        if os.getppid() == pid:
            return status and ProcessName(own.namespace, pid, status.started)


class ProcessStatus(NamedTuple):
    """State of a process now; one that is gone has not even a start.

    Attributes:
        started: as in ProcessName.
        is_zombie: whether all of its threads have ended.
        image: as in ProcessName; shown to the process itself, and to few others.
    """

    started: str
    is_zombie: bool
    image: str = ""


GONE = ProcessStatus("", True)


def has_ended(name: ProcessName, own: ProcessName, read: Callable[[int], ProcessStatus | None] | None = None) -> bool:
    """Return whether the process *name* makes no more ids, for certain.

    A zombie has ended, too: it waits for its parent. Reaps nothing, and signals nobody.

    Args:
        own: the result of own_name().
        read: returns what is seen of a process; None if that is unknown. For the simulation.
    """
    if name.namespace != own.namespace:
        return False
    if name.pid == own.pid:
        # an exec keeps pid and start; only the process itself is sure to see its image
        both_known = bool(name.image and own.image)
        return name.image != own.image if both_known else name.started != own.started
    status = (read or _read)(name.pid)
    if status is None or status.is_zombie:
        return status is not None
    # a process that was restored from a checkpoint (CRIU) has another start, and its pid, its stack and its lease
    is_restored = bool(name.image) and status.image == name.image
    return status.started != name.started and not is_restored


def _read(pid: int) -> ProcessStatus | None:
    """Return what is seen of a process; None if that is unknown."""
    try:
        # no signal: this checks whether there is such a process
        os.kill(pid, 0)
    except ProcessLookupError:
        return GONE
    except OSError:
        # a process of another user, which may have the pid of one that has ended
        pass
    return _status(pid)


def _status(pid: int) -> ProcessStatus | None:
    """Return what /proc shows of a process; None if nothing."""
    try:
        text = _content(f"/proc/{pid}/stat")
    except OSError:
        return None
    # the name of the program may contain anything; after it, the fields from the third on: see man 5 proc
    fields = text.rpartition(b")")[2].split()
    try:
        state, threads, started = fields[0], int(fields[17]), fields[19].decode()
    except (IndexError, ValueError):
        return None
    # the first thread of a process may end before the others
    is_zombie = state in (b"Z", b"X") and threads <= 1
    # the start of the stack; 0 for those who may not see it, and once the first thread has ended
    stack = b"".join(fields[25:26]).decode()
    return ProcessStatus(started, is_zombie, stack if stack != "0" else "")


def boot_id() -> str:
    """Return the name of this run of the kernel; "" where it is unknown."""
    try:
        return _content("/proc/sys/kernel/random/boot_id").strip().decode()
    except OSError:
        return ""


def _content(path: str) -> bytes:
    """Return what is in a file of the kernel. Raises OSError."""
    # half the cost of open(): each heartbeat reads two
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)


def _namespace(pid: int) -> str:
    """Return a digest of this run of the kernel, and of the namespaces of pids and of times; "" if unknown."""
    try:
        # /proc may be that of another namespace, where pids mean other processes
        if os.readlink("/proc/self") != str(pid):
            return ""
        boot = boot_id()
        spaces = [os.readlink("/proc/self/ns/pid")]
        # before Linux 5.6 there is one time for all
        with contextlib.suppress(FileNotFoundError):
            spaces.append(os.readlink("/proc/self/ns/time"))
    except OSError:
        return ""
    return hashlib.sha256(repr((boot, spaces)).encode()).hexdigest()[:16] if boot else ""


# characters of a host name and of a label; with both, the text stays below the 1000 bytes that the scripts accept
MAX_NAME = 100
# characters that the scripts refuse, and surrogates, which cannot be encoded
_NOT_PRINTED = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def random_name(random_bytes: Callable[[int], bytes], clock: Clock) -> str:
    """Return 128 random bits, hex. The clocks are mixed in: two clones of a machine may share their random state."""
    seed = f"{random_bytes(16).hex()} {clock.time_ns()} {clock.monotonic()!r}"
    return hashlib.blake2b(seed.encode(), digest_size=16).hexdigest()


@functools.lru_cache(maxsize=1)
def process_mark(_pid: int) -> str:
    """Return 24 random bits, hex, of this process: containers can have equal hosts and pids."""
    return os.urandom(3).hex()


# options of this process; a forked child starts with those of its parent. The label, the text that people see beside
# the worker id, is that of generators that have none
PROCESS = SimpleNamespace(label="")


@functools.lru_cache(maxsize=100)
def owner_text(host: str, pid: int, label: str, **more: object) -> str:
    """Return JSON that names a process in Redis, for people. Host and label are cut to MAX_NAME and made printable.

    Args:
        more: other fields of Owner in monitor/lease.py, times without "_ms". Those that say nothing are left out.
    """
    host, label = (_NOT_PRINTED.sub("\N{REPLACEMENT CHARACTER}", text[:MAX_NAME]) for text in (host, label))
    owner = {"host": host, "pid": pid, "label": label} | {name: value for name, value in more.items() if value}
    return json.dumps(owner, separators=(",", ":"), ensure_ascii=False)
