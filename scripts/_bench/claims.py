"""Part `claims`: cost of a claim, on pools from 1,024 to 4,194,304 worker ids, never used and full.

A private redis-server is filled with records as real workers leave them (a few GB of memory for the largest
pool). All cases are measured in turns within one run.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from typing import Any

from scripts._bench.measuring import in_turns, quartiles
from scripts._bench.server import OWNER, STATS, Server, end_one_lease, fill, now_ms, private_server
from snowredis.core.layout import Layout
from snowredis.snowflake.protocol import ClaimRequest, PoolConfig, ReleaseRequest, pool_keys
from snowredis.snowflake.redis_store import RedisStore
from snowredis.snowflake.replies import Granted, PoolFull, Released, Seen

SIZES = (10, 16, 22)
QUICK_SIZES = (6, 8, 10)
NAMESPACE_BITS = 2
# claims of one case before it is another's turn
AT_A_TIME = 10


@dataclass
class Case:
    """One pool in one state; each claim is undone after it was measured."""

    name: str
    bits: int
    store: RedisStore
    server: Server
    empty: bool = False
    refused: bool = False
    bytes_each: int = 0
    claim_us: list[float] = field(default_factory=list)
    server_us: list[float] = field(default_factory=list)

    def prepare(self) -> None:
        if self.empty:
            # never used: made anew for every claim
            self.server.client.delete(*pool_keys(self.store.config.name))
            self.store.create(now_ms())

    def claim(self) -> tuple[str, Granted | None]:
        """Claim; return the token, and the reply; None if the claim was refused."""
        token, now = secrets.token_hex(16), now_ms()
        answer = self.store.claim(ClaimRequest(token, now, now, 35_000, OWNER), Seen())
        if isinstance(answer, Granted) and not self.refused:
            return token, answer
        if isinstance(answer, PoolFull) and self.refused:
            return token, None
        raise SystemExit(f"{self.name}: unexpected reply {answer}")

    def give_back(self, token: str, lease: Granted | None) -> None:
        if not self.empty and lease is not None:
            held = (
                lease.worker,
                token,
                lease.renewal_id,
                "",
                now_ms(),
                lease.until_ms,
                lease.outage_until_ms,
            )
            answer = self.store.release(ReleaseRequest(*held, (now_ms(), 0, 0, 0), STATS), Seen())
            if not isinstance(answer, Released):
                raise SystemExit(f"{self.name}: unexpected answer {answer}")

    def measure(self) -> None:
        """Measure a few claims: the time of each seen from here, and in the server as it reports it."""
        for _ in range(AT_A_TIME):
            self.prepare()
            before_us = self._scripts_us()
            began = time.perf_counter_ns()
            claimed = self.claim()
            self.claim_us.append((time.perf_counter_ns() - began) / 1000)
            self.server_us.append(self._scripts_us() - before_us)
            self.give_back(*claimed)

    def _scripts_us(self) -> int:
        return int(self.server.client.info("commandstats").get("cmdstat_evalsha", {"usec": 0})["usec"])


def measure(*, quick: bool) -> dict[str, Any]:
    rounds = 2 if quick else 100
    with private_server() as server:
        cases = _cases(server, QUICK_SIZES if quick else SIZES)
        for case in cases:
            case.measure()  # warm up
            case.claim_us.clear()
            case.server_us.clear()
        for number in in_turns([str(at) for at in range(len(cases))], rounds):
            cases[int(number)].measure()
        return {
            "about": server.about(),
            "rounds": rounds,
            "rows": [
                {
                    "name": case.name,
                    "workers": 2**case.bits,
                    "state": "never used" if case.empty else "refused" if case.refused else "full but for one",
                    "claim_us": quartiles(case.claim_us),
                    "server_us": quartiles(case.server_us),
                    "bytes_each": case.bytes_each,
                }
                for case in cases
            ],
        }


def _cases(server: Server, sizes: tuple[int, ...]) -> list[Case]:
    def store(name: str, bits: int) -> RedisStore:
        layout = Layout(timestamp_bits=39, backup_bits=NAMESPACE_BITS, worker_bits=bits, sequence_bits=22 - bits)
        return RedisStore(server.url, PoolConfig(name=name, layout=layout))

    cases = []
    for bits in sizes:
        full = store(f"full-{bits}", bits)
        taken, _ = fill(server, full)
        end_one_lease(server, full)
        size = f"{2**bits:,}"
        cases.append(Case(f"{size}, never used", bits, store(f"empty-{bits}", bits), server, empty=True))
        each = round(taken / 2**bits)
        cases.append(Case(f"{size}, full but for one", bits, full, server, bytes_each=each))
    refusing = store("refusing", 10)
    fill(server, refusing)
    cases.append(Case("1,024, full: refused", 10, refusing, server, refused=True))
    return cases
