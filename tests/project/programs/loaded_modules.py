"""Import snowredis, which starts no thread, and print what it loads of some modules: loaded_modules MODULE ..."""

import sys
import threading

before = set(sys.modules)
import snowredis  # noqa: F401

assert threading.active_count() == 1
print(*sorted(set(sys.argv[1:]) & (set(sys.modules) - before)))
