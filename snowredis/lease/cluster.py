"""Client of a Redis Cluster for pools, each of which lives in one slot.

redis-py's own Cluster client asks every node for the slots when it is made and after every error,
one after the other, and has locks that a forked child inherits locked. Claims, renewals and
releases need one node only: the master of the pool's slot, which this client finds by itself,
within the time limit of the call. Everything else (monitoring) goes to a RedisCluster, made at its first use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import redis
from redis import cluster, exceptions
from redis.cluster import RedisCluster
from redis.crc import key_slot

from snowredis.lease.connections import limited
from snowredis.lease.time_limit import CALL_LIMIT_S, remaining_s, time_limit

Address = tuple[str, int]

# several nodes may have to be asked where the slot is before the node that has it
LOOK_LIMIT_S = 0.5
# the slot moved; it is being moved to a third node; once more for a node that answers from an old view
MAX_REDIRECTIONS = 3
# redis-py's plain parser knows the errors of a Cluster only since 6.0
_PARSER: dict[str, Any] = {"parser_class": cluster.ClusterParser} if hasattr(cluster, "ClusterParser") else {}
# the node does not serve the slot now, and another may
_LOOK_AGAIN = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.ClusterDownError,
    exceptions.ReadOnlyError,
)


class ClusterClient:
    """Runs commands on the master of a key's slot. Does not connect before the first command.

    Args:
        nodes: where to ask for the slots, in any order.
        settings: of redis.Redis, for each node.
        make: makes the RedisCluster for everything but evalsha, eval, hget and on_one_connection.
        address_remap: the address to use for one that the Cluster names.
    """

    def __init__(
        self,
        nodes: Sequence[Address],
        settings: dict[str, Any],
        make: Callable[[], RedisCluster],
        *,
        address_remap: Callable[[Address], Address] | None = None,
    ) -> None:
        self.nodes = tuple(nodes)
        self._settings = settings
        self._make = make
        self._remap = address_remap or (lambda address: address)
        # dicts because setdefault() is one step: of two threads that come here together one's client is kept
        self._made: dict[str, RedisCluster] = {}
        self._clients: dict[Address, redis.Redis] = {}
        self._masters: dict[int, Address] = {}
        # of the newest answer to CLUSTER SLOTS
        self._learned: tuple[Address, ...] = ()
        # nodes that did not help when they were asked last: others are asked before them
        self._failed: set[Address] = set()

    def evalsha(self, sha: str, numkeys: int, *keys_and_args: Any) -> Any:
        return self._run("EVALSHA", sha, numkeys, *keys_and_args, key=keys_and_args[0])

    def eval(self, script: str, numkeys: int, *keys_and_args: Any) -> Any:
        return self._run("EVAL", script, numkeys, *keys_and_args, key=keys_and_args[0])

    def hget(self, name: str, key: str) -> Any:
        return self._run("HGET", name, key, key=name)

    def _run(self, *command: Any, key: str) -> Any:
        (reply,) = self.on_one_connection(key, [command])
        if isinstance(reply, Exception):
            raise reply
        return reply

    def on_one_connection(self, key: str, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Run *commands* one after the other on one connection to the master of *key*'s slot.

        The first one follows the slot to where it is. Errors of single commands are in the list of replies.

        Raises:
            redis-py's errors: no node that serves the slot was found or answered within CALL_LIMIT_S.
        """
        slot = key_slot(key.encode())
        asking = False
        address: Address | None = None
        with time_limit(CALL_LIMIT_S):
            for _ in range(1 + MAX_REDIRECTIONS):
                address = address or self._masters.get(slot) or self._look(slot)
                try:
                    replies = _run_together(self._client(address), commands, asking=asking)
                    if isinstance(replies[0], _LOOK_AGAIN):
                        raise replies[0]
                except _LOOK_AGAIN:
                    self._masters.pop(slot, None)
                    self._failed.add(address)
                    raise
                self._failed.discard(address)
                if not isinstance(replies[0], exceptions.AskError):
                    break
                # without a host it is that of the node which answered
                address = self._remap((replies[0].host or address[0], replies[0].port))
                asking = not isinstance(replies[0], exceptions.MovedError)
                if not asking:
                    self._masters[slot] = address
        return replies

    def _look(self, slot: int) -> Address:
        """Ask one node after the other who has *slot*, until one knows."""
        asked = sorted(dict.fromkeys([*self._learned, *self.nodes]), key=self._failed.__contains__)
        last: Exception | None = None
        answered = False
        for address in asked:
            if remaining_s() <= 0:
                break
            try:
                with time_limit(LOOK_LIMIT_S):
                    (ranges,) = _run_together(self._client(address), [("CLUSTER", "SLOTS")])
                if isinstance(ranges, Exception):
                    raise ranges
            except exceptions.RedisError as error:
                last = error
                self._failed.add(address)
                continue
            answered = True
            masters = {(first, end): self._address(address, at) for first, end, at, *_ in ranges}
            found = next((at for (first, end), at in masters.items() if first <= slot <= end), None)
            self._learned = tuple(masters.values())
            if found is not None:
                return self._masters.setdefault(slot, found)
        if isinstance(last, exceptions.AuthenticationError | exceptions.NoPermissionError):
            raise last
        if answered:
            raise exceptions.SlotNotCoveredError(f'Slot "{slot}" is served by no node')
        raise exceptions.RedisClusterException(f"no node answered CLUSTER SLOTS: {last}") from last

    def _address(self, asked: Address, at: Sequence[Any]) -> Address:
        """The address of a node as CLUSTER SLOTS names it: no host means that of the node which was asked."""
        host = at[0].decode() if isinstance(at[0], bytes) else at[0]
        return self._remap((asked[0] if host in (None, "", "?") else host, int(at[1])))

    def _client(self, address: Address) -> redis.Redis:
        client = self._clients.get(address)
        if client is None:
            host, port = address
            client = redis.Redis(host=host, port=port, **self._settings)
            pool = client.connection_pool
            pool.connection_class = limited(pool.connection_class)
            pool.connection_kwargs.update(_PARSER)
            client = self._clients.setdefault(address, client)
        return client

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = self._made.get("client")
        if made is None:
            made = self._made.setdefault("client", self._make())
        return getattr(made, name)

    def fresh_copy(self) -> ClusterClient:
        """Return a client of the same Cluster that shares no connection and no lock with this one."""
        return ClusterClient(self.nodes, self._settings, self._make, address_remap=self._remap)

    def parts(self) -> list[Any]:
        """Return the clients that were made up to now."""
        return [*self._made.values(), *self._clients.values()]

    def close(self) -> None:
        for client in self.parts():
            client.close()
        self._made.clear()
        self._clients.clear()


def on_one_connection(client: Any, key: str, commands: Sequence[Sequence[Any]]) -> list[Any]:
    """Run *commands* on one connection of *client* to the server that has *key*. A command's error is its reply."""
    if isinstance(client, ClusterClient):
        return client.on_one_connection(key, commands)
    if not isinstance(client, RedisCluster):
        return _run_together(client, commands)
    # of a class of the application's own, which is used as it is
    manager: Any = client.nodes_manager
    routing: Any = client
    node = routing.get_node_from_key(key)
    if node is None:
        raise exceptions.ConnectionError(f"no node of the Cluster serves the slot of {key}")
    try:
        replies = _run_together(routing.get_redis_connection(node), commands)
    except _LOOK_AGAIN:
        manager.initialize()
        raise
    if isinstance(replies[0], (*_LOOK_AGAIN, exceptions.AskError)):
        manager.initialize()
    return replies


def _run_together(client: Any, commands: Sequence[Sequence[Any]], *, asking: bool = False) -> list[Any]:
    pipe = client.pipeline(transaction=False)
    for command in [("ASKING",), *commands] if asking else commands:
        pipe.execute_command(*command)
    replies: list[Any] = pipe.execute(raise_on_error=False)
    return replies[asking:]
