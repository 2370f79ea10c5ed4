"""How _fastpath.c is built, when a wheel is made or snowredis is installed from source. Never imported at run time.

SNOWREDIS_BUILD=skip builds a wheel without it, for every Python and machine; SNOWREDIS_BUILD=require fails
where it cannot be built. Else it is built if there is a C compiler, and nothing is said if there is none.
"""

from __future__ import annotations

import os
import sysconfig

from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.dist import Distribution

WISH = os.environ.get("SNOWREDIS_BUILD", "")
# one wheel for this Python and all later ones; free-threaded builds have no such ABI
STABLE_ABI = not sysconfig.get_config_var("Py_GIL_DISABLED")
OLDEST = (3, 11)


def _prepare(distribution: Distribution) -> None:
    if WISH not in ("", "skip", "require"):
        raise SystemExit(f"SNOWREDIS_BUILD={WISH!r} is unknown; it can be skip or require")
    if WISH == "skip":
        distribution.ext_modules = []
    for extension in distribution.ext_modules or []:
        extension.optional = WISH != "require"
        if STABLE_ABI:
            extension.py_limited_api = True
            version = f"0x{OLDEST[0]:02X}{OLDEST[1]:02X}0000"
            extension.define_macros = [("Py_LIMITED_API", version)]


class BuildExt(build_ext):
    """build_ext, optional or not."""

    def finalize_options(self) -> None:
        _prepare(self.distribution)
        super().finalize_options()


class BdistWheel(bdist_wheel):
    """bdist_wheel, for all later Pythons, too; and for all machines, if there is no C in it."""

    def finalize_options(self) -> None:
        _prepare(self.distribution)
        if STABLE_ABI and self.distribution.has_ext_modules():
            self.py_limited_api = f"cp{OLDEST[0]}{OLDEST[1]}"
        super().finalize_options()
