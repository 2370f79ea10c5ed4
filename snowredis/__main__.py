"""``snowredis`` and ``python -m snowredis``."""

import gc
import sys


def main() -> int:
    """Run the command line, and return its exit code."""
    try:
        from snowredis.cli import main as run
    except KeyboardInterrupt:
        # Ctrl-C while the commands are imported
        return 130
    # the records of thousands of workers are a million objects without a circle
    gc.set_threshold(100_000)
    return run()


if __name__ == "__main__":
    sys.exit(main())
