"""Two game shards, merged: every check of the example holds."""

import re

from tests.support.programs import finished


def test_every_check_of_the_example_held() -> None:
    done = finished("-m", "tests.integrations.programs.warm_game_shards", timeout_s=300)
    assert done.returncode == 0, done.stdout + done.stderr
    # the one whose clock is set back says so
    [warning] = done.stderr.splitlines()
    assert re.fullmatch(r"pool shard-us: the clock went back by \d+ ms: using another namespace", warning)
    assert len(re.findall(r"^  ok     ", done.stdout, re.MULTILINE)) == 12
    assert "FAILED" not in done.stdout
