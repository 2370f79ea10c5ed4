------------------------------- MODULE Lease -------------------------------
(* Worker-id leases as reservations of time, with an outage lane.           *)
(*                                                                          *)
(* Time and ticks are the same small whole numbers. A process may use any   *)
(* tick of its reservation at any later moment: so its clock may be wrong   *)
(* by anything and it may be paused for any time. Requests stay in `net`    *)
(* for ever: each may be lost (never served), late, or served repeatedly.   *)
(*                                                                          *)
(* "No tick is used twice" is checked with one witness: the first use of    *)
(* any tick may become the witness; any second use of it is a repeated id.  *)
(* Every first use is the witness in some behaviour, so nothing is lost.    *)
(*                                                                          *)
(* `Off` is the set of rules that are switched off; see README.md.          *)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS
  Procs,       \* process slots (a slot is used again by a new process)
  Wids,        \* worker ids
  Ord,         \* the ordinary lanes of each worker id
  Outage,      \* TRUE: each worker id also has the lane "out"
  TTL, G,      \* reservation lengths: ordinary lanes, outage lane
  SK, RS,      \* max_clock_lead, redis_skew
  SLACK,       \* failover_slack, as the pool's constant
  DEPOSED,     \* how long a deposed master really answers (<= SLACK: honest)
  BOOT,        \* how far a server's clock may be ahead after a start
  TMAX,        \* real time ends here
  Devs,        \* the callers' clocks: real time plus one of these
  CHAINS,      \* claims that are served in all
  Serials,     \* claims and renewals that one slot may begin
  Losses,      \* how often Redis loses something
  LossKinds,   \* some of "wipe", "flush", "keep", "snapshot", "failover"
  Excuse,      \* "both": a repeat is excused if both users share the tick as
               \* clones; "one": also if one of them does and was not refused
  Copies,      \* how many copies of a process are made
  CopyKinds,   \* some of "clone", "quiet" (a clone with nothing under way), "fork"
  Doing,       \* some of "release", "crash", "reborn", "take", "late"
  PlanAt,      \* moments M for which a change may be planned ({}: none)
  Off          \* rules that are switched off

VARIABLES
  now,         \* real time
  srv,         \* the servers "main" and "old" (deposed)
  save,        \* the last snapshot of main's pool, also a replica's state
  net,         \* requests that may still be served, any number of times
  ans,         \* the newest answer on its way to each process
  pr,          \* the processes
  wit,         \* the witness: a tick that was used
  cnt,         \* counters: losses, copies, server identities, incarnations
  chg,         \* M of the planned change once it took effect, else 0
  dup          \* TRUE: a tick was used twice

vars == <<now, srv, save, net, ans, pr, wit, cnt, chg, dup>>

On(rule) == rule \notin Off
Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b
Lanes == Ord \cup (IF Outage THEN {"out"} ELSE {})
Len(l) == IF l = "out" THEN G ELSE TTL
Each(x) == [l \in Lanes |-> x]

NoTok == <<"none", 0>>           \* tokens are <<process, serial>>
NoRid == <<"none", 0, 0>>        \* renewal ids are <<process, depth, salt>>
NoAns == [kind |-> "none"]
NoWit == [w |-> "none", l |-> "none", t |-> 0, shared |-> 0]
Unheld == -1                     \* "from" of a lane that is not reserved

