"""Stop a thread before any chosen bytecode of the product's own code, and call a function there.

A trace function is called before every bytecode of the lease and runtime code. What it does there, a
signal handler, a finalizer, another thread or a debugger's callback could do.
CPython itself runs signal handlers at some of these points only (after calls, at backward jumps); a
trace function such as a debugger's may be called, and so interrupted, at every one.
"""

import dis
import linecache
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType, TracebackType
from typing import Any, Self

import snowredis

ROOT = Path(snowredis.__file__).parent
# the packages whose code is interrupted; the memory pool stands for a server, which is not interrupted
ROOMS = tuple(str(ROOT / room) + "/" for room in ("core", "process", "servers", "snowflake"))
NUMBERS = (str(ROOT / "numbers") + "/",)
SERVER = str(ROOT / "snowflake" / "protocol" / "memory_store.py")
# where Thread.start() and locks of Python are
THREADING = "threading.py"
_BREAKERS = ("CALL", "PRECALL", "RESUME", "JUMP_BACKWARD", "POP_JUMP_BACKWARD")


class Points:
    """Trace function of one thread: counts bytecodes and calls ``actions[k]`` before the k-th.

    Args:
        threading_too: count those of Python's threading, too.
        rooms: the folders whose code is counted.

    Attributes:
        count: how many bytecodes were executed so far.
        fired: where each action was called, as text.
        signal: whether the last action was called where CPython runs signal handlers.
        calls_left: whether, after the last action, there was still a point at which CPython looks for signals.
    """

    def __init__(
        self, actions: dict[int, Callable[[], object]], *, threading_too: bool = False, rooms: tuple[str, ...] = ROOMS
    ) -> None:
        self._actions, self._rooms = actions, rooms
        self._threading_too = threading_too
        self._traced: dict[CodeType, bool] = {}
        self._codes: dict[CodeType, bytes] = {}
        self._before: tuple[FrameType | None, int] = (None, -1)
        self.count = 0
        self.fired: list[str] = []
        self.signal = False
        self.calls_left = False

    def __enter__(self) -> Self:
        if _MONITORING:
            _listen(self)
        else:
            sys.settrace(self._call)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if _MONITORING:
            _listening.pop(threading.get_ident(), None)
        else:
            sys.settrace(None)
        # it refers to the frames of the operation
        self._before = (None, -1)

    def _is_traced(self, code: CodeType) -> bool:
        name = code.co_filename
        found = name.startswith(self._rooms) and name != SERVER
        return found or (self._threading_too and name.endswith(THREADING))

    def is_traced(self, code: CodeType) -> bool:
        traced = self._traced.get(code)
        if traced is None:
            traced = self._traced[code] = self._is_traced(code)
        return traced

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not self.is_traced(frame.f_code):
            return None
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        return self._step

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode":
            self.step(frame)
        return self._step

    def step(self, frame: FrameType) -> None:
        """Count one bytecode, and call its action if it has one. Called before each bytecode."""
        here = self.count
        self.count += 1
        if self.fired and not self.calls_left:
            self.calls_left = self._name(frame.f_code, frame.f_lasti).startswith(_BREAKERS)
        action = self._actions.get(here)
        if action is not None:
            self.calls_left = self._name(frame.f_code, frame.f_lasti).startswith(_BREAKERS)
            self.signal = self._runs_handlers(frame)
            self.fired.append(self._describe(frame))
            action()
        self._before = (frame, frame.f_lasti)

    def _name(self, code: CodeType, offset: int) -> str:
        codes = self._codes.get(code)
        if codes is None:
            codes = self._codes[code] = code.co_code
        return dis.opname[codes[offset]]

    def _runs_handlers(self, frame: FrameType) -> bool:
        before, offset = self._before
        here = self._name(frame.f_code, frame.f_lasti)
        if before is not frame:
            # the first bytecode is not traced by Python 3.11
            return frame.f_lasti >= 2 and self._name(frame.f_code, frame.f_lasti - 2) == "RESUME"
        name = self._name(frame.f_code, offset)
        # before CALL, Python 3.11 has not called anything yet
        return name.startswith(_BREAKERS) and (name, here) != ("PRECALL", "CALL")

    def _describe(self, frame: FrameType) -> str:
        code, line = frame.f_code, frame.f_lineno or 0
        path = Path(code.co_filename)
        place = path.relative_to(ROOT) if path.is_relative_to(ROOT) else Path(path.name)
        source = linecache.getline(code.co_filename, line).strip()
        kind = "signal" if self.signal else "tracer"
        name = getattr(code, "co_qualname", code.co_name)
        return f"{place}:{line} {name} {self._name(code, frame.f_lasti)} [{kind}]: {source}"


