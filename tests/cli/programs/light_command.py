"""Run a command of snowredis, and fail if it loaded what takes long: light_command COMMAND [ARGUMENT ...]."""

import sys

from snowredis.cli import main

code = main(sys.argv[1:])
heavy = {"redis", "asyncio"} & set(sys.modules)
sys.exit(f"imported {heavy}" if heavy else code)
