"""Frameworks that need no code of snowredis: each makes ids that differ, and leaves no worker id leased at its end.

scripts/try_extras.py runs the programs of those that tests do not install.
"""

from importlib.util import find_spec
from pathlib import Path

import pytest

import snowredis
from tests.support.pools import new_pool
from tests.support.programs import finished
from tests.support.servers import RedisServer

PROGRAMS = Path(__file__).with_name("programs") / "without_code"


@pytest.mark.parametrize("program", sorted(PROGRAMS.glob("with_*.py")), ids=lambda path: path.stem)
def test_a_program_makes_ten_ids(server: RedisServer, program: Path) -> None:
    package = program.stem.removeprefix("with_")
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed; scripts/try_extras.py runs its program")
    new_pool(server.url, program.stem)
    done = finished(program, SNOWREDIS_URL=server.url, SNOWREDIS_POOL=program.stem)
    assert done.returncode == 0, done.stderr
    assert len(set(map(int, done.stdout.split()))) == 10
    assert snowredis.WorkerPool(server.url, program.stem).workers() == []
