"""Django app: pass settings.SNOWREDIS to snowredis.configure(), register the checks, and tell other apps of the fields.

Those that describe an API know fields by their class, and take an id for a number, of which JavaScript loses digits
past 2**53: they are told that ids are strings, or GraphQL's type ID. Connects to nothing.
"""

from __future__ import annotations

import sys
from typing import Any

from django.apps import AppConfig, apps
from django.conf import settings
from django.core.checks import register
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.db import models

import snowredis
from snowredis.core.text import DECIMAL_ID
from snowredis.errors import ConfigError
from snowredis.integrations.django import checks, fields
from snowredis.process.names import PROCESS

# integrations that set a more precise label, a moment later
_LABELING = {"snowredis.integrations.celery", "snowredis.integrations.gunicorn"}
# a JSON Schema
ID_SCHEMA = {"type": "string", "pattern": f"^{DECIMAL_ID}$"}
# field -> the field of Django whose type it has in GraphQL
_LIKE: dict[type, type] = {
    fields.SnowflakeField: models.BigAutoField,
    fields.SnowflakeAutoField: models.BigAutoField,
    fields.GeneratedUUIDField: models.UUIDField,
    fields.GeneratedCharField: models.CharField,
}


class SnowredisConfig(AppConfig):
    name = "snowredis.integrations.django"
    label = "snowredis"
    verbose_name = "snowredis"

    def ready(self) -> None:
        """Register the checks and configure the generator. Raises ImproperlyConfigured for an unknown setting."""
        register(checks.check_settings, "snowredis")
        register(checks.check_link_tables, "snowredis")
        register(checks.check_generic_keys, "snowredis")
        register(checks.check_deployment, "snowredis", deploy=True)
        register(checks.check_redis, "snowredis", deploy=True)
        setting_changed.connect(_on_setting_changed, dispatch_uid="snowredis")
        if hasattr(settings, "SNOWREDIS"):
            _configure()
        register_schemas()
        if not PROCESS.label and not _LABELING & sys.modules.keys():
            PROCESS.label = _label()[:100]


def _configure() -> None:
    try:
        given = checks.django_settings()
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


# --- descriptions of APIs -----------------------------------------------------------------------


def register_schemas() -> None:
    """Tell the installed apps what the fields of this package are."""
    for app, tell in (
        ("drf_spectacular", _register_paths),
        ("graphene_django", _register_graphene),
        ("strawberry_django", _register_strawberry),
    ):
        if apps.is_installed(app):
            tell()


def _register_paths() -> None:
    """Let drf-spectacular describe ids in paths and filters as strings.

    It describes them by the field that a ModelSerializer without SnowflakeModelMixin has, which writes numbers.
    """
    from drf_spectacular.extensions import OpenApiSerializerFieldExtension
    from rest_framework.serializers import IntegerField, ModelSerializer

    class NumberField(IntegerField): ...

    # untyped: how it registers the class
    class InPath(OpenApiSerializerFieldExtension):  # type: ignore[no-untyped-call]
        target_class = NumberField

        def map_serializer_field(self, auto_schema: Any, direction: Any) -> Any:
            # None: of no request or response
            if direction is None:
                return dict(ID_SCHEMA)
            return auto_schema._map_serializer_field(self.target, direction, bypass_extensions=True)

    ModelSerializer.serializer_field_mapping[fields.SnowflakeField] = NumberField


def _register_graphene() -> None:
    from graphene_django.converter import convert_django_field, convert_field_to_id
    from graphene_django.forms.converter import convert_form_field, convert_form_field_to_id

    convert_django_field.register(fields.SnowflakeField, convert_field_to_id)
    convert_form_field.register(fields.SnowflakeFormField, convert_form_field_to_id)


def _register_strawberry() -> None:
    from strawberry_django.fields.types import field_type_map, relay_field_type_map

    for types in (field_type_map, relay_field_type_map):
        for field, like in _LIKE.items():
            if like in types:
                types.setdefault(field, types[like])
