------------------------------- MODULE Trace -------------------------------
(* Does the specification allow what a real system did? Each run of         *)
(* TraceData is a sequence of steps that tests/lab/spec/steps.py made of a log. *)
(* A step takes what the log shows, takes the actions of Ledger.tla with    *)
(* these values, and compares what comes out. A run is accepted if all of   *)
(* its steps can be taken.                                                  *)
(*                                                                          *)
(* Time: one unit is one ms, and 0 is a moment before the run, so sums and  *)
(* comparisons are those of the real times. A process here is one claim of  *)
(* a real process, with all that follows from it.                           *)
(* Each run has constants of its own: TraceData has the definitions of `run`,*)
(* which of Runs it is, and of the constants of Ledger.tla that depend on it.*)
(* Faults are not bounded as in Ledger.tla: there are any number of servers,*)
(* losses and copies. Servers find themselves with whatever data they had,  *)
(* and their clocks may be wrong by anything.                               *)
EXTENDS Ledger

CONSTANT Show  \* the step at which the states are printed; 0: none

VARIABLES
  at,          \* the next step
  incs,        \* the incarnations of the log -> those of the specification
  pids,        \* the ids of pools in the log -> those of the specification
  kept,        \* pools that a server will be found with later
  held,        \* answers that arrive later than one that was sent after them
  uses,        \* ticks that each process used in each lane, from lo to hi
  lift         \* no promise for ticks below it

traceVars == <<run, at, incs, pids, kept, held, uses, lift>>

NoUse == [w |-> "none", lo |-> 0, hi |-> -1, sh |-> 0]
Step == Runs[run][((at - 1) \div PartSize) + 1][((at - 1) % PartSize) + 1]
Has(name) == name \in DOMAIN Step
Size == Sizes[run]