(* A record of a worker id in Redis: f[l] and mark[l] are its holder's      *)
(* reservation of lane l; if f[l] is Unheld, mark[l] is somebody else's.    *)
(* cut: the highest end from which a release lowered the outage lane.       *)
NoRec == [tok |-> NoTok, tip |-> NoRid, dep |-> 0, end |-> 0, born |-> -1, inc |-> 0,
          f |-> Each(Unheld), mark |-> Each(0), cut |-> 0]
NoPool == [inc |-> 0, id |-> 0, floor |-> 0, ofloor |-> 0, plan |-> 0,
           space |-> 0, rec |-> [w \in Wids |-> NoRec]]

(* A process. st: "new" (no lease), "claim" (claim unanswered), "held",     *)
(* "sealed" (released), "dead" (ended), "gone" (ended and taken over).      *)
(* w, f, u: what it may use. After a lost lease only the outage lane stays. *)
(* sh[l]: ticks below it are shared with a clone, which is documented.      *)
(* ref: Redis has told it that its lease is lost.                           *)
NoProc == [st |-> "new", tok |-> NoTok, w |-> "none", tip |-> NoRid, dep |-> 0,
           pend |-> NoRid, inc |-> 0, born |-> 0, f |-> Each(Unheld), u |-> Each(0),
           n |-> 0, used |-> FALSE, sh |-> Each(0), shp |-> FALSE, rel |-> FALSE,
           ref |-> FALSE]

Init ==
  /\ now = 0
  /\ srv = [s \in {"main", "old"} |->
              [up |-> s = "main", id |-> 1, jump |-> 0, til |-> 0,
               pool |-> [NoPool EXCEPT !.inc = 1, !.id = 1]]]   \* pool create
  /\ save = srv["main"].pool
  /\ net = {} /\ ans = [p \in Procs |-> NoAns]
  /\ pr = [p \in Procs |-> NoProc]
  /\ wit = NoWit /\ chg = 0 /\ dup = FALSE
  /\ cnt = [loss |-> 0, copy |-> 0, id |-> 1, inc |-> 1, chain |-> 0]

-----------------------------------------------------------------------------
(* What every script does first: R3, the floors after a loss. The records   *)
(* of an older snapshot are kept.                                           *)
Touch(P, id, R) ==
  IF P.inc # 0 /\ P.id = id THEN P
  ELSE LET base == R + RS + SK + SLACK IN
       [P EXCEPT !.inc = cnt.inc + 1, !.id = id,
          !.floor  = IF On("floor") THEN Max(@, base + TTL) ELSE @,
          !.ofloor = IF On("outage-floor") THEN Max(@, base + G) ELSE Max(@, base + TTL)]

FloorOf(P, l) == IF l = "out" THEN P.ofloor ELSE P.floor

(* R2, the cap, and the cap of a plan. c is the caller's clock.             *)
End(P, l, c, R) ==
  LET m == IF On("cap") THEN Min(c, R + SK) ELSE c
      e == Max(0, m) + Len(l)
  IN IF P.plan # 0 /\ On("plan-cap") THEN Min(e, P.plan) ELSE e

(* The reservation of lane l after a claim (r.f[l] Unheld) or a renewal.    *)
Grant(P, r, l, c, R) ==
  LET e == End(P, l, c, R)
      s == IF On("mark") THEN Max(r.mark[l], FloorOf(P, l)) ELSE FloorOf(P, l)
  IN IF r.f[l] # Unheld THEN [f |-> r.f[l], u |-> Max(r.mark[l], e)]
     ELSE IF s < e      THEN [f |-> s, u |-> e]
     ELSE                    [f |-> Unheld, u |-> r.mark[l]]

Granted(P, r, c, R) ==        \* the record with all lanes granted or extended
  LET g == [l \in Lanes |-> Grant(P, r, l, c, R)]
  IN [r EXCEPT !.f = [l \in Lanes |-> g[l].f], !.mark = [l \in Lanes |-> g[l].u]]

Answer(q, kind, w, r, inc, rid) ==
  [kind |-> kind, tok |-> q.tok, rid |-> rid, w |-> w, inc |-> inc,
   f |-> r.f, born |-> r.born,
   u |-> [l \in Lanes |-> IF r.f[l] = Unheld THEN 0 ELSE r.mark[l]]]

(* An answer that its process does not wait for is dropped at once.         *)
Awaited(p, a) == \/ pr[p].st = "claim" /\ a.tok = pr[p].tok /\ a.rid[2] = 0
                 \/ pr[p].st = "held"  /\ a.tok = pr[p].tok /\ a.rid = pr[p].pend

Put(s, P, q, a, top) ==            \* store the pool, send the answer
  /\ srv' = [srv EXCEPT ![s].pool = P]
  /\ cnt' = [cnt EXCEPT !.inc = Max(@, P.inc), !.chain = Max(@, top)]
  /\ ans' = IF a # NoAns /\ Awaited(q.p, a) THEN [ans EXCEPT ![q.p] = a] ELSE ans
  /\ UNCHANGED <<now, save, net, pr, wit, chg, dup>>

-----------------------------------------------------------------------------
(* claim: a claim repeated with its token answers the same lease and starts *)
(* a new chain; else a free worker id, not before the floor has passed.     *)
Salt == IF On("fresh-chain") THEN 10 * cnt.chain + 10 ELSE 0      \* random in Redis

ClaimScript(s, q, P, c, R) ==
  /\ q.t = "claim" /\ P.space = 0
  /\ \/ \E w \in Wids :
          /\ P.rec[w].tok = q.tok
          /\ On("claim-once") => P.rec[w].dep = 0
          /\ LET salt == IF P.rec[w].dep = 0 THEN P.rec[w].tip[3] + 1 ELSE Salt
                 rid == <<q.p, 0, salt>>
                 r == [P.rec[w] EXCEPT !.tip = rid, !.dep = 0]
             IN /\ P.rec[w].tip[3] % 10 = 0              \* bound: one repetition
                /\ Put(s, [P EXCEPT !.rec[w] = r], q, Answer(q, "ok", w, r,
                          IF On("claim-incarnation") THEN r.inc ELSE P.inc, rid), salt \div 10)
     \/ /\ \A w \in Wids : P.rec[w].tok # q.tok
        /\ On("wait-floor") => R >= P.floor
        /\ cnt.chain < CHAINS
        /\ \E w \in Wids :
             /\ P.rec[w].end <= R
             /\ LET rid == <<q.p, 0, Salt>>
                    r0 == [P.rec[w] EXCEPT !.tok = q.tok, !.tip = rid, !.dep = 0,
                             !.end = R + TTL, !.born = R, !.inc = P.inc, !.f = Each(Unheld)]
                    r == Granted(P, r0, c, R)
                IN /\ \E l \in Ord : r.f[l] # Unheld
                   /\ Put(s, [P EXCEPT !.rec[w] = r], q, Answer(q, "ok", w, r, P.inc, rid), Salt \div 10)

(* renew, in the incarnation that granted it: R5, the chain. A refusal says *)
(* "copied" if the token is right and the chain is not.                     *)
ChainOK(r, q) == r.tip = q.rid \/ r.tip = q.prev

(* renew after a loss: R4, adoption.                                        *)
(* (a) nobody else was served the worker id since: no record, an older one, *)
(*     or the own one, whose chain must not be beyond this renewal;         *)
(* (b) the ordinary reservation lasts, so nobody can have been served it.   *)
Mine(r, q) == r.tok = q.tok
OwnAhead(r, q) == Mine(r, q) /\ ~ChainOK(r, q) /\ r.dep >= q.dep - 1
AdoptA(r, q) == On("adopt-a") => (Mine(r, q) \/ r.born < q.born)
OrdEnd(q) == LET S == {q.u[l] : l \in Ord} IN CHOOSE x \in S : \A y \in S : x >= y
AnyEnd(q) == LET S == {q.u[l] : l \in Lanes} IN CHOOSE x \in S : \A y \in S : x >= y
AdoptB(q, R) ==
  On("adopt-b") =>
    (IF On("adopt-by-ordinary") THEN OrdEnd(q) ELSE AnyEnd(q))
       > R + RS + SK + (IF On("adopt-slack") THEN SLACK ELSE 0)

RenewScript(s, q, P, c, R) ==
  /\ q.t = "renew"
  /\ LET r == P.rec[q.w]
         own == [r EXCEPT !.f = q.f,
                  !.mark = [l \in Lanes |-> IF q.f[l] # Unheld THEN Max(@[l], q.u[l]) ELSE @[l]]]
         base == IF q.inc = P.inc THEN r ELSE [own EXCEPT !.born = q.born]
         new == [Granted(P, base, c, R) EXCEPT !.tok = q.tok, !.tip = q.rid,
                                               !.dep = q.dep, !.inc = P.inc,
               !.end = IF On("lease-end") THEN Max(@, R + TTL) ELSE R + TTL]
         (* Somebody else has it: the outage lane stays, unless a copy of  *)
         (* this holder released it.                                       *)
         lost == IF On("void-lowered") /\ Outage /\ q.u["out"] <= r.cut THEN "copied" ELSE "lost"
         verdict ==
           CASE P.space # 0 -> lost
             [] q.inc = P.inc /\ ~Mine(r, q) -> lost
             [] q.inc = P.inc /\ On("chain") /\ ~ChainOK(r, q) -> "copied"
             [] q.inc # P.inc /\ On("chain") /\ OwnAhead(r, q) -> "copied"
             [] q.inc # P.inc /\ ~(AdoptA(r, q) /\ AdoptB(q, R)) -> lost
             [] OTHER -> "ok"
     IN IF verdict = "ok"
        THEN Put(s, [P EXCEPT !.rec[q.w] = new], q, Answer(q, "ok", q.w, new, P.inc, q.rid), 0)
        ELSE Put(s, P, q, Answer(q, verdict, q.w, NoRec, P.inc, q.rid), 0)

(* release: R7, only the holder, only where the mark still is its end.      *)
ReleaseScript(s, q, P, R) ==
  /\ q.t = "release" /\ P.space = 0
  /\ LET r == P.rec[q.w]
         mine == (On("release-token") => r.tok = q.tok) /\ (On("release-tip") => r.tip = q.tip)
         low == [l \in Lanes |->
                   IF On("release-mark") => (q.f[l] # Unheld /\ r.mark[l] = q.u[l])
                   THEN q.low[l] ELSE r.mark[l]]
     IN IF mine
        THEN Put(s, [P EXCEPT !.rec[q.w].tok = NoTok, !.rec[q.w].end = Min(@, R),
                              !.rec[q.w].f = Each(Unheld), !.rec[q.w].mark = low,
                              !.rec[q.w].cut = IF Outage /\ low["out"] < r.mark["out"]
                                               THEN Max(@, r.mark["out"]) ELSE @], q, NoAns, 0)
        ELSE Put(s, P, q, NoAns, 0)

Serve ==
  \E s \in {"main", "old"}, q \in net, d \in Devs :
    /\ srv[s].up
    /\ \E R \in (now + srv[s].jump) .. (now + srv[s].jump + RS) :
         LET P == Touch(srv[s].pool, srv[s].id, R) IN
         \/ ClaimScript(s, q, P, now + d, R)
         \/ RenewScript(s, q, P, now + d, R)
         \/ ReleaseScript(s, q, P, R)

(* A script that does nothing else (a claim before the floor, for example)  *)
(* still notices a loss, and stores the floors.                             *)
Notice ==
  \E s \in {"main", "old"}, R \in (now + srv["main"].jump) .. (now + srv["main"].jump + RS) :
    LET P == Touch(srv[s].pool, srv[s].id, R) IN
    /\ srv[s].up /\ P # srv[s].pool
    /\ srv' = [srv EXCEPT ![s].pool = P] /\ cnt' = [cnt EXCEPT !.inc = P.inc]
    /\ UNCHANGED <<now, save, net, ans, pr, wit, chg, dup>>

-----------------------------------------------------------------------------
(* The processes.                                                           *)
ClaimReq(p, x) == [t |-> "claim", p |-> p, tok |-> x.tok]
RenewReq(p, x) == [t |-> "renew", p |-> p, tok |-> x.tok, w |-> x.w, prev |-> x.tip,
                   rid |-> x.pend, dep |-> x.dep + 1, inc |-> x.inc, born |-> x.born,
                   f |-> x.f, u |-> x.u]
(* Requests of what a process has finished: kept only if lateness is modelled. *)
Past(p) == IF "late" \in Doing THEN net ELSE {q \in net : q.p # p}

Claim(p) ==
  /\ pr[p].st = "new" /\ pr[p].n < Serials
  /\ LET x == [pr[p] EXCEPT !.st = "claim", !.n = @ + 1, !.tok = <<p, pr[p].n + 1>>, !.shp = FALSE]
     IN pr' = [pr EXCEPT ![p] = x] /\ net' = Past(p) \cup {ClaimReq(p, x)}
  /\ UNCHANGED <<now, srv, save, ans, wit, cnt, chg, dup>>

Renew(p) ==
  /\ pr[p].st = "held" /\ pr[p].pend = NoRid /\ pr[p].n < Serials
  /\ LET x == [pr[p] EXCEPT !.n = @ + 1, !.pend = <<p, pr[p].dep + 1, 0>>]
     IN pr' = [pr EXCEPT ![p] = x] /\ net' = Past(p) \cup {RenewReq(p, x)}
  /\ UNCHANGED <<now, srv, save, ans, wit, cnt, chg, dup>>

(* A clone or a successor repeats what was unanswered, in its own name.     *)
Repeat(p) ==
  /\ \/ pr[p].st = "claim" /\ net' = net \cup {ClaimReq(p, pr[p])}
     \/ pr[p].st = "held" /\ pr[p].pend # NoRid /\ net' = net \cup {RenewReq(p, pr[p])}
  /\ net' # net
  /\ UNCHANGED <<now, srv, save, ans, pr, wit, cnt, chg, dup>>

OnlyOut(x) == [x EXCEPT !.f = [l \in Lanes |-> IF l = "out" THEN @[l] ELSE Unheld],
                        !.u = [l \in Lanes |-> IF l = "out" THEN @[l] ELSE 0]]

(* Use a tick of the own reservation. The witness is chosen when a second   *)
(* process may use the tick too (Use), or when its user is about to lose it *)
(* (Leave: release, crash, an answer); other moments make no difference.    *)
Live == {"new", "claim", "held"}
Range(p, l) ==
  IF pr[p].st \notin Live \/ pr[p].f[l] = Unheld THEN {}
  ELSE IF On("fence") THEN pr[p].f[l] .. (pr[p].u[l] - 1)
  ELSE {t \in {now + d : d \in Devs} : t >= pr[p].f[l]}
Shared(p, l, t) == IF t >= pr[p].sh[l] THEN 0 ELSE IF pr[p].ref THEN 1 ELSE 2
Wit(p, l, t) == [w |-> pr[p].w, l |-> l, t |-> t, shared |-> Shared(p, l, t)]
Leave(p) == {wit} \cup
  (IF wit = NoWit THEN UNION {{Wit(p, l, t) : t \in Range(p, l)} : l \in Lanes} ELSE {})
Use(p) ==
  /\ ~pr[p].used
  /\ \/ /\ wit = NoWit /\ dup' = dup
        /\ \E q \in Procs \ {p}, l \in Lanes : \E t \in Range(p, l) \cap Range(q, l) :
             pr[q].w = pr[p].w /\ wit' = Wit(p, l, t)
     \/ /\ wit # NoWit /\ wit' = wit
        /\ wit.w = pr[p].w /\ wit.t \in Range(p, wit.l)
        /\ LET s == Shared(p, wit.l, wit.t) IN
           dup' = (dup \/ ~(\/ wit.shared > 0 /\ s > 0
                            \/ Excuse = "one" /\ (wit.shared = 2 \/ s = 2)))
  /\ pr' = [pr EXCEPT ![p].used = TRUE]
  /\ UNCHANGED <<now, srv, save, net, ans, cnt, chg>>

Deliver(p) ==
  \E v \in IF pr[p].st = "held" /\ ans[p].kind = "ok" THEN {wit} ELSE Leave(p) :
  LET a == ans[p]
      x == [pr[p] EXCEPT !.used = @ \/ v # wit]
      lost == [OnlyOut(x) EXCEPT !.st = "new", !.tok = NoTok, !.tip = NoRid, !.pend = NoRid,
                 !.dep = 0, !.shp = FALSE, !.inc = 0, !.born = 0, !.ref = TRUE]
      open == [x EXCEPT !.st = "held", !.tok = a.tok, !.tip = a.rid, !.dep = a.rid[2],
                 !.pend = NoRid, !.w = a.w, !.inc = a.inc, !.born = a.born, !.shp = FALSE, !.ref = FALSE]
  IN /\ a # NoAns /\ wit' = v
     /\ pr' = [pr EXCEPT ![p] =
          CASE a.kind = "copied" ->
                 IF On("void-copied") THEN [lost EXCEPT !.f = Each(Unheld), !.u = Each(0), !.sh = Each(0)]
                                      ELSE [lost EXCEPT !.sh = Each(0)]
            [] a.kind = "lost" -> lost
            [] x.st = "claim" ->         \* a new lease: what was left of the old one is given up
                 [open EXCEPT !.f = a.f, !.u = a.u, !.used = FALSE,
                              !.sh = IF x.shp THEN a.u ELSE Each(0)]
            [] OTHER ->
                 [open EXCEPT !.f = [l \in Lanes |-> IF @[l] # Unheld THEN @[l] ELSE a.f[l]],
                              !.u = [l \in Lanes |-> Max(@[l], a.u[l])],
                              !.sh = IF x.shp THEN [l \in Lanes |-> Max(@[l], a.u[l])] ELSE @]]
     /\ ans' = [ans EXCEPT ![p] = NoAns]
     /\ net' = Past(p)
     /\ UNCHANGED <<now, srv, save, cnt, chg, dup>>

(* R7: sealed first, then what was used is read, then the request is sent.  *)
Release(p) ==
  /\ "release" \in Doing /\ pr[p].st = "held"
  /\ \E v \in Leave(p) :
     LET x == [pr[p] EXCEPT !.used = @ \/ v # wit, !.st = "sealed", !.rel = TRUE]
         low == [l \in Lanes |-> IF x.f[l] = Unheld THEN 0
                   ELSE IF x.used /\ v.l = l /\ v.w = x.w THEN v.t + 1 ELSE x.f[l]]
     IN /\ net' = net \cup {[t |-> "release", p |-> p, tok |-> x.tok, w |-> x.w,
                             tip |-> x.tip, f |-> x.f, u |-> x.u, low |-> low]}
        /\ wit' = v
        /\ pr' = [pr EXCEPT ![p] = IF "take" \in Doing THEN x ELSE
                     [NoProc EXCEPT !.n = x.n, !.st = "sealed", !.rel = TRUE]]
  /\ ans' = [ans EXCEPT ![p] = NoAns]
  /\ UNCHANGED <<now, srv, save, cnt, chg, dup>>

Crash(p) ==
  /\ "crash" \in Doing /\ pr[p].st \in {"claim", "held", "sealed"}
  /\ \E v \in Leave(p) :
       /\ pr' = [pr EXCEPT ![p].st = "dead", ![p].used = @ \/ v # wit]
       /\ wit' = v
  /\ ans' = [ans EXCEPT ![p] = NoAns] /\ net' = Past(p)
  /\ UNCHANGED <<now, srv, save, cnt, chg, dup>>

Reborn(p) ==        \* another process in the same slot
  /\ "reborn" \in Doing /\ pr[p].st \in {"dead", "sealed", "gone"} /\ pr[p].n < Serials
  /\ pr' = [pr EXCEPT ![p] = [NoProc EXCEPT !.n = pr[p].n]]
  /\ UNCHANGED <<now, srv, save, net, ans, wit, cnt, chg, dup>>

Blank(p) == pr[p] = [NoProc EXCEPT !.n = pr[p].n]

(* A clone shares everything up to its reservation's end, and what is under *)
(* way. A fork is a clone that is voided at once (R8, R6).                  *)
Copy(p, q) ==
  /\ cnt.copy < Copies /\ p # q /\ Blank(q) /\ pr[p].st \in {"claim", "held"}
  /\ cnt' = [cnt EXCEPT !.copy = @ + 1]
  /\ LET x == pr[p]
         sh(y) == [y EXCEPT !.sh = y.u, !.shp = (y.st = "claim" \/ y.pend # NoRid), !.n = y.n]
     IN \/ /\ "clone" \in CopyKinds \/ ("quiet" \in CopyKinds /\ x.st = "held" /\ x.pend = NoRid)
           /\ pr' = [pr EXCEPT ![p] = sh(x), ![q] = [sh(x) EXCEPT !.n = pr[q].n]]
        \/ /\ "fork" \in CopyKinds /\ ~On("void-fork")
           /\ pr' = [pr EXCEPT ![q] = [x EXCEPT !.n = pr[q].n]]
        \/ /\ "fork" \in CopyKinds /\ ~On("fresh-token") /\ x.st = "claim"
           /\ pr' = [pr EXCEPT ![q] = [NoProc EXCEPT !.n = pr[q].n, !.st = "claim", !.tok = x.tok]]
  /\ UNCHANGED <<now, srv, save, net, ans, wit, chg, dup>>

(* A new process takes over the state of one that has certainly ended.      *)
Take(p, q) ==
  /\ "take" \in Doing /\ p # q /\ Blank(q) /\ pr[p].st = "dead"
  /\ On("no-take-after-release") => ~pr[p].rel
  /\ pr' = [pr EXCEPT
       ![p].st = IF On("one-taker") THEN "gone" ELSE @,
       ![q] = [pr[p] EXCEPT !.n = pr[q].n, !.rel = FALSE,
                 !.st = IF pr[p].w = "none" \/ pr[p].tip = NoRid THEN "claim" ELSE "held",
                 !.used = IF On("take-marks") THEN @ ELSE FALSE]]
  /\ UNCHANGED <<now, srv, save, net, ans, wit, cnt, chg, dup>>

-----------------------------------------------------------------------------
(* The servers.                                                             *)
Save == /\ Losses > cnt.loss /\ save # srv["main"].pool
        /\ save' = srv["main"].pool
        /\ UNCHANGED <<now, srv, net, ans, pr, wit, cnt, chg, dup>>

Lose ==
  /\ cnt.loss < Losses
  /\ LET m == srv["main"]
         up(P, j) == [m EXCEPT !.id = cnt.id + 1, !.pool = P, !.jump = j]
         jumps == {0, BOOT}
     IN \/ "flush" \in LossKinds /\ srv' = [srv EXCEPT !["main"].pool = NoPool]
        \/ "wipe" \in LossKinds /\ \E j \in jumps : srv' = [srv EXCEPT !["main"] = up(NoPool, j)]
        \/ "keep" \in LossKinds /\ \E j \in jumps : srv' = [srv EXCEPT !["main"] = up(m.pool, j)]
        \/ "snapshot" \in LossKinds /\ \E j \in jumps : srv' = [srv EXCEPT !["main"] = up(save, j)]
        \/ /\ "failover" \in LossKinds /\ ~srv["old"].up
           /\ srv' = [srv EXCEPT !["main"] = up(save, 0), !["old"] = [m EXCEPT !.til = now + DEPOSED]]
  /\ cnt' = [cnt EXCEPT !.loss = @ + 1, !.id = @ + 1]
  /\ UNCHANGED <<now, save, net, ans, pr, wit, chg, dup>>

Dead == [up |-> FALSE, id |-> 1, jump |-> 0, til |-> 0, pool |-> NoPool]
Tick == /\ now < TMAX /\ now' = now + 1
        /\ \E j \in {0, srv["main"].jump} :      \* a clock that was ahead is set right
             srv' = [srv EXCEPT !["main"].jump = j,
                       !["old"] = IF @.up /\ @.til < now + 1 THEN Dead ELSE @]
        /\ UNCHANGED <<save, net, ans, pr, wit, cnt, chg, dup>>

(* A planned change. It drops the records; ids from M on are of another     *)
(* space. It waits while a mark, or a floor, reaches beyond M. The plan is  *)
(* announced only when every copy that can come back as master has it.      *)
Plan == /\ srv["main"].pool.plan = 0 /\ chg = 0
        /\ \E M \in PlanAt, R \in now .. now + RS :
             LET P == Touch(srv["main"].pool, srv["main"].id, R) IN
             /\ M > now
             /\ P.space = 0
             /\ srv' = [srv EXCEPT !["main"].pool = [P EXCEPT !.plan = M]]
             /\ save' = IF On("plan-durable") THEN [P EXCEPT !.plan = M] ELSE save
             /\ cnt' = [cnt EXCEPT !.inc = Max(@, P.inc)]
        /\ UNCHANGED <<now, net, ans, pr, wit, chg, dup>>

Change ==
  \E s \in {"main", "old"} : \E R \in now .. now + RS :
    LET P == Touch(srv[s].pool, srv[s].id, R) IN
    /\ PlanAt # {} /\ srv[s].up /\ P.space = 0 /\ P.plan # 0 /\ R >= P.plan
    /\ On("plan-marks") => \A w \in Wids, l \in Lanes : P.rec[w].mark[l] <= P.plan
    /\ On("plan-floor") => P.floor <= P.plan /\ P.ofloor <= P.plan
    /\ srv' = [srv EXCEPT ![s].pool = [NoPool EXCEPT !.inc = P.inc, !.id = P.id, !.space = 1]]
    /\ chg' = P.plan
    /\ cnt' = [cnt EXCEPT !.inc = Max(@, P.inc)]
    /\ UNCHANGED <<now, save, net, ans, pr, wit, dup>>

-----------------------------------------------------------------------------
Next ==
  \/ Tick \/ Serve \/ Notice \/ Save \/ Lose \/ Plan \/ Change
  \/ \E p \in Procs : \/ Claim(p) \/ Renew(p) \/ Repeat(p) \/ Deliver(p) \/ Use(p)
                      \/ Release(p) \/ Crash(p) \/ Reborn(p)
                      \/ \E q \in Procs : Copy(p, q) \/ Take(p, q)

Spec == Init /\ [][Next]_vars
Sym == Permutations(Procs)

(* The invariants. *)
NoRepeat == ~dup
NoOldSpace == chg # 0 => /\ wit.t < chg
                         /\ \A p \in Procs, l \in Lanes : \A t \in Range(p, l) : t < chg
=============================================================================
