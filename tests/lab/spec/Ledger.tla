------------------------------- MODULE Ledger ------------------------------
(* Worker-id leases: each tick of a lane is granted at most once, and no    *)
(* mark is ever lowered. One exception: lanes other than the first that     *)
(* their holder never opened go back whole when it releases its lease.      *)
(*                                                                          *)
(* Time and ticks are the same small whole numbers. A process may use any   *)
(* tick of its grants at any later moment: so its clock may be wrong by     *)
(* anything and it may be paused for any time. Requests stay in `net` for   *)
(* ever: each may be lost (never served), late, or served repeatedly.       *)
(*                                                                          *)
(* "No tick is used twice" is checked with one witness: the first use of    *)
(* any tick may become the witness; any second use of it is a repeated id.  *)
(* Every first use is the witness in some behaviour, so nothing is lost.    *)
(*                                                                          *)
(* `Off` is the set of rules that are switched off; README.md names them.   *)
EXTENDS Pool

CONSTANTS
  Procs,       \* process slots (a slot is used again by a new process)
  Wids,        \* worker ids
  Ord,         \* the ordinary lanes of each worker id: "a" is the first
  Outage,      \* TRUE: each worker id also has the lane "out"
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
  Doing        \* some of "release", "crash", "reborn", "take", "reclaim", "late", "end"

VARIABLES
  now,         \* real time
  srv,         \* the servers "main" and "old" (deposed)
  save,        \* the last snapshot of main's pool, also a replica's state
  net,         \* requests that may still be served, any number of times
  ans,         \* the newest answer on its way to each process
  pr,          \* the processes
  wit,         \* the witness: a tick that was used
  cnt,         \* counters: losses, copies, server identities, incarnations
  dup          \* TRUE: a tick was used twice

vars == <<now, srv, save, net, ans, pr, wit, cnt, dup>>

First == "a"                     \* orders all leases of a worker id
Lanes == Ord \cup (IF Outage THEN {"out"} ELSE {})
Each(x) == [l \in Lanes |-> x]

NoTok == <<"none", 0>>           \* tokens are <<process, serial>>
NoRid == <<"none", 0, 0>>        \* renewal ids are <<process, depth, salt>>
NoAns == [kind |-> "none"]
NoWit == [w |-> "none", l |-> "none", t |-> 0, shared |-> 0]

(* A record of a worker id in Redis, and what a process has: each lane      *)
(* begins at lanes[l]; the ordinary ones end at until, the outage lane at   *)
(* out. A lane is reserved if it ends after it begins.                      *)
(* before: the holder before, if it did not release. has: it was leased.    *)
NoRec == [tok |-> NoTok, tip |-> NoRid, dep |-> 0, end |-> 0, has |-> FALSE, inc |-> 0,
          lanes |-> Each(0), until |-> 0, out |-> 0, before |-> NoTok]
EndOf(x, l) == IF l = "out" THEN x.out ELSE x.until
Mark(r, l) == Max(r.lanes[l], EndOf(r, l))
NoPool == [there |-> FALSE, inc |-> 0, id |-> 0, pid |-> 0, start |-> 0, lost |-> 0, new |-> TRUE, end |-> 0,
           over |-> FALSE, rec |-> [w \in Wids |-> NoRec]]

(* A process. st: "new" (no lease), "claim" (claim unanswered), "held",     *)
(* "sealed" (released), "dead" (ended), "gone" (ended, and taken over or    *)
(* reclaimed). After a lost lease only the outage lane stays.               *)
(* low[l]: of a lease that was taken over, the first tick that it may use.  *)
(* sh[l]: ticks below it are shared with a clone, which is documented.      *)
(* ref: Redis has told it that its lease is lost.                           *)
NoProc == [st |-> "new", tok |-> NoTok, w |-> "none", tip |-> NoRid, dep |-> 0, pend |-> NoRid,
           inc |-> 0, pid |-> 0, lanes |-> Each(0), until |-> 0, out |-> 0, low |-> Each(0),
           n |-> 0, used |-> FALSE, sh |-> Each(0), shp |-> FALSE, rel |-> FALSE, took |-> FALSE, ref |-> FALSE]

