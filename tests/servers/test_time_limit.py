"""One time limit for a whole call."""

from __future__ import annotations

import time

import pytest

from snowredis.servers.connections import CALL_LIMIT_S, remaining_s, time_limit


def test_of_nested_limits_the_nearest_counts_also_when_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    with time_limit(1.0):
        with time_limit(CALL_LIMIT_S):
            assert remaining_s() == 1.0
        now_s += 1.5
        with time_limit(CALL_LIMIT_S):
            assert remaining_s() == -0.5
    assert remaining_s() == float("inf")


def test_a_limit_whose_end_was_interrupted_limits_no_later_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler raised before the with block began, and somebody keeps its error."""
    now_s = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    interrupted = time_limit(1.0)
    interrupted.__enter__()
    now_s += 10
    with time_limit(CALL_LIMIT_S):
        assert remaining_s() == CALL_LIMIT_S
    interrupted.__exit__(None, None, None)
