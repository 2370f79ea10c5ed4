#!/usr/bin/env python3
"""Build the C fast path with the address and undefined behavior sanitizers, and run their tests on that build.

    scripts/sanitize.py            # tests in tests/snowflake/ids
    scripts/sanitize.py -k leak    # further arguments are pytest's

Works on a copy of the package in build/sanitize, so the installed build stays as it is. Needs gcc with libasan and
the group dev: pip install -e . --group dev. Exit code: pytest's, or 2 if it could not be built.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "sanitize"
TESTS = ["tests/snowflake/ids/test_implementations.py", "tests/snowflake/ids/test_extension.py"]
COMPILER = os.environ.get("CC", "gcc")
FLAGS = [
    "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=undefined",
]  # fmt: skip


def build() -> None:
    """Copy what the tests need to BUILD, and compile the extension there."""
    shutil.rmtree(BUILD, ignore_errors=True)
    for name in ("snowredis", "tests"):
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(ROOT / name, BUILD / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", BUILD)
    compile_extension(BUILD, COMPILER, *FLAGS)


def compile_extension(root: Path, compiler: str, *flags: str, stderr: int | None = None) -> Path:
    """Compile the C file of the copy of the project in *root*; return the extension. Raises CalledProcessError."""
    source = root / "snowredis/snowflake/ids/_fastpath.c"
    extension = source.with_suffix(str(sysconfig.get_config_var("EXT_SUFFIX")))
    extension.unlink(missing_ok=True)
    abi = [] if sysconfig.get_config_var("Py_GIL_DISABLED") else ["-DPy_LIMITED_API=0x030B0000"]
    include = f"-I{sysconfig.get_path('include')}"
    command = [compiler, "-shared", "-fPIC", *flags, *abi, include, "-o", str(extension), str(source)]
    subprocess.run(command, check=True, stderr=stderr)
    return extension


def environment() -> dict[str, str]:
    """Return the environment in which Python loads the sanitizers before anything else."""
    asked = [COMPILER, "-print-file-name=libasan.so"]
    library = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    return os.environ | {
        "LD_PRELOAD": library,
        # Python itself frees little at exit; leaks of the extension are looked for by the tests
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        # one allocation for each object, so that the sanitizer sees its bounds
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(BUILD),
    }


def main() -> int:
    try:
        build()
        variables = environment()
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"sanitize: the extension could not be built: {error}", file=sys.stderr)
        return 2
    arguments = ["-p", "no:cacheprovider", "-q", *sys.argv[1:], *TESTS]
    shown = "import snowredis; print(snowredis.__file__, snowredis.IMPLEMENTATION)"
    subprocess.run([sys.executable, "-c", shown], cwd=BUILD, env=variables, check=True)
    return subprocess.run(
        [sys.executable, "-m", "pytest", *arguments], cwd=BUILD, env=variables, check=False
    ).returncode


if __name__ == "__main__":
    raise SystemExit(main())
