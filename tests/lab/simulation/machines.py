"""Machines whose processes leave crash records in files, and release what dead ones left; in simulated time.

All machines share one directory, as containers may; each has pids of its own, few, so that they are used again.
Whoever releases a lease may be starved, or die, in the middle of it.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from snowredis.errors import SnowredisError
from snowredis.process.names import GONE, ProcessName, ProcessStatus, has_ended
from snowredis.servers.scripts import Script
from snowredis.snowflake.crash import sweep
from snowredis.snowflake.crash.files import Directory, FileName
from snowredis.snowflake.crash.record import HEADER_BYTES, PAGE_BYTES, TEXT_BYTES, CrashRecord, Credentials
from snowredis.snowflake.crash.sweep import RecordAccess
from snowredis.snowflake.lease.held import HeldLease
from snowredis.snowflake.protocol.messages import Granted, ReleaseRequest, Store
from snowredis.snowflake.protocol.pool_config import PoolConfig
from tests.lab.simulation.stand_ins import Host, SimStore

if TYPE_CHECKING:
    from tests.lab.simulation.process import Process
    from tests.lab.simulation.schedule import Simulation

# pids of one machine; more are given only where all of these live
PIDS = 3
# how many leases a parent releases at once
MOST = 10


class CheckedStore(SimStore):
    """Store that tells the checker what is released on behalf of the dead."""

    def ask(self, request: Any) -> Any:
        if isinstance(request, ReleaseRequest):
            self.process.sim.checker.reclaimed(request)
        # sweep.py reads the wall clock itself
        reply = super().ask(request._replace(caller_ms=self.process.world.now_us // 1000))
        if isinstance(reply, Granted):
            self.process.sim.checker.granted_again(request.token, reply)
        return reply


class Parent:
    """Parent of a process that died: it has no lease, and releases what it finds, unless it dies before."""

    def __init__(self, sim: Simulation, host: Host, config: PoolConfig) -> None:
        self.sim, self.world, self.host, self.config = (sim, sim.world, Host(host.name, host.offset_us), config)
        self.name, self.alive, self.paused_until_us = f"parent on {host.name}", True, 0

    def random_bytes(self, count: int) -> bytes:
        return self.world.random.randbytes(count)

    def ask(self, script: Script, keys: Sequence[str], args: Sequence[str | int]) -> list[str]:
        return self.sim.network.call(self, script.name, script.source, keys, args)

    def run(self, machines: Machines) -> None:
        with contextlib.suppress(SnowredisError):
            machines.sweep(self, MOST, lambda talk, *args: int(talk(*args)))
        self.alive = False


class Page(bytearray):
    """A file; a copy of it has another inode."""

    inode = ""


class Machines:
    """The directory of the records, and the processes of every machine."""

    def __init__(self, sim: Simulation) -> None:
        self._sim, self._numbers = sim, itertools.count(1)
        self._pages: dict[str, Page] = {}
        # else a record would be given up when the garbage collector finds its process, which is dead
        self._records: list[CrashRecord] = []
        # machine -> pid -> when it started, who
        self._tables: dict[str, dict[int, tuple[str, Process | Parent]]] = {}
        # how often whoever releases a lease is starved in the middle of that
        self.starved = 0.3

    # --- processes ---------------------------------------------------------------------------------

    def begin(self, process: Process | Parent) -> None:
        """Give a process that starts a pid."""
        table = self._tables.setdefault(process.host.name, {})
        free = (pid for pid in itertools.count(2) if pid not in table or not table[pid][1].alive)
        pids = list(itertools.islice(free, PIDS))
        table[self._sim.random.choice(pids)] = str(next(self._numbers)), process

    def name_of(self, process: Process | Parent) -> ProcessName:
        """Return the name of a living process."""
        for pid, (started, who) in self._tables[process.host.name].items():
            if who is process:
                return self._name(process.host.name, pid, started)
        raise LookupError(process.name)

    def _name(self, host: str, pid: int, started: str) -> ProcessName:
        rule = self._sim.name_rule
        return rule(ProcessName(host, pid, started)) if rule is not None else ProcessName(host, pid, started)

    def die(self, dead: Process) -> None:
        """Let the dead leave what it was writing half done, and its parent look for it some time later."""
        sim = self._sim
        for text, page in self._pages.items():
            name = self._parsed(text)
            if name is not None and name.process == self.name_of(dead) and sim.random.random() < 0.5:
                self._tear(page)

        def reclaim() -> None:
            parent = Parent(sim, dead.host, dead.config)
            self.begin(parent)
            task = sim.world.spawn(parent, lambda: parent.run(self))
            if sim.random.random() < 0.3:
                # first the child dies, then the parent
                def end() -> None:
                    parent.alive = False
                    task.kill()

                sim.world.after(sim.random.randint(0, sim.ttl_us // 2), end)

        if sim.random.random() < 0.5:
            sim.before_heal(sim.random.choice((0, 1_000, sim.random.randint(0, 2 * sim.ttl_us))), reclaim)

    def _tear(self, page: bytearray) -> None:
        """Write noise where the next write would have begun."""
        side, size = divmod(int.from_bytes(page[:4], "little"), 1 << 16)
        at = HEADER_BYTES + (side ^ 1 if size else 0) * TEXT_BYTES
        page[at : at + 200] = self._sim.random.randbytes(200)

    # --- records -----------------------------------------------------------------------------------

    def family_of(self, process: Process | Parent) -> str:
        """Return the name of the directory of the records of a process and its siblings, as family_name() does.

        NAMESPACE SIGNATURE: all processes of a machine that use one pool.
        """
        return f"{self.name_of(process).namespace} {process.config.signature}"

    def new_record(self, process: Process, store: Store) -> CrashRecord:
        name = FileName(self.name_of(process), str(next(self._numbers)))
        path = f"{self.family_of(process)}/{name}"
        page = self._pages[path] = Page(PAGE_BYTES)
        page.inode = name.number
        record = process.record_class(_PageFile(self._pages, path), memoryview(page), page.inode)
        self._records.append(record)
        return record

    def copy_records(self, process: Process, *, same: bool) -> None:
        """Copy what a process recorded; *same*: with its machine, so that the inodes are the same."""
        family = self.family_of(process)
        for text, page in list(self._pages.items()):
            name = self._parsed(text)
            if name is not None and name.process == self.name_of(process):
                copied = name._replace(number=str(next(self._numbers)))
                self._pages[f"{family}/{copied}"] = copy = Page(page)
                copy.inode = page.inode if same else copied.number

    def _parsed(self, path: str) -> FileName | None:
        family, _, name = path.rpartition("/")
        return FileName.parse(name, family.partition(" ")[0])

    def sweep(self, process: Process | Parent, most: int, talk: Callable[..., int]) -> int:
        """Do what sweep.py does, for one process."""
        # a limit of real time would make a schedule differ from one run to the next
        store, access = CheckedStore(process, process.config), self.access_of(process)
        released = sweep.sweep(store, access, talk, most, math.inf)
        self._sim.fired["reclaim"] += released
        return released

    def take_over(self, process: Process, accept: Callable[[Credentials], HeldLease | None]) -> HeldLease | None:
        """Do what sweep.py does for a process that starts while Redis is away."""
        taken = sweep.take_over(self.access_of(process), accept)
        self._sim.fired["taken over"] += taken is not None
        if taken is not None and self._sim.tracer is not None:
            self._sim.tracer.taken_over(process.name, taken)
        return taken

    def disown(self, process: Process) -> None:
        """Do what sweep.py does when a machine is about to be copied: remove the records of the dead."""
        own = self.name_of(process)
        for path in list(self._pages):
            name = self._parsed(path)
            if name is not None and has_ended(name.process, own, self._reader(process)):
                del self._pages[path]

    def _reader(self, process: Process | Parent) -> Callable[[int], ProcessStatus]:
        return lambda pid: self._status_of(process.host.name, pid)

    def access_of(self, process: Process | Parent) -> RecordAccess:
        files = SimDirectory(self, self.family_of(process))
        # nobody here has children, but for a parent, which sees them as its siblings
        return RecordAccess(files, SimDirectory(self, ""), self.name_of(process), self._reader(process))

    def _status_of(self, host: str, pid: int) -> ProcessStatus:
        found = self._tables[host].get(pid)
        if found is None:
            return GONE
        started, who = found
        # a zombie, unless somebody has reaped it
        return ProcessStatus(self._name(host, pid, started).started, not who.alive)

    # --- what a directory does, with paths -------------------------------------------------------------

    def names(self) -> list[str]:
        return list(self._pages)

    def rename(self, old: str, new: str) -> None:
        self._starve()
        if old not in self._pages:
            raise FileNotFoundError(old)
        self._pages[new] = self._pages.pop(old)
        self._starve()

    def read(self, name: str) -> bytes:
        page = self._pages.get(name)
        if page is None:
            raise FileNotFoundError(name)
        copied = bytes(page)
        self._starve()
        return copied

    def inode(self, name: str) -> str:
        page = self._pages.get(name)
        if page is None:
            raise FileNotFoundError(name)
        return page.inode

    def remove(self, name: str) -> None:
        self._starve()
        if self._pages.pop(name, None) is None:
            raise FileNotFoundError(name)

    def _starve(self) -> None:
        sim = self._sim
        if sim.world.current is None or sim.healed or sim.random.random() >= self.starved:
            return
        length_us = sim.random.choice((1, 1_000, sim.random.randint(0, 2 * sim.ttl_us)))
        sim.world.sleep(max(1, min(length_us, sim.heal_us - sim.world.now_us)))


class SimDirectory(Directory):
    """The directory of one family, as sweep.py uses it."""

    def __init__(self, machines: Machines, family: str) -> None:
        super().__init__(family)
        self._machines = machines

    def names(self) -> list[str]:
        found = (path.rpartition("/") for path in self._machines.names())
        return [name for family, _, name in found if family == self._path]

    def rename(self, old: str, new: str) -> None:
        self._machines.rename(self._path_of(old), self._path_of(new))

    def read(self, name: str) -> bytes:
        return self._machines.read(self._path_of(name))

    def inode(self, name: str) -> str:
        return self._machines.inode(self._path_of(name))

    def age_s(self, name: str) -> float:
        return 0.0

    def remove(self, name: str) -> None:
        self._machines.remove(self._path_of(name))


class _PageFile:
    """The file of one crash record."""

    is_writer = True

    def __init__(self, pages: dict[str, Page], name: str) -> None:
        self._pages, self._name = pages, name

    def touch(self) -> None:
        """Nothing gets old here."""

    def close(self, *, records_lease: bool) -> None:
        if not records_lease:
            self._pages.pop(self._name, None)
