"""Errors after a reply of Redis: they advise what the reply names, and not to check the URL."""

import contextlib
from typing import Any

import pytest
import redis

import snowredis
from snowredis.errors import StoreUnavailable
from snowredis.integrations.claims import claim_within
from tests.support.pools import new_pool
from tests.support.ports import listening
from tests.support.servers import RedisServer
from tests.support.waiting import eventually


def refuse_writes_without_disk(server: RedisServer) -> None:
    client = server.client()
    # in the way of the snapshot, as a full or read-only disk is
    (server.directory / "dump.rdb").mkdir()
    client.config_set("save", "3600 1")
    client.set("key", 1)
    client.bgsave()
    eventually(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err", "the failed snapshot")


def claim(url: str) -> None:
    with snowredis.connect(url, pool="p", claim_timeout=0) as ids:
        ids.claim()


def test_a_redis_that_cannot_write_to_its_disk_is_said(own_server: RedisServer) -> None:
    refuse_writes_without_disk(own_server)
    with pytest.raises(StoreUnavailable, match=r"cannot write to its disk.*MISCONF.*Free space") as caught:
        claim(own_server.url)
    assert "URL" not in str(caught.value)
    assert caught.value.retry


@pytest.mark.parametrize(
    ("reply", "advice"),
    [
        (b"-LOADING Redis is loading the dataset in memory\r\n", "Wait until it has read them"),
        (b"-ERR max number of clients reached\r\n", "raise maxclients"),
        (b"-DENIED Redis is running in protected mode\r\n", "correct what this reply names"),
        (b"-ERR unknown command 'EVALSHA'\r\n", "`snowredis doctor` lists what is missing"),
        (b"-MOVED 3999 127.0.0.1:6381\r\n", "write cluster://"),
    ],
    ids=lambda value: value.decode()[1:12] if isinstance(value, bytes) else None,
)
def test_a_redis_that_replies_with_an_error_is_not_looked_for(reply: bytes, advice: str) -> None:
    with (
        listening(lambda connection: connection.sendall(reply)) as port,
        pytest.raises(StoreUnavailable, match=advice) as caught,
    ):
        claim(f"redis://127.0.0.1:{port}")
    assert "URL is correct" not in str(caught.value)


# --- errors that the application's own code raises in a client ----------------------------------------------------


class Provider(redis.CredentialProvider):
    """Gets a password from a service, of which Redis knows nothing."""

    away = False

    def get_credentials(self) -> tuple[str]:
        if self.away:
            raise RuntimeError("the service does not reply")
        return ("secret",)


def client_of(server: RedisServer, provider: Provider) -> redis.Redis:
    server.client().config_set("requirepass", "secret")
    return redis.Redis(unix_socket_path=str(server.socket), credential_provider=provider)


def go_away(provider: Provider, server: RedisServer) -> None:
    provider.away = True
    redis.Redis(unix_socket_path=str(server.socket), password="secret").client_kill_filter(_type="normal")


def test_a_process_goes_on_without_a_password_service(own_server: RedisServer) -> None:
    settings: dict[str, Any] = {"pool": "p", "ttl": 1}
    new_pool(own_server.url, **settings)
    provider = Provider()
    with snowredis.connect(client_of(own_server, provider), **settings) as ids:
        ids.next_id()
        go_away(provider, own_server)
        eventually(lambda: ids.next_id() and ids.in_outage_lane, "the outage lane")
        assert "RuntimeError: the service does not reply" in str(ids.renewal_failure)


def test_an_attempt_at_a_start_goes_on_without_a_password_service(own_server: RedisServer) -> None:
    new_pool(own_server.url, "p")
    provider = Provider()
    with contextlib.closing(snowredis.connect(client_of(own_server, provider), pool="p")) as ids:
        go_away(provider, own_server)
        claim_within(0.5, [ids])
        assert ids.lease is None
        provider.away = False
        eventually(lambda: ids.lease is not None, "a worker id")
