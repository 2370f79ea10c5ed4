"""Files of crash records in /dev/shm: one for each generator of every process of this user on this machine.

Each process that talks to the same pool finds there what dead processes left (sweep.py): its parent, its children, or
unrelated processes. The name of a file says whose file it is: pool, process (process/names.py), number, and while
another process releases the lease, the name of that process.

A file is mapped into memory and its descriptor is closed at once, so a program may close all descriptors. A file has
all of its memory before anything is written: a full /dev/shm refuses a file, and no process gets SIGBUS.

How the process ends is noted in the files, too, as far as Python code can tell: see process/exit.py, EndNotes.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import mmap
import os
import stat
import sys
import time
from collections import deque
from typing import NamedTuple

from snowredis.process.exit import ENDS, End
from snowredis.process.fork import GUARD
from snowredis.process.names import ProcessName, own_name
from snowredis.snowflake.crash_record import HEADER_BYTES, RECORD_BYTES, CrashRecord
from snowredis.snowflake.protocol import Store

try:
    import ctypes
except ImportError:
    # a Python that was built without libffi: new_record() returns None
    ctypes = None  # type: ignore[assignment]

log = logging.getLogger("snowredis")

# the directory of the records, or "off"
VARIABLE = "SNOWREDIS_CRASH_RECORDS"
OFF = "off"
# memory of a closed generator is used for another one after this time: a thread may be about to raise a mark in it
REST_S = 60.0
# files of closed generators that still record a lease or a claim: enough for an exit during an outage, and no more
MOST_UNRELEASED = 8
# how often the time of a file is set; sweep.py removes files that are older by far
TOUCH_S = 300.0
# the end of a file's name, see FileName
SENT = "sent"
# <sys/mman.h>, on Linux and macOS; Python's mmap has no name for it
MAP_FIXED = 0x10
# flag of PyMemoryView_FromMemory: the memory may be written to
_PYBUF_WRITE = 0x200


class FileName(NamedTuple):
    """Name of a file, as text: POOL.NAMESPACE.PID.STARTED.NUMBER-IMAGE, without -IMAGE if that is unknown.

    While a process releases the lease, or takes it over, .PID.STARTED of that process follows. After a release
    without a reply, .sent follows: no process may take the lease over, since Redis may have the release.
    """

    pool: str
    process: ProcessName
    number: str
    taker: ProcessName | None = None
    sent: bool = False

    @classmethod
    @functools.lru_cache(maxsize=1_000)
    def parse(cls, text: str) -> FileName | None:
        """Return the parts of *text*; None if it is not the name of a crash record."""
        try:
            pool, namespace, pid, started, number, *rest = text.split(".")
            sent = rest == [SENT]
            taker = ProcessName(namespace, int(rest[0]), rest[1]) if rest and not sent else None
            number, _, image = number.partition("-")
            return cls(pool, ProcessName(namespace, int(pid), started, image), number, taker, sent)
        except (ValueError, IndexError):
            return None

    def __str__(self) -> str:
        end = f".{self.taker.pid}.{self.taker.started}" if self.taker else f".{SENT}" * self.sent
        namespace, pid, started, image = self.process
        number = f"{self.number}-{image}" if image else self.number
        return f"{self.pool}.{namespace}.{pid}.{started}.{number}{end}"


def pool_name(store: Store) -> str:
    """Return what the names of files of *store* begin with: the same in all processes that reach it by one address."""
    text = f"{store.where}\n{store.config.name}\n{store.config.signature}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def address_scope(where: str) -> list[str]:
    """Return where the address *where* is valid: the namespace of networks, or the directories of a socket that exist.

    Another program may reach another server by the same address.
    """
    places: list[str] = []
    scheme, _, path = where.partition("://")
    with contextlib.suppress(OSError):
        if scheme != "unix":
            return [os.readlink("/proc/self/ns/net")]
        path = os.path.abspath(path)
        # only those that exist: each start of the server may make the socket's directory anew
        places.extend(_inode(path[: at + 1]) for at in range(len(path)) if path[at] == "/")
    return places


def _inode(path: str) -> str:
    status = os.stat(path)
    return f"{status.st_dev:x}:{status.st_ino:x}"


class RecordFiles:
    """Makes the crash records of this process."""

    def __init__(self) -> None:
        # addresses of memory of closed generators of this process, and since when it has been unused
        self._resting: deque[tuple[float, int]] = deque()
        # files of closed generators of this process that still record a lease
        self._unreleased: deque[_RecordFile] = deque()
        self._pid, self._warned = 0, False

    def new_record(self, store: Store) -> CrashRecord | None:
        """Return a crash record for one generator of *store*, in a file of its own; None where that is not possible."""
        own, directory = own_name(), open_directory(make=True)
        if own is None or directory is None or not store.shared:
            return None
        if self._pid != own.pid:
            # these are the parent's. The pid is set last: another thread of this child may read it meanwhile
            self._resting, self._unreleased, self._pid = deque(), deque(), own.pid
        # a count would not do: another interpreter of this process, or the program before an exec, counts, too
        path = directory.path_of(str(FileName(pool_name(store), own, os.urandom(6).hex())))
        try:
            address = _create(path, self._rested())
            inode = _inode(path)
            page = _view(address)
        except (OSError, AttributeError) as error:
            # A full directory is a fault, which is said once; a Python without ctypes (AttributeError) is none.
            quiet = self._warned or isinstance(error, AttributeError)
            level, self._warned = logging.DEBUG if quiet else logging.WARNING, True
            log.log(level, "no crash record, so a kill leaves the lease until its ttl has passed: %s", error)
            return None
        file = _RecordFile(self, path, address, own.pid, page[:HEADER_BYTES].cast("Q"))
        ENDS.add(file)
        common = {"lanes": store.config.layout.namespaces, "inode": inode, "server": address_scope(store.where)}
        return CrashRecord(file, page, common)

    def rest(self, address: int) -> None:
        """Keep memory whose file was removed."""
        self._resting.append((time.monotonic(), address))

    def keep(self, file: _RecordFile) -> None:
        """Keep the file of a lease that was not released; remove the oldest one if there are too many."""
        self._unreleased.append(file)
        if len(self._unreleased) > MOST_UNRELEASED:
            self._unreleased.popleft().remove()

    def _rested(self) -> int:
        """Return the address of memory that can be used again; 0 if there is none."""
        with contextlib.suppress(IndexError):
            since_s, address = self._resting.popleft()
            if time.monotonic() - since_s >= REST_S:
                return address
            self._resting.appendleft((since_s, address))
        return 0


RECORDS = RecordFiles()


class _RecordFile:
    """The file of one crash record: a PageFile.

    Args:
        pid: of the process in the file's name; a child that was forked since then must not write to it.
        header: of the record: what it holds, and the end of the process.
    """

    def __init__(self, files: RecordFiles, path: str, address: int, pid: int, header: memoryview) -> None:
        self._files, self._path, self._pid, self._header = files, path, pid, header
        # empty once the memory was handed on
        self._addresses = [address]
        self._touched_s = time.monotonic()

    @property
    def is_writer(self) -> bool:
        """Return whether this is the process that made the file."""
        return self._pid == os.getpid()

    def note_end(self, end: End) -> None:
        """Note how the process ends, unless that was noted before, or this is a child of the process."""
        if self.is_writer and GUARD.is_reset and not self._header[1]:
            self._header[1] = end

    def touch(self) -> None:
        """Set the time of the file now and then, for those who remove old ones."""
        now_s = time.monotonic()
        if now_s - self._touched_s > TOUCH_S:
            self._touched_s = now_s
            with contextlib.suppress(OSError):
                os.utime(self._path)

    def close(self, *, records_lease: bool) -> None:
        """Remove the file; for now, keep one that records a lease."""
        if records_lease:
            self._files.keep(self)
        else:
            self.remove()

    def remove(self) -> None:
        """Remove the file; its addresses stay mapped, and are used again for another one."""
        with contextlib.suppress(OSError, IndexError):
            try:
                os.unlink(self._path)
            except PermissionError:
                # this process was another user's (setuid): the file stays, holds no lease, and is removed by a process
                # of that user
                self._header[0] = 0
            # a signal handler may close a generator that is being closed: who takes the address hands the memory on
            address = self._addresses.pop()
            # the file system has its room back now, not when the address is used again
            _map(-1, address)
            self._files.rest(address)


class Directory:
    """The directory of the records. Methods raise OSError."""

    def __init__(self, path: str) -> None:
        self._path = path

    def path_of(self, name: str) -> str:
        """Return the path of a file."""
        return os.path.join(self._path, name)

    def names(self) -> list[str]:
        """Return the names of all files."""
        return os.listdir(self._path)

    def changed_ns(self) -> int:
        """Return when a file was made, renamed or removed last, ns since 1970."""
        return os.stat(self._path).st_mtime_ns

    def rename(self, old: str, new: str) -> None:
        """Rename a file; of several processes that do so at once, one succeeds."""
        os.rename(self.path_of(old), self.path_of(new))

    def read(self, name: str) -> bytes:
        """Return what is in a file."""
        with open(self.path_of(name), "rb") as file:
            return file.read()

    def inode(self, name: str) -> str:
        """Return what tells a file from a copy of it."""
        return _inode(self.path_of(name))

    def age_s(self, name: str) -> float:
        """Return how long ago a file was made, or its process renewed the lease."""
        return time.time() - os.stat(self.path_of(name)).st_mtime

    def remove(self, name: str) -> None:
        """Remove a file."""
        os.unlink(self.path_of(name))


def open_directory(*, make: bool = False) -> Directory | None:
    """Return the directory of the records; None if there is none, or it cannot be used. *make*: make it if need be.

    Nobody but this user may read or change it: there are tokens of leases in it.
    """
    path = os.environ.get(VARIABLE) or _default_directory()
    if path in ("", OFF):
        return None
    try:
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)
                # whatever the umask: other programs of this user need it, too
                os.chmod(path, 0o700)
        status = os.lstat(path)
    except OSError:
        return None
    mine = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077
    return Directory(path) if mine else None


def _default_directory() -> str:
    platform = sys.platform
    if platform == "linux":
        return f"/dev/shm/snowredis-{os.geteuid()}"  # noqa: S108 - checked in open_directory()
    if platform == "darwin":
        # this directory belongs to this user, and is on this machine
        return os.path.join(os.environ["TMPDIR"], "snowredis") if os.environ.get("TMPDIR") else ""
    return ""


def _create(path: str, address: int) -> int:
    """Create a file for one record, and return where it is in memory: at *address*, unless that is 0.

    Raises OSError; AttributeError where there is no mmap().
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if hasattr(os, "fchmod"):
            # whatever the umask: another process is to read it. If one truncated it, this one would end by SIGBUS
            os.fchmod(descriptor, 0o400)
        # otherwise the first write to a full file system would end this process by SIGBUS
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, RECORD_BYTES)
        else:
            os.write(descriptor, bytes(RECORD_BYTES))
        return _map(descriptor, address)
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(descriptor)


def _map(descriptor: int, address: int) -> int:
    """Map a file into memory, or no file if *descriptor* is -1, and return the address.

    Python's own mmap would keep a descriptor of it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_longlong,
    )
    flags = mmap.MAP_SHARED if descriptor >= 0 else mmap.MAP_PRIVATE | mmap.MAP_ANON
    flags |= MAP_FIXED if address else 0
    mapped = libc.mmap(address, RECORD_BYTES, mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, 0)
    if mapped in (None, ctypes.c_void_p(-1).value):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(mapped)


def _view(address: int) -> memoryview:
    """Return the memory of a record, which is never unmapped."""
    make = ctypes.pythonapi.PyMemoryView_FromMemory
    make.restype = ctypes.py_object
    make.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)
    view: memoryview = make(address, RECORD_BYTES, _PYBUF_WRITE)
    return view
