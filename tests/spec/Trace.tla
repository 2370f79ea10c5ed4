------------------------------- MODULE Trace -------------------------------
(* Does the specification allow what a real system did? Each run of         *)
(* TraceData is a sequence of steps that tests/spec/steps.py made of a log. *)
(* A step takes what the log shows, takes the actions of Lease.tla and      *)
(* LeaseAsBuilt.tla with these values, and compares what comes out. A run   *)
(* is accepted if all of its steps can be taken.                            *)
(*                                                                          *)
(* Time: one unit is one ms, and 0 is a moment before the run, so sums and  *)
(* comparisons are those of the real times. A process here is one claim of  *)
(* a real process, with all that follows from it.                           *)
(* Each run has constants of its own: TraceData has the definitions of `run`,*)
(* which of Runs it is, and of the constants of Lease.tla that depend on it. *)
(* Faults are not bounded as in Lease.tla: there are any number of servers, *)
(* losses and copies. Servers find themselves with whatever data they had.  *)
EXTENDS LeaseAsBuilt

CONSTANT Show  \* the step at which the states are printed; 0: none

VARIABLES
  at,          \* the next step
  time,        \* real time, as far as the servers' clocks show it
  incs,        \* the incarnations of the log -> those of the specification
  kept,        \* pools that a server will be found with later
  held,        \* answers that arrive later than one that was sent after them
  uses,        \* ticks that each process used in each lane, from lo to hi
  lift         \* no promise for ticks below it

traceVars == <<run, at, time, incs, kept, held, uses, lift>>

(* Times of logs are long, so the lowered outage lanes are all kept.        *)
TraceNoRec == [tok |-> NoTok, tip |-> NoRid, dep |-> 0, end |-> 0, born |-> -1, inc |-> 0,
               f |-> Each(Unheld), mark |-> Each(0), cut |-> {}]
TraceWithCut(cut, r) == cut \cup {<<Max(0, r.f["out"]), r.mark["out"]>>}
TraceIsCut(cut, q) == \E x \in cut : q.u["out"] > x[1] /\ q.u["out"] <= x[2]

NoUse == [w |-> "none", lo |-> 0, hi |-> -1, sh |-> 0]
Step == Runs[run][((at - 1) \div PartSize) + 1][((at - 1) % PartSize) + 1]
Has(name) == name \in DOMAIN Step
Size == Sizes[run]

