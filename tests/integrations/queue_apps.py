"""Tasks of dramatiq and huey that note ids, for their workers and for those who send them."""

from typing import Any

from tests.integrations.application import note_ids


def dramatiq_actor(url: str) -> Any:
    import dramatiq
    from dramatiq.brokers.redis import RedisBroker

    dramatiq.set_broker(RedisBroker(url=url))
    return dramatiq.actor(note_ids)


def huey_task(url: str) -> tuple[Any, Any]:
    from huey import RedisHuey

    huey = RedisHuey("tests", url=url)
    return huey, huey.task()(note_ids)
