"""Scenarios: for each rule of rules.py, what happens so that ids are repeated (or nobody gets one) without the rule.

steps.py plays them. Ticks last 1 s unless said otherwise, so that two ids of one tick are easily made; a ttl is 6 s.
"""

from dataclasses import dataclass, field
from typing import Any

from tests.lab.simulation.rules import RULES
from tests.lab.simulation.stage import Stage
from tests.lab.simulation.steps import Steps


@dataclass(frozen=True)
class Scenario:
    """Events in a fleet that needs a rule.

    Attributes:
        rule: without it, an id is repeated.
        what: what happens, for people.
        steps: the same for steps.py.
        settings: of the stage, where they are not the usual ones.
        starves: no id is repeated without the rule (or that is excused), but a step "must" or "cannot" fails.
        has_pool: whether the pool exists from the beginning.
    """

    rule: str
    what: str
    steps: str
    settings: dict[str, Any] = field(default_factory=dict)
    starves: bool = False
    has_pool: bool = True

    def play(self, *, off: bool) -> Stage:
        """Return the stage on which all of it has happened, with the rule or without it."""
        stage = Stage(off=self.rule if off else None, **self.settings)
        if self.has_pool:
            stage.with_pool()
        Steps(stage, RULES[self.rule].unkept if off else ()).play(self.steps)
        return stage


ONE: dict[str, Any] = {"worker_bits": 0}
OUTAGE = {**ONE, "outage_ms": 60_000}
RECORDS = {**ONE, "crash_records": True}
BOTH = {**OUTAGE, **RECORDS}

