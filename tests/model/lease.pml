/*
 * The lease protocol as a model for Spin: who may stamp which tick of one lane, when messages are lost and late,
 * processes pause, crash, fork and are cloned, and Redis forgets.
 *
 * Checked by scripts/model, which holds the table of configurations. What is decided here line by line is what
 * snowredis/snowflake/lua/ decides: open_pool, claim, renew and release have the names and the order of the scripts.
 *
 * The property: no tick of the lane is stamped under two claims, or by two processes under one claim. It is an
 * assertion in stamp(), for one watched tick, which is chosen freely at the start: it holds for every tick if it
 * holds for every choice.
 *
 * Modelled
 *   - processes that claim, renew, release, claim again. A request may be lost, its reply may be lost, and it is
 *     repeated then; with LATE, one request of anybody's is held up and executed later, any number of times.
 *   - clocks of hosts: anything. A process stamps any tick of its reservation at any later time (so a pause of any
 *     length needs no action of its own); the clock reading in its requests is anything from BEHIND units behind
 *     Redis' clock to ahead of what the cap allows.
 *   - Redis' clocks: two servers, each with an offset of 0 to SKEW, which may be stepped within that.
 *   - crashes, with and without a crash record; forks; clones of a running and of a suspended process.
 *   - FAULTS losses in all, of the kinds that are switched on: wipe, restart with all data, restart from a copy of
 *     any earlier time, rollback in place to such a copy, failover to a replica that is any time behind, back again
 *     (a server that is deposed and promoted again keeps its run id), an identity that changes without a loss. For
 *     SLACK units after a failover each request reaches the one or the other master.
 *   - delete, and a pool of the same name made anew by a process with another ttl, or by a person.
 *
 * Not modelled
 *   - the sequence within a tick, the fast path, locks, signals and threads: a process here acts in one step, and
 *     knows at each step that it was forked (R8 is what makes that so).
 *   - more than one worker id and more than one lane. Records of different worker ids have in common only what is in
 *     the pool (floor, incarnation, version), and lanes of a worker id only their end. A process that has another
 *     worker id is a process here that asks for this one in vain.
 *   - the index of leases (R1), capacity, layouts, independent servers, durability in the sense of disks.
 *   - whether living holders get their ids (that nobody starves): that is left to the simulation.
 *   - crash records of clones; a loss while the pool is deleted and made anew; more than FAULTS losses.
 *   - a reply that comes late: a process that has it at once can do all that it could do later.
 *
 * What is documented as an exception is not counted: ticks of the reservation that a running process had when it was
 * cloned, or that was granted to two clones which repeated one request; and after a rollback in place all ticks until
 * somebody notices who saw more, then those below LIFTED_AFTER_NOTICE, among processes that had a lease at that time.
 *
 * Random names (tokens, renewals, incarnations) are numbers that nothing refers to any more. The scripts begin the chain
 * of each answer to a claim with such a name; here every chain begins with 0, and a token that was granted is refused
 * (NO_CLAIM_ONCE), and so is whoever has an earlier grant than the record (NO_SAME_GRANT).
 */

#ifndef CLIENTS
#define CLIENTS 2
#endif
#ifndef END
#define END 7           /* the last moment; ticks go further */
#endif
#ifndef TTL
#define TTL 2
#endif
#ifndef TTL_AFTER       /* of every second process, where pools are made anew with another ttl */
#define TTL_AFTER TTL
#endif
#ifndef LEAD
#define LEAD 1
#endif
#ifndef SKEW
#define SKEW 0
#endif
#ifndef SLACK
#define SLACK 0
#endif
#ifndef BEHIND
#define BEHIND 0
#endif
#ifndef FAULTS
#define FAULTS 0
#endif
#ifndef VERSIONS        /* how many scripts a pool sees, where R10 is modelled */
#define VERSIONS 0
#endif

/* durability */
#define DETECT 0
#define ASSURED 1
#define NONE 2
#ifndef DURABILITY
#define DURABILITY DETECT
#endif

#ifndef FLOOR_SKEW
#define FLOOR_SKEW SKEW
#endif
#ifndef FLOOR_SLACK
#define FLOOR_SLACK SLACK
#endif
#define UNTIL_FLOOR(ttl) (FLOOR_SKEW + (ttl) + LEAD + FLOOR_SLACK)
/* how much later than the notice of a rollback ticks are that may have been stamped twice */
#ifndef LIFTED_AFTER_NOTICE
#define LIFTED_AFTER_NOTICE (SKEW + TTL + LEAD)
#endif
#define TTL_OF(config) ((config) -> TTL_AFTER : TTL)
#define MAX(a, b) ((a) > (b) -> (a) : (b))
/* an incarnation is numbered by when it began, and named by a nonce */
#define RAISED(incarnation) ((incarnation) / 4)

