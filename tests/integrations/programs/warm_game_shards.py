"""Run examples/game_shards.py with its arguments, but fork what it starts from a process with all imports."""

import functools
import importlib
import subprocess
import sys
import types
from pathlib import Path

from tests.support import warm

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
example = importlib.import_module("game_shards")
imported = {"imported": ("duckdb", "sqlalchemy")}
run, start = (functools.partial(what, **imported) for what in (warm.run, warm.Popen))
example.subprocess = types.SimpleNamespace(**{**vars(subprocess), "run": run, "Popen": start})
sys.exit(example.main())
