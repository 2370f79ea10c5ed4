"""Steps of scenarios: what scenarios.py says in words, done on a stage.

STEP WORD WORD; STEP WORD. A step is a method of Steps. A line "9 times: STEP; STEP" is played 9 times.
"""

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

from snowredis.errors import StoreUnavailable
from snowredis.snowflake.crash import record as crash_record
from snowredis.snowflake.crash.record import CrashRecord
from snowredis.snowflake.protocol.administration import Ends
from snowredis.snowflake.protocol.pool_config import PoolConfig
from tests.lab.simulation.machines import Machines, Page
from tests.lab.simulation.pool_faults import AtTheServer
from tests.lab.simulation.process import Process
from tests.lab.simulation.redis_model import RedisModel
from tests.lab.simulation.stage import Stage
from tests.support.holder import create


class Steps:
    """Each public method is a step. NAME is a process, which starts on a machine of its own when it is first named.

    MS is a time since the beginning, or since the step "zero"; +MS is one from now on.
    """

    def __init__(self, stage: Stage, unkept: Sequence[str] = ()) -> None:
        self._stage, self._unkept = stage, unkept
        self._processes: dict[str, Process] = {}
        self._saved: dict[str, dict[str, str]] = {}
        self._pages: dict[str, Page] = {}
        self._end_ms = 0
        self.zero()

    def play(self, text: str) -> None:
        """Play the steps of *text*."""
        for line in text.strip().splitlines():
            times, _, steps = line.rpartition(" times: ")
            for step in int(times or 1) * steps.split(";"):
                verb, *words = step.split()
                getattr(self, verb)(*words)

    def _of(self, name: str) -> Process:
        if name not in self._processes:
            self._processes[name] = self._stage.process()
        return self._processes[name]

    def _all(self, names: Sequence[str]) -> list[Process]:
        return [self._of(name) for name in names]

    def _ms(self, text: str) -> int:
        return int(text) + (self._stage.redis_now_ms if text[0] == "+" else self._zero_ms)

    @property
    def _machines(self) -> Machines:
        assert self._stage.machines is not None
        return self._stage.machines

    # --- processes ---------------------------------------------------------------------------------

    def beside(self, name: str, other: str) -> None:
        """Start a process on the machine of another one."""
        self._processes[name] = self._stage.process(self._of(other).host)

    def start(self, name: str, *settings: str) -> None:
        """Start a process with other settings than those of the pool."""
        changes: dict[str, Any] = {key: int(value) for key, _, value in (each.partition("=") for each in settings)}
        self._processes[name] = self._stage.process(config=replace(self._stage.config, **changes))

    def upgraded(self, name: str) -> None:
        """Start a process with the layout that the pool has after its end."""
        self._processes[name] = self._stage.process(config=self._next)

    def moved(self, name: str, ms: str) -> None:
        """Start a process with a layout whose epoch is later."""
        config = self._stage.config
        layout = replace(config.layout, epoch_ms=config.layout.epoch_ms + int(ms))
        self._stage.configs.append(replace(config, layout=layout))
        self._processes[name] = self._stage.process(config=self._stage.configs[-1])

    def make(self, *names: str) -> None:
        """Let each process make an id, if it can."""
        self._stage.make(*self._all(names))

    def must(self, name: str) -> None:
        """Let the process make an id, which it has to be able to."""
        if not self._makes(name):
            self._stage.checker.fail(f"{name} makes no id: {self._of(name).errors}")

    def cannot(self, name: str) -> None:
        """Let the process try to make an id, which it may not be able to."""
        if self._makes(name):
            self._stage.checker.fail(f"{name} makes an id")

    def _makes(self, name: str) -> bool:
        process, made = self._of(name), self._stage.checker.made
        before = made.get(process.name, 0)
        self._stage.make(process)
        return made.get(process.name, 0) > before

    def begin(self, *names: str) -> None:
        """Let each process begin to make an id, and do not wait for it."""
        for process in self._all(names):
            self._stage.begin(process, lambda process: process.make(1))

    def claim(self, *names: str) -> None:
        for process in self._all(names):
            self._stage.do(process, lambda process: process.generator.claim())

    def renew(self, *names: str) -> None:
        self._stage.beat(*self._all(names))

    def close(self, name: str) -> None:
        self._stage.do(self._of(name), lambda process: process.generator.close())

    def begin_close(self, name: str) -> None:
        self._stage.begin(self._of(name), lambda process: process.generator.close())

    def abandon(self, name: str) -> None:
        """Let the heartbeat release the lease of a generator that nobody closed."""
        self._stage.do(self._of(name), lambda process: process.lease_manager.abandon())

    def suspend(self, name: str) -> None:
        self._stage.do(self._of(name), lambda process: process.generator.suspend())

    def kill(self, *names: str) -> None:
        for process in self._all(names):
            process.crash()

    def cut(self, *names: str) -> None:
        """Make Redis unavailable for the machines of these processes."""
        for process in self._all(names):
            self._stage.network.cut_off(process.host.name)

    def reach(self, name: str) -> None:
        """Make Redis available again."""
        del self._stage.network.strayed[self._of(name).host.name]

    def deafen(self, ms: str, name: str) -> None:
        """Lose the replies to a process for a while."""
        self._stage.network.deafen(self._of(name), int(ms) * 1000)

    def open_lane(self, name: str) -> None:
        """Let the process open its outage lane, and make no id in it yet."""
        self._stage.do(self._of(name), lambda process: process.generator._lifecycle.renewals.open_outage_lane())

    def sleep_in_call(self, ms: str, name: str) -> None:
        """Let the next call sleep between its reading of the last id and that of the clock, of either fast path."""
        self._of(name).armed = (3, lambda: self._stage.world.sleep(int(ms) * 1000))

    # --- copies of processes -----------------------------------------------------------------------

    def clone(self, name: str, original: str) -> None:
        self._processes[name] = self._of(original).clone()

    def clone_of_claim(self, name: str, original: str) -> None:
        """Make a clone that was made while the lease of its original was being claimed, and did nothing since."""
        held, clone = self._of(original).lease_manager.held, self._of(name)
        assert held is not None
        clone.lease_manager.slot.set_asked(held.token, self._of(original).lease_manager._owner())
        if self._stage.tracer is not None:
            self._stage.tracer.cloned(self._of(original).name, clone.name, held.token)

    def fork(self, name: str, parent: str) -> None:
        self._processes[name] = self._of(parent).fork()

    def fork_bypassing_python(self, name: str, parent: str) -> None:
        self._processes[name] = self._of(parent).fork(bypass=True)

    def fork_in_call(self, parent: str) -> None:
        """Let a signal handler fork in the next call, when its id is ready, and before it is handed out."""
        # the slow path makes it: the clock is read three times, then the lock is released
        self._of(parent).generator._allocator.seal()
        self._of(parent).fork_in_call(4)

    # --- times -------------------------------------------------------------------------------------

    def wait(self, ms: str) -> None:
        self._stage.wait(int(ms))

    def until(self, ms: str) -> None:
        """Wait until that time."""
        self._stage.wait(max(0, self._ms(ms) - self._stage.redis_now_ms))

    def zero(self) -> None:
        """Count times from this moment on."""
        self._zero_ms = self._stage.redis_now_ms

    def clock(self, ms: str, *names: str) -> None:
        """Set the clocks of these processes."""
        time_ms = self._ms(ms)
        for process in self._all(names):
            self._stage.set_clock(process, time_ms)

    def at(self, ms: str, *names: str) -> None:
        """Let each of these processes make an id at that time on its clock."""
        time_ms = self._ms(ms)
        for process in self._all(names):
            self._stage.set_clock(process, time_ms)
            self._stage.make(process)

    # --- Redis, and what people do with it ----------------------------------------------------------

    def create(self) -> None:
        """Create the pool, unless the server is refused."""
        try:
            self._stage.with_pool()
        except StoreUnavailable as error:
            if not error.code:
                raise

    def wipe(self) -> None:
        self._stage.master.wipe()

    def forget(self, key: str) -> None:
        """Drop a key of the pool."""
        self._stage.master.data.pop(f"snowredis:{{sim}}:{key}")

    def save(self) -> None:
        self._saved = self._stage.master.copy_data()

    def restart(self) -> None:
        """Start Redis again with what was saved, or with nothing."""
        replication_id = self._stage.master.replid
        self._stage.master.restart({key: dict(value) for key, value in self._saved.items()})
        # a snapshot may hold it, too
        self._stage.master.replid = replication_id

    def roll_back(self) -> None:
        """Give Redis the data that was saved, so that nothing shows it before a client comes that saw more."""
        self._stage.went_back()
        self._stage.master.data = self._saved

    def promise(self) -> None:
        """Excuse nothing from here on: what went before is where ids may have been repeated."""
        self._stage.checker.lifted_until_ms = 0
        if self._stage.tracer is not None:
            self._stage.tracer.lifted(0, 0)

    def promote(self) -> None:
        """Make the server master again; while it was a replica, it got the data that were saved."""
        self._stage.master.data = self._saved
        self._stage.master.promote()

    def replace(self) -> None:
        """Let a replica with what was saved serve instead, at the same address; it has been running for long."""
        replica = RedisModel(self._stage.world, "replica")
        replica.started_s -= 1_000_000
        replica.data = self._saved
        self._stage.network.master = replica

    def elsewhere(self) -> None:
        """Let the address lead to another Redis."""
        self._stage.led_elsewhere, self._stage.network.master = True, RedisModel(self._stage.world, "other")

    def redis(self, ms: str) -> None:
        """Set the clock of Redis, *ms* from the right time."""
        self._stage.master.offset_us = int(ms) * 1000

    def down(self) -> None:
        self._stage.master.up = False

    def up(self) -> None:
        self._stage.master.up = True

    def refuse(self, *commands: str) -> None:
        """Refuse these commands from now on, and no others."""
        self._stage.master.refused = set(commands)

    def anonymous(self) -> None:
        """Hide which server it is."""
        self._stage.master.info = lambda name: "" if name == "server" else f"master_replid:{'0' * 40}\r\n"

    def identified(self) -> None:
        self._stage.master.info = self._stage.master.section

    @functools.cached_property
    def _next(self) -> PoolConfig:
        config = self._stage.config
        found = replace(config, layout=replace(config.layout, worker_bits=1, sequence_bits=3))
        self._stage.configs.append(found)
        return found

    def end(self) -> None:
        """Give the pool an end, the earliest."""
        person = AtTheServer(self._stage, self._stage.master, self._stage.config, self._unkept)
        reply = person.delete(self._stage.redis_now_ms)
        self._end_ms = reply.end_ms if isinstance(reply, Ends) else 0

    def create_next(self, name: str) -> None:
        """Create the pool with the settings of that process, and put it on disk."""
        config = self._of(name).config
        create(AtTheServer(self._stage, self._stage.master, config, self._unkept), self._stage.redis_now_ms)

    def wait_for_end(self) -> None:
        self._stage.wait(max(0, self._end_ms + 100 - self._stage.redis_now_ms))

    def save_to_disk(self) -> None:
        self._stage.master.save()

    def crash(self) -> None:
        """Let Redis start again with what is on its disk."""
        self._stage.master.crash()

    # --- crash records -----------------------------------------------------------------------------

    def kill_while_writing(self, name: str) -> None:
        """Kill a process before its second store into its record; half of the text has been written."""
        process = self._of(name)
        held, record = process.lease_manager.held, process.lease_manager.slot.record
        assert held is not None
        text = held.credentials(process.generator._lifecycle.renewals.stats())
        with mock.patch.object(crash_record, "GUARD", _KilledAt(process, 2)):
            self._stage.do(process, lambda _: record.write(text))
        assert not process.alive
        record._texts[record._side ^ (type(record) is CrashRecord)][:100] = bytes(100)

    def reuse_pid(self, name: str) -> None:
        """Start processes until one has the pid of a dead one."""
        pid = self._machines.name_of(self._of(name)).pid
        while self._machines.name_of(self._stage.process(self._of(name).host)).pid != pid:
            pass

    def take_record(self, name: str) -> None:
        """Let a process begin to release the lease in the only record."""
        self._rename(taker=self._machines.name_of(self._of(name)))

    def copy_record(self) -> None:
        """Copy the only record, as with its directory."""
        (path,) = self._machines.names()
        page = Page(self._machines._pages[path])
        self._rename(number="copied")
        self._machines._pages[path] = page
        page.inode = "copied"

    def _rename(self, **changes: object) -> None:
        (path,) = self._machines.names()
        family, _, _ = path.rpartition("/")
        name = self._machines._parsed(path)
        assert name is not None
        self._machines._pages[f"{family}/{name._replace(**changes)}"] = self._machines._pages.pop(path)  # type: ignore[arg-type]

    def save_records(self) -> None:
        self._pages = dict(self._machines._pages)

    def restore_records(self) -> None:
        """Have the records that were saved again, with the same inodes: as on a copy of the machine."""
        self._machines._pages |= self._pages

    def reverse_records(self) -> None:
        """List the newest record first."""
        self._machines._pages = dict(reversed(self._machines._pages.items()))


class _KilledAt:
    """Fork guard of crash_record.py: kills the process when it is asked for the *count*-th time."""

    def __init__(self, process: Process, count: int) -> None:
        self._process, self._left = process, count

    @property
    def is_reset(self) -> bool:
        self._left -= 1
        if not self._left:
            self._process.crash()
        return True
