"""Stop a thread before any one bytecode of the product's own code, and do something there.

A trace function sees every bytecode of the lease and runtime code before it is executed. What it
does there, a signal handler, a finalizer, another thread or a debugger's callback could do.
CPython itself runs signal handlers at some of these points only (after calls, at backward jumps); a
trace function such as a debugger's may be called, and so interrupted, at every one.
"""

from __future__ import annotations

import dis
import linecache
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any, Self

import snowredis

ROOT = Path(snowredis.__file__).parent
# the rooms whose code is interrupted; the memory pool stands for a server, which nobody interrupts
ROOMS = tuple(str(ROOT / room) + "/" for room in ("core", "lease", "runtime"))
SERVER = str(ROOT / "lease" / "memory_store.py")
# where Thread.start() and locks of Python are
THREADING = "threading.py"
_BREAKERS = ("CALL", "PRECALL", "RESUME", "JUMP_BACKWARD", "POP_JUMP_BACKWARD")


class Points:
    """Trace function of one thread: counts bytecodes and calls ``actions[k]`` before the k-th.

    Attributes:
        count: how many bytecodes were executed so far.
        fired: where each action came, as text.
        calls_left: whether, after the last action, there was still a point at which CPython looks for signals.
    """

    def __init__(self, actions: dict[int, Callable[[], None]], *, threading_too: bool = False) -> None:
        self._actions = actions
        self._threading_too = threading_too
        self._traced: dict[CodeType, bool] = {}
        self._codes: dict[CodeType, bytes] = {}
        self._before: tuple[FrameType | None, int] = (None, -1)
        self.count = 0
        self.fired: list[str] = []
        self.calls_left = False

    def __enter__(self) -> Self:
        sys.settrace(self._call)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.settrace(None)
        # holds the frames of the operation
        self._before = (None, -1)

    def _is_traced(self, code: CodeType) -> bool:
        name = code.co_filename
        found = name.startswith(ROOMS) and name != SERVER
        return found or (self._threading_too and name.endswith(THREADING))

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        traced = self._traced.get(code)
        if traced is None:
            traced = self._traced[code] = self._is_traced(code)
        if not traced:
            return None
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        return self._step

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event != "opcode":
            return self._step
        here = self.count
        self.count += 1
        if self.fired and not self.calls_left:
            self.calls_left = self._name(frame.f_code, frame.f_lasti).startswith(_BREAKERS)
        action = self._actions.get(here)
        if action is not None:
            self.calls_left = self._name(frame.f_code, frame.f_lasti).startswith(_BREAKERS)
            self.fired.append(self._describe(frame))
            action()
        self._before = (frame, frame.f_lasti)
        return self._step

    def _name(self, code: CodeType, offset: int) -> str:
        codes = self._codes.get(code)
        if codes is None:
            codes = self._codes[code] = code.co_code
        return dis.opname[codes[offset]]

    def _describe(self, frame: FrameType) -> str:
        code, line = frame.f_code, frame.f_lineno or 0
        path = Path(code.co_filename)
        place = path.relative_to(ROOT) if path.is_relative_to(ROOT) else Path(path.name)
        before, offset = self._before
        signal = before is frame and self._name(code, offset).startswith(_BREAKERS)
        source = linecache.getline(code.co_filename, line).strip()
        kind = "signal" if signal else "tracer"
        name = getattr(code, "co_qualname", code.co_name)
        return f"{place}:{line} {name} {self._name(code, frame.f_lasti)} [{kind}]: {source}"


def stopped_in_product(thread_id: int | None) -> tuple[CodeType, int] | None:
    """Where that thread stands, if the innermost Python frame is the product's own: it waits for a lock."""
    frame = sys._current_frames().get(thread_id or 0)
    if frame is None or not frame.f_code.co_filename.startswith(ROOMS):
        return None
    return frame.f_code, frame.f_lasti