/* what one server remembers */
#define ABSENT 0
#define POOL 1
#define TOMBSTONE 2
typedef Pool {
    byte kind;
    bit config;
    byte floor, incarnation, version, last;
    /* whose run id and replication id are stored: 1 + a server, or 0 for one that is no server's any more */
    byte run_id, replication;
    /* the record of the worker id; lane is where its reservation began, the mark is max(lane, until) */
    bit record;
    byte token, renewal, made_in, lane, until, lease_end;
}
Pool pool[2];

#define UNBORN 0
#define RUNNING 1
#define CRASHED 2       /* and the crash record was not acted upon yet */
typedef Client {
    byte state;
    bit config, held;
    /* has stamped the watched tick under this lease */
    bit stamped;
    /* a copy of this process has the same unanswered request */
    bit shared;
    /* has had its lease since before a rollback was noticed */
    bit early;
    byte token, renewal, pending, from, until;
    byte incarnation, version;
}
Client client[CLIENTS];

/* a request that is held up on its way */
#define A_CLAIM 1
#define A_RENEWAL 2
#define A_RELEASE 3
typedef Request {
    byte kind, config, token, renewal, pending, from, until, clock, incarnation, version;
}
#ifdef LATE
Request late;
#endif

byte now;
byte offset[2];
byte master;
byte faults;
/* the copy was taken since the last loss: only the newest before a loss counts */
bit copied;
/* the other server answers until then: 0 if it does not */
byte deposed_until;
byte watched;
bit stamped;            /* the watched tick was, by somebody */
bit lifted;             /* the promise does not cover the watched tick */
bit excused;            /* of a tick that may be repeated among those who had a lease at that notice */
bit stamped_late;       /* by somebody else than those */
bit over;               /* nothing that may still happen matters */
bit lifting;            /* nor any other, until somebody notices that Redis went back in time */
#ifdef FLOOR_FROM_START
byte started[2];
#endif
#ifdef APART            /* how much time lies between two losses */
byte quiet_until;
#endif

/* scratch of one step, 0 between steps */
byte s, q, i, clock, capped, fresh, number, granted, mark, status, why;
byte r_token, r_renewal, r_pending, r_from, r_until, r_incarnation, r_version, r_config, r_mark;
byte used, known, reply;

#define OK 1
#define REFUSED 2       /* lost, gone, settling, exhausted */
#define SIGNATURE 3

/* rules that are a condition within another */
#ifdef NO_END
#define BEFORE_END(p) true
#else
#define BEFORE_END(p) (watched < client[p].until)
#endif
#ifdef NO_CLAIM_RENEWAL
#define UNRENEWED true
#else
#define UNRENEWED (pool[s].renewal == 0)
#endif
/* where losses go unnoticed: somebody may have been given the worker id since the lease that Redis shows */
#if DURABILITY == NONE && !defined(NO_RENEWAL_LIMIT)
#define OVERDUE (pool[s].lease_end <= clock + SKEW + SLACK)
#else
#define OVERDUE false
#endif
#ifdef NO_RELEASE_RENEWAL
#define RENEWAL_KNOWN true
#else
#define RENEWAL_KNOWN (pool[s].renewal == r_renewal || pool[s].renewal == r_pending)
#endif

/* ---- names that nothing refers to ------------------------------------------------------------------------- */

#ifdef LATE
#define LATE_TOKEN(x) (late.token == (x))
#define LATE_RENEWAL(x) (late.renewal == (x) || late.pending == (x))
#define LATE_INCARNATION(x) (late.incarnation == (x))
#else
#define LATE_TOKEN(x) false
#define LATE_RENEWAL(x) false
#define LATE_INCARNATION(x) false
#endif

inline fresh_token(p) {
    fresh = p + 1;
    do
    ::
       used = pool[0].token == fresh || pool[1].token == fresh || LATE_TOKEN(fresh);
       for (i : 0 .. CLIENTS - 1) { used = used || client[i].token == fresh }
       if :: !used -> break :: else -> fresh = fresh + CLIENTS fi
    od
}

inline fresh_renewal(p) {
#ifdef NAMES_REPEAT
    /* clones that share their random state draw the same names */
    fresh = client[p].renewal % 3 + 1;
#else
    fresh = 0;
    do
    :: fresh++;
       used = pool[0].renewal == fresh || pool[1].renewal == fresh || LATE_RENEWAL(fresh);
       for (i : 0 .. CLIENTS - 1) { used = used || client[i].renewal == fresh || client[i].pending == fresh }
       if :: !used -> break :: else fi
    od
#endif
}

inline fresh_incarnation() {
    number = MAX(clock, MAX(RAISED(pool[s].incarnation), RAISED(r_incarnation)) + 1);
    fresh = number * 4;
    do
    :: used = LATE_INCARNATION(fresh) || pool[0].incarnation == fresh || pool[0].made_in == fresh ||
           pool[1].incarnation == fresh || pool[1].made_in == fresh;
       for (i : 0 .. CLIENTS - 1) { used = used || client[i].incarnation == fresh }
       if :: !used -> break :: else -> fresh++ fi
    od;
    assert(fresh < number * 4 + 4)
}

