-------------------------------- MODULE End ---------------------------------
(* The end of a pool, while Redis crashes, is wiped, or is restored from a  *)
(* backup. An end is set once, never moved or taken back, and not before    *)
(* any grant or floor. Grants end there, and what starts at the name from   *)
(* then on, with whatever settings, starts there. "pool delete" sets the    *)
(* earliest end.                                                            *)
(*                                                                          *)
(* One worker id. A grant is of an ordinary lane or of the outage lane, in  *)
(* space "old" or "new": two layouts, or two pools with other settings,     *)
(* whose ids are equal where their ticks are. Every grant may be used at    *)
(* any time: what must not happen is that two of them overlap.              *)
EXTENDS Pool

CONSTANTS
  TMAX,        \* real time ends here
  Losses,      \* how often Redis loses something
  Doing        \* some of "end", "crash", "wipe", "backup", "early"

VARIABLES now, srv, disk, backup, granted, losses
vars == <<now, srv, disk, backup, granted, losses>>

NoPool == [there |-> FALSE, inc |-> 0, id |-> 0, pid |-> 0, start |-> 0, lost |-> 0, new |-> TRUE, end |-> 0,
           space |-> "old", mark |-> 0, omark |-> 0]
Init == /\ now = 0 /\ losses = 0 /\ granted = {}
        /\ srv = [NoPool EXCEPT !.there = TRUE, !.id = 1] /\ disk = srv /\ backup = srv

(* A script of a caller with the settings of *space*. What is over may be   *)
(* found so at any moment after its end was set: nothing reaches beyond.    *)
Over(early) == srv.there /\ srv.end > 0 /\ (now >= srv.end \/ (early /\ "early" \in Doing))
(* If Redis goes back to a pool that is over, other settings than those     *)
(* that began there already must not come first: nothing shows that.        *)
Begins(space, early) == Over(early) => \A g \in granted : g.till > srv.end => g.s = space
Looked(space, early) ==
  Opened(IF srv.there THEN srv ELSE [srv EXCEPT !.space = space], [NoPool EXCEPT !.space = space],
         Over(early), losses + 1, now, now, Nobody, 0)

Grant(space, early) ==
  LET P == Looked(space, early)
      from == Max(P.mark, Floor(P, "a"))     till == Till(P, "a", now, now)
      ofrom == Max(P.omark, Floor(P, "out")) otill == Till(P, "out", now, now)
      ord == IF from < till THEN {[l |-> "a", s |-> space, from |-> from, till |-> till]} ELSE {}
      out == IF ofrom < otill THEN {[l |-> "out", s |-> space, from |-> ofrom, till |-> otill]} ELSE {}
  IN /\ P.space = space /\ now >= Floor(P, "a") /\ Begins(space, early)
     /\ granted' = granted \cup ord \cup out
     /\ srv' = [P EXCEPT !.mark = Max(@, till), !.omark = IF out = {} THEN @ ELSE otill]
     /\ UNCHANGED <<now, disk, backup, losses>>

Notice == \E space \in {"old", "new"}, early \in BOOLEAN :
            LET P == Looked(space, early) IN
            /\ srv.there /\ P # srv /\ Begins(space, early)
            /\ srv' = P /\ UNCHANGED <<now, disk, backup, granted, losses>>

(* It is noticed first, in the same script, whether Redis lost something.   *)
SetEnd ==
  LET P == IF On("loss-first") THEN Looked(srv.space, FALSE) ELSE srv IN
  /\ "end" \in Doing /\ srv.there /\ ~Over(FALSE)
  /\ P.end = 0 \/ ~On("once")
  /\ \E T \in (now + 1) .. TMAX :
       /\ On("not-before-marks") => T >= Max(P.mark, P.omark)
       /\ On("not-before-floors") => T >= Max(Floor(P, "a"), Floor(P, "out"))
       /\ srv' = [P EXCEPT !.end = T]
  /\ disk' = IF On("end-on-disk") THEN srv' ELSE disk
  /\ UNCHANGED <<now, backup, granted, losses>>

Save == disk # srv /\ disk' = srv /\ UNCHANGED <<now, srv, backup, granted, losses>>
Copy == "backup" \in Doing /\ backup # disk /\ backup' = disk /\ UNCHANGED <<now, srv, disk, granted, losses>>
Lose ==
  /\ losses < Losses /\ losses' = losses + 1
  /\ \/ "crash" \in Doing /\ srv' = disk /\ UNCHANGED disk
     (* Not from before an end that was reached: nothing shows that.        *)
     \/ "backup" \in Doing /\ (\A g \in granted : g.s = backup.space) /\ srv' = backup /\ disk' = backup
     \/ "wipe" \in Doing /\ (\A g \in granted : g.s = "old") /\ srv' = NoPool /\ disk' = NoPool
  /\ UNCHANGED <<now, backup, granted>>
Tick == now < TMAX /\ now' = now + 1 /\ UNCHANGED <<srv, disk, backup, granted, losses>>

Next == \/ Tick \/ Notice \/ SetEnd \/ Save \/ Copy \/ Lose
        \/ \E space \in {"old", "new"}, early \in BOOLEAN : Grant(space, early)
Spec == Init /\ [][Next]_vars

Overlap(a, b) == a.from < b.till /\ b.from < a.till
NoRepeat == \A a, b \in granted :
  (a # b /\ Overlap(a, b)) => (a.s = b.s /\ (a.l # b.l \/ a.from = b.from))
=============================================================================
