------------------------------- MODULE Floor --------------------------------
(* The floor as a function, while the clock of Redis steps ahead or back,   *)
(* another pool is at the address, and a person creates pools. Smaller than *)
(* Ledger.tla, so that all of that can meet: one worker id, requests that   *)
(* take no time, though a reply may be lost. What was granted may be used   *)
(* at any later moment: two grants of a lane must not overlap, ever.        *)
EXTENDS Pool

CONSTANTS
  Procs,       \* processes; each claims once
  BOOT, BACK,  \* how far the clock of Redis may step ahead, and back (a set)
  TMAX,        \* real time ends here
  Devs,        \* the callers' clocks: real time plus one of these
  Losses,      \* how often Redis loses something
  Steps,       \* how often its clock steps, there or back
  Kinds,       \* some of "wipe", "keep", "snapshot", "failover"
  Creates      \* TRUE: a person may create a pool

VARIABLES
  now, jump,   \* real time; how far the clock of Redis is off
  pool, save,  \* the pool, and the last snapshot of it
  old,         \* a deposed master, which answers until til
  pr,          \* the processes
  cnt          \* counters; met: a process has met another pool than its own

vars == <<now, jump, pool, save, old, pr, cnt>>
L == {"a", "out"}
NoRec == [who |-> "none", inc |-> 0, end |-> 0, has |-> FALSE, f |-> [l \in L |-> 0], u |-> [l \in L |-> 0]]
(* ga: how often something was granted while the clock was ahead.           *)
NoPool == [there |-> FALSE, inc |-> 0, id |-> 0, pid |-> 0, start |-> 0, lost |-> 0, new |-> TRUE, end |-> 0,
           ga |-> 0, rec |-> NoRec]
NoProc == [st |-> "new", f |-> [l \in L |-> 0], u |-> [l \in L |-> 0], inc |-> 0, pid |-> 0, met |-> FALSE]

Init ==
  /\ now = 0 /\ jump = 0
  /\ pool = [NoPool EXCEPT !.there = TRUE, !.inc = 1, !.id = 1, !.pid = 1] /\ save = pool
  /\ old = [up |-> FALSE, til |-> 0, pool |-> NoPool]
  /\ pr = [p \in Procs |-> NoProc]
  /\ cnt = [loss |-> 0, step |-> 0, id |-> 1, inc |-> 1, met |-> FALSE]

PoolOf(s) == IF s = "main" THEN pool ELSE old.pool
IdOf(s) == IF s = "main" THEN cnt.id ELSE old.pool.id
Clocks(s) == IF s = "main" THEN (now + jump) .. (now + jump + RS) ELSE now .. (now + RS)
Shows(p) == [pid |-> pr[p].pid, until |-> pr[p].u["a"], out |-> pr[p].u["out"]]
Looked(s, x, R, c) == Opened(PoolOf(s), NoPool, FALSE, IdOf(s), R, c, x, cnt.inc + 1)
Meets(s, p) == pr[p].pid # 0 /\ PoolOf(s).there /\ pr[p].pid # PoolOf(s).pid

Put(s, P, ok, meets) ==
  LET ahead == ok /\ s = "main" /\ jump > 0
      Q == IF ahead THEN [P EXCEPT !.ga = @ + 1] ELSE P
  IN /\ Q.ga <= 3                                          \* bound
     /\ IF s = "main" THEN pool' = Q /\ UNCHANGED old
                      ELSE old' = [old EXCEPT !.pool = Q] /\ UNCHANGED pool
     /\ cnt' = [cnt EXCEPT !.inc = Max(@, P.inc), !.met = @ \/ meets]
     /\ UNCHANGED <<now, jump, save>>

Claim(s, p, R, c, answered) ==
  LET x == pr[p]
      P == Looked(s, Shows(p), R, c)
      r == P.rec
      from == [l \in L |-> Max(r.u[l], Floor(P, l))]
      has(l) == from[l] < Till(P, l, c, R)
      u == [l \in L |-> IF has(l) THEN Till(P, l, c, R) ELSE from[l]]
  IN /\ x.st = "new" /\ R >= Floor(P, "a") /\ r.end <= R /\ has("a")
     /\ Put(s, [P EXCEPT !.rec = [who |-> p, inc |-> P.inc, end |-> R + TTL, has |-> TRUE, f |-> from, u |-> u]],
            TRUE, Meets(s, p))
     /\ pr' = [pr EXCEPT ![p] =
          IF answered THEN [st |-> "held", f |-> from, u |-> u, inc |-> P.inc, pid |-> P.pid, met |-> cnt.met]
                      ELSE [x EXCEPT !.st = "over"]]