/* ---- the scripts: run on server s, with the request in r_* and capped -------------------------------------- */

inline forget_record(t) {
    pool[t].record = 0; pool[t].token = 0; pool[t].renewal = 0; pool[t].made_in = 0; pool[t].lane = 0;
    pool[t].until = 0; pool[t].lease_end = 0
}

inline wipe(t) {
    forget_record(t);
    pool[t].kind = ABSENT; pool[t].config = 0; pool[t].floor = 0; pool[t].incarnation = 0; pool[t].version = 0;
    pool[t].last = 0; pool[t].run_id = 0; pool[t].replication = 0
}

#define SAW_MORE (RAISED(r_incarnation) > RAISED(pool[s].incarnation) || \
    r_incarnation == pool[s].incarnation && r_version > pool[s].version)

/* R3, R9, R10 */
inline open_pool() {
    status = OK; why = 0;
    if
    :: lifting && pool[s].kind == POOL && SAW_MORE ->
       /* somebody who saw more is here: only those who have a lease now may still repeat each other's ticks */
       lifting = 0; excused = watched < clock + LIFTED_AFTER_NOTICE;
       for (i : 0 .. CLIENTS - 1) { client[i].early = client[i].held }
    :: else
    fi;
    if
    :: pool[s].kind != POOL -> why = 1
#ifndef NO_SIGNATURE
    :: pool[s].kind == POOL && pool[s].config != r_config -> status = SIGNATURE
    :: pool[s].kind == POOL && pool[s].config == r_config ->
#else
    :: pool[s].kind == POOL ->
#endif
       if
#if DURABILITY == DETECT
#ifndef NO_RUN_ID
       :: pool[s].run_id != s + 1 -> why = 2
#endif
#ifndef NO_REPLICATION_ID
       :: pool[s].replication != s + 1 -> why = 2
#endif
#endif
       :: else ->
          if
#ifndef NO_VERSION
          :: SAW_MORE -> why = 3
#endif
#if defined(GUARD_ROLLBACKS) && !defined(NO_GUARD)
          :: clock - pool[s].last > TTL && clock > pool[s].last -> why = 4
#endif
          :: else
          fi
       fi
    fi;
    if
    :: why -> raise_floor(clock)
    :: else
    fi;
    if
    :: status == OK ->
#if VERSIONS
       pool[s].version++;
#endif
#ifdef GUARD_ROLLBACKS
       pool[s].last = clock;
#endif
       skip
    :: else
    fi
}

inline raise_floor(lost_at) {
    fresh_incarnation();
#ifndef NO_FLOOR
    mark = lost_at;
#ifdef FLOOR_FROM_START
    if :: why == 2 && started[s] < lost_at -> mark = started[s] :: else fi;
#endif
    mark = mark + UNTIL_FLOOR(TTL_OF(r_config));
    pool[s].floor = MAX(pool[s].floor, mark);
#endif
    pool[s].incarnation = fresh; pool[s].config = r_config; pool[s].kind = POOL;
#if DURABILITY == DETECT
    pool[s].run_id = s + 1; pool[s].replication = s + 1;
#endif
    printf("%d: server %d raises the floor to %d, because of %d\n", now, s, pool[s].floor, why)
}

/* never back, though the clock may have been stepped back: R4 rests on until <= lease end + LEAD */
inline extend_lease() {
#ifdef NO_LEASE_KEPT
    pool[s].lease_end = clock + TTL_OF(r_config)
#else
    pool[s].lease_end = MAX(pool[s].lease_end, clock + TTL_OF(r_config))
#endif
}

inline claim() {
    open_pool();
    granted = 0;
    if
    :: status == OK ->
       if
       /* R5: the same claim again, because its reply was lost */
       :: pool[s].record && pool[s].token == r_token && pool[s].made_in == pool[s].incarnation && UNRENEWED &&
          !OVERDUE ->
          pool[s].until = MAX(pool[s].until, capped + TTL_OF(r_config));
          extend_lease(); granted = 1
       :: else ->
          if
#ifndef NO_CLAIM_ONCE
          /* that claim has been renewed since, or taken up again: by a copy of this process */
          :: pool[s].record && pool[s].token == r_token -> status = REFUSED; r_token = 0
#endif
#if DURABILITY != NONE && !defined(NO_SETTLING)
          :: pool[s].floor > clock -> status = REFUSED
#endif
          :: pool[s].record && pool[s].lease_end > clock -> status = REFUSED
          :: else ->
             /* R1, R3: at or above the lane's mark, and the floor */
             mark = MAX(pool[s].lane, pool[s].floor);
#ifndef NO_MARK
             mark = MAX(mark, pool[s].until);
#endif
#if DURABILITY == NONE && !defined(NO_NEWCOMER_FLOOR)
             mark = MAX(mark, clock + UNTIL_FLOOR(TTL_OF(r_config)));
#endif
             pool[s].record = 1; pool[s].token = r_token; pool[s].made_in = pool[s].incarnation;
             pool[s].renewal = 0; pool[s].lane = (mark > watched -> watched + 1 : 0); pool[s].until = capped + TTL_OF(r_config);
             pool[s].lease_end = clock + TTL_OF(r_config); granted = 1
          fi
       fi
    :: else
    fi
}

