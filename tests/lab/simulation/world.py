"""Simulated time, tasks and locks, which schedules run on.

One seed decides everything: no thread, no wall clock, no os.urandom. Tasks are greenlets that
give way only where they call in here, so the shipped code runs unchanged and every
interleaving can be played again.
"""

from __future__ import annotations

import contextlib
import heapq
import random
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from greenlet import getcurrent, greenlet

# 2026-06-01T00:00:00Z; layouts of the simulation begin in 2015, so clocks can be set years back
START_US = 1_780_272_000_000_000
# events without time going on, before a schedule is called stuck
MAX_EVENTS_AT_ONCE = 20_000


class TaskKilled(BaseException):
    """Ends a task of a process that crashed; `except Exception` in the product does not catch it."""


class Stuck(AssertionError):
    """A task runs without end and no time passes."""


class Owner(Protocol):
    """Owner of tasks: a process, which may be paused or dead."""

    name: str
    alive: bool
    paused_until_us: int


class Task:
    """One thread of one process. *owner* is None for what happens to the world itself."""

    def __init__(self, world: World, owner: Owner | None, run: Callable[[], object]) -> None:
        self.world, self.owner = world, owner
        self._run_it = run
        self.greenlet = greenlet(self._run, parent=world.hub)
        # counts switches: a timer that was set for an earlier wait does not end a later one
        self.waits = 0

    def _run(self) -> None:
        with contextlib.suppress(TaskKilled):
            self._run_it()

    def kill(self) -> None:
        if not self.greenlet.dead:
            # one that never ran has nothing to unwind
            self.greenlet.throw(TaskKilled)


class World:
    """The scheduler. Times are us since 1970, ints."""

    def __init__(self, seed: int, *, traced: bool = False) -> None:
        self.random = random.Random(seed)
        self.now_us = START_US
        self.hub = getcurrent()
        self.current: Task | None = None
        self.trace: list[str] | None = [] if traced else None
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        self._busy = 0
        self._tasks: list[Task] = []

    def note(self, what: str, *values: object) -> None:
        """Add a line to the trace; call it under ``if world.trace is not None``."""
        assert self.trace is not None
        at_s = (self.now_us - START_US) / 1e6
        self.trace.append(f"{at_s:10.6f}  {what % values if values else what}")

    # --- events ------------------------------------------------------------------------------------

    def at(self, time_us: int, action: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._queue, (max(time_us, self.now_us), self._number, action))

    def after(self, delay_us: int, action: Callable[[], None]) -> None:
        self.at(self.now_us + delay_us, action)

    def run(self, until_us: int) -> None:
        """Run everything that is due before *until_us*."""
        queue = self._queue
        while queue and queue[0][0] <= until_us:
            time_us, _, action = heapq.heappop(queue)
            if time_us > self.now_us:
                self.now_us, self._busy = time_us, 0
            self.tick()
            action()
        self.now_us = max(self.now_us, until_us)

    def tick(self) -> None:
        """Count a step; a clock reading is one, too."""
        self._busy += 1
        if self._busy > MAX_EVENTS_AT_ONCE:
            raise Stuck(f"{self._busy} steps at one moment")

    # --- tasks -------------------------------------------------------------------------------------

    def spawn(self, owner: Owner | None, run: Callable[[], object], delay_us: int = 0) -> Task:
        task = Task(self, owner, run)
        self._tasks.append(task)
        self._wake(task, self.now_us + delay_us)
        return task

    def _wake(self, task: Task, time_us: int) -> None:
        waits = task.waits
        self.at(time_us, lambda: self._resume(task, waits))

    def wake(self, task: Task) -> None:
        """End the task's present wait, now."""
        self._wake(task, self.now_us)

    def _resume(self, task: Task, waits: int) -> None:
        if task.waits != waits or task.greenlet.dead:
            return
        owner = task.owner
        if owner is not None:
            if not owner.alive:
                return
            if owner.paused_until_us > self.now_us:
                self.at(owner.paused_until_us, lambda: self._resume(task, waits))
                return
        task.waits += 1
        self.current = task
        try:
            task.greenlet.switch()
        finally:
            self.current = None

    def sleep(self, delay_us: int) -> None:
        """Let *delay_us* pass for the current task."""
        self.block(delay_us)

    def block(self, timeout_us: int | None = None) -> None:
        """Stop the current task until wake(), or for *timeout_us*."""
        task = self.current
        if task is None or (task.owner is not None and not task.owner.alive):
            raise TaskKilled
        if timeout_us is not None:
            self._wake(task, self.now_us + timeout_us)
        self.hub.switch()

    def has_others(self, owner: Owner) -> bool:
        """Return whether *owner* has another task than the current one that has not ended."""
        tasks = (task for task in self._tasks if task.owner is owner and task is not self.current)
        return any(not task.greenlet.dead for task in tasks)

    def kill_tasks(self, owner: Owner) -> None:
        """Unwind every task of a process that is dead; the current one has to raise TaskKilled itself."""
        current = self.current
        for task in [task for task in self._tasks if task.owner is owner]:
            self._tasks.remove(task)
            if task is not current:
                self._unwind(task)
        self.current = current

    def _unwind(self, task: Task) -> None:
        task.greenlet.parent = getcurrent()
        with contextlib.suppress(TaskKilled):
            task.kill()

    def close(self) -> None:
        """Unwind the remaining tasks, so that no greenlet waits for the garbage collector."""
        self.current = None
        for task in self._tasks:
            if task.owner is not None:
                task.owner.alive = False
        for task in self._tasks:
            self._unwind(task)
        self._tasks.clear()
        self._queue.clear()


class SimLock:
    """RLock between tasks, which replaces those of the product."""

    def __init__(self, world: World, let_in: Callable[[], object] | None = None) -> None:
        self._world = world
        # something may come in as it is released: called when it is free
        self._let_in = let_in
        self.owner: object = None
        self._count = 0
        self._waiting: deque[Task] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        world = self._world
        me = world.current
        deadline_us = world.now_us + round(timeout * 1e6)
        while self.owner is not None and self.owner is not me:
            if me is None:
                # the world is closing, and a task that is unwound waits for one that was not yet
                raise TaskKilled
            if not blocking or (timeout >= 0 and world.now_us >= deadline_us):
                self._pass_on()
                return False
            self._waiting.append(me)
            world.block(deadline_us - world.now_us if timeout >= 0 else None)
            if me in self._waiting:
                self._waiting.remove(me)
        self.owner = me
        self._count += 1
        return True

    def release(self) -> None:
        self._count -= 1
        if self._count <= 0:
            mine = self.owner is self._world.current
            self.owner, self._count = None, 0
            self._pass_on()
            if mine and self._let_in is not None:
                self._let_in()

    def _pass_on(self) -> None:
        if self.owner is None and self._waiting:
            self._world.wake(self._waiting.popleft())

    def copy(self, parent: Any, child: Any, let_in: Callable[[], object] | None) -> SimLock:
        """Return the child's copy: held by the thread that forked, by one that the child does not have, or free."""
        lock = SimLock(self._world, let_in)
        if self.owner is not None:
            lock.owner = child if self.owner is parent else object()
            lock._count = self._count
        return lock
