"""Workers of one process that lease worker ids and renew them as a fleet of processes would, without making ids."""

from __future__ import annotations

import json
import random
import threading
import time

from snowredis.snowflake.open import open_store
from snowredis.snowflake.protocol import ClaimRequest, PoolConfig, RenewRequest, Store, WorkerStats
from snowredis.snowflake.replies import Granted, Renewed, Seen

RENEWALS_PER_TTL = 6
LABELS = ("web", "celery", "import", "mail")
HOSTS = 40


class _Simulated:
    def __init__(self, number: int, random_numbers: random.Random) -> None:
        self.random = random_numbers
        self.token, self.renewal_id = f"{number + 1:032x}", ""
        self.worker, self.until_ms, self.outage_ms, self.made = -1, 0, 0, 0
        self.seen = Seen()
        self.lanes_ms: tuple[int, ...] = ()
        owner = {
            "host": f"app-{number % HOSTS:02}.example.net",
            "pid": 1000 + number,
            "label": LABELS[number % len(LABELS)],
        }
        self.owner = json.dumps(owner)

    def claim(self, store: Store) -> None:
        now_ms = time.time_ns() // 1_000_000
        reply = store.claim(ClaimRequest(self.token, now_ms, now_ms, 10**9, self.owner), self.seen)
        assert isinstance(reply, Granted), reply
        self.worker, self.until_ms, self.seen = reply.worker, reply.until_ms, reply.seen
        self.lanes_ms, self.renewal_id = reply.lanes_ms, reply.renewal_id
        self.outage_ms = reply.outage_until_ms

    def renew(self, store: Store) -> None:
        pending, rate = f"{self.random.getrandbits(128):032x}", self.random.randint(20, 4000)
        self.made += rate
        reply = store.renew(
            RenewRequest(
                worker=self.worker,
                token=self.token,
                renewal_id=self.renewal_id,
                pending_renewal_id=pending,
                caller_ms=time.time_ns() // 1_000_000,
                held_until_ms=self.until_ms,
                held_outage_ms=self.outage_ms,
                held_lanes_ms=self.lanes_ms,
                stats=WorkerStats(self.made, rate, self.random.randint(-3, 3), 0, 0),
                owner=self.owner,
            ),
            self.seen,
        )
        assert isinstance(reply, Renewed), reply
        self.renewal_id, self.until_ms, self.seen = pending, reply.until_ms, reply.seen
        self.outage_ms = reply.outage_until_ms


class SimulatedFleet:
    """*count* workers of one pool, which must exist; start() lets them renew in a thread."""

    def __init__(self, url: str, config: PoolConfig, count: int, seed: int = 1) -> None:
        self._store, self._ttl_s = open_store(url, config), config.ttl_ms / 1000
        numbers = random.Random(seed)
        self.workers = [_Simulated(number, numbers) for number in range(count)]
        self.paused, self._stopped = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._renew_all, daemon=True)

    def start(self) -> None:
        """Claim all worker ids, and begin to renew."""
        for worker in self.workers:
            worker.claim(self._store)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; the leases end by themselves."""
        self._stopped.set()
        self._thread.join(10)

    def _renew_all(self) -> None:
        pause_s = self._ttl_s / RENEWALS_PER_TTL / len(self.workers)
        next_s = time.monotonic()
        while True:
            for worker in self.workers:
                next_s += pause_s
                if self._stopped.wait(max(0.0, next_s - time.monotonic())):
                    return
                if not self.paused.is_set():
                    worker.renew(self._store)