SCENARIOS = (
    # step 1, grant
    Scenario("mark", "the clock of a dead holder was ahead: it used ticks that are yet to come for its heir", """
        clock +400 dead; make dead other; zero; at 5900 dead; wait 5990; renew other; wait 100; at 5900 heir"""),
    Scenario("mark", "a holder does not reach Redis and goes on in its outage lane, as its heir would", """
        make holder; cut holder; wait 7000; make heir; until 20000; cut holder heir; at +0 holder heir""", OUTAGE),
    Scenario("end of the reservation", "a holder pauses for longer than its ttl, wakes up and goes on", """
        make asleep other
        7 times: wait 1000; renew other
        make heir; cut asleep; at +400 heir asleep"""),
    Scenario("index", "the index is lost: both worker ids are free, and only the hash says so", """
        make dead gone; wait 7000; forget leases; must heir""", starves=True),
    Scenario("adopted records", "a newcomer after an adoption: not all worker ids of the new pool are unused", """
        make living; wipe; renew living
        9 times: renew living; wait 1000
        make newcomer; cut living; make living newcomer"""),
    Scenario("cap", "a clock that is an hour ahead would reserve the next hour, which a wipe makes unknown", """
        at 3600000 first; wipe; wait 20000; make heir; wait 1000; at 3600000 heir"""),

    # step 2, extend
    Scenario("chain", "two machines have one memory", """
        make one; clone two one
        9 times: wait 1000; renew one two
        make one two"""),
    Scenario("chain", "the slower clone is heard of first after a restart, which lost nothing; all are adopted", """
        make one; clone two one; zero; wait 1000; renew one; wait 1000; save; restart; renew two; at 7100 one two"""),
    Scenario("replayed claim", "a copy of the claim arrives late, after a renewal", """
        make one; renew one; clone_of_claim two one; make two one"""),
    Scenario("first renewal id", "a clone is made while a claim is under way; the last reply ends the other lease", """
        make one; clone_of_claim two one; wait 2000; make two; wait 1000; renew one; make one two"""),
    Scenario("first renewal id", "one clone gets no reply to a renewal; the other one repeats the claim later", """
        claim one; clone_of_claim two one; deafen 3000 one; renew one; wait 7000; claim two; renew one
        at +0 two one""", {"tick_ms": 1}),
    Scenario("copied outage lane", "a clone is told that it was copied, so the outage lane is its original's", """
        make one; clone two one; wait 1000; renew one; renew two; until 20000; cut one two; at +0 one two""", OUTAGE),
    Scenario("holder before", "the original of a clone gave the outage lane back, and the heir of both has it", """
        make one; clone two one; wait 1000; make one; close one; wait 1000; make heir; renew two
        until 20000; cut heir two; at +0 heir two""", OUTAGE),

    # step 3, lose
    Scenario("floor", "a holder has ended, and a wipe removes its record", """
        at 0 gone; wipe; at 0 heir"""),
    Scenario("floor", "Redis forgets a holder that goes on in its outage lane", """
        make holder; cut holder; wipe; make heir; until 20000; cut holder heir; at +0 holder heir""", OUTAGE),
    Scenario("time of notice", "a replica that has run for long serves at the address; it missed the claim", """
        save; at 0 holder; replace; at 0 heir"""),
    Scenario("time of notice", "the clock of Redis is behind when it notices a loss, and is set right afterwards", """
        make gone; wipe; redis -6000; begin first; wait 100; redis 0; wait 1500; begin heir; wait 1000; cut gone
        4 times: make gone; begin heir; wait 1000
        wait 8000; make heir"""),
    Scenario("start of a new pool", "a new pool, and a clock that is behind; what was reserved before is over", """
        make gone; kill gone; wait 20000; wipe; create; clock -1000 heir
        8 times: begin heir; wait 500
        clock +0 heir; wait 8000"""),
    Scenario("server", "Redis restarts from a snapshot that lacks a lease", """
        save; at 0 gone; restart; at 0 heir"""),
    Scenario("server", "a server becomes master again, with the data of another one that missed a claim", """
        save; at 0 holder; promote; cut holder; make heir"""),
    Scenario("identity", "a server without an identity restarts, and is replaced by one that has an identity", """
        anonymous; create; save; at 0 gone; restart; anonymous; at 0 heir; identified; make last""", has_pool=False),
    Scenario("version", "Redis went back in time, and a client comes that saw more", """
        make witness; zero; clock -2000 witness; save; at 0 holder; renew witness; roll_back; renew witness; promise
        at 0 witness heir"""),
    Scenario("record", "Redis went back and went on before a client comes that saw more", """
        make witness busy; zero; save; at 0 holder; renew witness; roll_back
        5 times: renew busy
        renew witness; promise; at 0 witness heir""", {"worker_bits": 2}),
    Scenario("another pool", "the address leads to another pool of that name; one of two holders reaches it", """
        make holder away; elsewhere; create; renew holder; cut away; begin newcomer; wait 1500; zero
        clock 0 newcomer away; make away; begin newcomer; wait 8000"""),

    # step 4, adopt
    Scenario("settling", "two wipes within two seconds; a holder renews only after the second one", """
        make holder; wait 100; wipe; zero; clock +400 newcomer; begin newcomer; wait 1500; wipe; cut newcomer
        6 times: renew holder; wait 1000
        wait 2000; at 7440 newcomer holder""", {"tick_ms": 1}),
    Scenario("too late", "a holder wakes up after two wipes; between them, its worker id was another's", """
        make asleep; wipe; make heir; renew heir; wipe; renew asleep; cut heir; make heir asleep"""),
    Scenario("too late", "the same, while its outage lane lasts", """
        make asleep; wipe; make heir; renew heir; wipe; renew asleep; cut heir; make heir asleep""", OUTAGE),
    Scenario("later lease", "a clone of a released lease is the first that is heard of after a restart", """
        make one; clone two one; zero; wait 500; close one; wait 500; begin heir; wait 1000; renew heir; save; restart
        renew two; cut heir two; clock 7100 heir two; wait 100; at 7100 heir two""", ONE),
    Scenario("lease end", "the clock of Redis goes back and forth within failover_slack, and a holder renews", """
        redis 250; clock 750 holder; claim holder other; redis -250; wait 10; renew holder
        5 times: wait 1000; renew other
        wait 500; redis 250; begin heir; wait 10; wipe; redis -250; cut heir; clock +0 holder; renew holder
        at 7100 heir holder"""),

    # step 5, own
    Scenario("fresh tokens", "two containers have one host name", """
        beside two one; make one two"""),
    Scenario("fork", "a fork", """
        make parent; fork child parent; make parent child"""),
    Scenario("fork", "a fork that Python does not see", """
        make parent; fork_bypassing_python child parent; make parent child"""),
    Scenario("fork", "a fork within a call", """
        make parent; wait 1000; fork_in_call parent; make parent; wait 100"""),
    Scenario("seal", "a thread is about to use the outage lane when another one releases it as never opened", """
        make one; cut one; wait 7000; open_lane one; sleep_in_call 1500 one; begin one; wait 10; reach one
        begin_close one; clock 500 heir; begin heir; wait 100; cut heir
        18 times: wait 500; make heir""", OUTAGE),
    Scenario("clocks agree", "a snapshot of a machine is resumed where there is no Redis; its clock was set", """
        make one; clone two one; clock +9000 two; until 20000; cut one; at +0 one; cut two; cannot two
        """, OUTAGE, starves=True),
    Scenario("clocks agree", "a snapshot that was made in an outage", """
        make one; cut one; wait 8000; make one; clone two one; cut two; clock +10000 two; renew two; cannot two
        """, OUTAGE, starves=True),

    # a release gives back what was never opened
    Scenario("lane that was opened", "a release after an outage; the clock of the heir comes to the same ticks", """
        make one; cut one; wait 14000; make one; reach one; close one; at 6500 heir; cut heir; wait 7500
        make heir""", OUTAGE),
    Scenario("lane that was opened", "a process takes a lease over and drops it; it does not know what was used", """
        make dying; cut dying; wait 7000
        12 times: make dying; wait 1000
        kill dying; beside dropping dying; renew dropping; reach dropping; abandon dropping; at 6500 third; cut third
        12 times: make third; wait 1000""", BOTH),
    Scenario("first lane stays", "a worker id is claimed just after its release", """
        make one; zero; close one; at 0 heir""", ONE),

    # the end of a pool
    Scenario("signature", "a stranger has a longer ttl; the floor after a wipe is as high as that of others", """
        start stranger ttl_ms=60000; claim first; make stranger; wipe; make a b; cut stranger; make stranger a b"""),
    Scenario("end of grants", "a holder renews its lease until the end", """
        make old; end; upgraded new
        28 times: wait 2000; renew old
        cut old; wait_for_end
        4 times: begin new; make old; wait 1000
        must new""", OUTAGE),
    Scenario("end of grants", "a holder goes on in its outage lane until the end", """
        make old; end; upgraded new
        24 times: wait 2000; renew old
        cut old; wait_for_end
        4 times: begin new; make old; wait 1000
        must new""", OUTAGE),
    Scenario("start at the end", "a process with the new layout has a clock that is behind", """
        make old; end
        28 times: wait 2000; renew old
        make old; cut old; wait_for_end; upgraded new; clock 56000 new
        12 times: begin new; wait 1000
        must new""", OUTAGE),
    Scenario("not before grants", "an end before that of an outage lane", """
        make old; cut old; end; wait_for_end; upgraded new
        4 times: begin new; make old; wait 1000""", OUTAGE),
    Scenario("not before grants", "an end after Redis has forgotten a holder, which goes on in its outage lane", """
        make old; cut old; wipe; begin first; wait 100; kill first; end; wait 10100; upgraded new
        4 times: begin new; make old; wait 1000""", OUTAGE),
    Scenario("end once", "after a loss an end is set again, then Redis comes back from a snapshot of before", """
        make old; end; upgraded new
        10 times: wait 2000; renew old
        save; restart; renew old; save; end
        18 times: wait 2000; renew old
        cut old; restart; wait 4000
        9 times: begin new; make old; wait 1000
        must new""", OUTAGE),
    Scenario("end on every copy", "after the new layout has begun, Redis comes back from what was on its disk", """
        save_to_disk; make old; kill old; end; wait_for_end; upgraded new; create_next new; must new; crash
        begin late; wait 20000; cut new; make new; begin late; wait 1000""", OUTAGE),
    Scenario("above the pool before", "what starts after an end has a later epoch, and so the same ids again", """
        zero
        9 times: make old; wait 1000
        close old; end; wait_for_end; moved new 12000
        9 times: begin new; wait 1000
        wait 10000; must new""", OUTAGE),
    Scenario("refused processes create nothing", "a stray process comes first after a loss", """
        start stray outage_reserve_ms=0; make worker stray; wipe; wait 1500; make stray; renew worker; wait 1000
        renew worker; must worker""", OUTAGE, starves=True),

    # durability none
    Scenario("none", "a restart that nothing shows", """
        save; claim gone
        9 times: renew gone; wait 1000
        zero; at 0 gone; restart; cut gone; claim heir; at 0 heir""", {"durability": "none"}),
    Scenario("none: no adoption", "two losses that nothing shows; between them, its worker id is another's", """
        claim holder
        9 times: renew holder; wait 1000
        make holder; renew holder; wipe; zero; begin newcomer; wait 2000; wipe; cut newcomer
        5 times: renew holder; wait 1000
        at 7500 holder newcomer""", {"durability": "none", "tick_ms": 1}),
    Scenario("none", "a snapshot shows the lease of a holder that was asleep while its worker id was another's", """
        claim asleep other; save
        7 times: wait 1000; renew other
        claim heir
        8 times: wait 1000; renew heir other
        restart; cut heir other; renew asleep; at +1000 heir asleep""", {"durability": "none", "tick_ms": 1}),

    # nobody starves
    Scenario("clock that was ahead", "a boot without data, and with a clock that is eight hours ahead", """
        make first; restart; redis 28800000; begin newcomer; wait 3000; redis 0; wait 10000
        must newcomer""", starves=True),
    Scenario("bounded lease end", "leases are renewed while the clock is an hour ahead, then all processes end", """
        make a b; redis 3600000; renew a b; redis 0; kill a b; wait 15000; make newcomer; wait 15000
        must newcomer""", starves=True),
    Scenario("reachable marks", "claims while the clock is an hour ahead", """
        redis 3600000; make a b; kill a b; redis 0; wait 15000; make newcomer; wait 15000
        must newcomer""", {"durability": "none"}, starves=True),
    Scenario("one write", "a command is refused while a pool is created, until a person grants the right", """
        refuse HEXISTS; make newcomer; refuse; wait 10000; must newcomer""", has_pool=False, starves=True),
    Scenario("outage lane while Redis is behind", "after an outage, renewals reach no further than the clock shows", """
        make holder; down; wait 8000; make holder; up; redis -30000
        3 times: must holder; renew holder""", OUTAGE, starves=True),

    # crash records
    Scenario("crash record's text", "a process dies while it replaces the text", """
        make dying; kill_while_writing dying; beside heir dying; must heir""", RECORDS, starves=True),
    Scenario("crash record's namespace", "a process of another container has a pid that is not used here", """
        make living; cut living other; wait 7000; begin other; wait 1000; make living other""", BOTH),
    Scenario("crash record's start", "a pid is used again", """
        make dying; kill dying; reuse_pid dying; beside heir dying; must heir""", RECORDS, starves=True),
    Scenario("crash record taken over", "a process dies while it releases the lease of another one", """
        make dying; kill dying; beside second dying; take_record second; kill second; beside heir dying
        must heir""", RECORDS, starves=True),
    Scenario("take-over by one", "two processes start in an outage beside a dead one", """
        make dying; cut dying; wait 9000; make dying; kill dying; beside a dying; beside b dying; wait 1000; begin a b
        wait 3000""", BOTH),
    Scenario("take-over behind what was used", "a process starts in the tick in which another one was killed", """
        make dying; cut dying; wait 9000; make dying; kill dying; beside heir dying
        make heir""", {**BOTH, "tick_ms": 4_000}),
    Scenario("no take-over after a release", "the reply to a release is lost, and Redis leases the worker id again", """
        make closing; deafen 3000 closing; close closing; kill closing; make other; beside heir closing
        cut other heir; wait 7000
        3 times: make other heir; wait 1000""", BOTH),
    Scenario("no take-over after a copy", "a machine is copied with a lease that could not be released", """
        make ended; cut ended; suspend ended; kill ended; save_records; beside one ended; begin one; wait 2000
        restore_records; beside two ended; begin one two; wait 8000; at +0 one two""", BOTH),
    Scenario("no take-over after a copy", "a machine is copied with the record of a dead process", """
        beside dead ended; make dead; kill dead; cut ended; suspend ended; save_records; beside one ended; begin one
        wait 2000; restore_records; beside two ended; begin one two; wait 8000; at +0 one two""", BOTH),
    Scenario("record of a copied directory", "a directory of records is copied", """
        make dying; kill dying; copy_record; beside a dying; beside b dying; cut a; begin a b; wait 8000
        at +0 a b""", BOTH),
    Scenario("a lease of use", "a record whose outage lane opens in a day is beside one whose lane is open", """
        make adopted; wipe; renew adopted; beside later adopted; wait 7000
        3 times: renew adopted; wait 1000
        make later; renew adopted; kill later adopted; reverse_records; beside heir adopted; cut heir; wait 7000
        must heir""", {"outage_ms": 60_000, "crash_records": True}, starves=True),
)  # fmt: skip
