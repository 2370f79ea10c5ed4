"""ShardStore: the store of a pool whose datacenter bits hold the number of a shard, datacenter="auto".

`snowredis pool create NAME --datacenter auto` took the number from a tag, and the pool's own hash keeps it, as one of
its constants. So a process needs nothing but the pool. A pool that Redis lost is put back by a process that knows its
number, and never by one that does not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from snowredis.errors import StoreUnavailable
from snowredis.snowflake.administration import PoolAdministration
from snowredis.snowflake.protocol import ClaimRequest, Request, signature_fields


class ShardStore(PoolAdministration):
    """A store that learns its pool's datacenter from the pool before the first claim."""

    _is_known = False

    def prepare(self) -> None:
        """Learn the datacenter. Blocks for a round trip, at the first call. Raises StoreUnavailable, LayoutMismatch."""
        if self._is_known:
            return
        signature = self.stored("signature")
        number = signature_fields(signature).get("datacenter", "")
        if not number.isdecimal():
            name = self.config.name
            raise StoreUnavailable(
                self.where,
                f"it has no pool {name!r}, whose shard number is needed",
                f"If the shard is new, create it: snowredis pool create {name} --datacenter auto. If this Redis lost "
                "the pool, its living processes put it back in a moment. If none lives, create it again with its "
                "number",
            )
        if int(number) >= self.config.layout.datacenters:
            raise self.mismatch(signature)
        self.use(replace(self.config, datacenter=int(number)))
        self._is_known = True

    def ask(self, request: Request) -> Any:
        if isinstance(request, ClaimRequest):
            self.prepare()
        return super().ask(request)
