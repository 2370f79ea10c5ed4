#!/usr/bin/env python3
"""Get another version of CPython into .cache/pythons, without installing it, and print the path of the program.

    scripts/get_python.py 3.14         # a package of a newer Debian release
    scripts/get_python.py 3.13t        # free-threaded: built from Debian's source, for 4 minutes on two cores
    scripts/test --python 3.13t        # calls this if there is no such Python

Packages and sources are those of Debian trixie and sid, from the mirror that this machine's apt uses: that needs a
Debian with apt-get, whose package lists are there, and gcc. No root is needed. What is there already is kept. A build
needs libraries: apt-get build-dep python3, or at least make libssl-dev zlib1g-dev libffi-dev libsqlite3-dev
liblzma-dev. CC and CFLAGS are those of the environment. Exit code: 2 if it is not available.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts._debian import Debian, Unavailable, loader_and_libraries, output_of

PYTHONS = Path(__file__).resolve().parent.parent / ".cache" / "pythons"
# what pip, the extension and the tests import
NEEDED = "ctypes, hashlib, lzma, sqlite3, ssl, venv, zlib"
# where Debian's venv looks for pip
WHEELS = "/usr/share/python-wheels"

MAIN = """\
int Py_BytesMain(int, char **);
int main(int count, char **arguments) { return Py_BytesMain(count, arguments); }
"""


def say(message: str) -> None:
    print(f"== {message}", file=sys.stderr, flush=True)


def unpack(version: str, target: Path, debian: Debian) -> Path:
    """Unpack Debian's package of *version* into *target*, with all libraries that it runs with."""
    say(f"get python{version} from Debian sid")
    name = f"python{version}"
    debian.unpack("sid", target, name, f"{name}-venv", f"{name}-dev")
    loader, libraries = loader_and_libraries(target)
    # some are links to others
    for settings in {path.resolve() for path in target.glob(f"usr/lib/{name}/_sysconfigdata*.py")}:
        settings.write_text(settings.read_text().replace(WHEELS, f"{target}{WHEELS}"))
    # the other one includes this one by a path below /usr/include
    (include,) = target.glob(f"usr/include/*/{name}/pyconfig.h")
    shutil.copy(include, target / "usr/include" / name)
    # virtual environments link to the program, which therefore has to find its loader and its libraries by itself
    program = target / "usr/bin" / name
    program.unlink()
    main = target / "main.c"
    main.write_text(MAIN)
    output_of(
        *(os.environ.get("CC", "gcc"), "-o", str(program), str(main), str(libraries / f"lib{name}.so.1.0")),
        *(f"-Wl,--dynamic-linker={loader}", f"-Wl,--disable-new-dtags,-rpath={libraries}"),
        "-Wl,--allow-shlib-undefined",
    )
    return program


def build(version: str, target: Path, debian: Debian, scratch: Path) -> Path:
    """Build *version* without the GIL, and install it into *target*."""
    fetched, unpacked, log = scratch / "source", scratch / "tree", target.with_name(f"{target.name}.log")
    fetched.mkdir()
    shutil.unpack_archive(debian.source(f"python{version}", fetched), unpacked)
    (tree,) = unpacked.iterdir()
    say(f"build {tree.name} without the GIL; the output is in {log}")
    with log.open("wb") as output:
        for step in (
            # no profile: a build with --enable-optimizations takes half an hour
            ("./configure", "--disable-gil", f"--prefix={target}"),
            ("make", f"--jobs={os.cpu_count() or 1}"),
            ("make", "altinstall"),
        ):
            if subprocess.run(step, check=False, cwd=tree, stdout=output, stderr=output).returncode:
                raise Unavailable(f"{' '.join(step)} failed; see {log}")
    return target / "bin" / f"python{version}t"


def get(version: str, free_threaded: bool) -> Path:
    """Return the program of *version*, which is fetched or built unless it is there."""
    target = PYTHONS / f"{version}{'t' if free_threaded else ''}"
    found = target / "python"
    if found.exists():
        return found
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="snowredis-python-") as directory:
        scratch = Path(directory)
        debian = Debian(scratch / "apt")
        program = build(version, target, debian, scratch) if free_threaded else unpack(version, target, debian)
    output_of(str(program), "-c", f"import {NEEDED}")
    found.symlink_to(program)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", help="such as 3.14, or 3.13t without the GIL")
    wanted = re.fullmatch(r"(3\.\d+)(t?)", parser.parse_args().version)
    if wanted is None:
        parser.error("the version must be two numbers such as 3.14, or 3.13t")
    try:
        print(get(wanted[1], bool(wanted[2])))
    except Unavailable as error:
        say(f"Python {wanted[0]} is not available: {error}")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