# --- Python 3.12 and later -------------------------------------------------------------------------
# there f_trace_opcodes misses the first call of a function, and sys.monitoring sees every bytecode

_MONITORING = sys.version_info >= (3, 12)
# neither a debugger's nor a profiler's
_TOOL = 4
_listening: dict[int, Points] = {}
_watched: set[CodeType] = set()
_modules_seen = 0


def _listen(points: Points) -> None:
    """Call *points* before each bytecode of this thread."""
    global _modules_seen  # noqa: PLW0603 - one for the process, as the tool is
    monitoring: Any = getattr(sys, "monitoring")  # noqa: B009 - mypy checks for 3.11, which has none
    if monitoring.get_tool(_TOOL) is None:
        monitoring.use_tool_id(_TOOL, "interrupts")
        monitoring.register_callback(_TOOL, monitoring.events.INSTRUCTION, _instruction)
    if _modules_seen != len(sys.modules):
        _modules_seen = len(sys.modules)
        for code in _product_codes():
            if code not in _watched:
                _watched.add(code)
                monitoring.set_local_events(_TOOL, code, monitoring.events.INSTRUCTION)
    _listening[threading.get_ident()] = points


def stop_watching() -> None:
    """Let the product run at full speed again: watched code calls back at each bytecode, whoever listens."""
    global _modules_seen  # noqa: PLW0603 - as in _listen()
    if _watched:
        monitoring: Any = getattr(sys, "monitoring")  # noqa: B009 - as in _listen()
        for code in _watched:
            monitoring.set_local_events(_TOOL, code, monitoring.events.NO_EVENTS)
        monitoring.register_callback(_TOOL, monitoring.events.INSTRUCTION, None)
        monitoring.free_tool_id(_TOOL)
        _watched.clear()
        _modules_seen = 0


def _instruction(code: CodeType, offset: int) -> None:
    points = _listening.get(threading.get_ident())
    if points is not None and points.is_traced(code):
        points.step(sys._getframe(1))


def _product_codes() -> Iterator[CodeType]:
    """Yield the code of every loaded function of the product, and of Python's threading."""
    for module in list(sys.modules.values()):
        name = getattr(module, "__file__", None) or ""
        if name.startswith(ROOMS + NUMBERS) or module is threading:
            for function in _functions(module):
                yield from _nested(function.__code__)


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    pending: list[Any] = list(vars(module).values())
    while pending:
        thing = pending.pop()
        thing = getattr(thing, "__wrapped__", thing)
        if isinstance(thing, FunctionType):
            yield thing
        elif isinstance(thing, type) and thing.__module__ == module.__name__:
            pending += vars(thing).values()
        elif isinstance(thing, property):
            pending += (thing.fget, thing.fset)
        elif isinstance(thing, staticmethod | classmethod):
            pending.append(thing.__func__)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def stopped_in_product(thread_id: int | None) -> tuple[CodeType, int] | None:
    """Return the position of a thread whose innermost frame is the product's: it waits for a lock. Else None."""
    frame = sys._current_frames().get(thread_id or 0)
    if frame is None or not frame.f_code.co_filename.startswith(ROOMS):
        return None
    return frame.f_code, frame.f_lasti
