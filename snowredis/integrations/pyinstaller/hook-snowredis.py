"""Hook of PyInstaller: what a frozen program needs beside the modules that its code imports by name.

The Lua scripts, the fast path in C, and the kinds of ids of all installed packages.
"""

from importlib.metadata import entry_points

from PyInstaller.utils.hooks import collect_data_files, collect_submodules, copy_metadata

# a program that uses them imports them by name
_IMPORTED_BY_NAME = {"__main__", "cli", "integrations", "merge", "web"}
# a frozen program starts no server of its own, and a program that calls with arrays imports numpy itself
excludedimports = ["fakeredis", "numpy"]

datas = collect_data_files("snowredis", includes=["**/*.lua", "web/static/*"])
hiddenimports = collect_submodules("snowredis", filter=lambda name: not _IMPORTED_BY_NAME & {*name.split(".")[1:2]})
for _point in entry_points(group="snowredis.generators"):
    hiddenimports.append(_point.module)
    datas += copy_metadata(_point.dist.name) if _point.dist else []
