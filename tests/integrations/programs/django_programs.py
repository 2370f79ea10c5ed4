"""Run other programs of this directory, each in a forked child with a database of its own. Arguments: their names."""

import importlib
import os
import shutil
import sys

import django
from django.db import connections

django.setup()
database = connections.databases["default"]
failed = []
for name in sys.argv[1:]:
    pid = os.fork()
    if pid == 0:
        database["NAME"] = shutil.copy(database["NAME"], f"{name}.sqlite3")
        importlib.import_module(f"tests.integrations.programs.django_{name}")
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        failed.append(name)
sys.exit(f"failed: {', '.join(failed)}" if failed else 0)
