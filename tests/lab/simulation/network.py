"""Network between processes and Redis: messages are lost, late, doubled and out of order.

Which server a process reaches is decided when it sends. A message that is under way arrives even
if its sender has died since; an answer that nobody waits for any more is dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from snowredis.errors import ConfigError, StoreUnavailable
from tests.lab.simulation.redis_model import RedisModel
from tests.lab.simulation.world import Task, World

if TYPE_CHECKING:
    from tests.lab.simulation.process import Process
    from tests.lab.simulation.stand_ins import Host
    from tests.lab.simulation.tracing import Tracer

# snowredis.snowflake.protocol.redis_store.SOCKET_TIMEOUT_S
TIMEOUT_US = 1_000_000
# a round trip in a data centre, one way
LATENCY_US = (50, 800)


class Sender(Protocol):
    """Sender of requests: a process, or the reclaimer of its lease."""

    name: str
    host: Host


class Call:
    """One request, as its sender sees it."""

    def __init__(self, task: Task | None) -> None:
        self.task = task
        self.reply: list[str] | None = None
        self.error: Exception | None = None


class Network:
    """Routes scripts to servers. The probabilities are set by faults, and are 0 in good times."""

    def __init__(self, world: World, servers: list[RedisModel], fired: Counter[str]) -> None:
        self._world = world
        self.servers = servers
        self.fired = fired
        self.loss = self.delay = self.duplicate = self.reorder = 0.0
        # how late a late message is, at most
        self.longest_delay_us = 0
        # counts heal(): what was late before it never arrives
        self._era = 0
        # told of every answer
        self.answered: Callable[[RedisModel, str, list[str]], None] = lambda server, name, reply: None
        # told of what no client may send, and of what no script may have written
        self.malformed: Callable[[str], object] = lambda what: None
        # hosts that get no answers
        self._deaf: Counter[str] = Counter()
        # in good times, where everybody goes; a split sends some elsewhere
        self.master = servers[0]
        self.strayed: dict[str, RedisModel] = {}
        self.edit: Callable[[str, str], str] = lambda name, source: source
        # logs what is asked and answered; see tracing.py
        self.tracer: Tracer | None = None

    def heal(self) -> None:
        """Deliver every message in time from now on; no message that was sent before arrives late."""
        self._era += 1
        self.loss = self.delay = self.duplicate = self.reorder = 0.0
        self.strayed.clear()
        self._deaf.clear()

    def cut_off(self, *hosts: str) -> Callable[[], None]:
        """Let nothing that is sent from these machines arrive; return what ends that."""
        away = RedisModel(self._world, "away")
        away.up, away.unreachable = False, True
        self.strayed.update(dict.fromkeys(hosts, away))

        def end() -> None:
            for host in hosts:
                if self.strayed.get(host) is away:
                    del self.strayed[host]

        return end

    def deafen(self, process: Process, lasts_us: int) -> None:
        """Lose the replies to a process for a while."""
        self._deaf[process.host.name] += 1
        self._world.after(lasts_us, lambda: self._deaf.subtract([process.host.name]))

    def server_of(self, process: Sender) -> RedisModel:
        return self.strayed.get(process.host.name, self.master)

    def call(
        self, process: Sender, name: str, source: str, keys: Sequence[str], args: Sequence[str | int]
    ) -> list[str]:
        """Send a request and wait for its reply, as a redis-py client with a timeout and without retries does."""
        world = self._world
        call = Call(world.current)
        server = self.server_of(process)
        source = self.edit(name, source)
        number = self.tracer.sent(process.name, name, args) if self.tracer is not None else 0

        def arrive() -> None:
            self._arrive(call, server, process, name, source, keys, args, number)

        if world.trace is not None:
            world.note("%s -> %s: %s %s", process.name, server.name, name, args[9:])
        self._send(arrive)
        if self._chance("duplicate", self.duplicate):
            self._send(arrive)
        world.block(TIMEOUT_US)
        if call.error is not None:
            raise call.error
        if call.reply is None:
            raise StoreUnavailable("simulated", "no answer within 1 s")
        if self.tracer is not None:
            self.tracer.answered(process.name, number, call.reply)
        return call.reply

    def _chance(self, fault: str, probability: float) -> bool:
        hit = probability > 0 and self._world.random.random() < probability
        if hit:
            self.fired[fault] += 1
        return hit

    def _send(self, arrive: Callable[[], None]) -> None:
        if self._chance("loss", self.loss):
            return
        random = self._world.random
        delay_us = random.randint(*LATENCY_US)
        if self._chance("delay", self.delay):
            era = self._era
            delay_us = random.randint(delay_us, self.longest_delay_us)
            self._world.after(delay_us, lambda: arrive() if era == self._era else None)
            return
        if self._chance("reorder", self.reorder):
            delay_us = random.randint(delay_us, TIMEOUT_US)
        self._world.after(delay_us, arrive)

    def _arrive(
        self,
        call: Call,
        server: RedisModel,
        process: Sender,
        name: str,
        source: str,
        keys: Sequence[str],
        args: Sequence[str | int],
        number: int,
    ) -> None:
        reply: list[str] | None = None
        error: Exception | None = None
        if server.up:
            if self.tracer is not None:
                self.tracer.arrives(server, keys[0])
            try:
                reply = server.eval(source, keys, args)
            except (ConfigError, StoreUnavailable) as refused:
                error = refused
                if isinstance(refused, ConfigError):
                    self.malformed(f"{name} of {process.name}: {refused}")
            else:
                if reply[0] == "broken":
                    self.malformed(f"{name} of {process.name}: {reply[:3]}")
                if self.tracer is not None:
                    self.tracer.ran(server, keys[0], number, reply)
                self.answered(server, name, reply)
        else:
            error = refusal = StoreUnavailable("simulated", "connection refused")
            refusal.is_unsent = server.unreachable
        if self._world.trace is not None:
            self._world.note("%s -> %s: %s", server.name, process.name, reply or error)
        if self._deaf[process.host.name] <= 0:
            self._send(lambda: self._answered(call, reply, error))

    def _answered(self, call: Call, reply: list[str] | None, error: Exception | None) -> None:
        if call.task is not None and call.reply is None and call.error is None:
            call.reply, call.error = reply, error
            self._world.wake(call.task)
