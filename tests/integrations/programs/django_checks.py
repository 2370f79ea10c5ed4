"""Run the checks with many settings, and compare the ids of their messages: checks REDIS, with a pool "checked"."""

import sys
import time

from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings
from django.test.utils import setup_test_environment

from snowredis import Layout
from snowredis.integrations.django import checks as ours
from snowredis.testing import memory_pool


def found(deploy=False, debug=True, caches=None, **given):
    with override_settings(DEBUG=debug, SNOWREDIS=given, CACHES=caches or {}):
        messages = ours.check_settings()
        messages += ours.check_deployment() + ours.check_redis() if deploy else []
    assert all(message.hint for message in messages)
    return [message.id.removeprefix("snowredis.") for message in messages]


for wrong, says in (
    ({"url": "redis://h", "URL": "redis://i"}, "SNOWREDIS has a name twice: url, URL"),
    ("redis://h", "SNOWREDIS is a str. Write a dict"),
    (None, "SNOWREDIS is a NoneType. Write a dict"),
    ({1: 2}, "unknown setting '1'"),
    ({"testing": "yes"}, "SNOWREDIS['testing'] must be True or False, not 'yes'"),
    ({"kind": "uuid7", "pool": "shop"}, "unknown setting 'pool' of uuid7 generators"),
):
    try:
        with override_settings(SNOWREDIS=wrong):
            raise AssertionError(wrong)
    except ImproperlyConfigured as error:
        assert says in str(error), error

checked = {"url": sys.argv[1], "pool": "checked", "deploy": True}
assert found(**checked) == ["W003"]
assert found(**checked, ttl=60) == ["W003", "E003"]
assert found(**{**checked, "pool": "absent"}) == ["W003", "W005"]

redis = "redis://db.example:6379/0"
# no server is there
ours.check_redis = list
assert found(url=redis, debug=False, deploy=True) == []
assert found(url=["redis://a", "redis://b"], debug=False, deploy=True) == ["E001"]
assert found() == []
for bad in (
    {"layout": "no"},
    {"layout": "60/0/2/10/10"},
    {"ttl": 0.01},
    {"ttl": "30"},
    {"pool": "a b"},
    {"url": "nonsense"},
    {"url": 5},
    {"url": []},
    {"url": [redis, None]},
    {"url": [redis, redis]},
    {"clock_policy": "x"},
    {"label": 5},
    {"datacenter": 3},
    {"layout": "uid-generator"},
    {"url": "redis://h:x"},
    {"url": memory_pool(), "min_replicas": 1},
    {"url": "embedded://", "min_replicas": 1},
):
    assert found(**bad, deploy=True, debug=True)[:1] == ["E001"], bad

# ends in a month
month_ms = 30 * 86400_000
ending = Layout(timestamp_bits=32, epoch_ms=int(time.time() * 1000) - 2**32 + month_ms)
assert found(url=redis, layout=ending) == ["W001"]

pool = memory_pool()
assert found(url=pool) == []
assert found(url="embedded://") == []
assert found(url=pool, debug=False) == ["E002"]
assert found(url="embedded://", debug=False) == ["W002"]

assert found(debug=False) == []
assert found(debug=False, deploy=True) == ["W003"]
for local in ("redis://127.0.0.1/0", "unix:///run/redis.sock", "rediss://[::1]:7000/2"):
    assert found(url=local, debug=False, deploy=True) == ["W003"], local


def cache(where):
    return {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": where}}


for where in (redis, "redis://:secret@db.example", ["redis://x", redis], f"redis://x,{redis}"):
    assert found(url=redis, deploy=True, caches=cache(where)) == ["W004"], where
for where in ("redis://db.example:6379/1", "redis://other:6379/0", "127.0.0.1:11211"):
    assert found(url=redis, deploy=True, caches=cache(where)) == [], where
assert found(url=redis, deploy=True, caches={"default": {"BACKEND": "x.LocMemCache"}}) == []

# a test runner sets DEBUG to False
setup_test_environment()
assert found(url=pool, debug=False) == []
