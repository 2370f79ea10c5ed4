"""The least that an id which contains the time can cost: a function and a method in C that only read the clock.

Compiled when this is imported, with the compiler and the flags of this Python; ImportError if that fails.
"""

from __future__ import annotations

import importlib.util
import shlex
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("floor.c")


def _compiled() -> Any:
    variables = sysconfig.get_config_vars()
    with tempfile.TemporaryDirectory(prefix="snowredis-bench-") as directory:
        library = Path(directory) / "floor.so"
        command = [*shlex.split(variables.get("LDSHARED") or "cc -shared"), "-O2", "-fPIC"]
        command += [f"-I{sysconfig.get_path('include')}", str(SOURCE), "-o", str(library)]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise ImportError(f"no C compiler: {error}") from error
        spec = importlib.util.spec_from_file_location("floor", library)
        if spec is None or spec.loader is None:
            raise ImportError(f"{library} does not load")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


_floor = _compiled()
now_int = _floor.now_int


_ClockInC: Any = _floor.Clock


class Clock(_ClockInC):  # type: ignore[misc]
    """A class in Python over a type in C, as SnowflakeGenerator is."""

    __slots__ = ()


clock = Clock()