Init ==
  /\ now = 0
  /\ srv = [s \in {"main", "old"} |->
              [up |-> s = "main", id |-> 1, jump |-> 0, til |-> 0,
               pool |-> [NoPool EXCEPT !.there = TRUE, !.inc = 1, !.id = 1, !.pid = 1]]]   \* pool create
  /\ save = srv["main"].pool
  /\ net = {} /\ ans = [p \in Procs |-> NoAns]
  /\ pr = [p \in Procs |-> NoProc]
  /\ wit = NoWit /\ dup = FALSE
  /\ cnt = [loss |-> 0, copy |-> 0, id |-> 1, inc |-> 1, chain |-> 0]

-----------------------------------------------------------------------------
(* What every script does first. A pool is over at its end, or at once if   *)
(* no lease was held when that was set.                                     *)
Over(P, R) == P.there /\ P.end # 0 /\ (P.over \/ P.end <= R)

Shows(q) == [pid |-> q.pid, until |-> IF q.t = "claim" THEN 0 ELSE q.until, out |-> q.out]
Look(s, x, R, c) == Opened(srv[s].pool, NoPool, Over(srv[s].pool, R), srv[s].id, R, c, x, cnt.inc + 1)

(* A claim says whether its process wants an outage lane; most do.          *)
WantsOut(p) == TRUE
Extended(P, q, r, c, R) ==
  LET out == Till(P, "out", c, R) IN
  [r EXCEPT !.until = Max(@, Till(P, First, c, R)),
            !.out = IF Outage /\ WantsOut(q.p) /\ out > r.lanes["out"] THEN Max(@, out) ELSE @]

Answer(q, kind, w, r, P, rid) ==
  [kind |-> kind, tok |-> q.tok, rid |-> rid, w |-> w, inc |-> P.inc, pid |-> P.pid,
   lanes |-> r.lanes, until |-> r.until, out |-> r.out]

(* An answer that its process does not wait for is dropped at once.         *)
Awaited(p, a) == \/ pr[p].st = "claim" /\ a.tok = pr[p].tok /\ a.rid[2] = 0
                 \/ pr[p].st = "held"  /\ a.tok = pr[p].tok /\ a.rid = pr[p].pend

Put(s, P, q, a, top) ==            \* store the pool, send the answer
  /\ srv' = [srv EXCEPT ![s].pool = P]
  /\ cnt' = [cnt EXCEPT !.inc = Max(@, P.inc), !.chain = Max(@, top)]
  /\ ans' = IF a # NoAns /\ Awaited(q.p, a) THEN [ans EXCEPT ![q.p] = a] ELSE ans
  /\ UNCHANGED <<now, save, net, pr, wit, dup>>

-----------------------------------------------------------------------------
(* claim: a claim repeated with its token, until a renewal was served and   *)
(* in the incarnation that granted it, answers the same lease and starts a  *)
(* new chain; else any free worker id, not before the floor has passed.     *)
Salt == IF On("fresh-chain") THEN 10 * cnt.chain + 10 ELSE 0      \* random in Redis
Repeatable(r) == r.tip[3] % 10 = 0                                \* bound: one repetition
Answerable(P, q, w, R) ==
  LET r == P.rec[w] IN
  r.tok = q.tok /\ r.dep = 0 /\ (On("claim-here") => r.inc = P.inc) /\ r.end > R