TraceRepeatable(r) == TRUE
NoSymmetry == {}
(* Only what the log says to arrive later has to be kept of old requests.   *)
TracePast(p) == {q \in net : q.p # p \/ q.t = "claim" \/ (q.t = "renew" /\ <<q.p, q.dep>> \in Late[run])}

TraceInit ==
  /\ run \in DOMAIN Runs /\ at = 1 /\ time = 0
  /\ now = 0
  /\ srv = [s \in Servers |->
              [up |-> TRUE, id |-> 1, jump |-> 0, til |-> 0, pool |-> NoPool]]
  /\ save = NoPool
  /\ net = {} /\ ans = [p \in Procs |-> NoAns]
  /\ pr = [p \in Procs |-> NoProc]
  /\ wit = [w |-> "none", l |-> "none", t |-> -1, shared |-> 0] /\ chg = 0 /\ dup = FALSE
  /\ cnt = [loss |-> 0, copy |-> 0, id |-> 1, inc |-> 1, chain |-> 0]
  /\ incs = <<>> /\ kept = <<>> /\ held = <<>> /\ lift = Each(0)
  /\ uses = [p \in Procs |-> Each(NoUse)]

Same(v) == UNCHANGED v
LeaseVars == <<now, srv, save, net, ans, pr, wit, cnt, chg, dup>>

-----------------------------------------------------------------------------
(* What servers do.                                                         *)
Pool(s) == srv[s].pool
PoolAfter(s) == srv'[s].pool

(* The clock of the server is at most RS ahead of real time.                *)
ClockOK == Step.now >= time /\ Step.now <= Step.R /\ Step.R <= Step.now + RS + Step.jump

(* The pool after the step is in the incarnation, and has the floor, that   *)
(* the reply shows.                                                         *)
Shown(P) ==
  /\ P.floor = Step.floor
  /\ Outage /\ Has("ofloor") => P.ofloor = Step.ofloor
  /\ IF Step.inc \in DOMAIN incs THEN incs[Step.inc] = P.inc
     ELSE \A i \in DOMAIN incs : incs[i] # P.inc

ReplyOK(P) == Shown(P) /\ incs' = IF Step.inc \in DOMAIN incs THEN incs ELSE incs @@ (Step.inc :> P.inc)

(* A reservation of the log: where each lane begins and ends.               *)
GrantOK(P, w, f, m) ==
  \A l \in Lanes : IF Step.until[l] > Step.lanes[l]
                   THEN f[l] # Unheld /\ f[l] = Step.lanes[l] /\ m[l] = Step.until[l]
                   ELSE f[l] = Unheld /\ m[l] = Step.lanes[l]

Clock == time' = Step.now

(* The record after the step, where the log has it: its marks, the begin of *)
(* its reservation, the end of its lease. A lane that its holder does not   *)
(* have may be kept higher than the specification asks for.                 *)
RecordOK(r) ==
  Has("mark") =>
    /\ r.end = Step.end
    /\ \A l \in Lanes : IF r.f[l] # Unheld THEN r.mark[l] = Step.mark[l] /\ r.f[l] = Step.begin[l]
                                           ELSE r.mark[l] <= Step.mark[l]

ServedClaim ==
  /\ Step.op = "granted" /\ ClockOK /\ Clock
  /\ LET P == Touch(Pool(Step.s), srv[Step.s].id, Step.R) IN
     \E q \in net :
       /\ q.t = "claim" /\ q.p = Step.p
       /\ ClaimScript(Step.s, q, P, Step.c, Step.R)
       /\ PoolAfter(Step.s).rec[Step.w].tok = q.tok
       /\ PoolAfter(Step.s).rec[Step.w] # P.rec[Step.w]
       /\ GrantOK(P, Step.w, PoolAfter(Step.s).rec[Step.w].f, PoolAfter(Step.s).rec[Step.w].mark)
       /\ RecordOK(PoolAfter(Step.s).rec[Step.w])
  /\ ReplyOK(PoolAfter(Step.s))
  /\ Same(<<run, kept, held, uses, lift>>)

(* The reservation's end is compared where the holder has a reservation.    *)
ServedRenewal ==
  /\ Step.op = "renewed" /\ ClockOK /\ Clock
  /\ LET P == Touch(Pool(Step.s), srv[Step.s].id, Step.R) IN
     \E q \in net :
       /\ q.t = "renew" /\ q.p = Step.p /\ q.dep = Step.dep /\ q.w = Step.w
       /\ RenewScript(Step.s, q, P, Step.c, Step.R)
       /\ LET r == PoolAfter(Step.s).rec[Step.w] IN
          /\ r.tok = q.tok /\ r.tip = q.rid /\ r.inc = P.inc
          /\ r # P.rec[Step.w] \/ P.rec[Step.w].tip = q.rid
          /\ \A l \in Lanes : r.f[l] # Unheld => r.mark[l] = Step.until[l]
          /\ \A l \in Lanes : r.f[l] = Unheld => r.mark[l] >= Step.until[l]
          /\ Outage /\ r.f["out"] # Unheld => r.f["out"] = Step.from
          /\ RecordOK(r)
  /\ ReplyOK(PoolAfter(Step.s))
  /\ Same(<<run, kept, held, uses, lift>>)

ServedRelease ==
  /\ Step.op = "released" /\ ClockOK /\ Clock
  /\ LET P == Touch(Pool(Step.s), srv[Step.s].id, Step.R) IN
     \E q \in net :
       /\ q.t = "release" /\ q.p = Step.p
       /\ ReleaseScript(Step.s, q, P, Step.R)
       /\ P.rec[q.w].tok = q.tok /\ PoolAfter(Step.s).rec[q.w].tok = NoTok
       /\ q.w = Step.w /\ RecordOK(PoolAfter(Step.s).rec[q.w])
  /\ ReplyOK(PoolAfter(Step.s))
  /\ Same(<<run, kept, held, uses, lift>>)

(* A renewal that is refused. Redis may refuse what the specification       *)
(* grants, and say "copied" where that says "lost", but not the other way.  *)
ServedRefusal ==
  /\ Step.op = "lost" /\ ClockOK /\ Clock
  /\ LET P == Touch(Pool(Step.s), srv[Step.s].id, Step.R) IN
     /\ \E q \in net :
          /\ q.t = "renew" /\ q.p = Step.p /\ q.dep = Step.dep /\ q.w = Step.w
          /\ Verdict(q, P, Step.R) = "copied" => Step.kind = "copied"
          /\ Put(Step.s, P, q, Answer(q, Step.kind, q.w, NoRec, P.inc, q.rid), 0)
     /\ ReplyOK(P)
  /\ Same(<<run, kept, held, uses, lift>>)

(* Whatever was refused changed nothing but what R3 does. Where the         *)
(* specification would have granted it, the process is one that never asks  *)
(* again: as if it had crashed.                                             *)
Refused ==
  /\ Step.op = "refused" /\ ClockOK /\ Clock
  /\ LET P == Touch(Pool(Step.s), srv[Step.s].id, Step.R) IN
     /\ srv' = [srv EXCEPT ![Step.s].pool = P]
     /\ cnt' = [cnt EXCEPT !.inc = Max(@, P.inc)]
     /\ ReplyOK(P)
  /\ Same(<<now, save, net, ans, pr, wit, chg, dup>>) /\ Same(<<run, kept, held, uses, lift>>)

(* A person says that the pool is new: no floor, in a pool that is absent.  *)
Created ==
  /\ Step.op = "created" /\ ClockOK /\ Clock
  /\ LET P == [Touch(Pool(Step.s), srv[Step.s].id, Step.R) EXCEPT
                  !.floor = Pool(Step.s).floor, !.ofloor = IF Step.certain = 1 THEN Pool(Step.s).ofloor ELSE @] IN
     /\ Pool(Step.s).inc = 0
     /\ srv' = [srv EXCEPT ![Step.s].pool = P]
     /\ cnt' = [cnt EXCEPT !.inc = Max(@, P.inc)]
     /\ ReplyOK(P)
  /\ Same(<<now, save, net, ans, pr, wit, chg, dup>>) /\ Same(<<run, kept, held, uses, lift>>)

(* Something ran that sent no reply that the log has: one of these requests.*)
Unseen ==
  /\ Step.op = "unseen" /\ Clock
  /\ \E k \in DOMAIN Step.any :
     LET x == Step.any[k]
         P == Touch(Pool(Step.s), srv[Step.s].id, x.R) IN
     \/ /\ srv' = [srv EXCEPT ![Step.s].pool = P] /\ cnt' = [cnt EXCEPT !.inc = Max(@, P.inc)]
        /\ Same(<<now, save, net, ans, pr, wit, chg, dup>>)
     \/ \E q \in net :
          /\ q.t = x.t /\ q.p = x.p
          /\ \/ q.t = "claim" /\ ClaimScript(Step.s, q, P, x.c, x.R)
             \/ q.t = "renew" /\ q.dep = x.dep /\ RenewScript(Step.s, q, P, x.c, x.R)
             \/ q.t = "release" /\ ReleaseScript(Step.s, q, P, x.R)
  /\ Same(<<run, incs, kept, held, uses, lift>>)

-----------------------------------------------------------------------------
(* What processes do.                                                       *)
Claims ==
  /\ Step.op = "claim" /\ Claim(Step.p)
  /\ Same(<<run, time, incs, kept, held, uses, lift>>)

(* Every field of the request is what the process was granted. Only of a    *)
(* crash record the end may be older.                                       *)
EndOK(x) == \A l \in Lanes : x.f[l] # Unheld =>
              IF Step.taken = 1 THEN x.u[l] >= Step.until[l] ELSE x.u[l] = Step.until[l]
Renews ==
  /\ Step.op = "renew" /\ Renew(Step.p)
  /\ LET x == pr[Step.p] IN
     /\ x.w = Step.w /\ EndOK(x) /\ Step.own = 1
     /\ \A l \in Lanes : IF x.f[l] # Unheld THEN x.f[l] = Step.lanes[l] ELSE Step.until[l] <= Step.lanes[l]
     /\ Step.inc \in DOMAIN incs /\ incs[Step.inc] = x.inc
  /\ Same(<<run, time, incs, kept, held, uses, lift>>)

(* A copy repeats what was under way, in its own name.                      *)
Repeats ==
  /\ Step.op = "repeat" /\ Repeat(Step.p)
  /\ Same(<<run, time, incs, kept, held, uses, lift>>)

Delivers ==
  /\ Step.op = "deliver" /\ ans[Step.p].kind = "ok" /\ Deliver(Step.p)
  /\ Same(<<run, time, incs, kept, held, uses, lift>>)

(* An answer is overtaken by a newer one, and arrives all the same.         *)
Holds ==
  /\ Step.op = "hold" /\ ans[Step.p] # NoAns
  /\ held' = (Step.p :> ans[Step.p]) @@ held
  /\ Same(LeaseVars) /\ Same(<<run, time, incs, kept, uses, lift>>)
Unholds ==
  /\ Step.op = "unhold" /\ ans' = [ans EXCEPT ![Step.p] = held[Step.p]]
  /\ Same(<<now, srv, save, net, pr, wit, cnt, chg, dup>>) /\ Same(<<run, time, incs, kept, held, uses, lift>>)

(* A process that was refused: the outage lane stays, unless it was copied. *)
Told ==
  /\ Step.op = "told" /\ pr[Step.p].st = "held"
  /\ LET x == pr[Step.p]
         out == [NoProc EXCEPT !.n = x.n, !.w = x.w, !.ref = TRUE, !.f = OnlyOut(x).f, !.u = OnlyOut(x).u, !.sh = x.sh]
     IN pr' = [pr EXCEPT ![Step.p] = IF Step.kind = "copied" THEN [NoProc EXCEPT !.n = x.n] ELSE out]
  /\ ans' = [ans EXCEPT ![Step.p] = NoAns]
  /\ Same(<<now, srv, save, net, wit, cnt, chg, dup>>)
  /\ Same(<<run, time, incs, kept, held, uses, lift>>)

(* R7: what is released was not used.                                       *)
Releases ==
  /\ Step.op = "release" /\ pr[Step.p].st = "held" /\ pr[Step.p].w = Step.w
  /\ LET x == pr[Step.p]
         low == [l \in Lanes |-> IF x.f[l] = Unheld THEN 0 ELSE Max(x.f[l], Step.low[l])]
     IN /\ EndOK(x)
        /\ \A l \in Lanes : uses[Step.p][l].w = x.w => low[l] > uses[Step.p][l].hi
        /\ net' = net \cup {[t |-> "release", p |-> Step.p, tok |-> x.tok, w |-> x.w, pend |-> x.pend,
                             tip |-> x.tip, f |-> x.f, low |-> low,
                             u |-> [l \in Lanes |-> IF x.f[l] = Unheld THEN x.u[l] ELSE Step.until[l]]]}
        /\ pr' = [pr EXCEPT ![Step.p] = [NoProc EXCEPT !.n = x.n, !.st = "sealed", !.rel = TRUE]]
  /\ Same(<<now, srv, save, ans, wit, cnt, chg, dup>>)
  /\ Same(<<run, time, incs, kept, held, uses, lift>>)

