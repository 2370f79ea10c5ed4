"""Files of crash records in /dev/shm: one for each generator of every process of this user on this machine.

Those of one *family* have a directory of their own: of processes that one parent started and that use one pool. So no
process reads what strangers left, which may mean another Redis by the same address. The name of a file says whose file
it is (process/names.py), with a number, and while another process releases the lease, the name of that process.

A file is mapped into memory and its descriptor is closed at once, so a program may close all descriptors. A file has
all of its memory before anything is written: a full /dev/shm refuses a file, and no process gets SIGBUS.

How the process ends is noted in the files, too, as far as Python code can tell: see process/exit.py, EndNotes.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import mmap
import os
import stat
import sys
import time
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from snowredis.process.exit import ENDS, End
from snowredis.process.fork import GUARD
from snowredis.process.log import log
from snowredis.process.names import ProcessName, own_name, parent_name
from snowredis.snowflake.crash.record import HEADER_BYTES, NO_RECORD, PAGE_BYTES, CrashRecord
from snowredis.snowflake.protocol.messages import Store

try:
    import ctypes
except ImportError:
    # a Python that was built without libffi
    ctypes = None  # type: ignore[assignment]

# the directory of the records, or "off"
VARIABLE = "SNOWREDIS_CRASH_RECORDS"
OFF = "off"
# files of closed generators that still record a lease or a claim: enough for an exit during an outage, and no more
MOST_UNRELEASED = 8
# <sys/mman.h>, on Linux and macOS; Python's mmap has no name for it
MAP_FIXED = 0x10


class FileName(NamedTuple):
    """Name of a file, as text: PID.STARTED.NUMBER-IMAGE, without -IMAGE if that is unknown.

    While a process releases the lease, or takes it over, .PID.STARTED of that process follows. The namespace of the
    processes is that of the directory.
    """

    process: ProcessName
    number: str
    taker: ProcessName | None = None

    @classmethod
    def parse(cls, text: str, namespace: str) -> FileName | None:
        """Return the parts of *text*; None if it is not the name of a crash record."""
        try:
            pid, started, number, *rest = text.split(".")
            taker = ProcessName(namespace, int(rest[0]), rest[1]) if rest else None
            number, _, image = number.partition("-")
            return cls(ProcessName(namespace, int(pid), started, image), number, taker)
        except (ValueError, IndexError):
            return None

    def __str__(self) -> str:
        end = f".{self.taker.pid}.{self.taker.started}" if self.taker else ""
        _, pid, started, image = self.process
        number = f"{self.number}-{image}" if image else self.number
        return f"{pid}.{started}.{number}{end}"


def _inode(path: str) -> str:
    status = os.stat(path)
    return f"{status.st_dev:x}:{status.st_ino:x}"


class RecordFiles:
    """Makes the crash records of this process."""

    def __init__(self) -> None:
        # files of closed generators of this process that still record a lease
        self.unreleased: deque[RecordFile] = deque()
        self._pid, self._warned = 0, False

    def new_record(self, store: Store) -> CrashRecord:
        """Return a crash record for one generator of *store*, in a file of its own; NO_RECORD if that is impossible."""
        if not store.locator:
            return NO_RECORD
        try:
            place = find_place(make=True)
            if self._pid != place.own.pid:
                # these are the parent's. The pid is set last: another thread of this child may read it meanwhile
                self.unreleased, self._pid = deque(), place.own.pid
            path = os.path.join(place.family(store, place.parent), str(FileName(place.own, os.urandom(6).hex())))
            with made_file(path) as descriptor:
                page = _mapped(descriptor)
            inode = _inode(path)
        except (RecordsOff, OSError) as error:
            off = error if isinstance(error, RecordsOff) else RecordsOff.failed(error)
            level, self._warned = logging.DEBUG if self._warned or not off.is_fault else logging.WARNING, True
            log.log(
                level,
                "crash records are off: %s. After a kill, a worker id stays leased for its ttl, and in an outage no "
                "process goes on with that lease",
                off,
            )
            return NO_RECORD
        file = RecordFile(self, path, place.own.pid, page[:HEADER_BYTES].cast("Q"))
        ENDS.add(file)
        return CrashRecord(file, page, inode)


RECORDS = RecordFiles()


class RecordFile:
    """The file of one crash record.

    Args:
        pid: of the process in the file's name; a child that was forked since then must not write to it.
        header: of the record: what it holds, and the end of the process.
    """

    def __init__(self, files: RecordFiles, path: str, pid: int, header: memoryview) -> None:
        self._files, self._path, self._pid, self._header = files, path, pid, header

    @property
    def is_writer(self) -> bool:
        """Return whether this is the process that made the file, and not a child of it."""
        return self._pid == os.getpid()

    def note_end(self, end: End) -> None:
        """Note how the process ends, unless that was noted before, or this is a child of the process."""
        if self.is_writer and GUARD.is_reset and not self._header[1]:
            self._header[1] = end

    def touch(self) -> None:
        """Set the time of the file, for those who remove old ones; called at each claim and heartbeat."""
        with contextlib.suppress(OSError):
            os.utime(self._path)

    def close(self, *, records_lease: bool) -> None:
        """Remove the file, whose generator makes no more ids.

        Args:
            records_lease: a lease could not be released, or a claim has no reply. The file is kept for the processes
                that release the lease after the end of this process; if there are too many, the oldest is removed.
        """
        kept = self._files.unreleased
        if records_lease:
            kept.append(self)
        else:
            self.remove()
        if len(kept) > MOST_UNRELEASED:
            kept.popleft().remove()

    def remove(self) -> None:
        """Remove the file."""
        with contextlib.suppress(OSError):
            try:
                remove(self._path)
            except PermissionError:
                # this process was another user's (setuid): the file stays, holds no lease, and is removed by a process
                # of that user
                self._header[0] = 0


class Directory:
    """The directory of a family's records. Methods raise OSError."""

    def __init__(self, path: str) -> None:
        self._path = path

    def _path_of(self, name: str) -> str:
        return os.path.join(self._path, name)

    def names(self) -> list[str]:
        """Return the names of all files."""
        return os.listdir(self._path)

    def rename(self, old: str, new: str) -> None:
        """Rename a file; of several processes that do so at once, one succeeds."""
        os.rename(self._path_of(old), self._path_of(new))

    def read(self, name: str) -> bytes:
        """Return what is in a file."""
        with open(self._path_of(name), "rb") as file:
            return file.read()

    def inode(self, name: str) -> str:
        """Return what tells a file from a copy of it."""
        return _inode(self._path_of(name))

    def age_s(self, name: str) -> float:
        """Return how long ago a file was made, or its process renewed the lease."""
        return time.time() - os.stat(self._path_of(name)).st_mtime

    def remove(self, name: str) -> None:
        """Remove a file, and the directory if that was the last one."""
        remove(self._path_of(name))


