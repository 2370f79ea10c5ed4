"""Switch tasks before random bytecodes of the product, not only where it reads a clock or calls Redis.

A task's greenlet cannot be left from within a trace function, but by way of sys.call_tracing(), which
also lets what comes in be interrupted in its turn.

CPython 3.11 executes some pairs of bytecodes as one when a function has run often enough: a failing seed plays
exactly as before only after the seeds that were played before it in the same process.
"""

from __future__ import annotations

import random
import sys
from types import FrameType
from typing import TYPE_CHECKING, Any

from tests.lab.interrupts.points import ROOMS

if TYPE_CHECKING:
    from tests.lab.simulation.world import World

# between two interruptions, on average; a call of next_id() that begins a tick has some hundred bytecodes
MEAN_BYTECODES = 150


class Bytecodes:
    """Trace function of one schedule. It has its own random numbers, so that other schedules do not change."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._random = random.Random(f"bytecodes {seed}")
        self._left = 1
        self.interruptions = 0

    def listen(self) -> None:
        """Start tracing when a task begins something: an exception in the trace function may have ended it."""
        sys.settrace(self._call)

    def close(self) -> None:
        sys.settrace(None)

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(ROOMS):
            return None
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        return self._step

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode":
            self._left -= 1
            if self._left <= 0:
                self._left = self._random.randint(1, 2 * MEAN_BYTECODES)
                self._interrupt()
        return self._step

    def _interrupt(self) -> None:
        task = self._world.current
        interrupted = getattr(task.owner, "interrupted", None) if task is not None else None
        if interrupted is not None:
            self.interruptions += 1
            sys.call_tracing(interrupted, ())
