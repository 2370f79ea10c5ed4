"""Build the C extension and the archives; setuptools calls this, see pyproject.toml. Not part of any wheel.

SNOWREDIS_BUILD=skip builds a wheel without the extension, for every Python and machine; SNOWREDIS_BUILD=require fails
if the extension cannot be built. Otherwise it is built if there is a C compiler, and silently left out if not.

With SOURCE_DATE_EPOCH, in s since 1970, two builds of the same files make the same bytes.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import subprocess
import sysconfig
import tarfile
import time
from pathlib import Path
from typing import Any

from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist
from setuptools.dist import Distribution

WISH = os.environ.get("SNOWREDIS_BUILD", "")
# one wheel for this Python and all later ones; free-threaded builds have no stable ABI
STABLE_ABI = not sysconfig.get_config_var("Py_GIL_DISABLED")
OLDEST = (3, 11)
# what the source archive holds beside the package: what is needed to build it and to read about it
SOURCES = ("docs", "examples", "scripts/_build.py")
LEFT_OUT = {"__pycache__", ".hypothesis", "node_modules"}


def _prepare(distribution: Distribution) -> None:
    if WISH not in ("", "skip", "require"):
        raise SystemExit(f"unknown SNOWREDIS_BUILD={WISH!r}: it must be 'skip' or 'require', or not be set")
    if WISH == "skip":
        distribution.ext_modules = []
    for extension in distribution.ext_modules or []:
        extension.optional = WISH != "require"
        if STABLE_ABI:
            extension.py_limited_api = True
            version = f"0x{OLDEST[0]:02X}{OLDEST[1]:02X}0000"
            extension.define_macros = [("Py_LIMITED_API", version)]


class BuildExt(build_ext):
    """build_ext for an optional extension of the stable ABI."""

    def finalize_options(self) -> None:
        _prepare(self.distribution)
        super().finalize_options()


class BdistWheel(bdist_wheel):
    """bdist_wheel, tagged for all later Pythons; and for all machines if it contains no extension."""

    def finalize_options(self) -> None:
        _prepare(self.distribution)
        if STABLE_ABI and self.distribution.has_ext_modules():
            self.py_limited_api = f"cp{OLDEST[0]}{OLDEST[1]}"
        super().finalize_options()

    def write_wheelfile(self, wheelfile_base: str, *args: Any, **options: Any) -> None:
        """Write the metadata, and beside it the commit that a checkout has, which `snowredis --version` names."""
        super().write_wheelfile(wheelfile_base, *args, **options)
        if Path(".git").exists() and not self.distribution.get_command_obj("editable_wheel", create=False):
            describe = ["git", "describe", "--always", "--dirty", "--exclude=*"]
            with contextlib.suppress(OSError):
                done = subprocess.run(describe, capture_output=True, text=True, check=False)
                Path(wheelfile_base, "commit").write_text(done.stdout.strip())

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tag of what was really built: the compiler may have been missing or have failed."""
        built = Path(self.bdist_dir).rglob("_fastpath.*")
        if not any(path.suffix in (".so", ".pyd") for path in built):
            self.root_is_pure = True
            return "py3", "none", "any"
        tag: tuple[str, str, str] = super().get_tag()
        return tag


class Sdist(sdist):
    """sdist with documentation and examples, without tests and scripts: they need a checkout."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Copy the files of the archive to *base_dir*."""
        found = (path for name in SOURCES for path in [Path(name), *sorted(Path(name).rglob("*"))] if path.is_file())
        added = [str(path) for path in found if not LEFT_OUT & set(path.parts)]
        super().make_release_tree(base_dir, [*files, "CHANGELOG.md", *added])

    def make_archive(self, base_name: str, format: str, *args: Any, base_dir: str = "", **options: Any) -> str:  # noqa: A002  (setuptools' name)
        """Pack *base_dir*, and nothing of this machine: no owners, no times of files, no modes of a umask."""
        if format != "gztar":
            made: str = super().make_archive(base_name, format, *args, base_dir=base_dir, **options)
            return made
        built_at_s = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))

        def same_everywhere(member: tarfile.TarInfo) -> tarfile.TarInfo:
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.mtime, member.uid, member.gid, member.uname, member.gname = built_at_s, 0, 0, "", ""
            return member

        name = f"{base_name}.tar.gz"
        with gzip.GzipFile(name, "wb", mtime=built_at_s) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(base_dir, filter=same_everywhere)
        return name