def remove(path: str) -> None:
    """Remove a file, and its directory if that was the last one. Raises OSError: the file cannot be removed."""
    os.unlink(path)
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(path))


class RecordsOff(Exception):
    """This process records no lease: the reason, with the remedy.

    Attributes:
        is_fault: false if a person chose that, or the system has no place for records.
    """

    def __init__(self, reason: str, *, is_fault: bool = True) -> None:
        super().__init__(reason)
        self.is_fault = is_fault

    @classmethod
    def failed(cls, error: OSError) -> RecordsOff:
        """Return what says that a file could not be made."""
        is_full = error.errno == errno.ENOSPC
        remedy = "free memory there (in a container, give it more: --shm-size)" if is_full else "make it writable"
        where = error.filename or os.environ.get(VARIABLE) or _default_directory()
        return cls(f"{where}: {error.strerror}; {remedy}, or name another directory in {VARIABLE}")


class Place(NamedTuple):
    """Place of this process' crash records.

    Attributes:
        top: the directory of all families.
        own, parent: this process, and the one that started it.
    """

    top: str
    own: ProcessName
    parent: ProcessName

    def family(self, store: Store, parent: ProcessName) -> str:
        """Return the directory of the processes that *parent* started and that use the pool of *store*.

        Its name is DIGEST.NAMESPACE, the namespace of pids. In another namespace of networks, or of mounts, or below
        another root, the address of the pool may lead to another server.
        """
        spaces = [_inode("/")]
        for kind in ("net", "mnt"):
            with contextlib.suppress(OSError):
                spaces.append(os.readlink(f"/proc/self/ns/{kind}"))
        pool = f"{store.locator}\n{store.config.name}\n{store.config.signature}"
        text = f"{pool}\n{parent.pid} {parent.started} {parent.namespace}\n{spaces}"
        return os.path.join(self.top, f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.{parent.namespace}")


def find_place(*, make: bool = False) -> Place:
    """Return where the records of this process are; *make* the directory if need be. Raises RecordsOff."""
    top, own = find_directory(make=make), own_name()
    parent = own and parent_name(own)
    if own is None or parent is None:
        raise RecordsOff("/proc does not show this process and its parent; mount it without hidepid")
    if ctypes is None:
        raise RecordsOff("this Python has no ctypes", is_fault=False)
    return Place(top, own, parent)


def find_directory(*, make: bool = False) -> str:
    """Return the directory of the families; *make* it if need be. Raises RecordsOff.

    Nobody but this user may read or change it: there are tokens of leases in it.
    """
    path = os.environ.get(VARIABLE) or _default_directory()
    if path == OFF:
        raise RecordsOff(f"{VARIABLE} is {OFF}", is_fault=False)
    if not path or not hasattr(os, "geteuid"):
        raise RecordsOff(f"this system has no directory in memory; name one in {VARIABLE}", is_fault=False)
    try:
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)
                # whatever the umask: other programs of this user need it, too
                os.chmod(path, 0o700)
        status = os.lstat(path)
    except OSError as error:
        raise RecordsOff.failed(error) from None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise RecordsOff(
            f"{path} ({stat.filemode(status.st_mode)}, user {status.st_uid}) is not a directory that only user "
            f"{os.geteuid()} can use; remove it, or chmod 700 {path}, or name another directory in {VARIABLE}"
        )
    return path


