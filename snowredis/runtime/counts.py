"""What happened to one generator, for metrics. Counted where something is waited for or said, never for each id."""

from __future__ import annotations

from dataclasses import dataclass

# what is done when the clock went back, from the mildest on, and how the log says it
CLOCK_BACK_STEPS = {
    "wait": "waiting",
    "namespace": "using another namespace",
    "worker": "using another worker id",
    "refusal": "refusing ids",
}


@dataclass(slots=True)
class Counts:
    """Since the generator was made, or since the fork. Threads may now and then miss one of another's.

    Attributes:
        ceiling_waits: how often a tick's ids were used up and the next tick was waited for.
        ceiling_wait_s: for how long in all, about.
        clock_back_waits, clock_back_namespaces, clock_back_workers, clock_back_refusals: how often the clock went
            back, by what was done: waited, used another namespace, claimed another worker id, raised.
        claims: worker ids that were leased.
        renewals, renewals_failed: heartbeats that were answered, and that were not.
        leases_lost: found out by a renewal that was refused.
        round_trip_s: of the last renewal that was answered.
    """

    ceiling_waits: int = 0
    ceiling_wait_s: float = 0.0
    clock_back_waits: int = 0
    clock_back_namespaces: int = 0
    clock_back_workers: int = 0
    clock_back_refusals: int = 0
    claims: int = 0
    renewals: int = 0
    renewals_failed: int = 0
    leases_lost: int = 0
    round_trip_s: float = 0.0

    def clock_back(self, step: str) -> None:
        """Count one of CLOCK_BACK_STEPS."""
        name = f"clock_back_{step}s"
        setattr(self, name, getattr(self, name) + 1)

    @property
    def clock_backs(self) -> int:
        return sum(self.clock_backs_by_step.values())

    @property
    def clock_backs_by_step(self) -> dict[str, int]:
        """By CLOCK_BACK_STEPS."""
        return {step: getattr(self, f"clock_back_{step}s") for step in CLOCK_BACK_STEPS}