Renew(s, p, R, c, answered) ==
  LET x == pr[p]
      P == Looked(s, Shows(p), R, c)
      r == P.rec
      mine == r.who = p
      adopted == x.u["a"] > Now(R, c, "adopt-later-clock") + RS + SK + SLACK /\ (~r.has \/ mine \/ r.u["a"] <= x.f["a"])
      ok == IF r.inc = P.inc THEN mine ELSE adopted
      holds(l) == x.u[l] > x.f[l]
      u == [l \in L |-> IF holds(l) THEN Max(Max(x.u[l], IF mine THEN r.u[l] ELSE 0), Till(P, l, c, R)) ELSE r.u[l]]
      n == [who |-> p, inc |-> P.inc, end |-> Max(r.end, R + TTL), has |-> TRUE,
            f |-> [l \in L |-> IF holds(l) THEN x.f[l] ELSE r.u[l]], u |-> [l \in L |-> Max(r.u[l], u[l])]]
  IN /\ x.st = "held"
     /\ Put(s, IF ok THEN [P EXCEPT !.rec = n] ELSE P, ok, Meets(s, p))
     /\ pr' = [pr EXCEPT ![p] =
          IF ~answered THEN x
          ELSE IF ok THEN [x EXCEPT !.u = [l \in L |-> IF holds(l) THEN u[l] ELSE @[l]], !.inc = P.inc, !.pid = P.pid]
          ELSE [x EXCEPT !.st = "over", !.pid = P.pid]]

Serve ==
  \E s \in {"main", "old"}, p \in Procs, d \in Devs, answered \in BOOLEAN : \E R \in Clocks(s) :
    /\ s = "old" => old.up
    /\ Claim(s, p, R, now + d, answered) \/ Renew(s, p, R, now + d, answered)

Notice ==
  \E R \in Clocks("main"), d \in Devs :
    LET P == Looked("main", Nobody, R, now + d) IN
    /\ P # pool /\ Put("main", P, FALSE, FALSE) /\ UNCHANGED pr

Save == /\ cnt.loss < Losses /\ save # pool /\ save' = pool /\ UNCHANGED <<now, jump, pool, old, pr, cnt>>

(* What was granted while the clock was ahead, and then lost, may be beyond *)
(* every floor: that is named on the page of uniqueness as remaining.       *)
Lose ==
  /\ cnt.loss < Losses
  /\ \E k \in Kinds, j \in {jump, 0, BOOT} :
       LET P == CASE k = "wipe" -> NoPool [] k = "keep" -> pool [] OTHER -> save IN
       /\ P.ga = pool.ga
       /\ pool' = P /\ jump' = j
       /\ IF k = "failover" THEN ~old.up /\ old' = [up |-> SLACK > 0, til |-> now + SLACK, pool |-> pool]
                            ELSE UNCHANGED old
  /\ cnt' = [cnt EXCEPT !.loss = @ + 1, !.id = @ + 1]
  /\ UNCHANGED <<now, save, pr>>

(* A person's word: no process of that name could make ids.                 *)
Create ==
  /\ Creates /\ ~pool.there
  /\ On("word") => \A p \in Procs, l \in L : pr[p].u[l] <= now \/ pr[p].u[l] <= pr[p].f[l]
  /\ \E d \in Devs : pool' =
       [NoPool EXCEPT !.there = TRUE, !.inc = cnt.inc + 1, !.id = cnt.id, !.pid = cnt.inc + 1,
                      !.lost = IF On("create-now") THEN Now(now + jump, now + d, "create-later-clock") ELSE 0]
  /\ cnt' = [cnt EXCEPT !.inc = @ + 1]
  /\ UNCHANGED <<now, jump, save, old, pr>>

Jump ==
  /\ cnt.step < Steps /\ cnt' = [cnt EXCEPT !.step = @ + 1]
  /\ \E j \in IF jump = 0 THEN ({BOOT} \ {0}) \cup {-b : b \in BACK} ELSE {0} : jump' = j
  /\ UNCHANGED <<now, pool, save, old, pr>>

Tick ==
  /\ now < TMAX /\ now' = now + 1
  /\ old' = IF old.up /\ old.til < now + 1 THEN [old EXCEPT !.up = FALSE, !.pool = NoPool] ELSE old
  /\ UNCHANGED <<jump, pool, save, pr, cnt>>

Next == Serve \/ Notice \/ Save \/ Lose \/ Jump \/ Tick \/ Create
Spec == Init /\ [][Next]_vars
Sym == Permutations(Procs)

Used(p, l) == pr[p].f[l] .. (pr[p].u[l] - 1)
Apart(p, q) == \A l \in L : Used(p, l) \cap Used(q, l) = {}
NoRepeat == \A p, q \in Procs : p # q => Apart(p, q)
(* Once a process has met another pool than its own, nothing is claimed     *)
(* that overlaps what it may use.                                           *)
NoRepeatOnceMet == \A p, q \in Procs : p # q /\ pr[p].met => Apart(p, q)
(* With the clock right again, no floor is above that of a loss of now.     *)
NotStuck ==
  jump = 0 => LET P == Looked("main", Nobody, now + RS, now) IN
              \A l \in L : Floor(P, l) <= Max(P.start, now + 2 * RS + SK + SK + TTL + SLACK + Length(l))
=============================================================================
