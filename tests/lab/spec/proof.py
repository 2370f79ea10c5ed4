"""Prove with Z3 that no tick of a lane is granted twice, for any number of processes, claims, renewals and losses.

An inductive invariant: it holds at first, and every step keeps it. So it holds for ever, whatever the number of steps,
the times and the constants. One lane of one worker id is enough: worker ids share only the floor and the incarnation.

The core of the protocol: grant, extend, lose, adopt and release, in the first lane, whose mark is never lowered.
Requests and replies may be lost, late and repeated; a process may use any tick of its grants at any time. Each script
sees a Redis clock in [now, now + skew]. A loss leaves another record, and the next script notices it. Not in it: lanes
that go back whole, clones, forks, take-overs, two servers that answer at once (failover_slack), a Redis clock that is
wrong, and the end of a pool. scripts/model checks these for small bounds.

Three assumptions are not proved here. Without any one of them, Z3 finds a step that does not keep the invariant:

- A loss leaves a record whose mark is at most now + skew + lead + ttl, which no grant exceeds.
- A process that has sealed its lease is not adopted: its renewals of before do not arrive after a loss.
- No claim is granted an empty lane. The scripts do that; no tick of it can be used.
"""

from collections.abc import Iterator
from typing import Any

import z3

Proc = z3.DeclareSort("Proc")
Term = Any
# the pool's constants; any numbers
TTL, LEAD, SKEW = z3.Ints("ttl lead skew")
CONSTANTS = z3.And(TTL > 0, LEAD >= 0, SKEW >= 0)

# rules that can be left out, each of which some step needs
RULES = ("cap", "mark", "floor", "floor of its own ttl", "wait for the floor", "too late", "lease end", "seal", "token")


class State:
    """State of the protocol, and what is known of it that no script stores.

    Attributes:
        now: real time.
        mark, end, floor: of the record and the pool.
        held: the record has a token, that of *latest*.
        true: the record is of the present incarnation; else it may say anything.
        latest: the process that was granted the worker id last.
        begins, granted: of each process: its grant begins there, and ended there at most in any reply.
        live, sealed: it was granted a lease; it has released it and makes no more ids.
    """

    def __init__(self, name: str) -> None:
        def integers(*names: str) -> list[Term]:
            return [z3.Int(f"{each}{name}") for each in names]

        def functions(sort: Term, *names: str) -> list[Term]:
            return [z3.Function(f"{each}{name}", Proc, sort) for each in names]

        self.now, self.mark, self.end, self.floor = integers("now", "mark", "end", "floor")
        self.held, self.true = z3.Bools(f"held{name} true{name}")
        self.latest = z3.Const(f"latest{name}", Proc)
        self.begins, self.granted = functions(z3.IntSort(), "begins", "granted")
        self.live, self.sealed = functions(z3.BoolSort(), "live", "sealed")


p, q = z3.Consts("p q", Proc)
actor = z3.Const("actor", Proc)
redis, caller, known = z3.Ints("redis caller known")


def larger(one: Term, other: Term) -> Term:
    return z3.If(one > other, one, other)


def invariant(s: State) -> list[tuple[str, Term]]:
    """Return the parts of the invariant, each with its name."""
    reach = s.now + SKEW + LEAD + TTL
    latest = s.latest
    some = s.live(latest)
    above = larger(s.mark, s.floor)

    def each(condition: Term, conclusion: Term) -> Term:
        return z3.ForAll([p], z3.Implies(condition, conclusion))

    return [
        (
            "grants do not overlap",
            z3.ForAll(
                [p, q],
                z3.Implies(
                    z3.And(s.live(p), s.live(q), p != q),
                    z3.Or(s.granted(p) <= s.begins(q), s.granted(q) <= s.begins(p)),
                ),
            ),
        ),
        ("no grant ends before it begins", each(s.live(p), s.begins(p) <= s.granted(p))),
        ("no grant ends later than this", each(s.live(p), s.granted(p) <= reach)),
        ("no mark is higher than this", s.mark <= reach),
        ("someone is the latest", z3.Or(some, z3.ForAll([p], z3.Not(s.live(p))))),
        ("all others are below the latest", each(z3.And(s.live(p), p != latest), s.granted(p) <= s.begins(latest))),
        (
            "all others are too late to be taken up again",
            each(z3.And(s.live(p), p != latest, z3.Not(s.sealed(p))), s.granted(p) <= s.now + SKEW + LEAD),
        ),
        ("the next grant begins above the latest", z3.Implies(z3.And(some, s.true), above >= s.granted(latest))),
        (
            "after a loss the floor is above all",
            z3.Implies(z3.Not(s.true), z3.And(s.floor >= s.mark, each(s.live(p), s.floor >= s.granted(p)))),
        ),
        (
            "the lease lasts as long as the grant",
            z3.Implies(z3.And(s.true, s.held), s.mark <= larger(s.end, s.floor) + LEAD),
        ),
        ("what is held is held by someone", z3.Implies(z3.And(s.true, s.held), some)),
        ("what is released is sealed", z3.Implies(z3.And(s.true, some, z3.Not(s.held)), s.sealed(latest))),
    ]