def _default_directory() -> str:
    platform = sys.platform
    if platform == "linux":
        return f"/dev/shm/snowredis-{os.geteuid()}"  # noqa: S108 - checked in find_directory()
    if platform == "darwin":
        # this directory belongs to this user, and is on this machine
        return os.path.join(os.environ["TMPDIR"], "snowredis") if os.environ.get("TMPDIR") else ""
    return ""


@contextlib.contextmanager
def made_file(path: str) -> Iterator[int]:
    """Make a file with all of its memory; yield its descriptor, and remove it if the block fails. Raises OSError."""
    descriptor = _new_file(path)
    try:
        # whatever the umask: another process is to read it. If one truncated it, this one would end by SIGBUS
        os.fchmod(descriptor, 0o400)
        # otherwise the first write to a full file system would end this process by SIGBUS
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, PAGE_BYTES)
        else:
            os.write(descriptor, bytes(PAGE_BYTES))
        yield descriptor
    except BaseException:
        remove(path)
        raise
    finally:
        os.close(descriptor)


def _new_file(path: str) -> int:
    """Make a file, and its directory; return its descriptor. Raises OSError."""
    while True:
        with contextlib.suppress(FileExistsError):
            os.mkdir(os.path.dirname(path), 0o700)
        # another process may remove the last file of the family meanwhile, and the directory with it
        with contextlib.suppress(FileNotFoundError):
            # whatever the umask
            os.chmod(os.path.dirname(path), 0o700)
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _mapped(descriptor: int) -> memoryview:
    """Map a file into memory, until nothing refers to that any more. Raises OSError.

    Python's own mmap would keep a descriptor of the file. So it makes memory without one, which the file replaces.
    """
    page = mmap.mmap(-1, PAGE_BYTES)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_longlong)
    access, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | MAP_FIXED
    if libc.mmap(address, PAGE_BYTES, access, flags, descriptor, 0) != address:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return memoryview(page)
