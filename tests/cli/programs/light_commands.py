"""Run commands of snowredis, and fail if one loaded what takes long: light_commands COMMAND_LINE ..."""

import shlex
import sys

from snowredis.cli import main

for line in sys.argv[1:]:
    code = main(shlex.split(line))
    heavy = {"redis", "asyncio"} & set(sys.modules)
    if heavy or code:
        sys.exit(f"{line} ended with {code}, and imported {heavy}")
