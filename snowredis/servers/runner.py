"""Run scripts in one Redis, through redis-py. The one place that translates redis-py's errors.

Never retries: that would run a script again with an old clock reading and delay the heartbeat. The caller's loop
repeats calls. With ``min_replicas``, a call waits until enough replicas have its effect: WAIT, on the connection that
wrote, which is not allowed in scripts and transactions. If too few have it, the call raises, and the caller repeats the
same call, which replies the same and waits again.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from redis import exceptions
from redis.sentinel import MasterNotFoundError

from snowredis.errors import ConfigError, SnowredisError, StoreUnavailable, as_cause
from snowredis.process.threads import is_interruption, passed_handler, raised_since
from snowredis.servers.clients import TLS_PREFIX, close_client, fresh_copy, is_cluster, open_client
from snowredis.servers.connections import CALL_LIMIT_S, time_limit
from snowredis.servers.scripts import Script, read_only, text_of
from snowredis.settings import MinReplicas, check

if TYPE_CHECKING:
    from snowredis.servers.failover import Acknowledged

T = TypeVar("T")

_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# Redis adds this for the author of a script
_PLACE_IN_SCRIPT = re.compile(r" script: (?:[0-9a-f]{40}, )?on @user_script:\d+")
# an error of a Sentinel in redis-py's list of them
_SENTINEL_ERROR = re.compile(r" - \S*(?:Error|Exception)\b")
# the one reply that redis-py raises as an error of the connection
_FULL = "max number of clients"
# what Redis itself says
_ERROR_REPLIES = (exceptions.ResponseError, exceptions.BusyLoadingError)
_OF_REDIS_PY = (exceptions.RedisError, exceptions.RedisClusterException, OSError, UnicodeError)
_Kinds: TypeAlias = type[Exception] | tuple[type[Exception], ...]
# kinds of errors, or what the text of another reply has, as a regular expression -> what happened, where {0} are the
# words of Redis; what to do; and the code. The first that fits counts
_MEANINGS: tuple[tuple[_Kinds, str, str, str, str], ...] = (
    # Redis sends the second text to a client that says HELLO
    ((), "NOAUTH|HELLO must be called with the client already authenticated|Authentication required",
     "it requires a password, and none was given (NOAUTH)",
     "Write it in the URL: redis://:PASSWORD@host:6379/0, or redis://USER:PASSWORD@host:6379/0", "no-password"),
    (exceptions.AuthenticationError, "WRONGPASS",
     "it refused the user name or the password (WRONGPASS): {0}",
     "Correct them in the URL; special characters are written as %2F, %23, %40", "wrong-password"),
    # "The user …" of Redis 6.2 and 7.0, "ACL …" of 7.2: the user may run a script, but not a command in it; the last
    # one: the command was renamed there
    (exceptions.NoPermissionError,
     "NOPERM|The user executing the script can't|ACL failure in script|(?i:unknown( redis)? command)",
     "it refused a command: {0}",
     "Allow the user in the URL what generators need on these keys; `snowredis doctor` lists what is missing",
     "no-permission"),
    ((), "WRONGTYPE", "another program uses a key of this pool or tag, snowredis:{{NAME}} or one that begins so ({0})",
     "Use another name or database, or delete it", "broken"),
    ((), "'maxmemory'", "it has no memory left for writes ({0})",
     "Raise its maxmemory, or delete keys that nobody needs", ""),
    ((), "MISCONF", "it cannot write to its disk ({0})",
     "Free space on that disk, or mend what the log of Redis says", ""),
    ((), "is loading the dataset", "it still reads its data after a start ({0})", "Wait until it has read them", ""),
    ((), _FULL, "it has as many connections as its maxclients ({0})", "Close some, or raise maxclients", ""),
    ((), "BUSY", "it runs a long script of another program ({0})", "Wait for its end, or end it with SCRIPT KILL", ""),
    (MasterNotFoundError, "", "{0}",
     "A failover may be in progress; else check the master's name and the Sentinels' addresses", ""),
    (exceptions.MasterDownError, "", "{0}", "This replica has lost its master: wait for the failover to end", ""),
    ((exceptions.ClusterDownError, exceptions.SlotNotCoveredError, exceptions.TryAgainError), "", "{0}",
     "No node of the Cluster serves this pool's slot: a failover or a move may be in progress; else check CLUSTER INFO",
     ""),
    (exceptions.AskError, "", "{0}", "It is a node of a Redis Cluster: write cluster:// in the URL", ""),
    (exceptions.RedisClusterException, "", "{0}",
     "Check that the nodes are those of a Redis Cluster, and that its slots are served", ""),
    (_ERROR_REPLIES, "", "{0}", "It replied, so the URL leads to a Redis: correct what this reply names", ""),
    (UnicodeError, "", "this client decodes replies in another encoding ({0})", "Use encoding utf-8", ""),
)  # fmt: skip
# part of an error's text of TLS -> what to do
_OF_TLS = {
    "CERTIFICATE_VERIFY_FAILED": "Name the certificate of the server's CA in the URL, as ssl_ca_certs=/path/ca.crt, "
    "and the host as the server's certificate names it",
    # as TLS 1.3 and TLS 1.2 say it
    "CERTIFICATE_REQUIRED|HANDSHAKE_FAILURE": "It asks for a certificate of this client: name it in the URL, as "
    "ssl_certfile=… and ssl_keyfile=…",
    "KEY_VALUES_MISMATCH": "Name the key of the certificate ssl_certfile in the URL, as ssl_keyfile=…",
    # a server that asks for a certificate may just close the connection
    "": "Check that the server is running, that this port speaks TLS, and whether it asks for a certificate of this "
    "client: ssl_certfile=… and ssl_keyfile=… in the URL",
}


@contextlib.contextmanager
def translated(where: str, kinds: type[Exception] | tuple[type[Exception], ...] = _OF_REDIS_PY) -> Iterator[None]:
    """Raise redis-py's errors in the with block as ConfigError or StoreUnavailable.

    An error that a signal handler or another thread raised meanwhile is raised as it is.

    Args:
        where: the server's address, for messages.
        kinds: of the errors. Code of the application that a client calls, such as for its password, may raise any.
    """
    handled = sys.exc_info()[1]
    try:
        yield
    except kinds as error:
        if isinstance(error, SnowredisError):
            raise
        # redis-py takes a TimeoutError of a handler for one of the socket
        of_handler = next(filter(passed_handler, raised_since(error, handled)), None)
        if of_handler is not None:
            try:
                raise of_handler from None
            finally:
                # otherwise the error, its traceback and this frame would keep each other alive
                del of_handler
        if not isinstance(error, _OF_REDIS_PY) and is_interruption(error):
            raise
        translation = _translation(where, error)
        if isinstance(translation, StoreUnavailable):
            # no connection was made, so no command was sent
            unsent = (each for each in raised_since(error, handled) if getattr(each, "is_unsent", False))
            translation.is_unsent = any(unsent)
            translation.timed_out = isinstance(error, exceptions.TimeoutError)
            translation.replied = isinstance(error, _ERROR_REPLIES)
        raise translation from as_cause(error)


def _translation(where: str, error: Exception) -> SnowredisError:
    """Return the error of snowredis for an *error* of redis-py."""
    # the server's own words, and it may be anybody's
    text = _PLACE_IN_SCRIPT.sub("", str(error)).rstrip(".") or type(error).__name__
    text = _CONTROL_CHARACTERS.sub("\N{REPLACEMENT CHARACTER}", text)
    replied = isinstance(error, _ERROR_REPLIES)
    if replied and "SNOWREDIS bad argument" in text:
        name = text.rpartition(" ")[2]
        return ConfigError(f"the script refused {name}: it is out of range. Check the settings")
    if replied and "NOREPLICAS" in text:
        return read_only(
            where,
            text,
            "It has fewer replicas than its min-replicas-to-write: connect them. After a failover, connect to the "
            "present master",
        )
    is_replica = "READONLY" in text or "can't write against a read only replica" in text.lower()
    if isinstance(error, exceptions.ReadOnlyError) or (replied and is_replica):
        return read_only(where, text)
    if "DB index is out of range" in text or "Invalid Database" in text:
        return ConfigError(f"Redis at {where} has no database of this number ({text}). Correct it in the URL")
    if isinstance(error, MasterNotFoundError):
        # followed by the repr of each client that failed
        text, _, failures = text.partition(" : ")
        errors = _SENTINEL_ERROR.findall(failures)
        denied = sum("Authentication" in each for each in errors)
        for count, what in ((len(errors) - denied, "not reply"), (denied, "not accept the password")):
            text += f"; {count} Sentinel{' does' if count == 1 else 's do'} {what}" if count else ""
    says = replied or isinstance(error, exceptions.AuthenticationError) or _FULL in text
    for kinds, mark, reason, advice, code in _MEANINGS:
        if isinstance(error, kinds) or (says and mark and re.search(mark, text)):
            return StoreUnavailable(where, reason.format(text), advice, code)
    if where.startswith(TLS_PREFIX) and isinstance(error, exceptions.TimeoutError | exceptions.ConnectionError):
        return StoreUnavailable(where, text, next(_OF_TLS[mark] for mark in _OF_TLS if re.search(mark, text)))
    if not isinstance(error, _OF_REDIS_PY):
        advice = "The client raised it, and Redis did not: correct what it names"
        return StoreUnavailable(where, f"{type(error).__name__}: {text}", advice)
    slow = "It is slow or hangs, or packets are lost: check its load, and the network"
    return StoreUnavailable(where, text, slow if isinstance(error, exceptions.TimeoutError) else "")


def server_of(client: Any, key: str) -> Any:
    """Return a client of the single server that stores *key*: *client* itself, but for a Cluster."""
    return client.get_redis_connection(client.get_node_from_key(key)) if is_cluster(client) else client


def server_now_ms(client: Any, key: str) -> int:
    """Return the time of the server that stores *key*, in ms since 1970: lease ends are on that clock."""
    if is_cluster(client):
        from snowredis.servers.failover import run_at

        # finds the master anew after a failover
        seconds, micros = run_at(client, key, "TIME")
    else:
        seconds, micros = client.time()
    return int(seconds) * 1000 + int(micros) // 1000


class RedisScripts:
    """Runs scripts in one Redis: what all stores in Redis have in common.

    Args:
        server: a URL, a redis-py client, or what open_client() returned for one.
        min_replicas: how many replicas must have each change, 0 or more, or "all".
    """

    _keys: Sequence[str]

    def __init__(self, server: Any, min_replicas: MinReplicas) -> None:
        min_replicas = check("min_replicas", min_replicas)
        own = open_client(server)
        self._client, self.where, self.locator = own.client, own.where, own.locator
        self._owned, self._fresh = own.owned, own.fresh
        self._acknowledged: Acknowledged | None = None
        if min_replicas:
            from snowredis.servers.failover import Acknowledged

            self._acknowledged = Acknowledged(min_replicas, self.where)

    def run(self, script: Script, keys: Sequence[str], args: Sequence[str | int]) -> Sequence[bytes | str]:
        """Run *script*, once. Blocks for a round trip, CALL_LIMIT_S at most. Raises StoreUnavailable and subclasses.

        A server that refuses writes may have been a master until now: the next call opens a new connection, which may
        lead to the present one.
        """
        try:
            with translated(self.where, Exception), time_limit(CALL_LIMIT_S):
                if self._acknowledged is not None:
                    return list(self._acknowledged.run(self._client, script, keys, args))
                try:
                    return list(self._client.evalsha(script.sha, len(keys), *keys, *args))
                except exceptions.NoScriptError:
                    # the server was restarted, or its scripts were dropped
                    return list(self._client.eval(script.source, len(keys), *keys, *args))
        except StoreUnavailable as error:
            if error.is_read_only:
                self.reconnect()
            raise

    def result_of(self, command: Callable[[], T]) -> T:
        """Return the result of a command that is no script. Blocks and raises as run()."""
        with translated(self.where), time_limit(CALL_LIMIT_S):
            return command()

    def read(self, *names: str) -> Mapping[str, str]:
        """Return these fields of the hash in the first key, if they are stored. Blocks and raises as run()."""
        values: Any = self.result_of(lambda: self._client.hmget(self._keys[0], names))
        return {name: text_of(value) for name, value in zip(names, values, strict=True) if value is not None}

    def after_fork(self) -> None:
        """In a forked child: use nothing of the parent's connections and locks."""
        if self._owned:
            self._client = fresh_copy(self._client)

    def reconnect(self, *, also_in_use: bool = True) -> None:
        # TypeError: redis-py 5's BlockingConnectionPool, which has no choice
        with contextlib.suppress(exceptions.RedisError, OSError, AttributeError, TypeError):
            if not is_cluster(self._client):
                pool = self._client.connection_pool
                pool.disconnect() if also_in_use else pool.disconnect(inuse_connections=False)
            elif self._owned:
                self._client.close()
            else:
                # its slots are read anew
                self._client.nodes_manager.initialize()

    def close(self) -> None:
        """Close the connections, unless they are the application's."""
        if self._owned:
            close_client(self._client)
