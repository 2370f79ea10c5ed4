"""Module that `python -m dramatiq` loads."""

import os

from tests.integrations.queue_apps import dramatiq_actor

actor = dramatiq_actor(os.environ["SNOWREDIS_URL"])
