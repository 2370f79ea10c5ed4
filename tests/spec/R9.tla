--------------------------------- MODULE R9 ---------------------------------
(* What a person does with a pool (rule R9: plan, undo, delete, create),    *)
(* while Redis crashes, is wiped, or is restored from an older copy.        *)
(*                                                                          *)
(* One worker id. Time and ticks are the same whole numbers. A lease is a   *)
(* reservation [from, til) of an ordinary lane (length TTL) or of the       *)
(* outage lane (length G), in space "old" or "new": two layouts, or two     *)
(* pools with other settings, whose ids are equal where their ticks are.    *)
(* Every reservation that was ever granted may be used at any time, so      *)
(* processes that do not reach Redis, paused ones, and wrong clocks are     *)
(* covered: what must not happen is that two of them overlap.               *)
(*                                                                          *)
(* `disk` is what a crash brings back, `backup` what a person brings back,  *)
(* who copied some earlier disk. A restored server knows that it was        *)
(* restarted (R3). Leases are held until they are over: adoption is in      *)
(* Lease.tla. `Off` is the set of rules that are switched off.              *)
EXTENDS Integers, FiniteSets

CONSTANTS TTL, G, TMAX, Losses, Doing, Off

VARIABLES now, srv, disk, backup, granted, lost, undone

vars == <<now, srv, disk, backup, granted, lost, undone>>
On(rule) == rule \notin Off
Max(a, b) == IF a > b THEN a ELSE b
Top(S) == IF S = {} THEN 0 ELSE CHOOSE x \in S : \A y \in S : x >= y

(* pool: "none", a tombstone, or a space; until a plan is carried out,      *)
(* pfloor is its floor. mark and omark: of the worker id's two lanes.       *)
NoPool == [is |-> "none", space |-> "old", floor |-> 0, ofloor |-> 0, mark |-> 0, omark |-> 0,
           pfloor |-> 0, run |-> 0]
First == [NoPool EXCEPT !.is = "pool", !.run = 1]

Init == /\ now = 0 /\ lost = 0 /\ undone = FALSE /\ granted = {}
        /\ srv = First /\ disk = First /\ backup = First

Run == lost + 1                      \* the identity of the server process
Keep(P, what) == IF On(what) THEN P ELSE disk

(* R3: the floors after a loss.                                             *)
Raised(P) == [P EXCEPT !.run = Run, !.floor = Max(@, now + TTL),
              !.ofloor = IF On("outage-floor") THEN Max(@, now + G) ELSE @]
Known(P) == P.is = "pool" /\ P.run = Run

(* The floor of a plan, and its moment, which is a ttl before.              *)
Floor(P) == IF On("moment") THEN Max(P.pfloor, Max(P.ofloor, P.omark)) ELSE P.pfloor
Due(P) == P.is = "pool" /\ P.pfloor > 0 /\ now >= Floor(P) - TTL
Changed(P) ==
  LET f == Max(Floor(P), IF P.run # Run THEN now + (IF On("doubt") THEN G ELSE TTL) ELSE 0)
  IN [NoPool EXCEPT !.is = "pool", !.space = "new", !.run = Run, !.floor = Max(P.floor, f),
                    !.ofloor = Max(Max(P.floor, f), now + G)]

(* What every script does first.                                            *)
Opened(P, space) ==
  IF Due(P) THEN Changed(P)
  ELSE IF P.is = "pool" THEN (IF Known(P) THEN P ELSE Raised(P))
  ELSE Raised([P EXCEPT !.is = "pool", !.space = space])

(* A claim, or a renewal, of a process with the settings of *space*: it is  *)
(* refused if these are not the pool's. The worker id has one lease at a    *)
(* time; the outage lane is reserved as far as a plan allows it.            *)
Grant(space) ==
  LET P == Opened(srv, space)
      from == Max(P.mark, P.floor)   til == now + TTL
      ofrom == Max(P.omark, P.ofloor)
      otil == IF P.pfloor > 0 /\ On("cap") THEN (IF now + G > Floor(P) THEN Floor(P) ELSE now + G) ELSE now + G
      ord == IF from < til THEN {[l |-> "ord", s |-> space, from |-> from, til |-> til]} ELSE {}
      out == IF ofrom < otil THEN {[l |-> "out", s |-> space, from |-> ofrom, til |-> otil]} ELSE {}
  IN /\ P.space = space /\ now >= P.floor
     /\ granted' = granted \cup ord \cup out
     /\ srv' = [P EXCEPT !.mark = Max(@, til), !.omark = IF out = {} THEN @ ELSE otil]
     /\ UNCHANGED <<now, disk, backup, lost, undone>>

Notice ==
  /\ srv.is = "pool" /\ Opened(srv, srv.space) # srv
  /\ srv' = Opened(srv, srv.space)
  /\ UNCHANGED <<now, disk, backup, granted, lost, undone>>

(* --- what a person does: each is on disk when the command returns ------- *)
Plan ==
  LET P == Opened(srv, "old") IN
  /\ "plan" \in Doing /\ srv.is = "pool" /\ P.space = "old" /\ P.pfloor = 0
  /\ \E f \in (now + 1 + TTL) .. TMAX :
       /\ Max(P.ofloor, P.omark) <= f
       /\ srv' = [P EXCEPT !.pfloor = f]
  /\ disk' = Keep(srv', "plan-on-disk")
  /\ undone' = FALSE
  /\ UNCHANGED <<now, backup, granted, lost>>

Undo ==
  LET P == Opened(srv, "old") IN
  /\ "plan" \in Doing /\ srv.is = "pool" /\ P.space = "old" /\ P.pfloor > 0
  /\ srv' = [P EXCEPT !.pfloor = 0]
  /\ disk' = Keep(srv', "undo-on-disk")
  /\ undone' = TRUE
  /\ UNCHANGED <<now, backup, granted, lost>>

Delete ==
  LET P == Opened(srv, srv.space) IN
  /\ "delete" \in Doing /\ srv.is = "pool" /\ ~Due(srv)
  /\ srv' = [NoPool EXCEPT !.is = "tombstone", !.space = P.space, !.run = Run,
              !.floor = IF On("tombstone") THEN Max(P.floor, P.mark) ELSE 0,
              !.ofloor = IF On("tombstone") THEN Max(P.ofloor, P.omark) ELSE 0]
  /\ disk' = Keep(srv', "delete-on-disk")
  /\ UNCHANGED <<now, backup, granted, lost, undone>>

