"""The core of the protocol is proved for any number of processes and steps, and each rule is needed for that."""

import pytest

from tests.lab.spec.proof import RULES, check


def test_the_invariant_is_inductive() -> None:
    assert [where for where, proved in check() if proved is not True] == []


@pytest.mark.parametrize("rule", RULES)
def test_without_a_rule_there_is_a_step_that_breaks_the_invariant(rule: str) -> None:
    assert any(proved is False for _, proved in check(rule))