(* A process that was refused has its outage lane at most, which both have. *)
CopyTold(p, q) ==
  /\ Blank(q) /\ pr[p].st = "new"
  /\ LET x == [pr[p] EXCEPT !.sh = pr[p].u]
     IN pr' = [pr EXCEPT ![p] = x, ![q] = [x EXCEPT !.n = pr[q].n]]
  /\ Same(<<now, srv, save, net, ans, wit, cnt, chg, dup>>)

Copies1 ==
  /\ Step.op = "copy" /\ (Copy(Step.p, Step.q) \/ CopyTold(Step.p, Step.q))
  /\ uses' = [uses EXCEPT ![Step.q] = Each(NoUse)]
  /\ Same(<<run, time, incs, kept, held, lift>>)

(* Ticks lo to hi of a lane: all within the own reservation, behind those   *)
(* that the process used before, where the log shows that, and used by      *)
(* nobody else, but for what is documented as remaining.                    *)
Overlap(a, b) == a.w = b.w /\ a.lo <= b.hi /\ b.lo <= a.hi
Excused(a, b) == LET top == Min(a.hi, b.hi) IN top < a.sh \/ top < b.sh \/ top < lift[Step.l]
Uses ==
  /\ Step.op = "use"
  /\ Step.lo \in Range(Step.p, Step.l) /\ Step.hi \in Range(Step.p, Step.l)
  /\ pr[Step.p].w = Step.w
  /\ LET old == uses[Step.p][Step.l]
         one == [w |-> Step.w, lo |-> Step.lo, hi |-> Step.hi, sh |-> pr[Step.p].sh[Step.l]]
         all == IF old.w = Step.w
                THEN [one EXCEPT !.lo = Min(@, old.lo), !.hi = Max(@, old.hi), !.sh = Max(@, old.sh)]
                ELSE one
     IN /\ old.w = Step.w => CASE Step.order = "behind" -> Step.lo > old.hi
                                [] Step.order = "grows"  -> Step.lo >= old.hi
                                [] OTHER                 -> TRUE
        /\ \A q \in Procs \ {Step.p} : Overlap(one, uses[q][Step.l]) => Excused(one, uses[q][Step.l])
        /\ uses' = [uses EXCEPT ![Step.p][Step.l] = all]
  /\ Same(LeaseVars) /\ Same(<<run, time, incs, kept, held, lift>>)

