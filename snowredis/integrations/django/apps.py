"""Django app: pass settings.SNOWREDIS to snowredis.configure() and register the checks. Connects to nothing."""

from __future__ import annotations

import sys
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

import snowredis
from snowredis.errors import ConfigError
from snowredis.integrations.django.api_schemas import register_schemas
from snowredis.integrations.django.checks import (
    check_deployment,
    check_link_tables,
    check_redis,
    check_settings,
    django_settings,
)
from snowredis.process.names import PROCESS

# integrations that set a more precise label, a moment later
_LABELING = {"snowredis.integrations.celery", "snowredis.integrations.gunicorn"}


class SnowredisConfig(AppConfig):
    name = "snowredis.integrations.django"
    label = "snowredis"
    verbose_name = "snowredis"

    def ready(self) -> None:
        """Register the checks and configure the generator. Raises ImproperlyConfigured for an unknown setting."""
        checks.register(check_settings, "snowredis")
        checks.register(check_link_tables, "snowredis")
        checks.register(check_deployment, "snowredis", deploy=True)
        checks.register(check_redis, "snowredis", deploy=True)
        setting_changed.connect(_on_setting_changed, dispatch_uid="snowredis")
        if hasattr(settings, "SNOWREDIS"):
            _configure()
        register_schemas()
        if not PROCESS.label and not _LABELING & sys.modules.keys():
            PROCESS.label = _label()[:100]


def _configure() -> None:
    try:
        given = django_settings()
        kind = given.pop("kind", None)
        # an overload for each: Snowflakes, and another kind of ids
        snowredis.configure(**given) if kind is None else snowredis.configure(kind, **given)
    except ConfigError as error:
        raise ImproperlyConfigured(f"SNOWREDIS in your settings: {error}") from error


def _on_setting_changed(*, setting: str, **_: Any) -> None:
    """Configure again under override_settings() in tests: the next id comes from the pool that is set now."""
    if setting == "SNOWREDIS":
        snowredis.close()
        _configure()


def _label() -> str:
    """Return "django", the project, and the command of manage.py if there is one: "django shop migrate"."""
    project = (getattr(settings, "ROOT_URLCONF", None) or settings.SETTINGS_MODULE or "").partition(".")[0]
    by_command = sys.argv[0].endswith(("manage.py", "django-admin"))
    return " ".join(filter(None, ["django", project, *(sys.argv[1:2] if by_command else [])]))
