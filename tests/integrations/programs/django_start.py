"""Start Django: no generator and no thread is there, what children need is loaded, and the settings are known."""

import sys
import threading

from snowredis import process_generator
from snowredis.process.names import PROCESS

assert not process_generator._sources[-1].generators
assert threading.active_count() == 1
assert "redis" in sys.modules
assert process_generator.effective_settings() == {"url": "redis://127.0.0.1:1", "pool": "x"}
assert PROCESS.label == "django web"
