"""Start Django: no generator, no thread and no redis is there, and the settings are known."""

import django

django.setup()

import sys
import threading

from snowredis import process_generator

assert not process_generator._sources[-1].generators
assert threading.active_count() == 1
assert "redis" not in sys.modules
assert process_generator.effective_settings() == {"url": "redis://127.0.0.1:1", "pool": "x"}
