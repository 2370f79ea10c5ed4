"""Tell whether a process of this machine has ended, without being its parent and without a descriptor.

A pid alone says little: it is used again, and other containers have processes with the same. So a process is named by
its pid, the time of its start, and the namespace in which both hold. Whatever is uncertain counts as alive: the lease
of a process that lives must never be given back.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Callable
from typing import NamedTuple


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
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
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
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return file.read().strip().decode()
    except OSError:
        return ""


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