(* The person's word is about ordinary lanes, and about other settings: no  *)
(* reservation of them is in use, and no time of before is used again.      *)
Create(space) ==
  LET P == Raised([srv EXCEPT !.is = "pool", !.space = space])
      other == srv.is = "tombstone" /\ srv.space # space
      certain == srv.is = "tombstone" /\ srv.run = Run
      kept == IF srv.is = "none" THEN now ELSE IF other THEN Max(srv.floor, srv.ofloor) ELSE srv.floor
  IN
  /\ "create" \in Doing /\ srv.is # "pool"
  /\ srv.is = "none" => /\ \A g \in granted : g.l = "ord" => g.til <= now
                        /\ \A g \in granted : g.s # space => g.til <= now
  /\ srv' = [P EXCEPT !.floor = kept, !.mark = 0, !.omark = 0, !.pfloor = 0,
              !.ofloor = IF certain \/ ~On("create-outage-floor") THEN (IF other THEN kept ELSE srv.ofloor) ELSE @]
  /\ disk' = Keep(srv', "create-on-disk")
  /\ UNCHANGED <<now, backup, granted, lost, undone>>

(* --- what happens ------------------------------------------------------- *)
Save == /\ disk # srv /\ disk' = srv
        /\ UNCHANGED <<now, srv, backup, granted, lost, undone>>
Copy == /\ "backup" \in Doing /\ backup # disk /\ backup' = disk
        /\ UNCHANGED <<now, srv, disk, granted, lost, undone>>
Lose == /\ lost < Losses /\ lost' = lost + 1
        /\ \/ "crash" \in Doing /\ srv' = disk /\ UNCHANGED <<disk, undone>>
           (* not one of before a change that was made: nothing shows that *)
           \/ "backup" \in Doing /\ (\A g \in granted : g.s = backup.space)
              /\ srv' = backup /\ disk' = backup /\ undone' = FALSE
           \/ "wipe" \in Doing /\ srv' = NoPool /\ disk' = NoPool /\ UNCHANGED undone
        /\ UNCHANGED <<now, backup, granted>>
Tick == now < TMAX /\ now' = now + 1 /\ UNCHANGED <<srv, disk, backup, granted, lost, undone>>

Next == \/ Tick \/ Notice \/ Plan \/ Undo \/ Delete \/ Save \/ Copy \/ Lose
        \/ \E s \in {"old", "new"} : Grant(s) \/ Create(s)
Spec == Init /\ [][Next]_vars

(* No tick of a lane is reserved twice, and none in both spaces; but the    *)
(* same lane of the same space may be extended from where it began.         *)
Overlap(a, b) == a.from < b.til /\ b.from < a.til
NoRepeat == \A a, b \in granted :
  (a # b /\ Overlap(a, b)) => (a.s = b.s /\ (a.l # b.l \/ a.from = b.from))
(* A plan that was undone is carried out only if a person restored it.      *)
NotUndone == undone => srv.space = "old" \/ srv.is # "pool"
=============================================================================
