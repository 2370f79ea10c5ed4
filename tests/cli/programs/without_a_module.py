"""Run a command of snowredis where a module is not installed: without_a_module MODULE COMMAND [ARGUMENT ...]."""

import sys

sys.modules[sys.argv[1]] = None
from snowredis.cli import main

sys.exit(main(sys.argv[2:]))