-----------------------------------------------------------------------------
(* What happens to servers.                                                 *)
Keeps ==
  /\ Step.op = "keep" /\ kept' = kept @@ (Step.k :> Pool(Step.s))
  /\ Same(LeaseVars) /\ Same(<<run, time, incs, held, uses, lift>>)

(* A server is found with other data, as another server, or both. k: 0: no  *)
(* data, -1: its own.                                                       *)
Found ==
  /\ Step.op = "found"
  /\ srv' = [srv EXCEPT
       ![Step.s].id = Step.id,
       ![Step.s].pool = IF Step.k = 0 THEN NoPool ELSE IF Step.k = -1 THEN @ ELSE kept[Step.k]]
  /\ Same(<<now, save, net, ans, pr, wit, cnt, chg, dup>>) /\ Same(<<run, time, incs, kept, held, uses, lift>>)

(* The outage floor of a pool is set by hand, as in one that is older.      *)
Floors ==
  /\ Step.op = "floor" /\ srv' = [srv EXCEPT ![Step.s].pool.ofloor = Step.ofloor]
  /\ Same(<<now, save, net, ans, pr, wit, cnt, chg, dup>>) /\ Same(<<run, time, incs, kept, held, uses, lift>>)

(* Ticks below t may be repeated from now on; 0: the promise holds again.   *)
Lifts ==
  /\ Step.op = "lift" /\ lift' = Step.t
  /\ Same(LeaseVars) /\ Same(<<run, time, incs, kept, held, uses>>)

