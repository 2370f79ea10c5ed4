"""Import a module, which starts no thread, and print what it loads of some others: loaded_modules MODULE OTHER ..."""

import importlib
import sys
import threading

before = set(sys.modules)
importlib.import_module(sys.argv[1])

assert threading.active_count() == 1
print(*sorted(set(sys.argv[2:]) & (set(sys.modules) - before)))
