"""Clients of servers that fail over, and changes that a failover or a restart must keep. Loaded only where asked for.

The clients are of a master behind Sentinels, and of a Redis Cluster. They are made from URLs, and like the
application's clients. With min_replicas, Acknowledged waits until replicas have a change.

redis-py's RedisCluster asks every node for the slots when it is created and after every error, one after the other,
and has locks that a forked child may inherit locked. Claims, renewals and releases need one node only: the master of
the pool's slot, which ClusterClient finds by itself, within the time limit of the call. All other commands (of
monitoring) go to a RedisCluster, which is created at its first use.
"""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

import redis
from redis import cluster, connection, exceptions, sentinel
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.crc import key_slot
from redis.retry import Retry

from snowredis.errors import StoreUnavailable
from snowredis.servers.connections import (
    CALL_LIMIT_S,
    NO_PORT,
    REDIS_PORT,
    SENTINEL_PORT,
    SENTINEL_TIMEOUT_S,
    OwnCluster,
    client_on,
    close_connections,
    limits,
    prepare,
    remaining_s,
    settings_of_pool,
    time_limit,
)
from snowredis.servers.scripts import Script, text_of
from snowredis.settings import MinReplicas

Address = tuple[str, int]
# redis-py gives these no types
_ClusterNode: Any = cluster.ClusterNode
_Sentinel: Any = sentinel.Sentinel
_SentinelPool: Any = sentinel.SentinelConnectionPool
_parse_url: Any = connection.parse_url

# limit for each node that is asked where the slot is: the node that serves it has to be reached after that
READ_LIMIT_S = 0.5
# the slot has moved; it is being moved to a third node; a node redirects by an old table
MAX_REDIRECTIONS = 3
# redis-py's plain parser knows the errors of a Cluster only since 6.0
_PARSER: dict[str, Any] = {"parser_class": cluster.ClusterParser} if hasattr(cluster, "ClusterParser") else {}
# the node does not serve the slot now, and another may
_READ_AGAIN = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.ClusterDownError,
    exceptions.ReadOnlyError,
)


