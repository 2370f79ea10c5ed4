------------------------------ MODULE HostPage ------------------------------
(* The page of a host: processes that make ids of one lease from one word   *)
(* in shared memory. Names are those of host_page.py and host_lease.py.     *)
(*                                                                          *)
(* Each access to the page that another process may come between is a step. *)
(* A process that is stopped, or killed, is one that takes no step.         *)
(* A load and a compare-exchange of the same word are one step where the    *)
(* new value depends on nothing else: one that fails is tried again.        *)
(* mine() is left out: a process may be stopped right after it. So is who   *)
(* has the turn: anybody may take it away at any moment.                    *)
(* Clocks of processes show anything when ids are made. Redis' clock is     *)
(* `now`.                                                                   *)
(*                                                                          *)
(* Ids are compared with one witness, as in Lease.tla: any id may become    *)
(* it. Another host gets worker ids whose lease has ended, and uses all the *)
(* ticks that it is given, at once.                                         *)
(*                                                                          *)
(* `Off` is the set of protections that are switched off; see README.md.    *)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS
  Procs,     \* processes of the host
  Newcomers, \* those of them that are not yet members at the beginning
  Wids,      \* worker ids
  Lanes,     \* namespaces of each
  Outs, G,   \* those of them that are outage lanes, and their reservation's length
  SEQ,       \* ids of a tick
  TTL, TMAX, \* length of a reservation; Redis' clock ends here
  Leads,     \* how far the clocks of callers are ahead: reservations end later by that
  SLOTS,     \* of credentials
  Turns,     \* how many turns are taken, at most
  Others,    \* how many leases another host gets, at most
  LATE,      \* how many requests come to Redis after their sender has given up
  Open,      \* TRUE: the host has a lease and an open word at the beginning
  Doing,     \* of "leave", "kill", "replace"
  Off        \* protections that are switched off

VARIABLES
  word,      \* the last id; x: the sign bit, sealed; of: whose lease it is, for the check only
  limit,     \* n: the turn that it carries; u: the first tick that may not be opened
  turn,      \* number of the newest turn
  header,    \* n: the turn that it carries; k: the slot; c: what it is a checksum of
  slot,      \* credentials
  mem,       \* the living members
  now, rec, chain, net,       \* Redis: its clock, the worker ids, the claims that it served; late requests
  pr,        \* the processes
  others, late,               \* counters
  res,       \* what Redis granted to which token, for the check only
  wit,       \* the witness
  again, out, lost            \* what must not be

page == <<word, limit, turn, header, slot, mem>>
redis == <<now, rec, chain, net, others, late, res>>
found == <<wit, again, out, lost>>
vars == <<page, redis, pr, found>>

On(protection) == protection \notin Off
Max(a, b) == IF a > b THEN a ELSE b
Each(x) == [l \in Lanes |-> x]
Nobody == 0
MaxTick == TMAX + Max(TTL, G) + 1
Len(l) == IF l \in Outs THEN G ELSE TTL
Other == -1

(* A token and a renewal id are the number of the turn in which they were   *)
(* made; the name of a chain that Redis makes is below 0.                   *)
NoCred == [kind |-> "none", tok |-> 0, w |-> "", tip |-> 0, pend |-> 0, until |-> Each(0),
           from |-> Each(0), marks |-> Each(0), rel |-> FALSE]
NoId == [w |-> "", l |-> 0, t |-> 0, s |-> 0, x |-> TRUE, of |-> 0]
NoHeader == [n |-> 0, k |-> 0, c |-> NoCred]
NoReply == [kind |-> "none", w |-> "", tip |-> 0, until |-> Each(0), from |-> Each(0)]
NoRecord == [tok |-> Nobody, tip |-> 0, end |-> 0, until |-> Each(0), from |-> Each(0), mark |-> Each(0)]
NoWit == [id |-> NoId, by |-> "nobody"]

(* pc: the next step. goal: what the turn n is for. c: the lease or claim   *)
(* that it goes on with. wd, nx: a word that was read or sealed, and what   *)
(* it is to be replaced by. hd, new: a header that was loaded, and          *)
(* credentials. old: in a turn that replaces a lease, that lease.           *)
Idle == [pc |-> "idle", n |-> 0, goal |-> "", c |-> NoCred, wd |-> NoId, nx |-> NoId,
         hd |-> NoHeader, new |-> NoCred, old |-> NoCred, rep |-> NoReply]
Gone == [Idle EXCEPT !.pc = "gone"]

Init ==
  LET w1 == CHOOSE w \in Wids : TRUE
      l1 == CHOOSE l \in Lanes : \A m \in Lanes : l <= m
      first == [l \in Lanes |-> Len(l)]
      c == [NoCred EXCEPT !.kind = "lease", !.tok = 1, !.w = w1, !.tip = -1, !.until = first]
  IN
  /\ turn = IF Open THEN 1 ELSE 0
  /\ word = IF Open THEN [w |-> w1, l |-> l1, t |-> 0, s |-> 0, x |-> FALSE, of |-> 1] ELSE NoId
  /\ limit = IF Open THEN [n |-> 1, u |-> TTL] ELSE [n |-> 0, u |-> 0]
  /\ header = IF Open THEN [n |-> 1, k |-> 0, c |-> c] ELSE NoHeader
  /\ slot = [k \in 0..SLOTS - 1 |-> IF Open /\ k = 0 THEN c ELSE NoCred]
  /\ mem = Procs \ Newcomers
  /\ now = 0 /\ net = {} /\ others = 0 /\ late = 0
  /\ chain = IF Open THEN 1 ELSE 0
  /\ rec = [w \in Wids |-> IF Open /\ w = w1
                           THEN [tok |-> 1, tip |-> -1, end |-> TTL, until |-> first, from |-> Each(0), mark |-> first]
                           ELSE NoRecord]
  /\ res = IF Open THEN {[tok |-> 1, w |-> w1, f |-> Each(0), u |-> first]} ELSE {}
  /\ pr = [p \in Procs |-> IF p \in Newcomers THEN [Idle EXCEPT !.pc = "out"] ELSE Idle]
  /\ wit \in {NoWit} \cup (IF Open THEN {[id |-> [word EXCEPT !.of = 0], by |-> "host"]} ELSE {})
  /\ again = FALSE /\ out = FALSE /\ lost = FALSE

Same(a, b) == [a EXCEPT !.of = 0] = [b EXCEPT !.of = 0]
At(p, pc) == pr[p].pc = pc
Go(p, q) == pr' = [pr EXCEPT ![p] = q]
(* The end of a turn: nothing is known outside of one but by the page.      *)
Ended(p) == IF p \in mem THEN Idle ELSE Gone
Over(p) == Go(p, Ended(p))

-----------------------------------------------------------------------------
(* An id was taken, for the lease with the token id.of.                     *)
Made(id) ==
  LET bare == [id EXCEPT !.of = 0]
      w == wit.id
      isBefore == id.t < w.t \/ (id.t = w.t /\ id.s <= w.s)
      isRepeated == IF wit.by = "host" THEN isBefore ELSE id.t = w.t
  IN
  /\ again' = (again \/ (wit # NoWit /\ id.w = w.w /\ id.l = w.l /\ isRepeated))
  /\ out' = (out \/ ~\E r \in res : r.tok = id.of /\ r.w = id.w /\ r.f[id.l] <= id.t /\ id.t < r.u[id.l])
  /\ \/ wit' = wit
     \/ wit = NoWit /\ wit' = [id |-> bare, by |-> "host"]
  /\ UNCHANGED lost

(* take_shared() and next_of_host() in _fastpath.c: word, limit, take.      *)
Word(p) ==
  /\ At(p, "idle")
  /\ IF On("sealed-word") THEN ~word.x /\ UNCHANGED word
     ELSE word.w # "" /\ word' = [word EXCEPT !.x = FALSE]
  /\ LET wd == [word EXCEPT !.x = FALSE] IN
     \/ Go(p, [Idle EXCEPT !.pc = "limit-read", !.wd = wd])
     \/ wd.s < SEQ - 1 /\ Go(p, [Idle EXCEPT !.pc = "take", !.wd = wd, !.nx = [wd EXCEPT !.s = @ + 1]])
  /\ UNCHANGED <<limit, turn, header, slot, mem, redis, found>>

LimitRead(p) ==
  /\ At(p, "limit-read")
  /\ LET wd == pr[p].wd
         clocks == {t \in wd.t + 1..MaxTick : On("limit") => t < limit.u}
     IN \/ \E t \in clocks : Go(p, [pr[p] EXCEPT !.pc = "take", !.nx = [wd EXCEPT !.t = t, !.s = 0]])
        \/ clocks = {} /\ Go(p, Idle)
  /\ UNCHANGED <<page, redis, found>>

Take(p) ==
  /\ At(p, "take")
  /\ Go(p, Idle)
  /\ IF On("word-exchanged") /\ ~Same(word, pr[p].wd) THEN UNCHANGED <<word, found>>
     ELSE word' = pr[p].nx /\ Made(pr[p].nx)
  /\ UNCHANGED <<limit, turn, header, slot, mem, redis>>

-----------------------------------------------------------------------------
(* HostPage.take_turn()                                                     *)
TakeTurn(p) ==
  /\ At(p, "idle") \/ At(p, "left")
  /\ turn < Turns
  /\ turn' = turn + 1
  /\ Go(p, [pr[p] EXCEPT !.pc = "fence-limit", !.n = turn + 1])
  /\ UNCHANGED <<word, limit, header, slot, mem, redis, found>>

FenceLimit(p) ==
  /\ At(p, "fence-limit")
  /\ IF ~On("fence-limit") THEN Go(p, [pr[p] EXCEPT !.pc = "fence-header"]) /\ UNCHANGED limit
     ELSE IF limit.n > pr[p].n THEN Over(p) /\ UNCHANGED limit
     ELSE Go(p, [pr[p] EXCEPT !.pc = "fence-header"]) /\ limit' = [limit EXCEPT !.n = pr[p].n]
  /\ UNCHANGED <<word, turn, header, slot, mem, redis, found>>

FenceHeader(p) ==
  /\ At(p, "fence-header")
  /\ IF ~On("fence-header") THEN Go(p, [pr[p] EXCEPT !.pc = "load"]) /\ UNCHANGED header
     ELSE IF header.n > pr[p].n THEN Over(p) /\ UNCHANGED header
     ELSE Go(p, [pr[p] EXCEPT !.pc = "load"]) /\ header' = [header EXCEPT !.n = pr[p].n]
  /\ UNCHANGED <<word, limit, turn, slot, mem, redis, found>>

(* HostPage.read(): a header that was loaded, and the slot now.             *)
Damaged(h) == On("checksum") /\ slot[h.k] # h.c
Read(h) == IF Damaged(h) THEN NoCred ELSE slot[h.k]
(* HostCredentials.read()                                                   *)
Usable(c) == IF c.rel THEN NoCred ELSE c
(* HostCredentials.marks()                                                  *)
Marks(c, wd) ==
  [l \in Lanes |-> IF On("marks-of-lanes") /\ wd.w = c.w /\ wd.l = l /\ wd.t + 1 > c.from[l]
                   THEN Max(c.marks[l], wd.t + 1) ELSE c.marks[l]]

(* Host._load(), and what the turn is for.                                  *)
Load(p) ==
  /\ At(p, "load")
  /\ Go(p, [pr[p] EXCEPT !.pc = "read", !.hd = header])
  /\ UNCHANGED <<page, redis, found>>

Decide(p) ==
  /\ At(p, "read")
  /\ LET n == pr[p].n
         c == Usable(Read(pr[p].hd))
         q == [pr[p] EXCEPT !.c = c, !.hd = NoHeader]
         renewed == IF c.pend = 0 THEN [c EXCEPT !.pend = n] ELSE c
         isWritten == c.pend # 0 \/ ~On("pending-first")
     IN IF p \notin mem
        THEN IF c.kind = "lease" /\ mem = {}
             THEN Go(p, [q EXCEPT !.goal = "release", !.pc = IF On("release-sealed") THEN "seal" ELSE "marks"])
             ELSE Over(p)
        ELSE IF c.kind = "lease"
        THEN \/ \E l \in Lanes : \E t \in c.from[l]..c.until[l] - 1 :
                  Go(p, [q EXCEPT !.goal = "open", !.pc = "seal",
                         !.nx = [w |-> c.w, l |-> l, t |-> t, s |-> 0, x |-> FALSE, of |-> c.tok]])
             \/ Go(p, [q EXCEPT !.goal = "renew", !.c = renewed, !.pc = IF isWritten THEN "ask" ELSE "header"])
             \/ "replace" \in Doing /\ Go(p, [q EXCEPT !.goal = "replace", !.old = c, !.c = [NoCred EXCEPT !.tok = n],
                                              !.pc = "ask"])
        ELSE Go(p, [q EXCEPT !.goal = "claim", !.pc = IF On("seal-first") THEN "seal" ELSE "header",
                    !.c = [NoCred EXCEPT !.kind = "claim", !.tok = IF c.kind = "claim" THEN c.tok ELSE n]])
  /\ UNCHANGED <<page, redis, found>>

-----------------------------------------------------------------------------
(* HostPage.seal()                                                          *)
Sealed == IF ~word.x THEN [word EXCEPT !.x = TRUE]
          ELSE IF ~On("new-seal") THEN word
          ELSE IF word.s < SEQ - 1 THEN [word EXCEPT !.s = @ + 1]
          ELSE [word EXCEPT !.t = @ + 1, !.s = 0]
Seal(p) ==
  /\ At(p, "seal")
  /\ LET sealed == IF On("seal") THEN Sealed ELSE word
         next == CASE pr[p].goal = "open" -> "check" [] pr[p].goal = "release" -> "marks" [] OTHER -> "header"
     IN /\ word' = sealed
        /\ Go(p, [pr[p] EXCEPT !.pc = next, !.wd = IF pr[p].goal = "open" THEN sealed ELSE NoId])
  /\ UNCHANGED <<limit, turn, header, slot, mem, redis, found>>

(* HostAllocator.open(), behind seal(): the credentials, and their marks    *)
(* with the word as it is now.                                              *)
Check(p) ==
  /\ At(p, "check")
  /\ LET c == Usable(Read(header))
         marks == Marks(c, word)
         q == [pr[p] EXCEPT !.c = [c EXCEPT !.marks = marks]]
     IN IF c.kind # "lease" \/ c.tok # pr[p].c.tok \/ marks[pr[p].nx.l] > pr[p].nx.t THEN Over(p)
        ELSE Go(p, [q EXCEPT !.pc = IF marks # c.marks THEN "header" ELSE "limit"])
  /\ UNCHANGED <<page, redis, found>>

(* HostAllocator.marks(), of a lease that is given back. None: its end.     *)
MarksOfRelease(p) ==
  /\ At(p, "marks")
  /\ LET c == Usable(Read(header))
         marks == IF c.tok = pr[p].c.tok THEN Marks(c, word) ELSE pr[p].c.until
     IN Go(p, [pr[p] EXCEPT !.c.marks = marks, !.pc = IF On("note-release") THEN "header" ELSE "ask"])
  /\ UNCHANGED <<page, redis, found>>

(* HostPage.write(): the header, the credentials that it refers to, what    *)
(* becomes of them; the other slot; the header.                             *)
Written(p, before) ==
  LET q == pr[p] IN
  CASE q.goal = "claim" -> q.c
    [] q.goal = "lease" ->
         [NoCred EXCEPT !.kind = "lease", !.tok = q.c.tok, !.w = q.rep.w, !.tip = q.rep.tip,
                        !.until = q.rep.until, !.from = q.rep.from]
    [] q.goal = "renew" -> [before EXCEPT !.pend = q.c.pend]
    [] q.goal = "renewed" ->
         [q.c EXCEPT !.until = [l \in Lanes |-> Max(q.rep.until[l], @[l])], !.tip = q.c.pend, !.pend = 0, !.marks = before.marks]
    [] q.goal = "open" -> [before EXCEPT !.marks = q.c.marks]
    [] q.goal = "clear" -> NoCred
    [] q.goal = "release" -> IF On("note-token") => before.tok = q.c.tok
                             THEN [before EXCEPT !.rel = TRUE] ELSE before

(* What follows when the credentials could not be written.                  *)
Failed(p) ==
  IF ~On("void") /\ pr[p].goal \in {"claim", "renew"}
  THEN Go(p, [pr[p] EXCEPT !.pc = "ask", !.hd = NoHeader, !.new = NoCred]) ELSE Over(p)

LoadHeader(p) ==
  /\ At(p, "header")
  /\ LET q == pr[p]
         before == Read(header)
         isLease == before.kind = "lease"
         old == IF isLease THEN [q.old EXCEPT !.marks = Marks(before, word)] ELSE [q.old EXCEPT !.marks = q.old.until]
     IN IF \/ On("fence-header") /\ header.n # q.n
           \/ q.goal \in {"renew", "renewed", "open"} /\ ~isLease
        THEN Failed(p)
        ELSE Go(p, [q EXCEPT !.pc = "slot", !.hd = header, !.new = Written(p, before),
                             !.old = IF q.goal = "lease" /\ q.old # NoCred THEN old ELSE q.old])
  /\ UNCHANGED <<page, redis, found>>

WriteSlot(p) ==
  /\ At(p, "slot")
  /\ slot' = [slot EXCEPT ![(pr[p].hd.k + 1) % SLOTS] = pr[p].new]
  /\ Go(p, [pr[p] EXCEPT !.pc = "swap"])
  /\ UNCHANGED <<word, limit, turn, header, mem, redis, found>>

SwapHeader(p) ==
  /\ At(p, "swap")
  /\ LET q == pr[p]
         q0 == [q EXCEPT !.hd = NoHeader, !.new = NoCred]
         released == [q0 EXCEPT !.goal = "release", !.pc = "header", !.c = q.old, !.rep = NoReply, !.old = NoCred]
     IN IF On("header-exchanged") /\ header # q.hd THEN Failed(p) /\ UNCHANGED <<header, lost>>
        ELSE /\ header' = [n |-> q.n, k |-> (q.hd.k + 1) % SLOTS, c |-> q.new]
             (* given up since it was refused, but it is this host's          *)
             /\ lost' = (lost \/ \/ q.goal = "clear" /\ q.c.kind = "lease" /\ rec[q.c.w].tok = q.c.tok /\ rec[q.c.w].tip > 0
                                 \/ q.goal = "release" /\ q.new.rel /\ q.new.tok # q.c.tok)
             /\ CASE q.goal \in {"claim", "renew", "release"} -> Go(p, [q0 EXCEPT !.pc = "ask"])
                  [] q.goal = "lease" -> IF q.old = NoCred THEN Over(p) ELSE Go(p, released)
                  [] q.goal = "renewed" -> Go(p, [q0 EXCEPT !.pc = "extend"])
                  [] q.goal = "open" -> Go(p, [q0 EXCEPT !.pc = "limit"])
                  [] q.goal = "clear" -> Over(p)
  /\ UNCHANGED <<word, limit, turn, slot, mem, redis, wit, again, out>>

(* Host.extend(): only for a word that is open, and not in an outage lane.  *)
Extend(p) ==
  /\ At(p, "extend")
  /\ IF word.x \/ word.l \in Outs THEN Over(p)
     ELSE Go(p, [pr[p] EXCEPT !.pc = "limit", !.nx = [NoId EXCEPT !.l = word.l],
                              !.c.until = [l \in Lanes |-> Max(@[l], pr[p].rep.until[l])]])
  /\ UNCHANGED <<page, redis, found>>

(* HostPage.set_limit()                                                     *)
SetLimit(p) ==
  /\ At(p, "limit")
  /\ IF On("fence-limit") /\ limit.n # pr[p].n THEN Over(p) /\ UNCHANGED limit
     ELSE /\ limit' = [n |-> IF On("fence-limit") THEN pr[p].n ELSE 0, u |-> pr[p].c.until[pr[p].nx.l]]
          /\ IF pr[p].goal = "open" THEN Go(p, [pr[p] EXCEPT !.pc = "open"]) ELSE Over(p)
  /\ UNCHANGED <<word, turn, header, slot, mem, redis, found>>

(* HostPage.open()                                                          *)
OpenWord(p) ==
  /\ At(p, "open")
  /\ Over(p)
  /\ IF On("open-if-sealed") /\ ~Same(word, pr[p].wd) THEN UNCHANGED <<word, found>>
     ELSE word' = pr[p].nx /\ Made(pr[p].nx)
  /\ UNCHANGED <<limit, turn, header, slot, mem, redis>>

-----------------------------------------------------------------------------
(* Redis: R1 to R5 and R7, as Lease.tla has them, without losses. The       *)
(* outcomes of a request: what becomes of Redis, and the reply.             *)
Same3 == [rec |-> rec, chain |-> chain, res |-> res]
Outcome(reply, state) == state @@ [reply |-> reply]
Granting(w, r, tip, from) ==
  {LET n == [tok |-> r.tok, tip |-> tip, from |-> from, end |-> Max(r.end, now + TTL),
             until |-> [l \in Lanes |-> Max(r.until[l], now + lead + Len(l))],
             mark |-> [l \in Lanes |-> Max(r.mark[l], now + lead + Len(l))]]
   IN Outcome([kind |-> "ok", w |-> w, tip |-> tip, until |-> n.until, from |-> from],
              [rec |-> [rec EXCEPT ![w] = n], chain |-> IF tip < 0 THEN chain + 1 ELSE chain,
               res |-> {o \in res : o.tok # r.tok \/ o.w # w \/ o.f # from}
                         \cup {[tok |-> r.tok, w |-> w, f |-> from, u |-> n.until]}]) : lead \in Leads}
(* The end that the process knows is the mark. A lane that was not used     *)
(* goes back to where its reservation began.                                *)
Lowered(r, c) ==
  [l \in Lanes |-> IF r.mark[l] # c.until[l] \/ r.from[l] >= c.until[l] THEN r.mark[l]
                   ELSE Max(r.from[l], IF c.marks[l] < c.until[l] THEN c.marks[l] ELSE c.until[l])]

Outcomes(q) ==
  LET c == q.c
      own == {w \in Wids : rec[w].tok = c.tok /\ now < rec[w].end}
      free == {w \in Wids : rec[w].end <= now}
  IN CASE q.do = "claim" ->
            IF own # {} THEN UNION {Granting(w, rec[w], -1 - chain, rec[w].from) : w \in own}
            ELSE IF free = {} THEN {Outcome([NoReply EXCEPT !.kind = "full"], Same3)}
            ELSE UNION {Granting(w, [rec[w] EXCEPT !.tok = c.tok, !.until = Each(0)], -1 - chain, rec[w].mark) : w \in free}
       [] q.do = "renew" ->
            LET r == rec[c.w] IN
            IF r.tok # c.tok \/ r.tip \notin {c.tip, c.pend}
            THEN {Outcome([NoReply EXCEPT !.kind = "gone"], Same3)}
            ELSE Granting(c.w, r, c.pend, r.from)
       [] q.do = "release" ->
            LET r == rec[c.w] IN
            {Outcome([NoReply EXCEPT !.kind = "ok"],
               IF r.tok # c.tok \/ r.tip \notin {c.tip, c.pend} \/ r.tip = 0 THEN Same3
               ELSE [Same3 EXCEPT !.rec[c.w] = [r EXCEPT !.tok = Nobody, !.tip = 0, !.end = now,
                                                !.mark = Lowered(r, c)]])}

Become(o) == rec' = o.rec /\ chain' = o.chain /\ res' = o.res

Serve(p) ==
  /\ At(p, "ask")
  /\ LET q == pr[p] IN
     \E o \in Outcomes([do |-> IF q.goal = "replace" THEN "claim" ELSE q.goal, c |-> q.c]) :
       Become(o) /\ Go(p, [q EXCEPT !.pc = "told", !.rep = o.reply])
  /\ UNCHANGED <<page, now, net, others, late, found>>

(* No reply: the request, or the reply, was lost, or the request is late.   *)
GiveUp(p) ==
  /\ late < LATE
  /\ late' = late + 1
  /\ \/ At(p, "told") /\ UNCHANGED net
     \/ At(p, "ask") /\ net' = net \cup {[do |-> IF pr[p].goal = "replace" THEN "claim" ELSE pr[p].goal, c |-> pr[p].c]}
  /\ Over(p)
  /\ UNCHANGED <<page, now, rec, chain, res, others, found>>

ServeLate ==
  /\ \E q \in net : net' = net \ {q} /\ \E o \in Outcomes(q) : Become(o)
  /\ UNCHANGED <<page, pr, now, others, late, found>>

(* What LeaseManager makes of a reply.                                      *)
Told(p) ==
  /\ At(p, "told")
  /\ LET q == pr[p]
         sealing == IF On("seal-first") THEN "seal" ELSE "header"
     IN CASE q.goal \in {"claim", "replace"} /\ q.rep.kind = "ok" -> Go(p, [q EXCEPT !.goal = "lease", !.pc = sealing])
          [] q.goal = "claim" /\ q.rep.kind = "full" -> Go(p, [q EXCEPT !.goal = "clear", !.pc = sealing])
          [] q.goal = "replace" /\ q.rep.kind = "full" -> Over(p)
          [] q.goal = "renew" /\ q.rep.kind = "ok" -> Go(p, [q EXCEPT !.goal = "renewed", !.pc = "header"])
          [] q.goal = "renew" /\ q.rep.kind = "gone" -> Go(p, [q EXCEPT !.goal = "clear", !.pc = sealing])
          [] q.goal = "release" -> IF p \in mem THEN Over(p)
                                   ELSE Go(p, [q EXCEPT !.goal = "clear", !.pc = sealing, !.c = NoCred])
  /\ UNCHANGED <<page, redis, found>>

(* Another host.                                                            *)
OtherClaims ==
  /\ others < Others
  /\ others' = others + 1
  /\ \E w \in Wids :
       LET r == rec[w]
           mark == [l \in Lanes |-> Max(r.mark[l], now + Len(l))]
           ids == {[NoId EXCEPT !.w = w, !.l = l, !.t = t, !.x = FALSE] :
                     <<l, t>> \in {<<l, t>> \in Lanes \X (0..now + Max(TTL, G)) : r.mark[l] <= t /\ t < mark[l]}}
       IN /\ r.end <= now
          /\ rec' = [rec EXCEPT ![w] = [tok |-> Other, tip |-> 0, end |-> now + TTL, until |-> mark, from |-> r.mark, mark |-> mark]]
          /\ again' = (again \/ (wit.by = "host" /\ [wit.id EXCEPT !.s = 0] \in ids))
          /\ \/ wit' = wit
             \/ wit = NoWit /\ wit' \in {[id |-> id, by |-> "other"] : id \in ids}
  /\ UNCHANGED <<page, pr, now, chain, net, late, res, out, lost>>

Pass ==
  /\ now < TMAX /\ now' = now + 1
  /\ UNCHANGED <<page, pr, rec, chain, net, others, late, res, found>>

-----------------------------------------------------------------------------
(* HostPage.join(), leave(); a kill. Only membership tells a killed process *)
(* from one that is stopped: the last living one releases.                  *)
Join(p) ==
  /\ At(p, "out")
  /\ mem' = mem \cup {p} /\ Go(p, Idle)
  /\ UNCHANGED <<word, limit, turn, header, slot, redis, found>>

Leave(p) ==
  /\ "leave" \in Doing /\ At(p, "idle")
  /\ mem' = mem \ {p}
  /\ Go(p, IF mem' = {} THEN [Idle EXCEPT !.pc = "left"] ELSE Gone)
  /\ UNCHANGED <<word, limit, turn, header, slot, redis, found>>

Kill(p) ==
  /\ "kill" \in Doing /\ ~At(p, "gone") /\ ~At(p, "out")
  /\ mem' = mem \ {p} /\ Go(p, Gone)
  /\ UNCHANGED <<word, limit, turn, header, slot, redis, found>>

Next ==
  \/ \E p \in Procs :
       \/ Word(p) \/ LimitRead(p) \/ Take(p)
       \/ TakeTurn(p) \/ FenceLimit(p) \/ FenceHeader(p) \/ Load(p) \/ Decide(p)
       \/ Seal(p) \/ Check(p) \/ MarksOfRelease(p) \/ LoadHeader(p) \/ WriteSlot(p) \/ SwapHeader(p)
       \/ Extend(p) \/ SetLimit(p) \/ OpenWord(p)
       \/ Serve(p) \/ GiveUp(p) \/ Told(p)
       \/ Join(p) \/ Leave(p) \/ Kill(p)
  \/ ServeLate \/ OtherClaims \/ Pass

Spec == Init /\ [][Next]_vars
Sym == Permutations(Procs \ Newcomers)

(* No id is taken twice, neither by processes of the host nor by it and     *)
(* another one; and the ids of a host grow.                                 *)
NoRepeat == ~again
(* No id is outside of what Redis granted for the lease that the word is of.*)
Reserved == ~out
(* No lease of the host is refused for a renewal that the host has sent.    *)
NotLost == ~lost
=============================================================================