inline renew() {
    open_pool();
    if
    :: status == OK ->
       if
       :: pool[s].record && pool[s].token == r_token && pool[s].made_in == pool[s].incarnation ->
#ifndef NO_CHAIN
          /* R5: only the newest renewal of the chain goes on, or the same renewal again */
          if :: pool[s].renewal != r_renewal && pool[s].renewal != r_pending -> status = REFUSED :: else fi;
#endif
#ifndef NO_SAME_GRANT
          /* a late repetition of the claim was granted the worker id anew, after somebody else had it */
          if :: pool[s].lane > r_from -> status = REFUSED :: else fi;
#endif
          if :: OVERDUE -> status = REFUSED :: else fi;
          skip
#ifndef NO_SERVED_SINCE
       :: pool[s].record && pool[s].token != r_token && pool[s].made_in == pool[s].incarnation -> status = REFUSED
#endif
       :: else ->
          if
#if DURABILITY == NONE
          :: true -> status = REFUSED
#else
#ifndef NO_ADOPTION_LIMIT
          :: r_until <= clock + SKEW + LEAD + SLACK -> status = REFUSED
#endif
          :: else ->
             pool[s].lane = MAX(r_from, pool[s].lane); pool[s].until = MAX(r_until, pool[s].until);
             if :: pool[s].token != r_token -> pool[s].lease_end = 0 :: else fi;
             pool[s].record = 1; pool[s].token = r_token
#endif
          fi
       fi
    :: else
    fi;
    if
    :: status == OK ->
       pool[s].made_in = pool[s].incarnation; pool[s].renewal = r_pending;
       extend_lease();
       pool[s].until = MAX(pool[s].until, capped + TTL_OF(r_config))
    :: else
    fi
}

/* R7; the marks that were really used are known, or the reservation stays used up to its end */
inline release() {
    open_pool();
    if
    :: status == OK ->
       if
       :: pool[s].record && pool[s].token == r_token && pool[s].made_in == pool[s].incarnation && RENEWAL_KNOWN ->
          if
          :: known -> pool[s].lane = MAX(pool[s].lane, r_mark); pool[s].until = 0
#ifndef NO_RELEASE_UNTIL
          /* another server may have granted the holder more than this one knows of */
          :: !known -> pool[s].until = MAX(pool[s].until, r_until)
#endif
          :: else
          fi;
          pool[s].token = 0; pool[s].renewal = 0; pool[s].lease_end = clock
       :: else -> status = REFUSED
       fi
    :: else
    fi
}

/* ---- the same state under the same numbers ------------------------------------------------------------------ */

/* times that lie behind every clock are only compared with the watched tick any more */
#define PAST(time) ((time) > now -> (time) : ((time) > watched -> watched + 1 : 0))

inline forget_token(t) {
    used = pool[t].token == 0 || LATE_TOKEN(pool[t].token);
    for (i : 0 .. CLIENTS - 1) { used = used || client[i].token == pool[t].token }
    if :: !used -> pool[t].token = 0; pool[t].renewal = 0 :: else fi
}

inline rename_renewal(t, p) {
    if
    :: pool[t].token == client[p].token && pool[t].renewal ->
       pool[t].renewal = (pool[t].renewal == client[p].renewal -> 1 : (pool[t].renewal == client[p].pending -> 2 : 3))
    :: else
    fi
}

