"""Faults of the client in JavaScript that the judges must see: each puts one into both processes of a run.

The judges are the checker of the ids, the driver, which wants processes to go on and to end, and TLC on the log of the
run. scripts/judges.py --only node asks them.
"""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from tests.lab.chaos.checker import check
from tests.lab.chaos.driver import Fleet
from tests.lab.chaos.faults import Begun, Fault
from tests.lab.chaos.report import Plan
from tests.lab.chaos.runs import KINDS
from tests.lab.chaos.slots import PROGRAMS, ROOT, Slot
from tests.lab.spec import validate
from tests.lab.spec.log import read_log
from tests.lab.spec.order import in_order
from tests.lab.spec.steps import steps_of
from tests.support.waiting import becomes_true

CLIENT, WORKER = "examples/client/client.mjs", "tests/lab/chaos/worker.mjs"
# two worker ids for two processes, without and with a second lane
ONE_LANE, TWO_LANES = "41/0/0/1/16", "41/0/1/1/16"


def freeze_and_replace(fleet: Fleet, rng: random.Random, slot: Slot) -> Begun:
    """Freeze one worker, kill the other a little later: whoever starts in its place gets the frozen one's id."""
    frozen, killed = fleet.slots
    frozen.signal(signal.SIGSTOP)
    # the frozen one's lease has ended then, and the other one's has not
    time.sleep(fleet.ttl_s * 1.1)
    killed.signal(signal.SIGKILL)
    killed.restart()
    _wait_for_ids(killed)
    frozen.signal(signal.SIGCONT)
    return Begun(excuses="all")


def replace_with_late_clock(fleet: Fleet, rng: random.Random, slot: Slot) -> Begun:
    """Start a process in the place of one that released, on a clock that is behind."""
    return _replaced(slot, 5.0)


def use_lane_twice(fleet: Fleet, rng: random.Random, slot: Slot) -> Begun:
    """Let a process use its second lane, and start another one with the times of that in its place."""
    slot.clock.set(-0.5)
    time.sleep(2.0)
    return _replaced(slot, 3.5)


def release_and_step_clock(fleet: Fleet, rng: random.Random, slot: Slot) -> Begun:
    """Step the clock back after a release, and start another process with these times in the place of the first one."""
    slot.signal(signal.SIGTERM)
    time.sleep(1.0)
    slot.clock.set(-1.5)
    time.sleep(1.5)
    slot.signal(signal.SIGKILL)
    return _replaced(slot, 4.5)


def _replaced(slot: Slot, behind_s: float) -> Begun:
    slot.signal(signal.SIGTERM)
    slot.end()
    slot.clock.set(-behind_s)
    slot.start()
    _wait_for_ids(slot)
    return Begun(2.0, lambda: slot.clock.set(0), "all")


def _wait_for_ids(slot: Slot) -> None:
    becomes_true(slot.last_ms, 20.0)


def step_clock_back(fleet: Fleet, rng: random.Random, slot: Slot) -> Begun:
    time.sleep(2.0)
    slot.clock.set(-1.5)
    time.sleep(2.0)
    return Begun(0.1, lambda: slot.clock.set(0), "all")


def lose_replies(fleet: Fleet, rng: random.Random, slot: Slot) -> Begun:
    fleet.proxy.set("swallow", 0.0)
    time.sleep(1.3)
    fleet.proxy.set("pass")
    fleet.proxy.cut()
    return Begun(excuses="all")


def start_thread(fleet: Fleet, rng: random.Random, slot: Slot) -> Begun:
    slot.tell(f"{KINDS.index('os.fork')} close 2.5")
    time.sleep(2.5)
    return Begun(excuses="all")


@dataclass(frozen=True)
class ClientFault:
    """A text of the client, what replaces it, and what happens in a run that shows it.

    is_logged: whether TLC is asked; a log has no threads.
    """

    text: str
    replacement: str
    begin: Callable[[Fleet, random.Random, Slot], Begun]
    layout: str = ONE_LANE
    is_logged: bool = True


