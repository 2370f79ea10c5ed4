"""Make a SegmentGenerator, or the stores of a tag, from settings. Connects to nothing, but starts embedded://.

The kinds "segment" and "ticket" of snowredis.generator(). A ticket is a segment of one number that is fetched when a
caller waits for it, as Flickr's ticket servers hand them out: each costs a round trip, and none is lost when a process
ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from snowredis.core.description import IdDescription
from snowredis.errors import ConfigError
from snowredis.kinds.protocol import IdKind
from snowredis.numbers.counts import Steps
from snowredis.numbers.protocol import TagConfig, TagStore, describe, parse_share
from snowredis.numbers.segments import SegmentGenerator
from snowredis.numbers.settings import SEGMENT_SETTINGS, SHARE, Servers, servers_of
from snowredis.process.clock import SYSTEM
from snowredis.settings import MinReplicas, url_or_default
from snowredis.snowflake.open import is_in_memory, open_server


def open_generator(url: Servers, **settings: Any) -> SegmentGenerator:
    """Return a generator of the numbers of a tag; *settings* are those of SEGMENT_SETTINGS. Connects to nothing yet.

    Raises ConfigError for a setting, or a combination, that cannot work.
    """
    given = {name: SEGMENT_SETTINGS[name].check(value) for name, value in settings.items()}
    used = {name: setting.default for name, setting in SEGMENT_SETTINGS.items()} | given
    steps = Steps(used["step"], used["max_step"], used["period"])
    stores = open_stores(url, given)
    clock = getattr(url, "clock", None) or SYSTEM
    return SegmentGenerator(stores, steps, prefetch=used["prefetch"], label=used["label"], clock=clock)


def open_stores(url: Servers, settings: Mapping[str, Any]) -> Sequence[TagStore]:
    """Return the stores of a tag, one for each server; several learn their shares later. Raises ConfigError."""
    used, opened = _used(settings), _open_servers(servers_of(url), settings.get("min_replicas", 0))
    config, count = _config(used, opened), len(opened)
    return [_store(each, replace(config, share=(index, count)), used) for index, each in enumerate(opened)]


def open_store(url: Any, settings: Mapping[str, Any]) -> Any:
    """Return the store of a tag on one server, with the share in *settings*. Raises ConfigError."""
    servers = servers_of(url)
    if len(servers) > 1:
        raise ConfigError("a tag is administered on one server at a time. Name one, and repeat this for the others.")
    opened = _open_servers(servers, 0)
    used = _used(settings)
    config = replace(_config(used, opened), share=parse_share(used.get("share", SHARE.default)))
    return _store(opened[0], config, used, knows_share=True)


def _open_servers(servers: Sequence[Any], min_replicas: MinReplicas) -> list[Any]:
    """Return a client, or what is in memory, for each of one or several servers; see open_client()."""
    if not servers:
        raise ConfigError("the list of URLs is empty. Name at least one server.")
    opened = [open_server(server, min_replicas) for server in servers]
    # what is in memory has no address: each object is a server
    addresses = [getattr(server, "where", server) for server in opened]
    for index, address in enumerate(addresses):
        if address in addresses[:index]:
            name = address if isinstance(address, str) else "memory"
            raise ConfigError(f"the list of URLs names {name} twice. Name each independent server once.")
    return opened


def _used(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: setting.default for name, setting in SEGMENT_SETTINGS.items()} | dict(settings)


def _config(used: Mapping[str, Any], opened: Sequence[Any]) -> TagConfig:
    slack_s = used["failover_slack"]
    slack_ms = max(getattr(each, "failover_slack_ms", 0) for each in opened) if slack_s is None else slack_s * 1000
    return TagConfig(
        tag=used["tag"],
        start=used["start"],
        maximum=used["maximum"],
        durability=used["durability"],
        failover_slack_ms=round(slack_ms),
    )


def _store(server: Any, config: TagConfig, used: Mapping[str, Any], *, knows_share: bool = False) -> TagStore:
    if is_in_memory(server):
        make: Callable[[TagConfig], TagStore] = server.tag_store
        return make(config)
    from snowredis.numbers.stores import RedisTagStore

    knows_share = knows_share or config.share[1] == 1
    return RedisTagStore(server, config, knows_share=knows_share, min_replicas=used["min_replicas"])


def _describe(settings: Mapping[str, Any]) -> IdDescription:
    return describe(settings.get("maximum", SEGMENT_SETTINGS["maximum"].default))


def _open(settings: Mapping[str, Any]) -> SegmentGenerator:
    given = dict(settings)
    return open_generator(url_or_default(given.pop("url", None)), **given)


SEGMENT = IdKind(
    name="segment",
    summary="short numbers, nearly in sequence, for one business tag; handed out by Redis in segments",
    settings=SEGMENT_SETTINGS,
    describe=_describe,
    open=_open,
)


# how a ticket is fetched is not a choice
_OF_TICKETS = {"step": 1, "max_step": 1, "prefetch": False}

TICKET = IdKind(
    name="ticket",
    summary="short numbers, one a request, from one of several servers",
    settings={name: setting for name, setting in SEGMENT_SETTINGS.items() if name not in (*_OF_TICKETS, "period")},
    describe=_describe,
    open=lambda settings: _open({**settings, **_OF_TICKETS}),
)