/* Tokens that nobody can present are forgotten; a chain of renewals that only its holder knows is renumbered. */
inline tidy() {
    for (i : 0 .. 1) {
        pool[i].floor = PAST(pool[i].floor);
        pool[i].until = PAST(pool[i].until);
        pool[i].lease_end = (pool[i].lease_end > now -> pool[i].lease_end : 0)
    }
    if
    :: faults == 0 && deposed_until == 0 -> wipe(1 - master); offset[1 - master] = 0
    :: else
    fi;
    forget_token(0);
    forget_token(1);
    for (q : 0 .. CLIENTS - 1) {
        client[q].until = PAST(client[q].until);
        used = LATE_TOKEN(client[q].token);
        for (i : 0 .. CLIENTS - 1) { used = used || i != q && client[i].token == client[q].token }
        if
        :: !used && client[q].token ->
           rename_renewal(0, q); rename_renewal(1, q);
           client[q].renewal = (client[q].renewal -> 1 : 0); client[q].pending = (client[q].pending -> 2 : 0);
           /* of a claim that was never granted, or not any more */
           if
           :: client[q].state == RUNNING && !client[q].held && pool[0].token != client[q].token &&
              pool[1].token != client[q].token -> client[q].token = 0; client[q].shared = 0
           :: else
           fi
        :: else
        fi
    }
#ifndef LATE
    /* nobody can stamp the watched tick any more, but for those who have: nothing is left to be seen */
    used = faults > 0 || deposed_until || pool[master].lane <= watched && pool[master].floor <= watched;
    for (i : 0 .. CLIENTS - 1) {
        used = used || client[i].held && client[i].from <= watched && !client[i].stamped
    }
    over = over || lifted || !used;
#else
    over = over || lifted;
#endif
    s = 0; q = 0; i = 0; clock = 0; capped = 0; fresh = 0; number = 0; granted = 0; mark = 0; status = 0; why = 0;
    r_token = 0; r_renewal = 0; r_pending = 0; r_from = 0; r_until = 0; r_incarnation = 0; r_version = 0;
    r_config = 0; r_mark = 0; used = 0; known = 0; reply = 0
}

/* ---- processes --------------------------------------------------------------------------------------------- */

/* which server a request reaches; during a failover, the one or the other */
inline choose_server() {
    if
    :: s = master
    :: deposed_until && now <= deposed_until -> s = 1 - master
    fi;
    clock = now + offset[s]
}

/* R2: whatever the caller's clock says */
inline choose_caller_clock() {
    capped = clock + LEAD;
#ifdef NO_CAP
    if :: capped = capped + 3 :: skip fi;
#endif
#ifdef ANY_CLOCK
    do
    :: capped > 0 && capped + BEHIND > clock -> capped--
    :: break
    od
#else
    skip
#endif
}

inline request_of(p) {
    r_config = client[p].config; r_token = client[p].token; r_renewal = client[p].renewal; r_pending = client[p].pending;
    r_from = client[p].from; r_until = client[p].until; r_incarnation = client[p].incarnation;
    r_version = client[p].version;
    /* the first unused tick of the lane; a lower mark allows more, so no other ticks count than the watched one */
    r_mark = (client[p].stamped -> watched + 1 : 0)
}

inline learn(p) {
    if
    :: status != SIGNATURE -> client[p].incarnation = pool[s].incarnation; client[p].version = pool[s].version
    :: else
    fi
}

inline drop_lease(p) {
    client[p].held = 0; client[p].stamped = 0; client[p].shared = 0; client[p].early = 0; client[p].token = 0; client[p].renewal = 0;
    client[p].pending = 0; client[p].from = 0; client[p].until = 0
}

inline lift_shared(p) {
    if
    :: client[p].shared ->
       /* both copies are answered: that is documented */
       client[p].shared = 0;
       lifted = lifted || client[p].from <= watched && watched < client[p].until
    :: else
    fi
}

/* the chain has a name that only one of the copies knows: from here on the others are told apart */
inline end_sharing(p) {
    if
    :: !client[p].shared && status == OK ->
       for (i : 0 .. CLIENTS - 1) {
           if :: client[i].token == client[p].token -> client[i].shared = 0 :: else fi
       }
    :: else
    fi
}

inline do_stamp(p) {
    printf("%d: process %d stamps tick %d\n", now, p, watched);
    assert(!stamped || lifting || excused && client[p].early && !stamped_late);
    stamped = 1; stamped_late = stamped_late || excused && !client[p].early;
    client[p].stamped = 1
}

/* whether the reply arrives; a request that is lost changes nothing but the names that were chosen for it */
inline choose_reply() {
    if :: reply = 1 :: reply = 0 fi
}

#define LOST 99

inline choose_request() {
    choose_server();
#ifdef CLONES
    if :: skip :: s = LOST fi
#else
    skip
#endif
}

inline do_claim(p) {
    choose_request(); choose_caller_clock(); choose_reply();
    d_step {
        if
        :: client[p].token == 0 -> fresh_token(p); client[p].token = fresh
        :: else
        fi;
        if
        :: s == LOST -> printf("%d: process %d asks for a worker id; the request is lost\n", now, p)
        :: else ->
           request_of(p); claim();
           if
           :: !reply ->
              printf("%d: process %d asks server %d for a worker id (%d); the reply is lost\n", now, p, s, granted)
           :: else ->
              learn(p);
              if
              :: granted ->
                 client[p].held = 1; client[p].from = pool[s].lane; client[p].until = pool[s].until;
                 lift_shared(p);
                 printf("%d: process %d claims on server %d: [%d, %d)\n", now, p, s, client[p].from, client[p].until)
              :: else ->
                 if :: r_token == 0 -> client[p].token = 0; client[p].shared = 0 :: else fi;
                 printf("%d: process %d is refused a worker id by server %d\n", now, p, s)
              fi
           fi
        fi;
        tidy()
    }
}