class ClusterClient(OwnCluster):
    """Client that runs commands on the master of a key's slot. Does not connect before the first command.

    Args:
        nodes: where to ask for the slots, in any order.
        settings: arguments of redis.Redis, for the connections to each node.
        address_remap: returns the address to use for one that the Cluster announces.

    Raises TypeError for an unknown setting.
    """

    def __init__(
        self,
        nodes: Sequence[Address],
        settings: dict[str, Any],
        *,
        address_remap: Callable[[Address], Address] | None = None,
    ) -> None:
        self.nodes = tuple(nodes)
        prepared = prepare(redis.Redis(**settings)).connection_pool.connection_kwargs
        self._settings = settings | {k: v for k, v in prepared.items() if k == "driver_info"}
        self._address_remap = address_remap
        # dicts because setdefault() is one step: of two threads that come here together one's client is kept
        self._redis_clusters: dict[str, RedisCluster] = {}
        self._clients: dict[Address, redis.Redis] = {}
        self._masters: dict[int, Address] = {}
        # the masters in the newest reply to CLUSTER SLOTS
        self._learned: tuple[Address, ...] = ()
        # nodes that failed when they were asked last: others are asked before them
        self._failed: set[Address] = set()

    def evalsha(self, sha: str, numkeys: int, *keys_and_args: Any) -> Any:
        return run_at(self, keys_and_args[0], "EVALSHA", sha, numkeys, *keys_and_args)

    def eval(self, script: str, numkeys: int, *keys_and_args: Any) -> Any:
        return run_at(self, keys_and_args[0], "EVAL", script, numkeys, *keys_and_args)

    def hget(self, name: str, key: str) -> Any:
        return run_at(self, name, "HGET", name, key)

    def hmget(self, name: str, keys: Sequence[str]) -> Any:
        return run_at(self, name, "HMGET", name, *keys)

    def on_one_connection(self, key: str, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Run *commands* one after the other on one connection to the master of *key*'s slot; return their replies.

        Follows redirections of the first command. The reply to a command that failed is its error.

        Blocks for a round trip, CALL_LIMIT_S at most. Raises redis-py's errors if no node that serves the slot replied.
        """
        slot = key_slot(key.encode())
        asking = False
        address: Address | None = None
        with time_limit(CALL_LIMIT_S):
            for _ in range(1 + MAX_REDIRECTIONS):
                address = address or self._masters.get(slot) or self._find_master(slot)
                try:
                    replies = _run_together(self._client(address), commands, asking=asking)
                    if isinstance(replies[0], _READ_AGAIN):
                        raise replies[0]
                except _READ_AGAIN:
                    self._masters.pop(slot, None)
                    self._failed.add(address)
                    raise
                self._failed.discard(address)
                if not isinstance(replies[0], exceptions.AskError):
                    break
                # an address without a host has that of the node which replied
                address = self._remap((replies[0].host or address[0], replies[0].port))
                asking = not isinstance(replies[0], exceptions.MovedError)
                if not asking:
                    self._masters[slot] = address
        return replies

    def _find_master(self, slot: int) -> Address:
        """Return the master of *slot*: ask one node after the other, until one knows. Raises redis-py's errors."""
        asked = sorted(dict.fromkeys([*self._learned, *self.nodes]), key=self._failed.__contains__)
        last: Exception | None = None
        answered = False
        for address in asked:
            if remaining_s() <= 0:
                break
            try:
                with time_limit(READ_LIMIT_S):
                    (ranges,) = _run_together(self._client(address), [("CLUSTER", "SLOTS")])
                if isinstance(ranges, Exception):
                    raise ranges
            except exceptions.RedisError as error:
                last = error
                self._failed.add(address)
                continue
            answered = True
            masters = {(first, end): self._address(address, node) for first, end, node, *_ in ranges}
            master = next((node for (first, end), node in masters.items() if first <= slot <= end), None)
            self._learned = tuple(masters.values())
            if master is not None:
                return self._masters.setdefault(slot, master)
        if isinstance(last, exceptions.AuthenticationError | exceptions.NoPermissionError):
            raise last
        if answered:
            raise exceptions.SlotNotCoveredError(f'Slot "{slot}" is served by no node')
        raise exceptions.RedisClusterException(f"no node answered CLUSTER SLOTS: {last}") from last

    def _address(self, asked: Address, node: Sequence[Any]) -> Address:
        """Return the address of a node of CLUSTER SLOTS; one without a host has that of the node which was asked."""
        host = text_of(node[0] or b"")
        return self._remap((asked[0] if host in ("", "?") else host, int(node[1])))

    def _remap(self, address: Address) -> Address:
        return self._address_remap(address) if self._address_remap else address

    def _client(self, address: Address) -> redis.Redis:
        client = self._clients.get(address)
        if client is None:
            host, port = address
            client = prepare(redis.Redis(host=host, port=port, **self._settings))
            client.connection_pool.connection_kwargs.update(_PARSER)
            client = self._clients.setdefault(address, client)
        return client

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the RedisCluster that runs all other commands; create it at the first use."""
        if name.startswith("__"):
            raise AttributeError(name)
        client = self._redis_clusters.get("client")
        if client is None:
            client = self._redis_clusters.setdefault("client", self._redis_cluster())
        return getattr(client, name)

    def _redis_cluster(self) -> RedisCluster:
        settings: dict[str, Any] = {k: v for k, v in self._settings.items() if k != "retry"}
        if self._address_remap is not None:
            settings["address_remap"] = self._address_remap
        if int(redis.__version__.partition(".")[0]) < 6:
            # before redis-py 6, `retry` is for connections only
            settings["cluster_error_retry_attempts"] = 0
        return RedisCluster(
            startup_nodes=[_ClusterNode(host, port) for host, port in self.nodes],
            retry=Retry(NoBackoff(), 0),
            # slots of other pools do not matter
            require_full_coverage=False,
            # the first redirection shows that the slots have moved
            reinitialize_steps=1,
            **settings,
        )

    def fresh_copy(self) -> ClusterClient:
        """Return a client of the same Cluster that shares no connection and no lock with this one."""
        return ClusterClient(self.nodes, self._settings, address_remap=self._address_remap)

    def parts(self) -> list[Any]:
        """Return the redis-py clients that are in use."""
        return [*self._redis_clusters.values(), *self._clients.values()]

    def close(self) -> None:
        for client in self.parts():
            close_connections(client)
        self._redis_clusters.clear()
        self._clients.clear()


def from_cluster_url(url: str) -> ClusterClient:
    """Return a client for cluster://HOSTS. Raises ValueError, TypeError."""
    hosts, path, options = split_url(url, REDIS_PORT)
    if path.strip("/") not in ("", "0") or options.pop("db", 0):
        raise ValueError("a Cluster has no databases but 0")
    settings = limits() | options
    if not settings.get("ssl"):
        settings.pop("ssl", None)
    return ClusterClient(hosts, settings)


def cluster_without_retries(client: Any) -> ClusterClient:
    """Return a client of the same Cluster as *client*, a RedisCluster, with short timeouts and without retries."""
    manager = client.nodes_manager
    nodes = [(node.host, node.port) for node in (client.get_nodes() or manager.startup_nodes.values())]
    settings = settings_of_pool(manager)
    # settings of one node, and what the client adds itself
    for name in ("host", "port", "db", "redis_connect_func", "himport_registry", "cache"):
        settings.pop(name, None)
    # a client that was created from a URL has it
    if issubclass(settings.pop("connection_class", object), redis.SSLConnection):
        settings["ssl"] = True
    return ClusterClient(nodes, settings, address_remap=getattr(manager, "address_remap", None))


def on_one_connection(client: Any, key: str, commands: Sequence[Sequence[Any]]) -> list[Any]:
    """Run *commands* on one connection of *client* to the server that has *key*; return their replies.

    The reply to a command that failed is its error. Blocks for a round trip; raises redis-py's errors.
    """
    if isinstance(client, ClusterClient):
        return client.on_one_connection(key, commands)
    if not isinstance(client, RedisCluster):
        return _run_together(client, commands)
    # an application's subclass of RedisCluster is used as it is
    manager: Any = client.nodes_manager
    routing: Any = client
    node = routing.get_node_from_key(key)
    if node is None:
        raise exceptions.ConnectionError(f"no node of the Cluster serves the slot of {key}")
    try:
        replies = _run_together(routing.get_redis_connection(node), commands)
    except _READ_AGAIN:
        manager.initialize()
        raise
    if isinstance(replies[0], (*_READ_AGAIN, exceptions.AskError)):
        manager.initialize()
    return replies


def run_at(client: Any, key: str, *command: Any) -> Any:
    """Run a command at the server that has *key*; return its reply. Blocks and raises as on_one_connection()."""
    (reply,) = on_one_connection(client, key, [command])
    if isinstance(reply, Exception):
        raise reply
    return reply


def _run_together(client: Any, commands: Sequence[Sequence[Any]], *, asking: bool = False) -> list[Any]:
    pipe = client.pipeline(transaction=False)
    for command in [("ASKING",), *commands] if asking else commands:
        pipe.execute_command(*command)
    replies: list[Any] = pipe.execute(raise_on_error=False)
    return replies[asking:]


# --- Sentinel ---------------------------------------------------------------------------------------


def from_sentinel_url(url: str) -> redis.Redis:
    """Return a client for sentinel://HOSTS/MASTER/DB. Raises ValueError, TypeError."""
    hosts, path, options = split_url(url, SENTINEL_PORT)
    master, _, db = path[1:].removesuffix("/").partition("/")
    if not master or not re.fullmatch(r"\d*", db, re.ASCII):
        raise ValueError("the master's name has to come after the Sentinels, then perhaps a database number")
    tls = options.pop("ssl", False)
    to_sentinels: dict[str, Any] = limits(SENTINEL_TIMEOUT_S) | ({"ssl": True} if tls else {})
    for name in ("username", "password"):
        if f"sentinel_{name}" in options:
            to_sentinels[name] = options.pop(f"sentinel_{name}")
    others = int(options.pop("min_other_sentinels", 0))
    sentinels = _Sentinel(hosts, min_other_sentinels=others, sentinel_kwargs=to_sentinels)
    settings = limits() | options | {"db": int(db or options.get("db", 0))}
    client: redis.Redis = sentinels.master_for(unquote(master), **settings, **({"ssl": True} if tls else {}))
    for sentinel_client in sentinels.sentinels:
        prepare(sentinel_client)
    return prepare(client)


def split_url(url: str, default_port: int) -> tuple[list[tuple[str, int]], str, dict[str, Any]]:
    """Return the hosts with ports, the path, and credentials and options as redis-py parses them. Raises ValueError."""
    match = re.fullmatch(r"\w+://(?:([^/?#]*)@)?([^/?#@]+)(/[^?#]*)?(?:\?([^#]*))?", url)
    if match is None:
        raise ValueError("hosts, separated by commas, have to come after ://")
    credentials, hosts, path, query = match.groups(default="")
    options: dict[str, Any] = dict(_parse_url(f"redis://{credentials}@host/?{query}"))
    del options["host"]
    if "ssl" in options:
        options["ssl"] = str(options["ssl"]).lower() in ("1", "true", "yes")
    addresses = []
    for host in hosts.split(","):
        parts = urlsplit(f"//{host}")
        if not parts.hostname or NO_PORT.search(host):
            raise ValueError(f"{host!r} is not a host, or a host with a port")
        addresses.append((parts.hostname, parts.port or default_port))
    return addresses, path, options


def sentinel_without_retries(pool: Any) -> redis.Redis:
    """Return a client like one on *pool*, with short timeouts and without retries, also of its Sentinels."""
    manager = pool.sentinel_manager
    # the copy has its other settings
    manager_copy = copy.copy(manager)
    manager_copy.sentinels = [
        client_on(
            redis.ConnectionPool(
                connection_class=sentinel_client.connection_pool.connection_class,
                **settings_of_pool(sentinel_client.connection_pool, SENTINEL_TIMEOUT_S),
            )
        )
        for sentinel_client in manager.sentinels
    ]
    settings = settings_of_pool(pool)
    # the pool adds itself
    settings.pop("connection_pool", None)
    return client_on(
        _SentinelPool(
            pool.service_name,
            manager_copy,
            connection_class=pool.connection_class,
            is_master=pool.is_master,
            check_connection=pool.check_connection,
            **settings,
        )
    )


# --- changes that stay ------------------------------------------------------------------------------

# statuses of replies that any script can send; it changed nothing then
REFUSALS = ("signature", "unidentified", "broken")
# the server may take twice as long, since it checks only now and then; the socket's timeout is 1 s
WAIT_MS = 400
# the longest that a person waits for a snapshot
SAVE_LIMIT_S = 60.0
# an append-only file is written to disk within a second, or two if the disk is slow
FSYNC_S = 2.0


class Acknowledged:
    """Runs scripts and waits until enough replicas have their effect.

    Args:
        min_replicas: how many are enough, 1 or more; "all": the most that were ever seen connected to the master, at
            least 1.
        where: the address, for messages.
        strict: False: run() does not raise if too few replicas have the effect.

    Attributes:
        error: what run() raised, or would have raised, the last time; None if enough replicas had the effect.
    """

    def __init__(self, min_replicas: MinReplicas, where: str, *, strict: bool = True) -> None:
        self._strict = strict
        self.error: StoreUnavailable | None = None
        self._all = min_replicas == "all"
        self._needed = 1 if min_replicas == "all" else min_replicas
        self._where = where

    def run(self, client: Any, script: Script, keys: Sequence[str], args: Sequence[str | int]) -> Any:
        """Run *script* and return its reply once enough replicas have its effect.

        Blocks for a round trip and, if replicas are missing, up to twice WAIT_MS. Raises redis-py's errors, and
        StoreUnavailable if too few replicas have the effect: then the script did run.
        """
        reply, acknowledged = self._once(client, script, keys, args)
        # a refusal changed nothing, so replicas do not matter
        self.error = None
        if acknowledged < self._needed and text_of(reply[0]).partition("\n")[0] not in REFUSALS:
            needed = f"all {self._needed}" if self._all else f"{self._needed}"
            self.error = StoreUnavailable(
                self._where,
                f"only {acknowledged} of {needed} replicas that "
                f"min_replicas={'all' if self._all else self._needed} requires had the change after {WAIT_MS} ms",
                "Connect more replicas, or lower min_replicas",
            )
            if self._strict:
                raise self.error
        return reply

    def _once(self, client: Any, script: Script, keys: Sequence[str], args: Sequence[str | int]) -> tuple[Any, int]:
        run = ("EVALSHA", script.sha, len(keys), *keys, *args)
        for attempt in (run, ("EVAL", script.source, *run[2:])):
            # on one connection: WAIT counts for what its own connection wrote
            commands = [attempt, ("INFO", "replication"), ("WAIT", self._needed, WAIT_MS)]
            replies = on_one_connection(client, keys[0], commands)
            if not isinstance(replies[0], exceptions.NoScriptError):
                break
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        reply, info, acknowledged = replies
        if self._all and int(info["connected_slaves"]) > self._needed:
            # this call did not wait for it; it raises, and the repeated call does wait
            self._needed = int(info["connected_slaves"])
        return reply, int(acknowledged)


def save_snapshot(client: Any, key: str) -> bool | None:
    """Let the server of *key* write a snapshot that begins from now on, and wait until it is on disk.

    A snapshot that is under way lacks what was written since it began: it is waited for, then another one is started.
    Returns None if the user may not do that, and False if it failed, or if the server was restarted meanwhile: it says
    "ok" then, too. Blocks until it is done, SAVE_LIMIT_S at most. Raises redis-py's errors.
    """
    deadline_s, started_by = time.monotonic() + SAVE_LIMIT_S, ""
    while time.monotonic() < deadline_s:
        info, rules = on_one_connection(client, key, [("INFO",), ("CONFIG", "GET", "save")])
        if not isinstance(info, dict) or "rdb_bgsave_in_progress" not in info:
            return None
        if int(info.get("aof_enabled", 0)):
            # enough for appendfsync everysec; a snapshot says nothing then
            time.sleep(FSYNC_S)
            return True
        if started_by and info["run_id"] != started_by:
            return False
        if not int(info["rdb_bgsave_in_progress"]):
            # Redis 7 says whether it ever loaded or wrote a file: a cache gets none, which a restart would load
            is_cache = isinstance(rules, dict) and not any(rules.values()) and not started_by
            if is_cache and not int(info.get("rdb_saves", 1)) + int(info.get("rdb_last_load_keys_loaded", 1)):
                return True
            if started_by:
                return bool(info["rdb_last_bgsave_status"] == "ok")
            (reply,) = on_one_connection(client, key, [("BGSAVE",)])
            if isinstance(reply, exceptions.NoPermissionError) or "unknown command" in str(reply):
                return None
            # any other error passes: another one has just begun, or an append-only file is being rewritten
            started_by = "" if isinstance(reply, exceptions.ResponseError) else info["run_id"]
        time.sleep(0.05)
    return False