_UNTIL = "      if (!(layout.startOf(tick) < this.until)) throw this.renewSoon();\n"
_LOST = "    this.lease = undefined;\n"
_KEEP = "      client.kept = client.#keep();\n"
CLIENT_FAULTS = {
    "node: no end at until": ClientFault(_UNTIL, "", freeze_and_replace),
    "node: until is looked at by a timer": ClientFault(
        _UNTIL,
        f"""      if (!this.looked) {{
  {_UNTIL}        this.looked = setTimeout(() => (this.looked = undefined), 250).unref();
      }}
""",
        freeze_and_replace,
    ),
    "node: a refused renewal counts as renewed": ClientFault(
        _LOST, "    lease.until = Date.now() + settings.ttlMs;\n", freeze_and_replace
    ),
    "node: another renewal id in a repeated renewal": ClientFault(
        "lease.pendingId ||= ", "lease.pendingId = ", lose_replies
    ),
    "node: ids go on after the release": ClientFault(
        "if (this.lease && !this.closing) return", "if (this.lease) return", release_and_step_clock, TWO_LANES
    ),
    "node: the beginning of a lane is ignored": ClientFault(
        "firstTick: firstTickOf(Number(beginMs))", "firstTick: 1", replace_with_late_clock
    ),
    "node: no lane was opened": ClientFault('lane.tick >= 0 ? "1"', 'lane.tick >= 0 ? "0"', use_lane_twice, TWO_LANES),
    "node: the last tick of a lane is forgotten": ClientFault(
        "Math.max(lane.firstTick, lane.sequence", "Math.min(lane.firstTick, lane.sequence", step_clock_back
    ),
    "node: a thread uses the lease of its process": ClientFault(
        _KEEP,
        f"""      const shared = JSON.parse(process.env.LEASE ?? "null");
      if (shared) await client.#readSettings();
      if (shared) client.lease = new Lease(client.settings, client.#renewSoon, ...shared);
      if (shared) return client;
{_KEEP}      setInterval(() => {{
        const {{ token, terms }} = client.lease ?? {{}};
        process.env.LEASE = JSON.stringify(token ? [token, terms] : null);
      }}, 20).unref();
""",
        start_thread,
        is_logged=False,
    ),
    "node: the token of a lost lease is used again": ClientFault(
        "(this.#claimToken ||= randomName())", "(this.token ??= randomName())", freeze_and_replace
    ),
}


def put(text: str, replacement: str, directory: Path) -> Path:
    """Copy the program of a process and a changed client to a directory, and return the path of the program."""
    client = (ROOT / CLIENT).read_text("utf-8")
    if client.count(text) != 1:
        raise ValueError(f"{CLIENT} has this {client.count(text)} times: {text!r}")
    for name in (CLIENT, WORKER):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
    (directory / CLIENT).write_text(client.replace(text, replacement), "utf-8")
    shutil.copy(ROOT / WORKER, directory / WORKER)
    for name in ("examples/client/scripts.mjs", "examples/node_modules"):
        (directory / name).symlink_to(ROOT / name)
    return directory / WORKER


def judge(fault: ClientFault, seed: int, directory: Path, *, has_fault: bool = True, ask_tlc: bool = True) -> set[str]:
    """Run two processes whose client has a fault, or has not, and return the judges that see something wrong."""
    program = put(fault.text, fault.replacement if has_fault else fault.text, directory)
    trace = directory / "run.log" if fault.is_logged and ask_tlc else None
    plan = Plan(
        seed,
        processes=2,
        faults=1,
        seconds=1.0,
        ttl_s=3.0,
        outage_reserve_s=0,
        layout=fault.layout,
        rest_s=0.005,
        trace=trace,
    )
    found = set()
    try:
        # all processes are of this client
        with patch.dict(PROGRAMS, python=["node", str(program)]):
            report = Fleet(plan, directory, kinds=[Fault("provoke", "worker", fault.begin)]).run()
        if report.problems:
            found.add("driver")
    except SystemExit:
        # a process ended by itself, so the log has no ids
        found.add("driver")
        trace = None
    if check(directory, fault.layout).repeated:
        found.add("ids")
    if trace is not None and not is_allowed(trace):
        found.add("TLC")
    return found


def is_allowed(trace: Path) -> bool:
    """Return whether the specification allows a logged run."""
    (entries,) = read_log(trace)
    (verdict,) = validate.check([steps_of(in_order(entries))], explain=False)
    return verdict.accepted
