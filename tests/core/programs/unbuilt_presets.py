"""Import the presets, which builds none and loads nothing heavy; then ask for one, which builds that one."""

import sys

before = set(sys.modules)
import snowredis.core.text  # noqa: F401
from snowredis.core import presets

assert not presets.layouts._built
assert not {"json", "difflib", "logging", "socket", "redis"} & (set(sys.modules) - before)
presets.layouts["jd"]
assert list(presets.layouts._built) == ["jd"]