TraceRepeatable(r) == TRUE
NoSymmetry == {}
(* Only what the log says to arrive later has to be kept of old requests.   *)
TraceWantsOut(p) == p \notin Without[run]
TracePast(p) == {q \in net : q.p # p \/ q.t = "claim" \/ (q.t = "renew" /\ <<q.p, q.dep>> \in Late[run])}

(* The pool of a server also has what the log calls its incarnation, inc    *)
(* and no, its number, which grows, and its version.                        *)
TraceNoPool == [there |-> FALSE, inc |-> 0, id |-> 0, pid |-> 0, start |-> 0, lost |-> 0, new |-> TRUE, end |-> 0,
                over |-> FALSE, sure |-> FALSE, log |-> 0, no |-> 0, ver |-> 0, rec |-> [w \in Wids |-> NoRec]]

(* What a caller shows, as its request in the log has it: its process may   *)
(* have sent an older one with the same content. w: of a renewal.           *)
Known == IF Step.pid = 0 THEN 0 ELSE IF Step.pid \in DOMAIN pids THEN pids[Step.pid] ELSE -Step.pid
Shown1(w, tok) == [pid |-> Known, until |-> Step.held_until, out |-> Step.held_out, w |-> w, tok |-> tok]
TraceShows(q) ==
  IF Has("pid") THEN Shown1(IF q.t = "renew" THEN q.w ELSE "none", q.tok)
  ELSE [pid |-> q.pid, until |-> IF q.t = "claim" THEN 0 ELSE q.until, out |-> q.out, w |-> "none", tok |-> q.tok]
TraceNobody == IF Has("pid") THEN Shown1("none", NoTok)
               ELSE [pid |-> 0, until |-> 0, out |-> 0, w |-> "none", tok |-> NoTok]

(* A caller saw a newer state of this pool, or holds a lease of this        *)
(* incarnation that the pool has forgotten, or forgotten the end of: what   *)
(* was granted after it begins at its end or later.                         *)
Forgot(r, x) ==
  \/ ~r.has
  \/ r.tok = x.tok /\ (Max(r.until, r.lanes[First]) < x.until \/ r.out < x.out)
  \/ r.tok # x.tok /\ r.lanes[First] < x.until
TraceOlder(P, x) ==
  /\ P.there /\ Has("seen_no")
  /\ \/ Step.seen_no > P.no
     \/ Step.seen_log = P.log /\ Step.seen_ver > P.ver
     \/ x.w # "none" /\ Step.held_log = P.log /\ Forgot(P.rec[x.w], x)

(* The pool of a server as the script at this step finds it.                *)
Pool(s) == srv[s].pool
PoolAfter(s) == srv'[s].pool
(* Ends of leases that were made while the clock was ahead are lowered.     *)
Bounded(P, R) == [P EXCEPT !.rec = [w \in Wids |-> [@[w] EXCEPT !.end = Min(@, R + RS + TTL)]]]
Stamped(P, s) == IF Has("ver") THEN [P EXCEPT !.log = Step.inc, !.no = Step.no, !.ver = Step.ver]
                 ELSE IF P.inc # Pool(s).inc THEN [P EXCEPT !.log = 0] ELSE P
(* An end counts once each copy of the pool has it, and by both clocks.     *)
TraceOver(P, R) ==
  P.there /\ P.end # 0 /\ (P.over \/ (P.sure /\ P.end <= Min(R, IF Has("c") THEN Step.c + SK + TTL ELSE R)))
TraceLook(s, x, R, c) ==
  Stamped(Bounded(Opened(srv[s].pool, NoPool, Over(srv[s].pool, R), srv[s].id, R, c, x, cnt.inc + 1), R), s)

TraceInit ==
  /\ run \in DOMAIN Runs /\ at = 1
  /\ now = 0
  /\ srv = [s \in Servers |->
              [up |-> TRUE, id |-> 1, jump |-> 0, til |-> 0, pool |-> NoPool]]
  /\ save = NoPool
  /\ net = {} /\ ans = [p \in Procs |-> NoAns]
  /\ pr = [p \in Procs |-> NoProc]
  /\ wit = [w |-> "none", l |-> "none", t |-> -1, shared |-> 0] /\ dup = FALSE
  /\ cnt = [loss |-> 0, copy |-> 0, id |-> 1, inc |-> 1, chain |-> 0]
  /\ incs = <<>> /\ pids = <<>> /\ kept = <<>> /\ held = <<>> /\ lift = Each(0)
  /\ uses = [p \in Procs |-> Each(NoUse)]

Same(v) == UNCHANGED v
LedgerVars == <<now, srv, save, net, ans, pr, wit, cnt, dup>>

-----------------------------------------------------------------------------
(* What servers do.                                                         *)
(* The pool after the step is in the incarnation, and has the id, the       *)
(* floor, and the other values, that the reply and the server show.         *)
Same1(map, key, value) == IF key \in DOMAIN map THEN map[key] = value ELSE \A i \in DOMAIN map : map[i] # value
Shown(P) ==
  /\ Floor(P, First) = Step.floor
  /\ Same1(incs, Step.inc, P.inc) /\ Same1(pids, Step.poolid, P.pid)
  /\ Has("lost") => /\ P.lost = Step.lost /\ P.start = Step.start /\ P.end = Step.end_ms
                    /\ P.new = (Step.new = 1)

With(map, key, value) == IF key \in DOMAIN map THEN map ELSE map @@ (key :> value)
ReplyOK(P) == Shown(P) /\ incs' = With(incs, Step.inc, P.inc) /\ pids' = With(pids, Step.poolid, P.pid)
(* A grant of the log: where each lane begins and ends.                     *)
OutOf(r) == IF Outage /\ r.out > r.lanes["out"] THEN r.out ELSE 0
GrantOK(r) == /\ r.until = Step.until
              /\ IF Outage /\ Step.out > Step.lanes["out"] THEN r.out = Step.out ELSE OutOf(r) = 0

(* The record after the step, where the log has it. The end of a lease that *)
(* was made while the clock was ahead is lowered sooner or later; a later   *)
(* one is safe.                                                             *)
RecordOK(r) ==
  Has("end") =>
    /\ r.end <= Step.end /\ Step.end <= Max(r.end, Step.R + RS + TTL)
    /\ (r.before # NoTok) = (Step.before = 1)
    /\ r.lanes = Step.begin /\ r.until = Step.ends
    /\ r.out = Step.ends_out \/ (OutOf(r) = 0 /\ Outage /\ Step.ends_out <= Step.begin["out"])

ServedClaim ==
  /\ Step.op = "granted"
  /\ \E q \in net :
       LET P == Look(Step.s, Shows(q), Step.R, Step.c) IN
       /\ q.t = "claim" /\ q.p = Step.p
       /\ ClaimScript(Step.s, q, P, Step.c, Step.R)
       /\ LET r == PoolAfter(Step.s).rec[Step.w] IN
          /\ r.tok = q.tok /\ r # P.rec[Step.w] /\ r.lanes = Step.lanes
          /\ GrantOK(r) /\ RecordOK(r)
  /\ ReplyOK(PoolAfter(Step.s))
  /\ Same(<<run, kept, held, uses, lift>>)

ServedRenewal ==
  /\ Step.op = "renewed"
  /\ \E q \in net :
       LET P == Look(Step.s, Shows(q), Step.R, Step.c) IN
       /\ q.t = "renew" /\ q.p = Step.p /\ q.dep = Step.dep /\ q.w = Step.w
       /\ RenewScript(Step.s, q, P, Step.c, Step.R)
       /\ LET r == PoolAfter(Step.s).rec[Step.w] IN
          /\ r.tok = q.tok /\ r.tip = q.rid /\ r.inc = P.inc
          /\ r # P.rec[Step.w] \/ P.rec[Step.w].tip = q.rid
          /\ r.until = Step.until
          /\ Outage => /\ r.lanes["out"] = Step.from
                       /\ IF Step.out > Step.from THEN r.out = Step.out ELSE OutOf(r) = 0
          /\ RecordOK(r)
  /\ ReplyOK(PoolAfter(Step.s))
  /\ Same(<<run, kept, held, uses, lift>>)

ServedRelease ==
  /\ Step.op = "released"
  /\ \E q \in net :
       LET P == Look(Step.s, Shows(q), Step.R, Step.c) IN
       /\ q.t = "release" /\ q.p = Step.p
       /\ ReleaseScript(Step.s, q, P, Step.R)
       /\ P.rec[q.w].tok = q.tok /\ PoolAfter(Step.s).rec[q.w].tok = NoTok
       /\ q.w = Step.w /\ RecordOK(PoolAfter(Step.s).rec[q.w])
  /\ ReplyOK(PoolAfter(Step.s))
  /\ Same(<<run, kept, held, uses, lift>>)

(* A renewal that is refused. Redis may refuse what the specification       *)
(* grants, and say "copied" where that says "lost", but not the other way.  *)
ServedRefusal ==
  /\ Step.op = "lost"
  /\ \E q \in net :
       LET P == Look(Step.s, Shows(q), Step.R, Step.c) IN
       /\ q.t = "renew" /\ q.p = Step.p /\ q.dep = Step.dep /\ q.w = Step.w
       /\ Verdict(q, P, Step.R, Step.c) = "copied" => Step.kind = "copied"
       /\ Put(Step.s, P, q, Answer(q, Step.kind, q.w, NoRec, P, q.rid), 0)
  /\ ReplyOK(PoolAfter(Step.s))
  /\ Same(<<run, kept, held, uses, lift>>)

(* Whatever was refused changed nothing but what a loss changes. Where the  *)
(* specification would have granted it, the process is one that never asks  *)
(* again: as if it had crashed.                                             *)
Refused ==
  /\ Step.op = "refused"
  /\ LET P == Look(Step.s, Nobody, Step.R, Step.c) IN
     /\ srv' = [srv EXCEPT ![Step.s].pool = P]
     /\ cnt' = [cnt EXCEPT !.inc = Max(@, P.inc)]
     /\ ReplyOK(P)
  /\ Same(<<now, save, net, ans, pr, wit, dup>>) /\ Same(<<run, kept, held, uses, lift>>)

(* A person says that the pool is new, where there is none, or one that is  *)
(* over.                                                                    *)
Created ==
  /\ Step.op = "created"
  /\ LET P == [Look(Step.s, Nobody, Step.R, Step.c) EXCEPT !.new = TRUE, !.lost = Max(Step.R, Step.c)] IN
     /\ ~Pool(Step.s).there \/ Over(Pool(Step.s), Step.R)
     /\ srv' = [srv EXCEPT ![Step.s].pool = P]
     /\ cnt' = [cnt EXCEPT !.inc = Max(@, P.inc)]
     /\ ReplyOK(P)
  /\ Same(<<now, save, net, ans, pr, wit, dup>>) /\ Same(<<run, kept, held, uses, lift>>)

(* A person sets the end of a pool, once, and then says that it counts.     *)
Ends1 ==
  /\ Step.op = "ends"
  /\ LET P == Look(Step.s, Nobody, Step.R, Step.c)
         Q == [P EXCEPT !.end = Step.T, !.over = (Step.over = "now"), !.sure = (Step.over # "")]
     IN
     /\ P.there
     /\ IF P.end # 0 THEN P.end = Step.T
        ELSE /\ Step.over = ""
             /\ \A l \in Lanes : Step.T >= Floor(P, l) /\ \A w \in Wids : Step.T >= Mark(P.rec[w], l)
     /\ Step.over = "now" => Step.T <= Step.R \/ \A w \in Wids : P.rec[w].tok = NoTok
     /\ srv' = [srv EXCEPT ![Step.s].pool = Q]
     /\ cnt' = [cnt EXCEPT !.inc = Max(@, P.inc)]
     /\ ReplyOK(Q)
  /\ Same(<<now, save, net, ans, pr, wit, dup>>) /\ Same(<<run, kept, held, uses, lift>>)

-----------------------------------------------------------------------------
(* What processes do.                                                       *)
Claims ==
  /\ Step.op = "claim" /\ Claim(Step.p)
  /\ Same(<<run, incs, pids, kept, held, uses, lift>>)

(* Every field of the request is what the process was granted.              *)
LeaseOK(x) == /\ x.w = Step.w /\ x.until = Step.until
              /\ IF Outage /\ x.out > x.lanes["out"] THEN x.out = Step.out ELSE Outage => Step.out <= x.lanes["out"]
Renews ==
  /\ Step.op = "renew" /\ Renew(Step.p)
  /\ LET x == pr[Step.p] IN
     /\ LeaseOK(x) /\ Step.own = 1 /\ x.lanes = Step.lanes
     /\ Step.inc \in DOMAIN incs /\ incs[Step.inc] = x.inc
  /\ Same(<<run, incs, pids, kept, held, uses, lift>>)

(* A copy repeats what was under way, in its own name.                      *)
Repeats ==
  /\ Step.op = "repeat" /\ Repeat(Step.p)
  /\ Same(<<run, incs, pids, kept, held, uses, lift>>)

Delivers ==
  /\ Step.op = "deliver" /\ ans[Step.p].kind = "ok" /\ Deliver(Step.p)
  /\ Same(<<run, incs, pids, kept, held, uses, lift>>)

(* An answer is overtaken by a newer one, and arrives all the same.         *)
Holds ==
  /\ Step.op = "hold" /\ ans[Step.p] # NoAns
  /\ held' = (Step.p :> ans[Step.p]) @@ held
  /\ Same(LedgerVars) /\ Same(<<run, incs, pids, kept, uses, lift>>)
Unholds ==
  /\ Step.op = "unhold" /\ ans' = [ans EXCEPT ![Step.p] = held[Step.p]]
  /\ Same(<<now, srv, save, net, pr, wit, cnt, dup>>) /\ Same(<<run, incs, pids, kept, held, uses, lift>>)

(* A process that was refused: the outage lane stays, unless it was copied. *)
Told ==
  /\ Step.op = "told" /\ pr[Step.p].st = "held"
  /\ LET x == pr[Step.p]
         out == [NoProc EXCEPT !.n = x.n, !.w = x.w, !.ref = TRUE, !.lanes = x.lanes, !.out = x.out, !.low = x.low,
                   !.sh = x.sh, !.pid = x.pid]
     IN pr' = [pr EXCEPT ![Step.p] = IF Step.kind = "copied" THEN [NoProc EXCEPT !.n = x.n, !.pid = x.pid] ELSE out]
  /\ ans' = [ans EXCEPT ![Step.p] = NoAns]
  /\ Same(<<now, srv, save, net, wit, cnt, dup>>)
  /\ Same(<<run, incs, pids, kept, held, uses, lift>>)

(* Lanes that a release says were never opened have no tick that was used.  *)
(* Who took the lease over, or reclaims it, does not say so of any.         *)
Releases ==
  /\ Step.op = "release" /\ pr[Step.p].st = "held"
  /\ LET x == pr[Step.p]
         opened == {l \in Lanes : Step.opened[l] = 1}
     IN /\ LeaseOK(x)
        /\ x.took \/ Step.reclaimed = 1 => opened = Lanes
        /\ \A l \in Lanes : uses[Step.p][l].w = x.w => l \in opened
        /\ net' = net \cup {ReleaseReq(Step.p, [x EXCEPT !.pend = IF Step.pending = 1 THEN @ ELSE NoRid], opened)}
        /\ pr' = [pr EXCEPT ![Step.p] = [NoProc EXCEPT !.n = x.n, !.st = "sealed", !.rel = TRUE]]
  /\ Same(<<now, srv, save, ans, wit, cnt, dup>>)
  /\ Same(<<run, incs, pids, kept, held, uses, lift>>)

(* A process goes on with the lease of one that ended: in the outage lane   *)
(* behind what that one used, in the others from their end on.              *)
Takes ==
  /\ Step.op = "take" /\ pr[Step.p].st = "held" /\ ~pr[Step.p].rel
  /\ LET x == pr[Step.p] IN
     /\ Step.until <= x.until /\ Step.out <= x.out
     /\ Outage /\ uses[Step.p]["out"].w = x.w => Step.low > uses[Step.p]["out"].hi
     /\ pr' = [pr EXCEPT ![Step.p] =
          [x EXCEPT !.until = Step.until, !.out = Step.out, !.took = TRUE,
                    !.low = [l \in Lanes |-> IF l = "out" THEN Max(@[l], Step.low) ELSE x.until]]]
  /\ Same(<<now, srv, save, net, ans, wit, cnt, dup>>)
  /\ Same(<<run, incs, pids, kept, held, uses, lift>>)

(* A process that was refused has its outage lane at most, which both have. *)
CopyTold(p, q) ==
  /\ Blank(q) /\ pr[p].st = "new"
  /\ LET x == [pr[p] EXCEPT !.sh = Ends(pr[p])]
     IN pr' = [pr EXCEPT ![p] = x, ![q] = [x EXCEPT !.n = pr[q].n]]
  /\ Same(<<now, srv, save, net, ans, wit, cnt, dup>>)

Copies1 ==
  /\ Step.op = "copy" /\ (Copy(Step.p, Step.q) \/ CopyTold(Step.p, Step.q))
  /\ uses' = [uses EXCEPT ![Step.q] = Each(NoUse)]
  /\ Same(<<run, incs, pids, kept, held, lift>>)

(* A child of a fork sends the claim that was under way, until it finds out. *)
Twins ==
  /\ Step.op = "twin" /\ Blank(Step.q) /\ pr[Step.p].st = "claim"
  /\ pr' = [pr EXCEPT ![Step.q] = [pr[Step.p] EXCEPT !.n = pr[Step.q].n]]
  /\ Same(<<now, srv, save, net, ans, wit, cnt, dup>>) /\ Same(<<run, incs, pids, kept, held, uses, lift>>)

(* Ticks lo to hi of a lane: all within the own grants, behind those        *)
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
  /\ Same(LedgerVars) /\ Same(<<run, incs, pids, kept, held, lift>>)

-----------------------------------------------------------------------------
(* What happens to servers.                                                 *)
Keeps ==
  /\ Step.op = "keep" /\ kept' = kept @@ (Step.k :> Pool(Step.s))
  /\ Same(LedgerVars) /\ Same(<<run, incs, pids, held, uses, lift>>)

(* A server is found with other data, as another server, or both. k: 0: no  *)
(* data, -1: its own.                                                       *)
Found ==
  /\ Step.op = "found"
  /\ srv' = [srv EXCEPT
       ![Step.s].id = Step.id,
       ![Step.s].pool = IF Step.k = 0 THEN NoPool ELSE IF Step.k = -1 THEN @ ELSE kept[Step.k]]
  /\ Same(<<now, save, net, ans, pr, wit, cnt, dup>>) /\ Same(<<run, incs, pids, kept, held, uses, lift>>)

(* Ticks below t may be repeated from now on; 0: the promise holds again.   *)
Lifts ==
  /\ Step.op = "lift" /\ lift' = Step.t
  /\ Same(LedgerVars) /\ Same(<<run, incs, pids, kept, held, uses>>)

-----------------------------------------------------------------------------
Accepted == at = Size + 1 => PrintT(<<"accepted", run>>)

(* What is printed of a step that is not allowed: the state before it, and  *)
(* what the specification makes of the same request.                        *)
Brief(P) == [inc |-> P.inc, id |-> P.id, pid |-> P.pid, floor |-> Floor(P, First), start |-> P.start, lost |-> P.lost,
             new |-> P.new, end |-> P.end, version |-> P.ver]
Before ==
  [process |-> IF Has("p") THEN pr[Step.p] ELSE "-",
   answer  |-> IF Has("p") THEN ans[Step.p] ELSE NoAns,
   pool    |-> IF Has("s") THEN Brief(Pool(Step.s)) ELSE "-",
   record  |-> IF Has("s") /\ Has("w") THEN Pool(Step.s).rec[Step.w] ELSE "-",
   server  |-> IF Has("s") THEN srv[Step.s].id ELSE "-",
   used    |-> IF Has("p") THEN uses[Step.p] ELSE "-",
   others  |-> IF Step.op = "use" THEN {uses[q][Step.l] : q \in {x \in Procs : uses[x][Step.l].w = Step.w}} ELSE "-",
   incs    |-> IF Has("inc") /\ Step.inc \in DOMAIN incs THEN incs[Step.inc] ELSE "new"]
After ==
  /\ Step.op \in {"granted", "renewed", "released"}
  /\ \E q \in {x \in net : x.p = Step.p} :
       LET P == Look(Step.s, Shows(q), Step.R, Step.c) IN
       /\ CASE Step.op = "granted"  -> ClaimScript(Step.s, q, P, Step.c, Step.R)
            [] Step.op = "renewed"  -> q.t = "renew" /\ q.dep = Step.dep /\ RenewScript(Step.s, q, P, Step.c, Step.R)
            [] Step.op = "released" -> ReleaseScript(Step.s, q, P, Step.R)
       /\ PrintT(<<"after", [answer |-> ans'[q.p], pool |-> Brief(PoolAfter(Step.s)),
                             record |-> IF Has("w") THEN PoolAfter(Step.s).rec[Step.w] ELSE "-"]>>)
ShowStep ==
  /\ Show > 0 /\ at = Show /\ at <= Size
  /\ PrintT(<<"before", Before>>)
  /\ After
  /\ FALSE /\ UNCHANGED <<LedgerVars, traceVars>>

TraceNext ==
  \/ /\ at <= Size /\ at' = at + 1
     /\ \/ ServedClaim \/ ServedRenewal \/ ServedRefusal \/ ServedRelease \/ Refused \/ Created \/ Ends1
        \/ Claims \/ Renews \/ Repeats \/ Delivers \/ Holds \/ Unholds \/ Told \/ Releases \/ Takes \/ Copies1 \/ Twins \/ Uses
        \/ Keeps \/ Found \/ Lifts
  \/ ShowStep
TraceSpec == TraceInit /\ [][TraceNext]_<<LedgerVars, traceVars>>
Place == <<run, at>>
=============================================================================
