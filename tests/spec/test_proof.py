"""The core of the protocol is proved for any number of processes and steps, and each rule is needed for that."""

from __future__ import annotations

import pytest

pytest.importorskip("z3", reason="z3-solver is not installed")

from tests.spec.proof import RULES, check


@pytest.mark.timeout(600)
def test_the_invariant_is_inductive() -> None:
    assert check() == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("rule", RULES)
def test_without_a_rule_the_invariant_is_not_inductive(rule: str) -> None:
    assert check(rule) != []