ClaimScript(s, q, P, c, R) ==
  /\ q.t = "claim"
  /\ IF \E w \in Wids : Answerable(P, q, w, R)
     THEN \E w \in Wids :
            /\ Answerable(P, q, w, R) /\ Repeatable(P.rec[w])
            /\ LET rid == <<q.p, 0, P.rec[w].tip[3] + 1>>
                   r == [Extended(P, q, P.rec[w], c, R) EXCEPT !.tip = rid, !.end = Max(@, R + TTL),
                           !.inc = P.inc]
               IN Put(s, [P EXCEPT !.rec[w] = r], q, Answer(q, "ok", w, r, P, rid), rid[3] \div 10)
     ELSE /\ On("wait-floor") => R >= Floor(P, First)
          /\ cnt.chain < CHAINS
          /\ \E w \in Wids :
               /\ P.rec[w].end <= R
               /\ LET old == P.rec[w]
                      rid == <<q.p, 0, Salt>>
                      from == [l \in Lanes |-> IF On("mark") THEN Max(Mark(old, l), Floor(P, l)) ELSE Floor(P, l)]
                      r == Extended(P, q, [NoRec EXCEPT !.tok = q.tok, !.tip = rid, !.end = R + TTL, !.has = TRUE,
                                             !.inc = P.inc, !.lanes = from, !.before = old.tok], c, R)
                  IN Put(s, [P EXCEPT !.rec[w] = r], q, Answer(q, "ok", w, r, P, rid), Salt \div 10)

