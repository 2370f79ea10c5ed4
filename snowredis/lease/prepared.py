"""What every redis-py client of ours is: bound to short time limits, without retries, and ready for a fork.

Nothing here connects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import redis
from redis import cluster
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry

from snowredis.lease.cluster import ClusterClient
from snowredis.lease.connections import limited

# redis-py gives it no types
_ClusterNode: Any = cluster.ClusterNode

# a script takes microseconds and a round trip under a millisecond: a second says that something is wrong
SOCKET_TIMEOUT_S = 1.0
# there are several Sentinels, asked one after the other, and then comes the master
SENTINEL_TIMEOUT_S = 0.5


def limits(seconds: float = SOCKET_TIMEOUT_S) -> dict[str, Any]:
    """Return arguments of redis.Redis: time limits in seconds, and no retries."""
    return {
        "socket_timeout": seconds,
        "socket_connect_timeout": seconds,
        "retry": Retry(NoBackoff(), 0),
    }


def prepared(client: redis.Redis) -> redis.Redis:
    """Make *client* keep to time limits, and do now what would read a file at its first command. Does not connect.

    Raises TypeError for an option that there is not, which would show only at the first command.
    """
    pool = client.connection_pool
    pool.connection_class = limited(pool.connection_class)
    connection = pool.connection_class(**pool.connection_kwargs)
    # since redis-py 7.2: the version that it tells the server is read from its metadata for each connection
    if hasattr(connection, "driver_info"):
        pool.connection_kwargs.setdefault("driver_info", connection.driver_info)
    return client


def _cluster(nodes: Sequence[tuple[str, int]], settings: dict[str, Any], **options: Any) -> RedisCluster:
    if int(redis.__version__.partition(".")[0]) < 6:
        # there, `retry` is of connections only
        options["cluster_error_retry_attempts"] = 0
    return RedisCluster(
        startup_nodes=[_ClusterNode(host, port) for host, port in nodes],
        retry=Retry(NoBackoff(), 0),
        # other pools' slots are no business of this one
        require_full_coverage=False,
        # the first redirection shows that the slots have moved
        reinitialize_steps=1,
        **options,
        **{name: value for name, value in settings.items() if name != "retry"},
    )


def cluster_client(
    nodes: Sequence[tuple[str, int]],
    settings: dict[str, Any],
    address_remap: Callable[[tuple[str, int]], tuple[str, int]] | None = None,
) -> ClusterClient:
    """Return a client for the Cluster of *nodes*, whose connections have *settings*. Does not connect.

    Raises TypeError for an unknown setting.
    """
    node = prepared(redis.Redis(**settings))
    settings |= {
        name: at for name, at in node.connection_pool.connection_kwargs.items() if name == "driver_info"
    }
    options = {} if address_remap is None else {"address_remap": address_remap}
    return ClusterClient(
        nodes, settings, lambda: _cluster(nodes, settings, **options), address_remap=address_remap
    )