-----------------------------------------------------------------------------
Accepted == at = Size + 1 => PrintT(<<"accepted", run>>)

(* What is printed of a step that is not allowed: the state before it, and  *)
(* what the specification makes of the same request.                        *)
Before ==
  [process |-> IF Has("p") THEN pr[Step.p] ELSE "-",
   answer  |-> IF Has("p") THEN ans[Step.p] ELSE NoAns,
   pool    |-> IF Has("s") THEN [inc |-> Pool(Step.s).inc, id |-> Pool(Step.s).id, floor |-> Pool(Step.s).floor] ELSE "-",
   record  |-> IF Has("s") /\ Has("w") THEN Pool(Step.s).rec[Step.w] ELSE "-",
   server  |-> IF Has("s") THEN srv[Step.s].id ELSE "-",
   used    |-> IF Has("p") THEN uses[Step.p] ELSE "-",
   others  |-> IF Step.op = "use" THEN {uses[q][Step.l] : q \in {x \in Procs : uses[x][Step.l].w = Step.w}} ELSE "-",
   incs    |-> IF Has("inc") /\ Step.inc \in DOMAIN incs THEN incs[Step.inc] ELSE "new",
   time    |-> time]
After ==
  /\ Step.op \in {"granted", "renewed", "released"}
  /\ \E q \in {x \in net : x.p = Step.p} :
       LET P == Touch(Pool(Step.s), srv[Step.s].id, Step.R) IN
       /\ CASE Step.op = "granted"  -> ClaimScript(Step.s, q, P, Step.c, Step.R)
            [] Step.op = "renewed"  -> q.t = "renew" /\ q.dep = Step.dep /\ RenewScript(Step.s, q, P, Step.c, Step.R)
            [] Step.op = "released" -> ReleaseScript(Step.s, q, P, Step.R)
       /\ PrintT(<<"after", [answer |-> ans'[q.p], inc |-> PoolAfter(Step.s).inc, floor |-> PoolAfter(Step.s).floor,
                             record |-> IF Has("w") THEN PoolAfter(Step.s).rec[Step.w] ELSE "-"]>>)
ShowStep ==
  /\ Show > 0 /\ at = Show /\ at <= Size
  /\ PrintT(<<"before", Before>>)
  /\ After
  /\ FALSE /\ UNCHANGED <<LeaseVars, traceVars>>

TraceNext ==
  \/ /\ at <= Size /\ at' = at + 1
     /\ \/ ServedClaim \/ ServedRenewal \/ ServedRefusal \/ ServedRelease \/ Refused \/ Created \/ Unseen
        \/ Claims \/ Renews \/ Repeats \/ Delivers \/ Holds \/ Unholds \/ Told \/ Releases \/ Copies1 \/ Uses
        \/ Keeps \/ Found \/ Floors \/ Lifts
  \/ ShowStep
TraceSpec == TraceInit /\ [][TraceNext]_<<LeaseVars, traceVars>>
Place == <<run, at>>
=============================================================================
