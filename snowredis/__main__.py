"""``snowredis`` and ``python -m snowredis``."""

import sys


def main() -> int:
    """Run the command line, and return its exit code."""
    try:
        from snowredis.cli import main as run
    except KeyboardInterrupt:
        # Ctrl-C while the commands are imported
        return 130
    return run()


if __name__ == "__main__":
    sys.exit(main())
