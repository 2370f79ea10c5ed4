"""Settings as startproject writes them, with the two apps and what a test gives in MORE_SETTINGS."""

import ast
import os

from web.settings import *  # noqa: F403

from snowredis.testing import memory_pool

ALLOWED_HOSTS = ["*"]
INSTALLED_APPS += ["snowredis.integrations.django", "shop"]  # noqa: F405
# several processes write to it
DATABASES["default"]["OPTIONS"] = {"timeout": 60}  # noqa: F405
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SNOWREDIS = {"url": memory_pool(), "Pool": "shop"}

globals().update(ast.literal_eval(os.environ.get("MORE_SETTINGS", "{}")))
