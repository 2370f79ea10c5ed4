"""The shipped code under schedules of several processes. Without any of its protections, it fails."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

import snowredis
from tests.host import explore

pytest.importorskip("greenlet")
pytestmark = pytest.mark.skipif(snowredis.IMPLEMENTATION != "c", reason="needs a C compiler, and the fast path in C")

END = explore.END
# protection: scenario, and a schedule that shows what it is for. Others: python -m tests.host.explore
NEEDED = {
    "word-exchanged": ("two takers", []),
    "sealed-word": ("an end and a start", []),
    "limit": ("renewals", [[0, 0], [1, END], [2, END], [0, END]]),
    "fence-limit": ("outage", [[0, 13], [1, 14], [0, END], [2, END], [1, END]]),
    "header-exchanged": ("quiet renewals", []),
    "new-seal": ("an end in another thread", [[0, 6], [1, END], [2, END], [0, END]]),
    "seal-first": ("a lost lease", [[0, 1], [1, END], [0, END], [2, END]]),
    "seal": ("an end and a start", []),
    "open-if-sealed": ("renewals", []),
    "marks-of-lanes": ("back and forth", []),
    "note-release": ("an end and a start", []),
    "release-sealed": ("an end and a start", []),
    "pending-first": ("quiet renewals", []),
    "void": ("quiet renewals", []),
}


def explored(scenario: str, *options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.host.explore", scenario, *options]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    found: dict[str, Any] = json.loads(shown.stdout)
    return found


@pytest.mark.parametrize("protection", NEEDED)
def test_each_protection_is_needed(protection: str) -> None:
    scenario, plan = NEEDED[protection]
    options = ("--plan", json.dumps(plan), "--seconds", "60")
    found = explored(scenario, "--without", protection, *options)
    if "failed" not in found:
        # the code has other steps by now: another schedule shows it
        found = explored(scenario, "--without", protection, "--seconds", "100")
    assert "failed" in found
    if plan:
        assert "failed" not in explored(scenario, *options)


def test_all_protections_are_tried() -> None:
    assert set(NEEDED) == set(explore.PROTECTIONS)


def test_no_schedule_of_two_processes_that_take_ids_repeats_one() -> None:
    found = explored("two takers", "--seconds", "60")
    assert "failed" not in found
    assert found["complete"]


@pytest.mark.parametrize("scenario", ["starts", "renewals", "an end and a start", "outage", "back and forth"])
def test_no_schedule_with_one_stopped_process_repeats_an_id(scenario: str) -> None:
    found = explored(scenario, "--seconds", "4")
    assert "failed" not in found
    assert found["runs"] > 20


def test_a_host_that_replaces_its_worker_id_goes_on_with_the_new_one() -> None:
    """After its clock was set back five times, with three namespaces for each worker id."""
    found = explored("another worker id", "--plan", json.dumps([[0, END], [1, END]]))
    assert "failed" not in found
    assert (found["ids"], found["errors"]) == (7, {})
