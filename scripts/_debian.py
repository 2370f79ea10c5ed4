"""Programs and sources of newer Debian releases, without installing anything and without being root.

That needs a Debian with apt-get, whose package lists are there, and its mirror.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

# fetching everything takes 10 s; a slow mirror gets this long for each step
STEP_LIMIT_S = 300
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SUITES = ("trixie", "sid")


class Unavailable(Exception):
    """A program or source is not available on this machine, for the reason given."""


def output_of(*command: str, cwd: Path | None = None) -> str:
    try:
        done = subprocess.run(command, check=False, cwd=cwd, capture_output=True, text=True, timeout=STEP_LIMIT_S)
    except FileNotFoundError:
        raise Unavailable(f"there is no {command[0]} on this machine") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{command[0]} took more than {STEP_LIMIT_S} s") from None
    if done.returncode:
        raise Unavailable(f"{' '.join(command)} failed:\n{(done.stderr or done.stdout).strip()}")
    return done.stdout


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the numbers in *version*, to sort by: 3.13.15 is newer than 3.13.5."""
    return tuple(int(number) for number in re.findall(r"\d+", version))


class Debian:
    """Newer releases of Debian, seen by an apt-get with a state of its own in *scratch*."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._ready = False

    def unpack(self, suite: str, root: Path, *packages: str) -> None:
        """Unpack *packages* of *suite*, and all that they depend on, into *root*."""
        self._prepare()
        plan = self._apt("install", "--simulate", "--no-install-recommends", f"--target-release={suite}", *packages)
        chosen = [line.split()[1:3] for line in plan.splitlines() if line.startswith("Inst ")]
        archives = self._scratch / f"{packages[0]}-{suite}"
        archives.mkdir()
        self._apt("download", *(f"{name}={version.lstrip('(')}" for name, version in chosen), cwd=archives)
        for archive in sorted(archives.glob("*.deb")):
            output_of("dpkg-deb", "--extract", str(archive), str(root))

    def source(self, package: str, directory: Path) -> Path:
        """Fetch the newest available original source archive of *package* into *directory*."""
        self._prepare()
        stated = self._apt("showsrc", package, program="apt-cache").splitlines()
        versions = {line.removeprefix("Version: ") for line in stated if line.startswith("Version: ")}
        reason = f"Debian has no source package {package}"
        # a mirror may list a version whose files are gone
        for version in sorted(versions, key=version_numbers, reverse=True):
            try:
                self._apt("source", "--download-only", f"{package}={version}", cwd=directory)
            except Unavailable as error:
                reason = str(error)
                continue
            return next(directory.glob(f"{package}_{version.rpartition('-')[0]}.orig.tar.*[!c]"))
        raise Unavailable(reason)

    def _prepare(self) -> None:
        if self._ready:
            return
        mirrors = output_of(
            *("apt-get", "indextargets", "--format", "$(REPO_URI)"),
            *("Created-By: Packages", "Origin: Debian", "Component: main"),
        ).split()
        if not mirrors:
            raise Unavailable("apt knows no mirror of Debian's: that needs a Debian, after apt-get update")
        if not KEYRING.exists():
            raise Unavailable(f"there is no {KEYRING}: install debian-archive-keyring")
        for part in ("lists/partial", "cache/archives/partial"):
            (self._scratch / part).mkdir(parents=True)
        lines = [
            f"{kind} [signed-by={KEYRING}] {mirrors[0]} {suite} main\n"
            for suite in SUITES
            for kind in ("deb", "deb-src")
        ]
        (self._scratch / "sources.list").write_text("".join(lines))
        self._apt("update")
        self._ready = True

    def _apt(self, *arguments: str, program: str = "apt-get", cwd: Path | None = None) -> str:
        options = {
            "Dir::State": self._scratch,
            "Dir::State::lists": self._scratch / "lists",
            # as if nothing were installed: a program runs with the libraries of its own release
            "Dir::State::status": "/dev/null",
            "Dir::Cache": self._scratch / "cache",
            "Dir::Etc::sourcelist": self._scratch / "sources.list",
            "Dir::Etc::sourceparts": "-",
            # a mirror that is no longer updated will do
            "Acquire::Check-Valid-Until": "false",
            "Acquire::Languages": "none",
            # the user that apt changes to may not write into scratch
            "APT::Sandbox::User": "root",
        }
        return output_of(program, *(f"--option={key}={value}" for key, value in options.items()), *arguments, cwd=cwd)


def loader_and_libraries(root: Path) -> tuple[Path, Path]:
    """Return the loader in *root* and the directory of its libraries: they run the programs that are in it."""
    loader = next(root.glob("usr/lib*/ld-linux*"), None) or next(root.glob("usr/lib/*/ld-linux*"), None)
    libc = next(root.glob("usr/lib/*/libc.so.6"), None)
    if loader is None or libc is None:
        raise Unavailable(f"{root.name} came without libc6")
    return loader, libc.parent
