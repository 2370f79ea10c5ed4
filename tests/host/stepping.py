"""Build and load the fast path in C so that it stops before each access to the memory of a host, and can be broken.

Import this module before anything else of snowredis. Nothing of it knows leases: stage.py does.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import snowredis.snowflake

NAME = "snowredis.snowflake._fastpath"
SOURCE = Path(__file__).parents[2] / "snowredis/snowflake/_fastpath.c"

# protections of the C code: what stands there, and what a broken one has instead
BROKEN = {
    "word-exchanged": (
        "if (__atomic_compare_exchange_n(&host->last, &last, next, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {",
        "if ((host->last = next)) {",
    ),
    "sealed-word": ("if (last < 0 || !*path->alive)", "host->last = last &= LLONG_MAX; if (!*path->alive)"),
    "limit": ("|| (unsigned long long)now_ns / 1000000 >= (limit & LIMIT_MS))", ")"),
}


def load(directory: Path, broken: str = "") -> Callable[[Callable[[str], object]], None]:
    """Compile, without the protection *broken*, and load; return a function that sets what is called at each step."""
    text = SOURCE.read_text()
    if broken:
        was, instead = BROKEN[broken]
        if text.count(was) != 1:
            raise LookupError(f"{SOURCE} has not exactly one {was!r}")
        text = text.replace(was, instead)
    source = directory / "fastpath.c"
    source.write_text(text)
    library = directory / f"_fastpath{sysconfig.get_config_var('EXT_SUFFIX')}"
    compiler = shlex.split(sysconfig.get_config_var("CC") or "cc")
    flags = ["-shared", "-fPIC", "-O1", f"-I{sysconfig.get_path('include')}", f'-DFAST_PATH="{source}"']
    subprocess.run([*compiler, *flags, str(Path(__file__).with_name("stepping.c")), "-o", str(library)], check=True)
    loader = importlib.machinery.ExtensionFileLoader(NAME, str(library))
    spec = importlib.util.spec_from_file_location(NAME, library, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[NAME] = module
    setattr(snowredis.snowflake, "_fastpath", module)  # noqa: B010 - mypy knows no such attribute
    set_hook = ctypes.PyDLL(str(library)).set_hook
    set_hook.argtypes, set_hook.restype = [ctypes.py_object], None
    return set_hook
