"""Talk to the store about one lease: make each request, send it, and keep of the reply what the lease is now.

Makes no ids. Blocks only on the store, and lets one thread at a time talk to it (Conversation). A thread that
only reads takes ``held``, an immutable value that is replaced as a whole. A signal handler may fork, or suspend the
generator, in the middle of every method here: LeaseSlot says why nothing goes wrong then.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

from snowredis.errors import ClockMovedBack, LayoutMismatch, PoolExhausted, SnowredisError, StoreUnavailable
from snowredis.process import VERSION
from snowredis.process.log import log
from snowredis.process.names import PROCESS, owner_text, process_mark, random_name
from snowredis.process.threads import is_interruption
from snowredis.snowflake.crash.record import NO_RECORD, Credentials
from snowredis.snowflake.crash.sweep import DeadProcesses, release_dead
from snowredis.snowflake.lease.context import Context, Conversation, PoolView
from snowredis.snowflake.lease.held import Claimed, HeldLease, LeaseSlot
from snowredis.snowflake.protocol import messages


class LeaseManager:
    """Sends the claims, renewals and releases of one generator, and keeps the lease that is granted.

    Attributes:
        store: of the pool. The constants of a shard lack its number before the first claim.
        closed, suspended: whether ids are refused for good, or until resume(); set by lifecycle.py.
        slot: where the lease is stored.
        view: what the newest reply showed of the pool.
        conversation: with the store.
        dead_processes: finds what they left.
        lost_worker: the worker id that was lost and not replaced yet; None if there is none.
        ids_made: by the generator, once that was dropped.
    """

    def __init__(
        self, store: messages.Store, context: Context, label: str, random_bytes: Callable[[int], bytes]
    ) -> None:
        self.store = store
        self._context, self._clock, self._guard = context, context.clock, context.guard
        self._label, self._random_bytes = label, random_bytes
        # random, for people who look at the pool; a forked child has another
        self._name = ""
        self.conversation = Conversation(store.where)
        self.slot = LeaseSlot(store)
        self.view = PoolView(context)
        self.dead_processes = DeadProcesses(store, self._release_dead)
        self.closed = self.suspended = False
        self.lost_worker: int | None = None
        self.ids_made = 0

    @property
    def held(self) -> HeldLease | None:
        """The lease that ids may be made of; None if there is none."""
        return self.slot.held

    def after_fork(self) -> None:
        """Forget the parent's lease and its locks, in a forked child. Does not block."""
        self._name = ""
        self.slot.after_fork()
        self.conversation.after_fork()
        self._context.counts.reset()
        self.store.after_fork()

    def send_claim(self, now: bool, instead_of: int, gives_up: bool) -> Claimed:
        """Send a claim, unless there is a lease already whose serial is not *instead_of*; keep what is granted.

        In a conversation.

        Args:
            now: whether the lanes of the worker id have to be open.
            gives_up: as in ClaimRequest.

        Blocks:
            one round trip to Redis, two after a connection failed.

        Raises:
            PoolExhausted, LayoutMismatch, StoreUnavailable: no worker id was claimed.
            ClockMovedBack: every available worker id was used at times later than this host's clock shows.
        """
        # this comes first: a fork from here on makes this claim void
        serial, generation = self.slot.next_serial(), self._guard.generation
        current = self.held
        if self.closed or self.suspended or (current is not None and current.serial != instead_of):
            return Claimed()
        # maybe one that a suspension made void and that could not be released then
        replaced = self.slot.latest
        record = self.slot.open_record(serial)
        # step 5, own: made here, so after any fork; step 2, extend: kept until it has a reply
        token, owner = self.slot.asked
        is_repeated = bool(token)
        if not is_repeated:
            token, owner = self._fresh_name(), self._owner()
        self.slot.set_asked(token, owner, serial)
        asked_ms, sent_s = self._context.now_ms(), self._clock.monotonic()
        options = messages.WANTS_LANE * (not self.slot.lent) + messages.GIVES_UP * gives_up + messages.NOW * now
        request = messages.ClaimRequest(self.view.seen, asked_ms, token, owner, self._lane_until_ms(), options)
        self.slot.record_claim(record, token, owner)
        self._guard.check()
        if serial < self.slot.oldest:
            return Claimed()
        is_unsent = True
        # once more if it had no reply: a connection that broke while idle fails only when used
        for is_last in (False, True):
            try:
                reply = self.store.ask(request)
                break
            except LayoutMismatch as error:
                if not self._guard.forked_since(generation):
                    self._note_reply(granted=False)
                    self._refused(replaced, error)
                    raise
                return Claimed()
            except StoreUnavailable as error:
                error.is_unsent = is_unsent = is_unsent and error.is_unsent
                if is_last or not error.retry or serial < self.slot.oldest:
                    if is_unsent and not is_repeated and serial >= self.slot.oldest:
                        # Redis saw nothing of this claim, so there is nothing to release if this process ends
                        self.slot.set_asked("", "", serial)
                        self.slot.clear_record()
                    raise
        if self._guard.forked_since(generation):
            # forked meanwhile: this is the child, and the reply was its parent's
            return Claimed()
        self._note_reply(granted=isinstance(reply, messages.Granted))
        self.view.learn(reply, sent_s)
        if not isinstance(reply, messages.Granted):
            self.view.log_alarm(reply)
        if isinstance(reply, messages.Settling):
            return Claimed(settling_ms=max(1, reply.wait_ms))
        if isinstance(reply, messages.PoolFull):
            self._context.counts.claims_refused["full"] += gives_up
            raise PoolExhausted(self.store.config.name, self.store.config.layout.workers, reply.wait_ms)
        if not isinstance(reply, messages.Granted):
            self._context.counts.claims_refused["clock"] += 1
            raise ClockMovedBack(reply.wait_ms, "backup")
        clocks_s = self.view.note_granted()
        fresh = HeldLease.granted(reply.terms, self.store.config, token, serial, generation)._replace(clocks_s=clocks_s)
        self.lost_worker = None
        is_held = self.slot.hold(fresh, messages.NO_STATS, fresh=True)
        self._context.counts.claims += 1
        self.view.log_alarm(reply)
        return Claimed(replaced=replaced, granted=fresh, void=not is_held)

    def _note_reply(self, *, granted: bool) -> None:
        # the token has a reply, so it is never sent again: a copy of this process may have it, too
        self.slot.set_asked("", "")
        if not granted:
            self.slot.clear_record()

    def _owner(self, *, taken_ms: int = 0, refused: str = "") -> str:
        """Return the text that names this process and this generator in Redis, for people."""
        self._name = self._name or f"{process_mark(os.getpid())}-{self._fresh_name()[:6]}"
        # the record does not show the lane of a lease that was lost, or is being lost now
        is_news = self.slot.lost_lease is not None or self.view.renewed_ago_s > self.store.config.ttl_ms / 2000
        lane_until_ms = self._lane_until_ms() if is_news else 0
        more = {"lane_until": lane_until_ms, "taken": taken_ms, "refused": refused, "version": VERSION}
        more["outage"] = int(self.store.config.outage_reserve_ms > 0)
        label = self._label or PROCESS.label
        return owner_text(socket.gethostname(), os.getpid(), label, generator=self._name, **more)

    def _lane_until_ms(self) -> int:
        """Return the end of the outage lanes in which ids go on after a lease that is granted now; 0: in none."""
        return messages.lane_until_ms(self._context.now_ms() + self.store.config.ttl_ms, *self.slot.outage_lanes_ms)

    def _fresh_name(self) -> str:
        """Return a name for a claim or a renewal."""
        return random_name(self._random_bytes, self._clock)

    def send_renewal(self, stats: messages.WorkerStats) -> bool:
        """Send a renewal of the lease by one ttl from now; keep what is granted. In a conversation.

        Returns:
            False if there is no lease, or it turned out to be lost; ``held`` is None then.

        Blocks:
            one round trip to Redis.

        Raises:
            StoreUnavailable: nothing changed; call again, and the same renewal is repeated.
            LayoutMismatch: the pool was made anew with other settings; the lease is lost.
        """
        held = self.held
        if held is None:
            return False
        # errors since a renewal without a reply are over with the reply
        refused = "" if held.pending_renewal_id else self._context.calls.refusal(stats.ids_made)
        if not held.pending_renewal_id:
            held = held._replace(pending_renewal_id=self._fresh_name())
            self.slot.hold(held, stats)
        sent_s = self._clock.monotonic()
        owner = self._owner(taken_ms=held.taken_ms, refused=refused)
        now_ms, pending = self._context.now_ms(), held.pending_renewal_id
        request = messages.RenewRequest(self.view.seen, now_ms, held.token, owner, held.terms, pending, stats)
        self._guard.check()
        if held.serial < self.slot.oldest:
            # under a renewal id of this child's own it would end the lease of its parent
            return False
        try:
            reply = self.store.ask(request)
            self._guard.check()
            if held.serial < self.slot.oldest:
                # forked meanwhile, and this is the child; or the generator was suspended
                return False
            self.view.learn(reply, sent_s)
        except LayoutMismatch as error:
            self._refused(held, error)
            raise
        except SnowredisError:
            self._context.counts.renewals_failed += 1
            raise
        if isinstance(reply, messages.Lost):
            if not reply.keeps_lane:
                self.slot.drop_lost_lease()
            elif self.view.clocks_agree:
                self.slot.keep_lane(held)
            self._lose(held, f"{reply.reason.text}; claiming another")
            self.view.log_alarm(reply)
            return False
        clocks_s = self.view.note_granted()
        self._context.counts.renewals += 1
        self._context.counts.heartbeat_s += clocks_s[1] - sent_s
        self.slot.hold(held.renewed(reply.terms, self.store.config.layout)._replace(clocks_s=clocks_s), stats)
        self.view.log_alarm(reply)
        if reply.adopted:
            worker = held.lease.worker
            log.warning(
                "pool %s: Redis may have lost what it knew; worker id %d stays leased", self.store.config.name, worker
            )
        return True

    def _refused(self, held: HeldLease | None, error: LayoutMismatch) -> None:
        """Lose *held*: the pool has ended, or what made it anew does not know what was reserved. Keep nothing."""
        self.slot.drop_lost_lease()
        if held is not None:
            self._lose(held, str(error))

    def _lose(self, held: HeldLease, reason: str) -> None:
        """Remove *held*, which the store does not have any more, for the *reason* that the log shows."""
        self.slot.remove(held)
        self.slot.clear_record()
        self._context.counts.leases_lost += 1
        self.lost_worker = held.lease.worker
        log.warning("pool %s: lost worker id %d: %s", self.store.config.name, held.lease.worker, reason)

    def detach(self) -> HeldLease | None:
        """Remove the lease, so that no more ids are made of it and it can be released.

        Returns:
            None if there is none, or if this very thread is in the middle of a conversation with the store: whoever
            began that has to look again when it is over.

        Blocks LOCK_LIMIT_S at most, while another thread talks to the store.
        """
        try:
            return self.conversation.run(self.slot.detach)
        except StoreUnavailable:
            return None

    def release(self, held: HeldLease, opened: str, stats: messages.WorkerStats = messages.NO_STATS) -> None:
        """Release *held*, which was detached or replaced before.

        Never raises, except for what interrupts this thread.

        Args:
            opened: as in ReleaseRequest.

        Blocks for one round trip to Redis; LOCK_LIMIT_S for another thread.
        """
        pool, worker = self.store.config.name, held.lease.worker
        try:
            if self.conversation.run(self._send_release, held, opened, stats):
                log.info("pool %s: released worker id %d", pool, worker)
        except Exception as error:
            # it must not stop a caller that is closing
            text = "pool %s: could not release worker id %d; it is available again when its lease ends: %s"
            log.warning(text, pool, worker, error)
            if is_interruption(error):
                raise

    def _send_release(self, held: HeldLease, opened: str, stats: messages.WorkerStats) -> bool:
        """Release *held*; return False if it is that of the parent of this forked child, or left to other processes."""
        if self._guard.forked_since(held.generation):
            # it was detached before: it is the parent's
            return False
        sent_s = self._clock.monotonic()
        now_ms, pending = self._context.now_ms(), held.pending_renewal_id
        request = messages.ReleaseRequest(self.view.seen, now_ms, held.token, held.terms, pending, opened, stats)
        # step 5, own: noted before the request is sent
        is_noted = self.slot.record.note_release(held.token, sent=True)
        if not is_noted and held.is_recorded and self.slot.record is NO_RECORD:
            # a signal handler has closed the record in the middle of this, with the lease in it: a process that finds
            # it may take the lease over, or releases it
            return False
        try:
            reply = self.store.ask(request)
        except StoreUnavailable as error:
            self.slot.record.note_release(held.token, sent=not error.is_unsent)
            raise
        self.view.learn(reply, sent_s)
        self.slot.clear_record()
        self.view.log_alarm(reply)
        return True

    def disown(self) -> None:
        """Let no process take over what is recorded here, or what dead processes left: there may be copies of it."""
        self.slot.record.note_release(None, sent=True)
        self.dead_processes.disown()

    def withdraw(self) -> None:
        """Release what a claim without a reply may have got, in one attempt. As release()."""
        token, owner = self.slot.asked
        if not token:
            return
        try:
            self.conversation.run(self._send_withdrawal, token, owner)
        except Exception as error:
            log.debug("pool %s: could not withdraw a claim: %s", self.store.config.name, error)
            if is_interruption(error):
                raise

    def _send_withdrawal(self, token: str, owner: str) -> None:
        self._guard.check()
        # a child that was forked meanwhile withdraws nothing
        if self.slot.asked[0] == token:
            release_dead(self.store, Credentials(token, owner=owner), self._context.now_ms())
            # as in claim(): the token has a reply
            self.slot.set_asked("", "")
            self.slot.clear_record()

    def _release_dead(self, release: Callable[..., int], *args: object) -> int:
        # in each conversation: nothing connects after close(), nor is under way when suspend() disowns the records
        return self.conversation.run(lambda: 0 if self.closed or self.suspended else release(*args))

    def close(self) -> None:
        """Close the store: nothing is claimed any more. A lease that is still recorded stays recorded."""
        self.slot.close()
        # a signal handler may close, or a thread after its wait for another one: then a call still uses the connection
        self.conversation.at_end(self.store.close)

    def abandon(self) -> None:
        """Release the lease of a generator that was dropped without close(), and close. Blocks as release()."""
        held = self.detach()
        if held is not None:
            self.release(held, "", messages.NO_STATS._replace(ids_made=self.ids_made))
        self.close()
