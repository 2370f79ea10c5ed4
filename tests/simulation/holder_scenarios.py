"""Schedules that need the rules about who is the holder: clones, claims that arrive again, releases, forks."""

from __future__ import annotations

from tests.simulation.process import Process
from tests.simulation.scenarios import shows
from tests.simulation.stage import Stage


def clone_of_claim(stage: Stage, one: Process, two: Process) -> None:
    """Let *two* be a clone that was made of *one* while its present lease was being claimed, and did nothing since."""
    held = one.lease_manager.held
    assert held is not None
    two.lease_manager.slot.set_token(held.token)
    if stage.tracer is not None:
        stage.tracer.cloned(one.name, two.name, held.token)


@shows("chain")
def a_clone(off: str | None) -> Stage:
    """Two machines with one memory."""
    stage = Stage(off=off).with_pool()
    one = stage.process()
    stage.make(one)
    two = one.clone()
    for _ in range(9):
        stage.wait(1_000)
        stage.beat(one, two)
    stage.make(one, two)
    return stage


@shows("chain across a loss")
def a_clone_and_a_server_that_lost_nothing(off: str | None) -> Stage:
    """The slower copy is the first that is heard of after a restart, which makes everybody be taken up again."""
    stage = Stage(off=off).with_pool()
    one = stage.process()
    stage.make(one)
    two = one.clone()
    began_ms = stage.redis_now_ms
    stage.wait(1_000)
    stage.beat(one)
    stage.wait(1_000)
    stage.master.restart(stage.master.copy_data())
    stage.beat(two)
    # beyond the reservation that both had when the clone was made, and within the one that was renewed
    for process in (one, two):
        stage.set_clock(process, began_ms + 7_100)
        stage.make(process)
    return stage


@shows("later lease")
def a_clone_of_a_lease_that_was_released(off: str | None) -> Stage:
    """Somebody else has the worker id when a restart makes everybody be taken up again, and the clone comes first."""
    stage = Stage(off=off, worker_bits=0).with_pool()
    one, heir = stage.process(), stage.process()
    stage.make(one)
    two = one.clone()
    began_ms = stage.redis_now_ms
    stage.wait(500)
    stage.do(one, lambda process: process.generator.close())
    stage.wait(500)
    # its reservation begins where that of the lease that was cloned ends
    stage.begin(heir, lambda process: process.make(1))
    stage.wait(1_000)
    stage.beat(heir)
    stage.master.restart(stage.master.copy_data())
    stage.beat(two)
    stage.cut_off(heir)
    stage.cut_off(two)
    for process in (heir, two):
        stage.set_clock(process, began_ms + 7_100)
    stage.wait(100)
    for process in (heir, two):
        stage.set_clock(process, began_ms + 7_100)
        stage.make(process)
    return stage


@shows("replayed claim")
def a_claim_that_arrives_again(off: str | None) -> Stage:
    """A late copy of the claim must not undo what the renewals since have said; nobody can tell here."""
    stage = Stage(off=off).with_pool()
    one = stage.process()
    stage.make(one)
    stage.beat(one)
    two = stage.process()
    clone_of_claim(stage, one, two)
    stage.make(two, one)
    return stage


@shows("chain of each answer")
def a_claim_that_two_clones_repeat(off: str | None) -> Stage:
    """It was under way when the clone was made. Both are answered, and the second answer must end the first lease."""
    stage = Stage(off=off).with_pool()
    one, two = stage.process(), stage.process()
    stage.make(one)
    clone_of_claim(stage, one, two)
    stage.wait(2_000)
    stage.make(two)
    stage.wait(1_000)
    stage.beat(one)
    stage.make(one, two)
    return stage


@shows("chain of each grant")
def a_clone_of_a_claim_that_is_repeated_when_its_lease_is_over(off: str | None) -> Stage:
    """Ticks of 1 ms. One copy was granted the claim and sent a renewal whose answer is lost; the other claims later."""
    stage = Stage(off=off, tick_ms=1).with_pool()
    one, two = stage.process(), stage.process()
    stage.do(one, lambda process: process.generator.claim())
    clone_of_claim(stage, one, two)
    network = stage.network
    network.answered = lambda server, name, reply: setattr(network, "loss", 1.0)
    stage.beat(one)
    network.answered, network.loss = lambda server, name, reply: None, 0.0
    stage.wait(7_000)
    stage.do(two, lambda process: process.generator.claim())
    stage.beat(one)
    now_ms = stage.redis_now_ms
    for process in (two, one):
        stage.set_clock(process, now_ms)
        stage.make(process)
    return stage


@shows("fresh tokens")
def two_containers_with_one_host_name_and_pid(off: str | None) -> Stage:
    stage = Stage(off=off).with_pool()
    one = stage.process()
    two = stage.process(one.host)
    stage.make(one, two)
    return stage


def _forked(off: str | None, *, bypass: bool) -> Stage:
    stage = Stage(off=off).with_pool()
    parent = stage.process()
    stage.make(parent)
    child = parent.fork(bypass=bypass)
    stage.make(parent, child)
    return stage


@shows("hook")
def a_fork(off: str | None) -> Stage:
    return _forked(off, bypass=False)


@shows("page")
def a_fork_that_bypasses_python(off: str | None) -> Stage:
    return _forked(off, bypass=True)


@shows("generation")
def a_fork_within_a_call(off: str | None) -> Stage:
    """A signal handler forks when the id is ready, and before it is handed out."""
    stage = Stage(off=off).with_pool()
    parent = stage.process()
    stage.make(parent)
    stage.wait(1_000)
    # the slow path makes it: the clock is read three times, then the lock is released
    parent.generator._allocator.seal()
    parent.fork_in_call(4)
    stage.make(parent)
    stage.wait(100)
    return stage
