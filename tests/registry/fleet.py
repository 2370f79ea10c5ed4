"""Shards registered by many processes at once, with kills, while the registry's Redis forgets: all numbers differ.

The one who opens the registry after a loss is a person who looks at every pool there is: Fleet._open().
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import snowredis
from snowredis.registry.registration import confirm_pools
from snowredis.registry.registry import NumberPlace, RedisRegistry, Registry
from snowredis.servers.scripts import text_of
from snowredis.snowflake.protocol import pool_keys, signature_fields
from tests.support import warm
from tests.support.servers import RedisServer

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).parent / "programs" / "registrar.py"
LAYOUT = snowredis.layouts["game-shards"]
REGISTRY_KEY = "snowredis:registry:{world}"


@dataclass
class Fleet:
    """*processes* that register *shards*, whose pools are on *pools*, in the registry on *registry*.

    Attributes:
        used: number -> the shards that used it.
        ids: every id that was made.
        kills, losses: how many there were.
    """

    directory: Path
    registry: RedisServer
    pools: list[RedisServer]
    shards: int
    processes: int
    random: random.Random
    used: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    ids: list[int] = field(default_factory=list)
    kills: int = 0
    losses: list[str] = field(default_factory=list)

    def run(self, *, kills: int, losses: list[str], limit_s: float) -> None:
        """Register all shards; kill a process *kills* times, and let the registry's Redis forget as *losses* says."""
        deadline_s = time.monotonic() + limit_s
        opened = self._registry()
        opened.create(first=1)
        logs = [self.directory / f"{n}.log" for n in range(self.processes)]
        running = [self._start(n, logs[n]) for n in range(self.processes)]
        # at these counts of registered shards
        due = [("kill", int(self.shards * self.random.uniform(0, 0.95))) for _ in range(kills)]
        due += [(loss, int(self.shards * self.random.uniform(0.05, 0.9))) for loss in losses]
        due.sort(key=lambda each: each[1])
        saved = False
        try:
            while any(process.poll() is None for process in running):
                if time.monotonic() > deadline_s:
                    raise AssertionError(f"not done after {limit_s} s")
                registered = sum(log.read_text().count("number ") for log in logs)
                if not saved and registered > self.shards // 20:
                    self.registry.save()
                    saved = True
                while due and due[0][1] <= registered:
                    what, _ = due.pop(0)
                    if what == "kill":
                        self._kill(running, logs)
                    else:
                        self._forget(what)
                self._open()
                time.sleep(0.01)
        finally:
            for process in running:
                process.kill()
                process.wait()
        assert all(log.read_text().endswith("done\n") for log in logs), "a process failed"
        self._read(logs)

    def _registry(self) -> Registry:
        return RedisRegistry(self.registry.url, "world", NumberPlace.of(LAYOUT))

    def _start(self, number: int, log: Path) -> subprocess.Popen[bytes]:
        arguments = (number, self.processes, self.shards, *(pool.url for pool in self.pools))
        with log.open("ab") as file:
            return warm.Popen(
                [sys.executable, str(PROGRAM), self.registry.url, *map(str, arguments)],
                stdout=file,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
            )

    def _kill(self, running: list[subprocess.Popen[bytes]], logs: list[Path]) -> None:
        alive = [n for n, process in enumerate(running) if process.poll() is None]
        if alive:
            number = self.random.choice(alive)
            running[number].send_signal(signal.SIGKILL)
            running[number].wait()
            self.kills += 1
            running[number] = self._start(number, logs[number])

    def _forget(self, how: str) -> None:
        self.losses.append(how)
        client = self.registry.client()
        if how == "wipe":
            client.delete(REGISTRY_KEY)
        elif how == "snapshot":
            self.registry.restart()
        else:
            raise ValueError(how)

    def _open(self) -> None:
        """After a loss: let every pool that there is confirm its number, then open the registry."""
        registry = self._registry()
        state = registry.read()
        if state is not None and not state.closed:
            return
        for pool in self.pools:
            for line in confirm_pools(pool.url, registry):
                assert "CONFLICT" not in line or self._unused(line), line
        if registry.read() is not None:
            registry.open()

    def _unused(self, line: str) -> bool:
        """Return true if the pool of the line was never confirmed, so that nobody can have used its number."""
        name = line.partition(":")[0]
        return not any(pool.client().hget(pool_keys(name)[0], "highest_number") for pool in self.pools)

    def _read(self, logs: list[Path]) -> None:
        for log in logs:
            for line in log.read_text().splitlines():
                match line.split():
                    case ["number", shard, number]:
                        self.used[int(number)].add(int(shard))
                    case ["id", shard, an_id]:
                        self.ids.append(int(an_id))
                        self.used[LAYOUT.decode(int(an_id)).datacenter].add(int(shard))

    def problems(self) -> list[str]:
        """Return what is wrong: a number of two shards, a shard without one or with two, an id that was made twice."""
        wrong = [f"number {n} belongs to shards {sorted(who)}" for n, who in self.used.items() if len(who) > 1]
        stored: dict[int, list[str]] = defaultdict(list)
        for index in range(self.shards):
            client = self.pools[index % len(self.pools)].client()
            signature, noted = client.hmget(pool_keys(f"shard-{index}")[0], "signature", "highest_number")
            if not (signature and noted):
                wrong.append(f"shard-{index} has no confirmed number")
                continue
            stored[int(signature_fields(text_of(signature))["datacenter"])].append(f"shard-{index}")
        wrong += [f"number {n} is stored in {who}" for n, who in stored.items() if len(who) > 1]
        wrong += [f"number {n} was used and not stored" for n in self.used.keys() - stored.keys()]
        if len(set(self.ids)) != len(self.ids):
            wrong.append("an id was made twice")
        return wrong
