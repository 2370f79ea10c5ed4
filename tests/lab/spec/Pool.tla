-------------------------------- MODULE Pool --------------------------------
(* What every script does before anything else: it looks whether the pool   *)
(* is over, and whether Redis lost something. Ledger.tla, Floor.tla and     *)
(* End.tla use these operators.                                             *)
(*                                                                          *)
(* A pool P has, besides what its module adds: there, inc (incarnation), id *)
(* (identity of the server that wrote it), pid (the pool's own random id),  *)
(* start (end of the pool before at this name), lost (when the last loss    *)
(* was noticed, or when a person created the pool), new (TRUE: a person     *)
(* created it), end (0: none).                                              *)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS
  TTL, G,      \* lengths of grants: ordinary lanes, outage lane
  SK, RS,      \* max_clock_lead; how far the clocks of two servers differ
  SLACK,       \* how long a deposed master answers: RS + SLACK is failover_slack, the pool's constant
  Off          \* rules that are switched off

On(rule) == rule \notin Off
Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b
Length(l) == IF l = "out" THEN G ELSE TTL

(* No grant of lane l begins below. It is a function: no floor is stored.   *)
Floor(P, l) ==
  Max(P.start,
      CASE P.new                              -> P.lost
        [] ~On("floor")                       -> 0
        [] l = "out" /\ ~On("outage-floor")   -> P.lost + RS + SK + SLACK + TTL
        [] OTHER                              -> P.lost + RS + SK + SLACK + Length(l))

(* Where a grant ends: by the clock of the caller, c, which may be ahead of *)
(* that of Redis, R, by max_clock_lead at most; and at the pool's end.      *)
Till(P, l, c, R) ==
  LET e == Max(0, IF On("cap") THEN Min(c, R + SK) ELSE c) + Length(l)
  IN IF P.end # 0 /\ On("cut") THEN Min(e, P.end) ELSE e

(* What a caller shows: the pool's id that it knows, 0: none, and where     *)
(* what it holds ends.                                                      *)
Nobody == [pid |-> 0, until |-> 0, out |-> 0]

(* A pool of this name, but another one: a loss, unless both floors cover   *)
(* what the caller may hold.                                                *)
Foreign(P, R, x) == /\ On("foreign") /\ x.pid # 0 /\ x.pid # P.pid
                    /\ x.until > Floor(P, "a") \/ x.out > Floor(P, "out")

(* A caller saw a newer state of this pool. No version is counted here, so  *)
(* this is only in Trace.tla.                                               *)
Older(P, x) == FALSE

Lost(P, id, R, x) == ~P.there \/ P.id # id \/ Older(P, x) \/ Foreign(P, R, x)

(* "Now" is the later one of both clocks: that of Redis may be behind.      *)
Now(R, c, rule) == IF On(rule) THEN Max(R, c) ELSE R

(* The clock that noticed the loss was ahead: it counts as noticed now.     *)
Ahead(P, R, c) == On("again") /\ P.there /\ P.lost > Now(R, c, "again-later-clock") + SK + TTL
Again(P, R, c) == IF ~Ahead(P, R, c) THEN P
                  ELSE [P EXCEPT !.lost = IF On("again-now") THEN Now(R, c, "again-later-clock") ELSE 0]

(* The pool after that. none: no pool. over: P is over. inc: the next       *)
(* incarnation. The moment of a loss is never moved back by another loss.   *)
Begun(P, none, inc) ==
  [none EXCEPT !.there = TRUE, !.inc = inc, !.id = P.id, !.pid = P.pid, !.lost = P.lost, !.new = P.new,
               !.start = IF On("start-at-end") THEN Max(P.start, P.end) ELSE P.start]
Opened(P0, none, over, id, R, c, x, inc) ==
  LET P == Again(P0, R, c)
      Q == IF over THEN Begun(P, none, inc) ELSE P
  IN IF ~Lost(P, id, R, x) THEN Q
     ELSE [Q EXCEPT !.there = TRUE, !.inc = inc, !.id = id, !.new = FALSE,
                    !.lost = IF P.there THEN Max(@, Now(R, c, "later-clock")) ELSE Now(R, c, "later-clock"),
                    !.pid = IF P.there THEN @ ELSE IF x.pid # 0 THEN x.pid ELSE inc]
=============================================================================
