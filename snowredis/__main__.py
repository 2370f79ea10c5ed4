"""``python -m snowredis``: the same as the command ``snowredis``."""

import sys

from snowredis.cli import main

if __name__ == "__main__":
    sys.exit(main())
