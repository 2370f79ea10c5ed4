"""Make ids in two more interpreters of this process; each prints its implementation and the identity of its class."""

import sys
from pathlib import Path

try:
    import _interpreters as interpreters

    create = interpreters.create
except ImportError:
    import _xxsubinterpreters as interpreters

    def create():
        return interpreters.create(isolated=True)


from snowredis.snowflake.ids import fast_path

WORK = Path(__file__).with_name("work_of_an_interpreter.py").read_text()

print(fast_path.IMPLEMENTATION, id(fast_path.FastPath), flush=True)
for _ in range(2):
    one = create()
    failure = interpreters.run_string(one, f"import sys; sys.path[:] = {sys.path!r}\n{WORK}")
    assert failure is None, failure
    interpreters.destroy(one)