inline do_renew(p) {
    choose_request(); choose_caller_clock(); choose_reply();
    d_step {
        if
        :: client[p].pending == 0 -> fresh_renewal(p); client[p].pending = fresh; client[p].shared = 0
        :: else
        fi;
        if
        :: s == LOST -> printf("%d: process %d renews; the request is lost\n", now, p)
        :: else ->
           request_of(p); renew(); end_sharing(p);
           if
           :: !reply -> printf("%d: process %d renews on server %d (%d); the reply is lost\n", now, p, s, status)
           :: else ->
              learn(p);
              if
              :: status == OK ->
                 client[p].renewal = client[p].pending; client[p].pending = 0;
                 client[p].until = MAX(client[p].until, pool[s].until);
                 lift_shared(p);
                 printf("%d: process %d renews on server %d: [%d, %d)\n", now, p, s, client[p].from, client[p].until)
              :: else ->
                 drop_lease(p);
                 printf("%d: process %d loses its lease on server %d\n", now, p, s)
              fi
           fi
        fi;
        tidy()
    }
}

/* with the marks that were really used, or without */
inline do_release(p) {
    choose_server();
    if :: known = 1 :: known = 0 fi;
#ifdef NO_SEAL
    choose_reply();
#endif
    d_step {
        request_of(p); release(); learn(p);
        printf("%d: process %d releases on server %d, mark %d (%d)\n", now, p, s, known * r_mark, status);
#ifdef NO_SEAL
        /* R7 off: it was read what was used, and the lease is sealed only later */
        if :: reply -> drop_lease(p) :: else -> client[p].token = 0 fi;
#else
        drop_lease(p);
#endif
        tidy()
    }
}

/* whoever has reaped a crashed process acts upon its record, perhaps twice, and has seen nothing of the pool */
inline do_reclaim(p) {
    choose_server(); choose_caller_clock(); choose_reply();
    d_step {
        request_of(p); r_incarnation = 0; r_version = 0; known = 1;
        if
        :: client[p].held -> release()
        :: else ->
           /* a claim under way: the same claim again says which worker id it was given */
           claim();
           if :: granted -> r_renewal = 0; r_pending = 0; r_mark = 0; release() :: else fi
        fi;
        printf("%d: the crash record of process %d is acted upon on server %d, mark %d (%d)\n", now, p, s, r_mark,
            status);
        if :: reply -> restart(p) :: else fi;
        tidy()
    }
}

inline restart(p) {
    drop_lease(p); client[p].state = RUNNING; client[p].incarnation = 0; client[p].version = 0
}

inline be_born(child, p) {
    client[child].state = RUNNING; client[child].incarnation = client[p].incarnation;
    client[child].version = client[p].version; client[child].config = client[p].config
}

inline copy_lease(child, p) {
    client[child].held = client[p].held; client[child].stamped = client[p].stamped;
    client[child].token = client[p].token; client[child].renewal = client[p].renewal; client[child].pending = client[p].pending;
    client[child].from = client[p].from; client[child].until = client[p].until
}

#define MAY_ACT(p) (client[p].state == RUNNING && !over)
#define NEXT_UNBORN(p) (client[p].state == RUNNING && (p) + 1 < CLIENTS && client[CLIENTS - 1].state == UNBORN)
#if VERSIONS
#define MAY_ASK (pool[0].version < VERSIONS && pool[1].version < VERSIONS)
#else
#define MAY_ASK true
#endif

inline find_unborn() {
    q = 0;
    do :: client[q].state == UNBORN -> break :: else -> q++ od
}

