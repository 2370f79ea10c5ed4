"""Table of what scripts/model checks: where the promise holds, which rules it needs, and where it ends.

The constants are those of lease.pml: CLIENTS processes, times 0 to END, FAULTS losses in all of the kinds
that are switched on. Times are units: with TTL=2 and LEAD=1 one unit stands for half of a ttl.
"""

from __future__ import annotations

from dataclasses import dataclass, field

COPIES = {"COPIES": 1, "OLD_COPIES": 1}
LOSSES = {"WIPES": 1, "RESTARTS": 1, **COPIES}
ROLLBACKS = {"FAULTS": 1, "ROLLBACKS": 1, "COPIES": 1}
OTHER_TTL = {"TTL": 3, "TTL_AFTER": 1, "LEAD": 0, "FAULTS": 1}
ASSURED = {"DURABILITY": 1}
NONE = {"DURABILITY": 2}


@dataclass(frozen=True)
class Configuration:
    """One search.

    Attributes:
        name: what is modelled; of a rule that is switched off, the rule.
        constants: of lease.pml.
        quick: small enough for every run of the tests.
    """

    name: str
    constants: dict[str, int] = field(default_factory=dict)
    quick: bool = False


# no tick is stamped twice in any state that can be reached
HOLDS = (
    Configuration("no losses, 3 processes", {"CLIENTS": 3, "END": 5}),
    Configuration("clocks of hosts behind", {"END": 4, "ANY_CLOCK": 1, "BEHIND": 1, "CRASH_RECORDS": 1}),
    Configuration("late duplicates", {"END": 3, "LATE": 1}),
    Configuration("late duplicates, a wipe", {"END": 2, "LEAD": 0, "LATE": 1, "FAULTS": 1, "WIPES": 1}),
    Configuration("forks, clones of suspended processes", {"CLIENTS": 3, "END": 4, "SUSPENDED_CLONES": 1, "FORKS": 1}),
    Configuration("clones of running processes", {"END": 5, "CLONES": 1}, True),
    Configuration("one loss", {"END": 5, "FAULTS": 1, **LOSSES}),
    Configuration("two losses", {"END": 3, "LEAD": 0, "FAULTS": 2, "WIPES": 1, **COPIES}),
    Configuration("one loss, crash records", {"END": 4, "LEAD": 0, "FAULTS": 1, "CRASH_RECORDS": 1, **LOSSES}),
    Configuration(
        "one loss, clocks of servers differ",
        {"END": 3, "LEAD": 0, "SKEW": 1, "FAULTS": 1, "WIPES": 1},
    ),
    # VERSIONS: a client that alternates between two masters has them number incarnations without end
    Configuration(
        "failover, two masters for a while",
        {"END": 3, "LEAD": 0, "SLACK": 1, "FAULTS": 1, "FAILOVERS": 1, "COPIES": 1, "VERSIONS": 4},
    ),
    Configuration("failover and back", {"END": 4, "LEAD": 0, "FAULTS": 2, "FAILOVERS": 1, "COPIES": 1}),
    Configuration("rollback in place", {"END": 3, "LEAD": 0, "VERSIONS": 5, **ROLLBACKS}),
    Configuration(
        "rollback in place, guard_rollbacks",
        {"END": 5, "LEAD": 0, "VERSIONS": 4, "GUARD_ROLLBACKS": 1, **ROLLBACKS},
    ),
    Configuration("delete, another ttl", {"END": 7, "DELETES": 1, **OTHER_TTL}, True),
    Configuration(
        "durability assured, as promised",
        {"END": 5, "LEAD": 0, "FAULTS": 2, "WIPES": 1, "RESTARTS": 1, **ASSURED},
    ),
    Configuration("durability none, one loss", {"END": 5, "FAULTS": 1, **LOSSES, **NONE}),
    Configuration(
        "durability none, two losses a ttl apart",
        {"END": 4, "LEAD": 0, "FAULTS": 2, "APART": 2, "WIPES": 1, **COPIES, **NONE},
    ),
)

