"""Programs that are forked from a process which has imported what takes long: a start takes 10 ms instead of 400.

`Popen` and `run()` are those of subprocess. What they start is a child of the caller, runs as `__main__` with the
arguments, environment, directory and streams that were given, and ends as an interpreter ends. What shows that it did
not start as one: the modules that are loaded already, its command line in /proc, and the seed of its hashes. Whatever
such a process cannot have, such as another Python or a terminal, starts as usual.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import inspect
import io
import os
import platform
import runpy
import signal
import socket
import subprocess
import sys
import time
import types
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

# number of the system call clone(); elsewhere every program starts as usual
_CLONE = {"x86_64": 56, "aarch64": 220}.get(platform.machine()) if sys.platform == "linux" else None
_CLONE_PARENT = 0x8000
# what takes long: redis-py imports asyncio, and OpenTelemetry where that is installed
_IMPORTED = ("redis", "snowredis.connection", "snowredis.snowflake.protocol.redis_store", "snowredis.worker_pool")
# Python 3.12 warns of every fork beside a thread; the heartbeat is one
FORKS_WITH_THREADS = "ignore:This process:DeprecationWarning"
# options of an interpreter that all of these processes have, or that a program cannot tell from others
_OPTIONS = {("-X", "faulthandler"), ("-W", FORKS_WITH_THREADS)}
# variables that an interpreter, or an import, reads once
_READ_ONCE = ("PYTHON", "LC_", "LANG", "LD_", "SNOWREDIS_PURE", "COV")
# arguments of Popen that must have these values
_USUAL = {
    "preexec_fn": None,
    "startupinfo": None,
    "creationflags": 0,
    "shell": False,
    "gid": None,
    "gids": None,
    "uid": None,
    "umask": -1,
    "process_group": -1,
}
# most bytes of one message: arguments and an environment
_MOST_BYTES = 1 << 17
_MOST_DESCRIPTORS = 64


class Popen(subprocess.Popen[Any]):
    """A Popen whose program is forked if it can be.

    Args:
        imported: what else takes long, and may be loaded when the program starts.
    """

    def __init__(self, *given: Any, imported: tuple[str, ...] = (), **options: Any) -> None:
        self._imported = imported
        super().__init__(*given, **options)

    def _execute_child(self, *given: Any) -> None:
        asked = inspect.signature(super()._execute_child).bind(*given).arguments  # type: ignore[misc]
        words = _words(asked["args"])
        environment = dict(os.environ if asked["env"] is None else asked["env"])
        usual = all(asked[name] == value for name, value in _USUAL.items()) and not os.isatty(max(asked["c2pwrite"], 1))
        if not usual or words is None or asked["executable"] not in (None, words[0]) or not _same(environment):
            super()._execute_child(*given)  # type: ignore[misc]
            return
        sys.audit("subprocess.Popen", words[0], words, asked["cwd"], environment)
        streams = [asked["p2cread"], asked["c2pwrite"], asked["errwrite"]]
        wanted = {at: at if fd == -1 else fd for at, fd in enumerate(streams)} | {fd: fd for fd in asked["pass_fds"]}
        cwd = os.path.abspath(os.fspath(asked["cwd"] or "."))
        request = repr((words, environment, cwd, asked["start_new_session"], list(wanted)))
        self.pid = _Parent.get(self._imported).ask(request, list(wanted.values()))
        self._child_created = True
        pipes = [asked[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")]
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def run(
    command: Any, *, timeout: float | None = None, check: bool = False, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """Do what subprocess.run() does, with this Popen."""
    said = options.pop("input", None)
    if said is not None:
        options["stdin"] = subprocess.PIPE
    if options.pop("capture_output", False):
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Popen(command, **options) as process:
        try:
            output, errors = process.communicate(said, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, output, errors)
    if check:
        done.check_returncode()
    return done


def _words(command: Any) -> list[str] | None:
    """Return *command* as text if it is one of this Python, without the options of _OPTIONS; else None."""
    parts = [command] if isinstance(command, str | os.PathLike) else command
    words = [str(os.fspath(part)) for part in parts]
    if words[0] != sys.executable or _CLONE is None:
        return None
    while tuple(words[1:3]) in _OPTIONS:
        del words[1:3]
    # a script, -m and -c can be started here
    starts = len(words) > 1 and (not words[1].startswith("-") or (words[1] in ("-m", "-c") and len(words) > 2))
    # gevent patches what was not imported yet
    return words if starts and not any("gevent" in word for word in words) else None


def _same(environment: Mapping[str, str]) -> bool:
    """Return whether an interpreter reads in *environment* what it read in that of this process."""

    def read_once(variables: Mapping[str, str]) -> dict[str, str]:
        found = {name: value for name, value in variables.items() if name.startswith(_READ_ONCE)}
        found.pop("PYTHONPATH", None)
        return found

    return read_once(environment) == read_once(os.environ)


class _Parent:
    """A process that has imported what takes long, and ends with this one."""

    _all: ClassVar[dict[tuple[int, tuple[str, ...]], _Parent]] = {}

    def __init__(self, imported: tuple[str, ...]) -> None:
        self._link, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        options = [word for option in sorted(_OPTIONS) for word in option]
        with other:
            self._process = subprocess.Popen(
                [sys.executable, *options, __file__, str(other.fileno()), *_IMPORTED, *imported],
                stdin=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
                env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            )

    @classmethod
    def get(cls, imported: tuple[str, ...]) -> _Parent:
        # a child that a test forked needs one of its own
        key = os.getpid(), imported
        if key not in cls._all:
            cls._all[key] = cls(imported)
        return cls._all[key]

    def ask(self, request: str, descriptors: list[int]) -> int:
        """Return the pid of a new child of this process."""
        socket.send_fds(self._link, [request.encode()], descriptors)
        answer = self._link.recv(64)
        assert answer, "the process that programs are forked from has died"
        return int(answer)


def _fork_beside() -> int:
    """Fork as os.fork() does, but so that the child has the parent of this process."""
    python = ctypes.PyDLL(None)
    python.PyOS_BeforeFork()
    pid: int = python.syscall(_CLONE, _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if pid:
        python.PyOS_AfterFork_Parent()
    else:
        python.PyOS_AfterFork_Child()
    return pid


def _requests(link: socket.socket) -> Iterator[tuple[Any, list[int]]]:
    """Yield in a child each request with its descriptors; here, end when nobody is left who asks."""
    while True:
        text, descriptors, _, _ = socket.recv_fds(link, _MOST_BYTES, _MOST_DESCRIPTORS)
        if not text:
            return
        pid = _fork_beside()
        if pid == 0:
            link.close()
            yield eval(text, {}), descriptors
            return
        for descriptor in descriptors:
            os.close(descriptor)
        link.send(str(pid).encode())


def _become(environment: dict[str, str], cwd: str, new_session: bool, wanted: list[int], got: list[int]) -> None:
    """Take the place in the system that a program was given."""
    if new_session:
        os.setsid()
    # out of the way of the numbers that they get
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 256) for descriptor in got]
    os.closerange(3, 256)
    for number, descriptor in zip(wanted, moved, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    # a shell starts background jobs with signals ignored, and so does nohup
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGTSTP):
        signal.signal(number, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.chdir(cwd)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - a stream of the process
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), errors="backslashreplace", line_buffering=True)
    vars(sys).update(__stdin__=sys.stdin, __stdout__=sys.stdout, __stderr__=sys.stderr)


def _prepare(words: list[str], environment: dict[str, str]) -> types.ModuleType:
    """Return a new __main__, with sys.argv and sys.path as they are where a program begins."""
    _, kind, *rest = sys.orig_argv[:] = words
    modules = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    first = {"-m": os.getcwd(), "-c": ""}.get(kind, os.path.dirname(os.path.abspath(kind)))
    sys.path[:0] = [first, *modules]
    sys.argv[:] = ["-m", *rest[1:]] if kind == "-m" else ["-c", *rest[1:]] if kind == "-c" else [kind, *rest]
    sys.modules["__main__"] = main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    return main


if __name__ == "__main__":
    _link, *_names = sys.argv[1:]
    # in place of the directory of this file: the checkout whose tests these are
    sys.path[0] = os.path.abspath(f"{os.path.dirname(__file__)}/../..")
    for _name in _names:
        __import__(_name)
    del sys.path[0]
    gc.freeze()
    # a Ctrl-C is for the tests
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for (_words_of, _variables, _cwd, _alone, _wanted), _got in _requests(socket.socket(fileno=int(_link))):
        _become(_variables, _cwd, _alone, _wanted, _got)
        _main = _prepare(_words_of, _variables)
        _kind, *_rest = _words_of[1:]
        if _kind == "-m":
            runpy._run_module_as_main(_rest[0])  # type: ignore[attr-defined]
        elif _kind == "-c":
            exec(compile(_rest[0], "<string>", "exec"), vars(_main))
        else:
            _main.__file__ = _kind
            with io.open_code(os.path.abspath(_kind)) as _file:
                _code = compile(_file.read(), _kind, "exec")
            exec(_code, vars(_main))