proctype process(byte p) {
    do
    :: d_step { MAY_ACT(p) && client[p].held && !client[p].stamped && client[p].from <= watched && BEFORE_END(p) -> do_stamp(p) }
    :: atomic { MAY_ACT(p) && !client[p].held && MAY_ASK -> do_claim(p) }
    :: atomic { MAY_ACT(p) && client[p].held && client[p].token && MAY_ASK -> do_renew(p) }
    :: atomic { MAY_ACT(p) && client[p].held && client[p].token && MAY_ASK -> do_release(p) }
    :: d_step { MAY_ACT(p) && client[p].token ->
           printf("%d: process %d stops, or crashes, and Redis hears nothing of it\n", now, p); restart(p); tidy() }
#ifdef CRASH_RECORDS
    :: atomic { MAY_ACT(p) && client[p].token ->
           printf("%d: process %d crashes\n", now, p); client[p].state = CRASHED; client[p].shared = 0;
#ifdef RECORD_AFTER_ID
           if :: client[p].stamped = 0 :: skip fi
#endif
           ; d_step { tidy() } }
    :: atomic { client[p].state == CRASHED && !over && MAY_ASK ->
           do_reclaim(p) }
    :: d_step { client[p].state == CRASHED && !over -> restart(p); tidy() }
#endif
#ifdef FORKS
    :: d_step { MAY_ACT(p) && NEXT_UNBORN(p) && client[p].token ->
           find_unborn(); be_born(q, p);
           printf("%d: process %d forks process %d\n", now, p, q);
#ifdef FORK_KEEPS_TOKEN
           if :: !client[p].held -> client[q].token = client[p].token :: else fi;
#endif
#ifdef FORK_KEEPS_LEASE
           copy_lease(q, p);
#endif
           skip; tidy() }
#endif
#ifdef CLONES
    :: d_step { MAY_ACT(p) && NEXT_UNBORN(p) && client[p].token ->
           find_unborn(); be_born(q, p); copy_lease(q, p);
           client[p].shared = client[p].pending || !client[p].held; client[q].shared = client[p].shared;
           lifted = client[p].held && client[p].from <= watched && watched < client[p].until;
           printf("%d: process %d is cloned to process %d\n", now, p, q); tidy() }
#endif
#ifdef SUSPENDED_CLONES
    :: d_step { MAY_ACT(p) && NEXT_UNBORN(p) && client[p].token && !client[p].held ->
           find_unborn(); be_born(q, p);
           printf("%d: process %d is suspended and cloned to process %d; both resume\n", now, p, q);
#ifdef SUSPEND_KEEPS_TOKEN
           client[q].token = client[p].token
#else
           client[p].token = 0
#endif
           ; tidy() }
#endif
#ifdef LATE
    :: atomic { MAY_ACT(p) && client[p].token && late.kind == 0 ->
           late.config = client[p].config; late.token = client[p].token; late.clock = now + LEAD + SKEW;
           late.incarnation = client[p].incarnation; late.version = client[p].version;
           if
           :: !client[p].held -> late.kind = A_CLAIM
           :: client[p].held ->
              late.renewal = client[p].renewal; late.pending = client[p].pending;
              if
              :: client[p].pending ->
                 late.kind = A_RENEWAL; late.from = client[p].from; late.until = client[p].until
              :: late.kind = A_RELEASE; late.until = (client[p].stamped -> watched + 1 : 0); late.clock = 0;
                 drop_lease(p)
              fi
           fi;
           printf("%d: a request of process %d is held up (%d)\n", now, p, late.kind); d_step { tidy() } }
#endif
    od
}

/* ---- Redis, time and the network ---------------------------------------------------------------------------- */

inline copy_pool(to, from) {
    pool[to].kind = pool[from].kind; pool[to].config = pool[from].config; pool[to].floor = pool[from].floor;
    pool[to].incarnation = pool[from].incarnation; pool[to].version = pool[from].version;
    pool[to].last = pool[from].last; pool[to].run_id = pool[from].run_id; pool[to].replication = pool[from].replication;
    pool[to].record = pool[from].record; pool[to].token = pool[from].token; pool[to].renewal = pool[from].renewal;
    pool[to].made_in = pool[from].made_in; pool[to].lane = pool[from].lane; pool[to].until = pool[from].until;
    pool[to].lease_end = pool[from].lease_end
}

inline new_run_id(t) {
    for (i : 0 .. 1) { if :: pool[i].run_id == t + 1 -> pool[i].run_id = 0 :: else fi }
}

inline new_replication_id(t) {
    for (i : 0 .. 1) { if :: pool[i].replication == t + 1 -> pool[i].replication = 0 :: else fi }
}

/* a new process; most give a new replication id to a master that starts, and not all keep to that */
inline start_server(t) {
    new_run_id(t);
    if :: new_replication_id(t) :: skip fi;
#ifdef FLOOR_FROM_START
    started[t] = now;
#endif
    skip
}

inline fault() {
    faults--; copied = 0;
#ifdef APART
    quiet_until = (faults -> now + APART : 0);
#endif
    skip
}

#ifdef APART
#define FAULT (faults > 0 && !over && now >= quiet_until)
#else
#define FAULT (faults > 0 && !over)
#endif