# each rule switched off, where it matters: a tick is stamped twice
NEEDED = (
    Configuration("mark", {"END": 2, "NO_MARK": 1}),
    Configuration("end of the reservation", {"END": 2, "NO_END": 1}),
    Configuration("R2 cap", {"END": 3, "FAULTS": 1, "WIPES": 1, "NO_CAP": 1}),
    Configuration("R3 floor", {"END": 0, "FAULTS": 1, "WIPES": 1, "NO_FLOOR": 1}),
    Configuration("R3 run id", {"END": 0, "FAULTS": 1, **COPIES, "NO_RUN_ID": 1}),
    Configuration("R3 replication id", {"END": 0, "FAULTS": 2, "FAILOVERS": 1, "COPIES": 1, "NO_REPLICATION_ID": 1}),
    Configuration(
        "R3 from the moment of notice",
        {"END": 3, "FAULTS": 1, "FAILOVERS": 1, "COPIES": 1, "FLOOR_FROM_START": 1},
    ),
    Configuration("R3 skew in the floor", {"END": 2, "LEAD": 0, "SKEW": 1, "FAULTS": 1, "WIPES": 1, "FLOOR_SKEW": 0}),
    Configuration(
        "R3 slack in the floor",
        {"END": 2, "LEAD": 0, "SLACK": 1, "FAULTS": 1, "FAILOVERS": 1, "FLOOR_SLACK": 0},
    ),
    Configuration("R4 too late", {"END": 2, "FAULTS": 1, "WIPES": 1, "NO_ADOPTION_LIMIT": 1}),
    Configuration(
        "R4 a lease end that never goes back",
        {"END": 3, "LEAD": 0, "SKEW": 1, "FAULTS": 1, "WIPES": 1, "NO_LEASE_KEPT": 1},
    ),
    Configuration("R4 served since", {"END": 1, "CLONES": 1, "NO_SERVED_SINCE": 1}),
    Configuration("R4 settling", {"END": 1, "FAULTS": 2, "WIPES": 1, "NO_SETTLING": 1}),
    Configuration("R5 chain", {"END": 1, "CLONES": 1, "NO_CHAIN": 1}),
    Configuration("R5 new names of renewals", {"END": 1, "CLONES": 1, "NAMES_REPEAT": 1}),
    Configuration("R5 replayed claim", {"END": 1, "CLONES": 1, "NO_CLAIM_RENEWAL": 1}),
    Configuration("R5 a token is granted once", {"END": 2, "CLONES": 1, "NO_CLAIM_ONCE": 1}),
    Configuration("R5 a renewal of the same grant", {"END": 2, "LATE": 1, "NO_SAME_GRANT": 1}),
    Configuration("R6 token dropped by suspend()", {"END": 0, "SUSPENDED_CLONES": 1, "SUSPEND_KEEPS_TOKEN": 1}),
    Configuration("R6 token dropped by fork", {"END": 0, "FORKS": 1, "FORK_KEEPS_TOKEN": 1}),
    Configuration("R8 lease dropped by fork", {"END": 0, "FORKS": 1, "FORK_KEEPS_LEASE": 1}),
    Configuration("R7 seal", {"END": 0, "NO_SEAL": 1}),
    Configuration("R7 renewal at release", {"END": 1, "CLONES": 1, "NO_RELEASE_RENEWAL": 1}),
    Configuration(
        "R7 whole reservation at a release without marks",
        {
            "END": 1,
            "LEAD": 0,
            "SLACK": 1,
            "FAULTS": 1,
            "FAILOVERS": 1,
            "VERSIONS": 4,
            "NO_RELEASE_UNTIL": 1,
        },
    ),
    Configuration("R9 tombstone", {"END": 5, "DELETES": 1, **OTHER_TTL, "NO_TOMBSTONE": 1}),
    Configuration("R9 signature", {"END": 5, "WIPES": 1, **OTHER_TTL, "NO_SIGNATURE": 1}),
    Configuration("R10 version", {"END": 0, "LEAD": 0, "VERSIONS": 6, **ROLLBACKS, "NO_VERSION": 1}),
    Configuration(
        "R10 silence", {"END": 3, "LEAD": 0, "VERSIONS": 5, "GUARD_ROLLBACKS": 1, **ROLLBACKS, "NO_GUARD": 1}
    ),
    Configuration("mark in the crash record first", {"END": 0, "CRASH_RECORDS": 1, "RECORD_AFTER_ID": 1}),
    Configuration("floor for newcomers (none)", {"END": 2, "FAULTS": 1, **COPIES, **NONE, "NO_NEWCOMER_FLOOR": 1}),
    Configuration(
        "no late renewals (none)", {"END": 3, "LEAD": 0, "FAULTS": 1, **COPIES, **NONE, "NO_RENEWAL_LIMIT": 1}
    ),
)

# what no rule covers; docs/explanation/uniqueness.md says so
LIMITS = (
    Configuration("durability none, two losses", {"END": 1, "FAULTS": 2, "WIPES": 1, **COPIES, **NONE}),
    Configuration("durability assured, a write lost", {"END": 0, "FAULTS": 1, **COPIES, **ASSURED}),
    Configuration("a wipe and a shorter ttl", {"END": 1, "WIPES": 1, **OTHER_TTL}),
    Configuration("a clone, and a loss before it is found out", {"END": 1, "CLONES": 1, "FAULTS": 1, "WIPES": 1}),
    Configuration(
        "a rollback in place, ticks after it was noticed",
        {"END": 2, "LEAD": 0, "VERSIONS": 6, **ROLLBACKS, "LIFTED_AFTER_NOTICE": 1},
    ),
)
