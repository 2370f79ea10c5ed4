"""Read a pool with plain commands: no script is run and nothing is written. Its events are read by history.py."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from snowredis.errors import LayoutMismatch, PoolNotFound, StoreUnavailable
from snowredis.monitor.lease import Lease, lease_of, parse_owner
from snowredis.monitor.pool import COUNTERS, PoolInfo, Snapshot, config_in, stored_int
from snowredis.servers.clients import address
from snowredis.servers.runner import server_now_ms, translated
from snowredis.servers.scripts import text_of, with_format
from snowredis.signatures import wrong_format
from snowredis.snowflake.protocol.messages import Alarm
from snowredis.snowflake.protocol.pool_config import FORMAT, PoolConfig, is_deleted, pool_keys
from snowredis.snowflake.protocol.record import LeaseRecord

# the beginning of a signature
_FORMAT = with_format(FORMAT, "")
# the field of a worker id
_RECORD = re.compile(r"w:(0|[1-9]\d{0,6})", re.ASCII)
# records in one command, which takes Redis less than 1 ms
_PAGE = 1_000
_POOL_TEXTS = ("signature", "incarnation", "alarm", "floor_reason", "mismatch", "over")
_POOL_NUMBERS = ("end", "start", "lost_at", "created", "swept", "is_new", "peak", "records", *COUNTERS)


class PoolReader:
    """One reading of the pool *name* in the Redis of *client*: its fields as of one moment, and what is asked for.

    Every method blocks for a few round trips and raises StoreUnavailable. So does the constructor, which also raises
    PoolNotFound and LayoutMismatch.
    """

    def __init__(self, client: Any, name: str) -> None:
        self.client, self.name, self.where = client, name, address(client)
        self._pool, self._leases, _ = pool_keys(name)
        fields = (*_POOL_TEXTS, *_POOL_NUMBERS)
        with translated(self.where):
            self.now_ms = server_now_ms(client, self._pool)
            values = client.hmget(self._pool, fields)
        self._texts = texts = {field: text_of(value or b"") for field, value in zip(fields, values, strict=True)}
        # what a pool that was deleted remembers is for the next one of its name
        if not any(texts.values()) or is_deleted(texts["over"], texts["end"], self.now_ms):
            raise PoolNotFound(name)
        # the records of another format would be left out as not valid, and nobody would seem to be alive
        if wrong_format(_FORMAT, texts["signature"]):
            raise LayoutMismatch(name, texts["signature"], _FORMAT)

    def info(self) -> PoolInfo:
        """Return settings and counters of the pool."""
        with translated(self.where):
            if self._has_index:
                return self._info(int(self.client.zcount(self._leases, f"({self.now_ms}", "+inf")))
        return self._info(len(self.workers()))

    def worker(self, worker: int) -> Lease | None:
        """Return one worker, alive or not; None if its worker id was never leased."""
        with translated(self.where):
            text = self.client.hget(self._pool, f"w:{worker}")
        return None if text is None else self._parse(worker, text_of(text))

    def state(self) -> Snapshot:
        """Return the pool, its valid leases, and those that ended without a release that no script wrote yet."""
        # the holder of a record that cannot be read may make ids in its outage lane for so long
        found = self._found_after(self._swept_ms - self._config.outage_reserve_ms)
        leases, unreadable = _leases(found), (worker for worker, lease in found.items() if lease is None)
        living = tuple(each for each in leases if each.end_ms > self.now_ms and each.state != "released")
        ended = (each for each in leases if self._swept_ms < each.end_ms <= self.now_ms and each.state != "released")
        return Snapshot(self._info(len(living)), living, tuple(ended), unreadable=tuple(sorted(unreadable)))

    def workers(self, *, alive_only: bool = True) -> list[Lease]:
        """Return the leases, by worker id; with *alive_only* false also those that have ended."""
        leases = _leases(self._found_after(self.now_ms if alive_only else None))
        return [each for each in leases if each.end_ms > self.now_ms or not alive_only]

    @property
    def _swept_ms(self) -> int:
        """Scripts wrote all leases that ended up to this time; the Redis clock may have gone back since."""
        return min(self._number("swept"), self.now_ms)

    def _number(self, field: str) -> int:
        """Return a number. Raises StoreUnavailable for a text that no script wrote."""
        text = self._texts[field]
        if (number := stored_int(text or "0")) is None:
            raise self._broken(f"the field {field} of pool {self.name!r} is not a number: {text[:20]!r}")
        return number

    def _broken(self, reason: str) -> StoreUnavailable:
        return StoreUnavailable(self.where, reason, f"Remove it as `snowredis pool delete {self.name}` says", "broken")

    @functools.cached_property
    def _has_index(self) -> bool:
        """True if the index is complete. After a loss it is not, until a claim rebuilds it."""
        return int(self.client.zcard(self._leases)) == self._number("records")

    def _found_after(self, low: int | None) -> dict[int, Lease | None]:
        """Return the leases that end after *low*, by worker id; None for a record that no script wrote.

        Others may be among them.
        """
        records: dict[str | bytes, Any] = {}
        with translated(self.where):
            if self._has_index:
                workers = self.client.zrangebyscore(self._leases, "-inf" if low is None else f"({low}", "+inf")
                names = [f"w:{text_of(worker)}" for worker in workers]
                for page in (names[start : start + _PAGE] for start in range(0, len(names), _PAGE)):
                    records |= zip(page, self.client.hmget(self._pool, page), strict=True)
            else:
                # a scan may return a record twice
                records |= self.client.hscan_iter(self._pool, match="w:*", count=_PAGE)
        rows = ((_RECORD.fullmatch(text_of(name)), text) for name, text in records.items() if text is not None)
        return {(worker := int(found[1])): self._parse(worker, text_of(text)) for found, text in rows if found}

    def _parse(self, worker: int, text: str) -> Lease | None:
        """Return what the record in *text* shows of a worker id; None if no script wrote it."""
        record = LeaseRecord.parse(text)
        if record is None:
            return None
        # until the floor has passed, leases whose renewals Redis forgot are adopted
        is_sure = self._floor_ms <= self.now_ms or record.incarnation == self._texts["incarnation"]
        config = self._config
        return lease_of(worker, record, self.now_ms, config.ttl_ms, config.layout.end_ms, is_sure=is_sure)

    @functools.cached_property
    def _config(self) -> PoolConfig:
        try:
            return config_in(self._texts["signature"], self.name)
        except (KeyError, ValueError) as error:
            raise self._broken(f"the signature of pool {self.name!r} is not valid: {error}") from error

    @functools.cached_property
    def _floor_ms(self) -> int:
        """The floor, as set_floors() of pool.lua computes it."""
        wait_ms = 0 if self._number("is_new") else self._config.floor_ms
        return max(self._number("start"), self._number("lost_at") + wait_ms)

    def _info(self, used: int) -> PoolInfo:
        texts, layout = self._texts, self._config.layout
        numbers = {field: self._number(field) for field in _POOL_NUMBERS}
        alarm: Alarm | None = None
        # there is none, or a text that no script wrote
        with contextlib.suppress(ValueError):
            alarm = Alarm.parse(texts["alarm"])
        refused = [line.partition("|") for line in texts["mismatch"].splitlines()]
        refused_at, owners = refused[0][0] if refused else "", [parse_owner(owner) for *_, owner in refused]
        return PoolInfo(
            name=self.name,
            layout=layout,
            config=self._config,
            now_ms=self.now_ms,
            created_ms=numbers["created"],
            floor_ms=self._floor_ms,
            floor_reason=texts["floor_reason"],
            incarnation=texts["incarnation"],
            end_ms=numbers["end"],
            end_counts=bool(texts["over"]),
            capacity=layout.workers,
            used=used,
            free=layout.workers - used,
            mismatch_ms=stored_int(refused_at) or 0,
            mismatch_by=", ".join(owner.text for owner in owners if owner.host),
            alarm_from_ms=alarm.from_ms if alarm else 0,
            alarm_until_ms=alarm.until_ms if alarm else 0,
            **{name: numbers[name] for name in ("peak", *COUNTERS)},
        )


def _leases(found: Mapping[int, Lease | None]) -> list[Lease]:
    return sorted(lease for lease in found.values() if lease is not None)


def list_pools(client: Any) -> list[str]:
    """Return the names of all pools in this Redis. Scans all its keys: too slow to be repeated often."""
    found = []
    for name in sorted(set(names_of_keys(client, pool_keys("*")[0])) - {""}):
        # a pool that was deleted has only its end left; a key of another type is shown, so that doctor names it
        with contextlib.suppress(PoolNotFound):
            with contextlib.suppress(StoreUnavailable, LayoutMismatch):
                PoolReader(client, name)
            found.append(name)
    return found


def names_of_keys(client: Any, pattern: str) -> Iterator[str]:
    """Return what stands for the * of *pattern* in each key that matches; a key may come twice."""
    before, _, after = pattern.partition("*")
    with translated(address(client)):
        for key in client.scan_iter(match=pattern, count=1000):
            yield text_of(key).removeprefix(before).removesuffix(after)