(* renew: what counts is the incarnation of the record. In the present one, *)
(* only the holder's, along its chain. Else the lease is taken up again     *)
(* (adoption) if it lasts, so that no worker id can have been leased again, *)
(* and if the record is none, or the holder's own and not longer than it    *)
(* knows, or an older one: that ends where the holder's begins, or before.  *)
Mine(r, q) == r.tok = q.tok
ChainOK(r, q) == ~On("chain") \/ r.tip = q.rid \/ r.tip = q.prev
TooOld(q, R, c) ==
  On("too-old") /\ (IF On("too-old-by-ordinary") THEN q.until ELSE Max(q.until, q.out))
                     <= Max(R, c) + RS + SK + (IF On("too-old-slack") THEN SLACK ELSE 0)
Later(r, q) == r.has /\ ~Mine(r, q) /\ Mark(r, First) > q.lanes[First]

(* A process that is refused keeps its outage lane, unless there is a later *)
(* lease of the worker id, whose holder before was another one: a copy of   *)
(* this process may have released its lease.                                *)
Refusal(r, q) == IF On("keep-if-last") /\ Later(r, q) /\ r.before # q.tok THEN "copied" ELSE "lost"
Verdict(q, P, R, c) ==
  LET r == P.rec[q.w] IN
  CASE r.inc = P.inc /\ ~Mine(r, q)                            -> Refusal(r, q)
    [] r.inc = P.inc /\ Mine(r, q)                             -> IF ChainOK(r, q) THEN "ok" ELSE "copied"
    [] TooOld(q, R, c) \/ (On("later") /\ Later(r, q))          -> Refusal(r, q)
    [] q.lanes[First] < P.start                                -> Refusal(r, q)
    [] Mine(r, q) /\ r.until > q.until /\ ~ChainOK(r, q)       -> "copied"
    [] OTHER                                                   -> "ok"

(* The record after an adoption: the outage lane, if the holder does not    *)
(* have it, may be one of before the loss.                                  *)
Adopted(P, q, r) ==
  LET high == [l \in Lanes |-> Max(q.lanes[l], r.lanes[l])]
      out == Max(r.out, IF Outage THEN high["out"] ELSE 0)
      has == Outage /\ q.out > q.lanes["out"]
  IN [NoRec EXCEPT !.has = TRUE, !.until = Max(q.until, r.until), !.out = IF has THEN Max(q.out, out) ELSE 0,
        !.before = IF Mine(r, q) THEN r.before ELSE NoTok,
        !.lanes = [l \in Lanes |-> IF l # "out" THEN high[l] ELSE IF has THEN q.lanes[l] ELSE Max(out, Floor(P, l))]]

RenewScript(s, q, P, c, R) ==
  /\ q.t = "renew"
  /\ LET r == P.rec[q.w]
         verdict == Verdict(q, P, R, c)
         base == IF r.inc = P.inc THEN r ELSE Adopted(P, q, r)
         new == [Extended(P, q, base, c, R) EXCEPT !.tok = q.tok, !.tip = q.rid, !.dep = q.dep, !.inc = P.inc,
                   !.end = IF On("lease-end") THEN Max(@, R + TTL) ELSE R + TTL]
     IN IF verdict = "ok"
        THEN Put(s, [P EXCEPT !.rec[q.w] = new], q, Answer(q, "ok", q.w, new, P, q.rid), 0)
        ELSE Put(s, P, q, Answer(q, verdict, q.w, NoRec, P, q.rid), 0)

(* release: the worker id is free; the first lane keeps its mark. Another   *)
(* lane goes back whole if it was never opened, as the holder says, and if  *)
(* the record is the one that the holder knows.                             *)
ReleaseScript(s, q, P, R) ==
  /\ q.t = "release"
  /\ LET r == P.rec[q.w]
         mine == r.tok = q.tok /\ r.inc = P.inc /\ (r.tip = q.tip \/ (q.pend # NoRid /\ r.tip = q.pend))
         whole(l) == /\ l # First /\ r.tip = q.tip /\ EndOf(r, l) = EndOf(q, l)
                     /\ On("unopened") => l \notin q.opened
     IN IF mine
        THEN Put(s, [P EXCEPT !.rec[q.w].tok = NoTok, !.rec[q.w].tip = NoRid, !.rec[q.w].end = R,
                              !.rec[q.w].lanes = [l \in Lanes |-> IF whole(l) THEN r.lanes[l] ELSE Mark(r, l)],
                              !.rec[q.w].until = 0, !.rec[q.w].out = 0], q, NoAns, 0)
        ELSE Put(s, P, q, NoAns, 0)

Serve ==
  \E s \in {"main", "old"}, q \in net, d \in Devs :
    /\ srv[s].up
    /\ \E R \in (now + srv[s].jump) .. (now + srv[s].jump + RS) :
         LET P == Look(s, Shows(q), R, now + d) IN
         /\ \/ ClaimScript(s, q, P, now + d, R)
            \/ RenewScript(s, q, P, now + d, R)
            \/ ReleaseScript(s, q, P, R)

(* A script that does nothing else (a claim before the floor, for example)  *)
(* still notices a loss.                                                    *)
Notice ==
  \E s \in {"main", "old"}, d \in Devs, R \in (now + srv["main"].jump) .. (now + srv["main"].jump + RS) :
    LET P == Look(s, Nobody, R, now + d) IN
    /\ srv[s].up /\ P # srv[s].pool
    /\ srv' = [srv EXCEPT ![s].pool = P] /\ cnt' = [cnt EXCEPT !.inc = Max(@, P.inc)]
    /\ UNCHANGED <<now, save, net, ans, pr, wit, dup>>

-----------------------------------------------------------------------------
(* The processes.                                                           *)
ClaimReq(p, x) == [t |-> "claim", p |-> p, tok |-> x.tok, pid |-> x.pid, out |-> x.out]
RenewReq(p, x) == [t |-> "renew", p |-> p, tok |-> x.tok, w |-> x.w, prev |-> x.tip, rid |-> x.pend,
                   dep |-> x.dep + 1, pid |-> x.pid, lanes |-> x.lanes, until |-> x.until, out |-> x.out]
ReleaseReq(p, x, opened) ==
  [t |-> "release", p |-> p, tok |-> x.tok, w |-> x.w, tip |-> x.tip, pend |-> x.pend, pid |-> x.pid,
   until |-> x.until, out |-> x.out, opened |-> opened]
(* Requests of what a process has finished: kept only if lateness is modelled. *)
Past(p) == IF "late" \in Doing THEN net ELSE {q \in net : q.p # p}

Claim(p) ==
  /\ pr[p].st = "new" /\ pr[p].n < Serials
  /\ LET x == [pr[p] EXCEPT !.st = "claim", !.n = @ + 1, !.tok = <<p, pr[p].n + 1>>, !.shp = FALSE]
     IN pr' = [pr EXCEPT ![p] = x] /\ net' = Past(p) \cup {ClaimReq(p, x)}
  /\ UNCHANGED <<now, srv, save, ans, wit, cnt, dup>>

Renew(p) ==
  /\ pr[p].st = "held" /\ pr[p].pend = NoRid /\ pr[p].n < Serials
  /\ LET x == [pr[p] EXCEPT !.n = @ + 1, !.pend = <<p, pr[p].dep + 1, 0>>]
     IN pr' = [pr EXCEPT ![p] = x] /\ net' = Past(p) \cup {RenewReq(p, x)}
  /\ UNCHANGED <<now, srv, save, ans, wit, cnt, dup>>

(* A clone or a successor repeats what was unanswered, in its own name.     *)
Repeat(p) ==
  /\ \/ pr[p].st = "claim" /\ net' = net \cup {ClaimReq(p, pr[p])}
     \/ pr[p].st = "held" /\ pr[p].pend # NoRid /\ net' = net \cup {RenewReq(p, pr[p])}
  /\ net' # net
  /\ UNCHANGED <<now, srv, save, ans, pr, wit, cnt, dup>>

OnlyOut(x) == [x EXCEPT !.until = 0]

(* Use a tick of the own grants. The witness is chosen when a second        *)
(* process may use the tick too (Use), or when its user is about to lose it *)
(* (Leave: release, crash, an answer); other moments make no difference.    *)
Live == {"new", "claim", "held"}
Range(p, l) ==
  LET x == pr[p]
      from == Max(x.lanes[l], x.low[l])
  IN IF x.st \notin Live \/ EndOf(x, l) <= from THEN {}
     ELSE IF On("fence") THEN from .. (EndOf(x, l) - 1)
     ELSE {t \in {now + d : d \in Devs} : t >= from}
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
  /\ UNCHANGED <<now, srv, save, net, ans, cnt>>

Ends(x) == [l \in Lanes |-> EndOf(x, l)]
Deliver(p) ==
  \E v \in IF pr[p].st = "held" /\ ans[p].kind = "ok" THEN {wit} ELSE Leave(p) :
  LET a == ans[p]
      x == [pr[p] EXCEPT !.used = @ \/ v # wit]
      lost == [OnlyOut(x) EXCEPT !.st = "new", !.tok = NoTok, !.tip = NoRid, !.pend = NoRid,
                 !.dep = 0, !.shp = FALSE, !.inc = 0, !.pid = a.pid, !.took = FALSE, !.ref = TRUE]
      open == [x EXCEPT !.st = "held", !.tok = a.tok, !.tip = a.rid, !.dep = a.rid[2],
                 !.pend = NoRid, !.w = a.w, !.inc = a.inc, !.pid = a.pid, !.shp = FALSE, !.ref = FALSE]
      longer == [open EXCEPT !.until = Max(@, a.until), !.out = Max(@, a.out),
                   !.lanes = [l \in Lanes |-> IF l = "out" THEN Max(@[l], a.lanes[l]) ELSE @[l]]]
  IN /\ a # NoAns /\ wit' = v
     /\ pr' = [pr EXCEPT ![p] =
          CASE a.kind = "copied" ->
                 IF On("void-copied") THEN [lost EXCEPT !.out = 0, !.sh = Each(0)] ELSE [lost EXCEPT !.sh = Each(0)]
            [] a.kind = "lost" -> lost
            [] x.st = "claim" ->         \* a new lease: what was left of the old one is given up
                 [open EXCEPT !.lanes = a.lanes, !.until = a.until, !.out = a.out, !.low = Each(0),
                              !.used = FALSE, !.took = FALSE, !.sh = IF x.shp THEN Ends(a) ELSE Each(0)]
            [] OTHER -> [longer EXCEPT !.sh = IF x.shp THEN Ends(longer) ELSE @]]
     /\ ans' = [ans EXCEPT ![p] = NoAns]
     /\ net' = Past(p)
     /\ UNCHANGED <<now, srv, save, cnt, dup>>

(* Sealed first, then it is read which lanes were opened, then the request  *)
(* is sent. Who took a lease over does not know which were.                 *)
Release(p) ==
  /\ "release" \in Doing /\ pr[p].st = "held"
  /\ \E v \in Leave(p) :
     LET x == [pr[p] EXCEPT !.used = @ \/ v # wit, !.st = "sealed", !.rel = TRUE]
         opened == IF x.took /\ On("taken-opened") THEN Lanes
                   ELSE IF x.used /\ v.w = x.w THEN {v.l} ELSE {}
     IN /\ net' = net \cup {ReleaseReq(p, x, opened)}
        /\ wit' = v
        /\ pr' = [pr EXCEPT ![p] = IF "take" \in Doing THEN x ELSE
                     [NoProc EXCEPT !.n = x.n, !.st = "sealed", !.rel = TRUE]]
  /\ ans' = [ans EXCEPT ![p] = NoAns]
  /\ UNCHANGED <<now, srv, save, cnt, dup>>

Crash(p) ==
  /\ "crash" \in Doing /\ pr[p].st \in {"claim", "held", "sealed"}
  /\ \E v \in Leave(p) :
       /\ pr' = [pr EXCEPT ![p].st = "dead", ![p].used = @ \/ v # wit]
       /\ wit' = v
  /\ ans' = [ans EXCEPT ![p] = NoAns] /\ net' = Past(p)
  /\ UNCHANGED <<now, srv, save, cnt, dup>>

Reborn(p) ==        \* another process in the same slot
  /\ "reborn" \in Doing /\ pr[p].st \in {"dead", "sealed", "gone"} /\ pr[p].n < Serials
  /\ pr' = [pr EXCEPT ![p] = [NoProc EXCEPT !.n = pr[p].n]]
  /\ UNCHANGED <<now, srv, save, net, ans, wit, cnt, dup>>

Blank(p) == pr[p] = [NoProc EXCEPT !.n = pr[p].n]

(* A clone shares everything up to its grants' ends, and what is under way. *)
(* A fork is a clone that is voided at once.                                *)
Copy(p, q) ==
  /\ cnt.copy < Copies /\ p # q /\ Blank(q) /\ pr[p].st \in {"claim", "held"}
  /\ cnt' = [cnt EXCEPT !.copy = @ + 1]
  /\ LET x == pr[p]
         sh(y) == [y EXCEPT !.sh = Ends(y), !.shp = (y.st = "claim" \/ y.pend # NoRid)]
     IN \/ /\ "clone" \in CopyKinds \/ ("quiet" \in CopyKinds /\ x.st = "held" /\ x.pend = NoRid)
           /\ pr' = [pr EXCEPT ![p] = sh(x), ![q] = [sh(x) EXCEPT !.n = pr[q].n]]
        \/ /\ "fork" \in CopyKinds /\ ~On("void-fork")
           /\ pr' = [pr EXCEPT ![q] = [x EXCEPT !.n = pr[q].n]]
        \/ /\ "fork" \in CopyKinds /\ ~On("fresh-token") /\ x.st = "claim"
           /\ pr' = [pr EXCEPT ![q] = [NoProc EXCEPT !.n = pr[q].n, !.st = "claim", !.tok = x.tok]]
  /\ UNCHANGED <<now, srv, save, net, ans, wit, dup>>

(* A new process takes over the lease of one that has certainly ended. It   *)
(* goes on in the outage lane from the recorded end of what that one may    *)
(* have used, and in the ordinary lanes from their end on.                  *)
Take(p, q) ==
  /\ "take" \in Doing /\ p # q /\ Blank(q) /\ pr[p].st = "dead"
  /\ On("no-take-after-release") => ~pr[p].rel
  /\ LET x == pr[p]
         recorded == IF x.used /\ wit.w = x.w /\ wit.l = "out" THEN wit.t + 1 ELSE 0
     IN pr' = [pr EXCEPT
          ![p].st = IF On("one-taker") THEN "gone" ELSE @,
          ![q] = [x EXCEPT !.n = pr[q].n, !.rel = FALSE, !.used = FALSE, !.took = TRUE,
                    !.st = IF x.w = "none" \/ x.tip = NoRid THEN "claim" ELSE "held",
                    !.low = [l \in Lanes |->
                      IF l = "out" THEN (IF On("take-recorded") THEN Max(@[l], recorded) ELSE @[l])
                                   ELSE (IF On("take-from-end") THEN x.until ELSE @[l])]]]
  /\ UNCHANGED <<now, srv, save, net, ans, wit, cnt, dup>>

(* A neighbor frees the worker id of a process that was killed. It does not *)
(* know which lanes were opened.                                            *)
Reclaim(p) ==
  /\ "reclaim" \in Doing /\ pr[p].st = "dead" /\ pr[p].tip # NoRid /\ pr[p].w # "none"
  /\ net' = net \cup {ReleaseReq(p, pr[p], IF On("reclaimed-opened") THEN Lanes ELSE {})}
  /\ pr' = [pr EXCEPT ![p].st = "gone"]
  /\ UNCHANGED <<now, srv, save, ans, wit, cnt, dup>>

-----------------------------------------------------------------------------
(* The servers.                                                             *)
Save == /\ Losses > cnt.loss /\ save # srv["main"].pool
        /\ save' = srv["main"].pool
        /\ UNCHANGED <<now, srv, net, ans, pr, wit, cnt, dup>>

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
  /\ UNCHANGED <<now, save, net, ans, pr, wit, dup>>

Dead == [up |-> FALSE, id |-> 1, jump |-> 0, til |-> 0, pool |-> NoPool]
Tick == /\ now < TMAX /\ now' = now + 1
        /\ \E j \in {0, srv["main"].jump} :      \* a clock that was ahead is set right
             srv' = [srv EXCEPT !["main"].jump = j,
                       !["old"] = IF @.up /\ @.til < now + 1 THEN Dead ELSE @]
        /\ UNCHANGED <<save, net, ans, pr, wit, cnt, dup>>

(* A person sets the end of the pool, not before any grant or floor; it     *)
(* counts when each copy that can come back as master has it.               *)
SetEnd ==
  /\ "end" \in Doing
  /\ \E R \in now .. now + RS, T \in 1 .. TMAX :
       LET P == Look("main", Nobody, R, now) IN
       /\ P.there /\ P.end = 0 /\ srv["main"].jump = 0
       /\ T > R /\ \A l \in Lanes : T >= Floor(P, l) /\ \A w \in Wids : T >= Mark(P.rec[w], l)
       /\ LET Q == [P EXCEPT !.end = T, !.over = \A w \in Wids : P.rec[w].tok = NoTok] IN
          srv' = [srv EXCEPT !["main"].pool = Q] /\ save' = Q
       /\ cnt' = [cnt EXCEPT !.inc = Max(@, P.inc)]
  /\ UNCHANGED <<now, net, ans, pr, wit, dup>>

-----------------------------------------------------------------------------
Next ==
  \/ Tick \/ Serve \/ Notice \/ Save \/ Lose \/ SetEnd
  \/ \E p \in Procs : \/ Claim(p) \/ Renew(p) \/ Repeat(p) \/ Deliver(p) \/ Use(p)
                      \/ Release(p) \/ Crash(p) \/ Reborn(p) \/ Reclaim(p)
                      \/ \E q \in Procs : Copy(p, q) \/ Take(p, q)

Spec == Init /\ [][Next]_vars
(* Where pools end, one after another could begin for ever.                *)
TwoEnds == cnt.inc <= 3
Sym == Permutations(Procs)

NoRepeat == ~dup
=============================================================================
