---------------------------- MODULE LeaseAsBuilt ----------------------------
(* The scripts as they are, where they differ from Lease.tla: three scripts *)
(* and the process' side of a release. Everything else is Lease.tla.        *)
(* LeaseAsBuilt.overrides puts them in the place of the operators there;    *)
(* README.md has the table of differences.                                  *)
EXTENDS Lease

(* When a claim may be repeated; Lease.tla bounds that to once a chain.     *)
Repeatable(r) == r.tip[3] % 10 = 0

(* D1: a repeated claim extends the reservation, as a renewal does.         *)
(* D2: it is answered only in the incarnation and before the end of its     *)
(* lease; after that it is a new claim.                                     *)
(* D3: a lease may be granted whose lanes are all empty still.              *)
Answerable(P, q, w, R) ==
  /\ P.rec[w].tok = q.tok /\ P.rec[w].inc = P.inc /\ P.rec[w].end > R
  /\ On("claim-once") => P.rec[w].dep = 0

AsBuiltClaim(s, q, P, c, R) ==
  /\ q.t = "claim" /\ P.space = 0
  /\ IF \E w \in Wids : Answerable(P, q, w, R)
     THEN \E w \in Wids :
            /\ Answerable(P, q, w, R) /\ Repeatable(P.rec[w])
            /\ LET salt == IF P.rec[w].dep = 0 THEN P.rec[w].tip[3] + 1 ELSE Salt
                   rid == <<q.p, 0, salt>>
                   r == [Granted(P, P.rec[w], c, R) EXCEPT
                           !.tip = rid, !.dep = 0, !.end = Max(@, R + TTL)]
               IN Put(s, [P EXCEPT !.rec[w] = r], q, Answer(q, "ok", w, r, P.inc, rid), salt \div 10)
     ELSE /\ On("wait-floor") => R >= P.floor
          /\ cnt.chain < CHAINS
          /\ \E w \in Wids :
               /\ P.rec[w].end <= R
               /\ LET rid == <<q.p, 0, Salt>>
                      raised == [l \in Lanes |-> IF On("mark") THEN Max(P.rec[w].mark[l], FloorOf(P, l)) ELSE P.rec[w].mark[l]]
                      r0 == [P.rec[w] EXCEPT !.tok = q.tok, !.tip = rid, !.dep = 0, !.mark = raised,
                               !.end = R + TTL, !.born = R, !.inc = P.inc, !.f = Each(Unheld)]
                      r == Granted(P, r0, c, R)
                  IN Put(s, [P EXCEPT !.rec[w] = r], q, Answer(q, "ok", w, r, P.inc, rid), Salt \div 10)

(* Where the reservation of a record's lane begins, and where it ends.      *)
Begins(r, l) == IF r.f[l] # Unheld THEN r.f[l] ELSE r.mark[l]
Ends(r) == LET S == {IF r.f[l] # Unheld THEN r.mark[l] ELSE 0 : l \in Ord}
           IN CHOOSE x \in S : \A y \in S : x >= y

(* D4: the record was granted later than the holder's own lease if it       *)
(* begins later in a lane, or if it begins where that does and lasts longer *)
(* (no clock is compared).                                                  *)
GrantedLater(r, q) ==
  \/ \E l \in Ord : q.f[l] # Unheld /\ Begins(r, l) > q.f[l]
  \/ /\ \A l \in Ord : q.f[l] # Unheld => Begins(r, l) = q.f[l]
     /\ r.tok # NoTok /\ Ends(r) > OrdEnd(q)

(* Where lowered lanes began and ended: in one number, since time is short. *)
WithCut(cut, r) ==
  LET from == Max(0, r.f["out"]) IN
  100 * Max(cut \div 100, r.mark["out"]) + (IF cut = 0 THEN from ELSE Min(cut % 100, from))
(* D9: not if its lane had ended where the lowered one began.               *)
IsCut(cut, q) == q.u["out"] <= cut \div 100 /\ q.u["out"] > cut % 100

(* D5: what counts is the incarnation of the record, not that of the        *)
(* request: an adoption whose reply was lost is repeated as a renewal.      *)
(* D6: of a record of the same claim, "ahead" means that it lasts longer.   *)
(* D10: after a loss, the age of a reservation is looked at first.           *)
Verdict(q, P, R) ==
  LET r == P.rec[q.w]
      mine == r.tok = q.tok
      here == r.inc = P.inc
      lost == IF On("void-lowered") /\ Outage /\ q.f["out"] # Unheld /\ IsCut(r.cut, q) THEN "copied" ELSE "lost"
  IN CASE P.space # 0 -> lost
       [] here /\ ~mine -> lost
       [] here /\ mine /\ On("chain") /\ ~ChainOK(r, q) -> "copied"
       [] ~here /\ ~AdoptB(q, R) -> lost
       [] ~here /\ On("adopt-a") /\ ~mine /\ GrantedLater(r, q) -> lost
       [] ~here /\ On("chain") /\ mine /\ Ends(r) > OrdEnd(q) /\ ~ChainOK(r, q) -> "copied"
       [] OTHER -> "ok"

AsBuiltRenew(s, q, P, c, R) ==
  /\ q.t = "renew"
  /\ LET r == P.rec[q.w]
         mine == r.tok = q.tok
         here == r.inc = P.inc
         own == [r EXCEPT !.f = q.f, !.born = q.born,
                  !.mark = [l \in Lanes |-> IF q.f[l] # Unheld THEN Max(@[l], q.u[l]) ELSE @[l]]]
         base == IF mine /\ here THEN r ELSE own
         new == [Granted(P, base, c, R) EXCEPT !.tok = q.tok, !.tip = q.rid, !.dep = q.dep, !.inc = P.inc,
                   !.end = IF On("lease-end") THEN Max(@, R + TTL) ELSE R + TTL]
         verdict == Verdict(q, P, R)
     IN IF verdict = "ok"
        THEN Put(s, [P EXCEPT !.rec[q.w] = new], q, Answer(q, "ok", q.w, new, P.inc, q.rid), 0)
        ELSE Put(s, P, q, Answer(q, verdict, q.w, NoRec, P.inc, q.rid), 0)

(* D7: a release names the unanswered renewal, too, and is accepted after   *)
(* it; the marks of that renewal stay.                                      *)
AsBuiltRelease(s, q, P, R) ==
  /\ q.t = "release" /\ P.space = 0
  /\ LET r == P.rec[q.w]
         mine == /\ On("release-token") => r.tok = q.tok
                 /\ On("release-tip") => r.tip = q.tip \/ (q.pend # NoRid /\ r.tip = q.pend)
                 /\ r.inc = P.inc
         low == [l \in Lanes |-> IF On("release-mark") => (q.f[l] # Unheld /\ r.mark[l] = q.u[l])
                                 THEN q.low[l] ELSE r.mark[l]]
     IN IF mine
        THEN Put(s, [P EXCEPT !.rec[q.w].tok = NoTok, !.rec[q.w].tip = NoRid, !.rec[q.w].end = R,
                              !.rec[q.w].f = Each(Unheld), !.rec[q.w].mark = low,
                              !.rec[q.w].cut = IF Outage /\ low["out"] < r.mark["out"]
                                               THEN WithCut(@, r) ELSE @], q, NoAns, 0)
        ELSE Put(s, P, q, NoAns, 0)

AsBuiltReleaseStep(p) ==
  /\ "release" \in Doing /\ pr[p].st = "held"
  /\ \E v \in Leave(p) :
     LET x == [pr[p] EXCEPT !.used = @ \/ v # wit, !.st = "sealed", !.rel = TRUE]
         low == [l \in Lanes |-> IF x.f[l] = Unheld THEN 0
                   ELSE IF x.used /\ v.l = l /\ v.w = x.w THEN v.t + 1 ELSE x.f[l]]
     IN /\ net' = net \cup {[t |-> "release", p |-> p, tok |-> x.tok, w |-> x.w, pend |-> x.pend,
                             tip |-> x.tip, f |-> x.f, u |-> x.u, low |-> low]}
        /\ wit' = v
        /\ pr' = [pr EXCEPT ![p] = IF "take" \in Doing THEN x ELSE
                     [NoProc EXCEPT !.n = x.n, !.st = "sealed", !.rel = TRUE]]
  /\ ans' = [ans EXCEPT ![p] = NoAns]
  /\ UNCHANGED <<now, srv, save, cnt, chg, dup>>
=============================================================================