proctype redis() {
    do
    :: d_step { now < END && !over -> now++;
           if :: deposed_until && now > deposed_until -> deposed_until = 0 :: else fi; tidy() }
#if SKEW
    :: d_step { !over -> offset[master] = (offset[master] + 1) % (SKEW + 1); tidy() }
#endif
#ifdef COPIES
    /* the replica catches up, or a snapshot is written */
    :: d_step { faults > 0 && !copied && deposed_until == 0 && !over ->
           copied = 1; copy_pool(1 - master, master); tidy() }
#endif
#ifdef WIPES
    :: d_step { FAULT -> fault(); wipe(master); printf("%d: server %d is wiped\n", now, master); tidy() }
#endif
#ifdef RESTARTS
    :: atomic { FAULT -> fault(); start_server(master); printf("%d: server %d restarts with all data\n", now, master); d_step { tidy() } }
#endif
#ifdef OLD_COPIES
    :: atomic { FAULT -> fault(); copy_pool(master, 1 - master); start_server(master);
           printf("%d: server %d restarts with an old copy\n", now, master); d_step { tidy() } }
#endif
#ifdef ROLLBACKS
    :: d_step { FAULT && pool[1 - master].kind == POOL -> fault();
#ifdef GUARD_ROLLBACKS
           if
           :: now + offset[master] > pool[1 - master].last + TTL -> skip
           :: else -> lifting = 1
           fi;
#else
           lifting = 1;
#endif
           copy_pool(master, 1 - master);
           printf("%d: server %d goes back in time (%d)\n", now, master, lifting); tidy() }
#endif
#ifdef FAILOVERS
    :: d_step { FAULT && deposed_until == 0 ->
           fault(); master = 1 - master; new_replication_id(master);
#if SLACK
           deposed_until = now + SLACK;
#endif
           printf("%d: server %d is promoted\n", now, master); tidy() }
#endif
#ifdef NEEDLESS
    :: d_step { FAULT -> fault(); new_replication_id(master);
           printf("%d: server %d changes its replication id\n", now, master); tidy() }
#endif
#ifdef DELETES
    :: d_step { FAULT && pool[master].kind == POOL -> fault();
#ifdef NO_TOMBSTONE
           wipe(master);
#else
           /* the highest mark; where something may have been forgotten, more than any reservation */
           s = master; clock = now + offset[s]; r_config = pool[s].config;
           open_pool();
           mark = MAX(pool[master].floor, MAX(pool[master].lane, pool[master].until));
#if DURABILITY == NONE
           mark = MAX(mark, clock + UNTIL_FLOOR(TTL_OF(r_config)));
#endif
           forget_record(master);
           pool[master].kind = TOMBSTONE; pool[master].floor = mark; pool[master].config = 0;
           pool[master].run_id = 0; pool[master].replication = 0;
#endif
           printf("%d: the pool is deleted\n", now); tidy() }
    /* a person says that the pool is new */
    :: atomic { pool[master].kind == TOMBSTONE && !over ->
           s = master; clock = now + offset[s]; r_incarnation = 0;
           if :: r_config = 0 :: r_config = 1 fi;
           fresh_incarnation();
           pool[s].kind = POOL; pool[s].incarnation = fresh; pool[s].config = r_config; pool[s].run_id = s + 1;
           pool[s].replication = s + 1;
           printf("%d: a pool is created, floor %d\n", now, pool[s].floor); d_step { tidy() } }
    :: d_step { pool[master].kind == TOMBSTONE && pool[master].floor < now + offset[master] && !over -> wipe(master); tidy() }
#endif
#ifdef LATE
    :: atomic { late.kind && !over && MAY_ASK ->
           choose_server();
           r_config = late.config; r_token = late.token; r_renewal = late.renewal; r_pending = late.pending; r_from = late.from;
           r_until = late.until; r_incarnation = late.incarnation; r_version = late.version; r_mark = late.until;
           known = 1; capped = (late.clock > clock + LEAD -> clock + LEAD : late.clock);
           d_step {
           if
           :: late.kind == A_CLAIM -> claim()
           :: late.kind == A_RENEWAL -> renew()
           :: late.kind == A_RELEASE -> release()
           fi;
           printf("%d: the request that was held up reaches server %d (%d)\n", now, s, status)
           };
           if
           :: late.kind = 0; late.config = 0; late.token = 0; late.renewal = 0; late.pending = 0; late.from = 0;
              late.until = 0; late.clock = 0; late.incarnation = 0; late.version = 0
           :: skip
           fi; d_step { tidy() } }
#endif
    od
}

init {
    atomic {
        select(watched : 0 .. END + LEAD + TTL);
#if SKEW
        select(i : 0 .. SKEW);
        offset[0] = i;
        select(i : 0 .. SKEW);
        offset[1] = i;
#endif
        faults = FAULTS;
        /* created by a person: nobody waits for its floor */
        pool[0].kind = POOL; pool[0].incarnation = 4; pool[0].run_id = 1; pool[0].replication = 1;
        for (i : 0 .. CLIENTS - 1) {
            client[i].config = i % 2;
#if TTL_AFTER == TTL
            client[i].config = 0;
#endif
#if !defined(CLONES) && !defined(SUSPENDED_CLONES) && !defined(FORKS)
            client[i].state = RUNNING
#else
            client[i].state = (i < CLIENTS - 1 -> RUNNING : UNBORN)
#endif
        };
        i = 0;
        for (i : 0 .. CLIENTS - 1) { run process(i) };
        i = 0;
        run redis()
    }
}