def unchanged(s: State, t: State, *but: str) -> Term:
    """Return that nothing else changes. *but*: names of attributes, functions too."""
    kept = []
    for name, value in vars(s).items():
        if name not in but:
            other = getattr(t, name)
            kept.append(z3.ForAll([p], value(p) == other(p)) if isinstance(value, z3.FuncDeclRef) else value == other)
    return z3.And(*kept)


def updated(s: State, t: State, name: str, value: Term) -> Term:
    """Return that the function *name* changes for the actor only, to *value*."""
    before, after = getattr(s, name), getattr(t, name)
    return z3.ForAll([p], after(p) == z3.If(p == actor, value, before(p)))


def steps(s: State, t: State, off: str = "") -> dict[str, Term]:
    """Return every step from s to t. *off*: the rule that is left out."""

    def on(rule: str, condition: Term, otherwise: Term = True) -> Term:
        return condition if rule != off else otherwise

    clock = z3.And(s.now <= redis, redis <= s.now + SKEW)
    capped = on("cap", z3.If(caller < redis + LEAD, caller, redis + LEAD), caller)
    end = capped + TTL
    begin = on("mark", larger(s.mark, s.floor), s.floor)
    # adopt: the grant that the request shows is one that the process got, maybe long ago
    adopted = larger(larger(known, s.mark), end)
    extended = larger(s.mark, end)

    return {
        "time passes": z3.And(t.now >= s.now, unchanged(s, t, "now")),
        "seal": z3.And(s.live(actor), updated(s, t, "sealed", z3.BoolVal(True)), unchanged(s, t, "sealed")),
        # a process is one claim
        "claim": z3.And(
            clock,
            z3.Not(s.live(actor)),
            on("wait for the floor", s.floor <= redis),
            z3.Or(z3.Not(s.held), s.end <= redis),
            begin < end,
            t.mark == end,
            t.end == redis + TTL,
            t.held,
            t.true,
            t.latest == actor,
            updated(s, t, "begins", begin),
            updated(s, t, "granted", end),
            updated(s, t, "live", z3.BoolVal(True)),
            updated(s, t, "sealed", z3.BoolVal(False)),
            unchanged(s, t, "mark", "end", "held", "true", "latest", "begins", "granted", "live", "sealed"),
        ),
        "renew": z3.And(
            clock,
            s.live(actor),
            s.true,
            s.held,
            on("token", actor == s.latest),
            t.mark == extended,
            t.end == on("lease end", larger(s.end, redis + TTL), redis + TTL),
            updated(s, t, "granted", larger(s.granted(actor), extended)),
            unchanged(s, t, "mark", "end", "granted"),
        ),
        "adopt": z3.And(
            clock,
            s.live(actor),
            z3.Not(s.sealed(actor)),
            z3.Not(s.true),
            known <= s.granted(actor),
            on("too late", known > redis + SKEW + LEAD),
            t.mark == adopted,
            t.end == redis + TTL,
            t.held,
            t.true,
            # the invariant says that it is the latest anyway
            updated(s, t, "granted", larger(s.granted(actor), adopted)),
            unchanged(s, t, "mark", "end", "held", "true", "granted"),
        ),
        "release": z3.And(
            clock,
            s.live(actor),
            on("seal", s.sealed(actor)),
            s.true,
            s.held,
            on("token", actor == s.latest),
            t.end == redis,
            z3.Not(t.held),
            unchanged(s, t, "end", "held"),
        ),
        # a loss, and the script that notices it: any record, of another incarnation
        "loss": z3.And(
            clock,
            z3.Not(t.true),
            t.mark <= s.now + SKEW + LEAD + TTL,
            on("floor", t.floor >= redis + SKEW + LEAD + on("floor of its own ttl", TTL, 0)),
            unchanged(s, t, "mark", "end", "held", "true", "floor"),
        ),
    }


def first(s: State) -> Term:
    """Return the state of a pool that is new: nothing was granted."""
    return z3.And(z3.ForAll([p], z3.Not(s.live(p))), s.mark <= s.now, s.true, z3.Not(s.held))


def holds(*assumptions: Term, limit_ms: int = 60_000) -> bool | None:
    """Return whether the assumptions contradict each other; None: Z3 does not know."""
    solver = z3.Solver()
    solver.set("timeout", limit_ms)
    solver.add(CONSTANTS, *assumptions)
    found = solver.check()
    return True if found == z3.unsat else False if found == z3.sat else None


def check(off: str = "") -> Iterator[tuple[str, bool | None]]:
    """Check that the invariant is inductive, without the rule *off*.

    Yields:
        each step with a part of the invariant, and True if that is proved, False if Z3 has a counterexample, None if it
        does not know.
    """
    s, t = State(""), State("'")
    before = [part for _, part in invariant(s)]
    for name, part in invariant(s):
        yield f"the first state: {name}", holds(first(s), z3.Not(part))
    for step, formula in steps(s, t, off).items():
        for name, part in invariant(t):
            yield f"{step}: {name}", holds(*before, formula, z3.Not(part))
