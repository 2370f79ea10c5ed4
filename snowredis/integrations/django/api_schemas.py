"""Types of ids in the API documents of other Django apps: strings, and the type ID of GraphQL.

They know fields by their class, and take an id for a number, of which JavaScript loses digits past 2**53.
"""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.db import models

from snowredis.core.text import DECIMAL_ID
from snowredis.integrations.django.fields import (
    GeneratedCharField,
    GeneratedUUIDField,
    SnowflakeAutoField,
    SnowflakeField,
    SnowflakeFormField,
)

# a JSON Schema
ID_SCHEMA = {"type": "string", "pattern": f"^{DECIMAL_ID}$"}
# field -> the field of Django whose type it has in GraphQL
_LIKE: dict[type, type] = {
    SnowflakeField: models.BigAutoField,
    SnowflakeAutoField: models.BigAutoField,
    GeneratedUUIDField: models.UUIDField,
    GeneratedCharField: models.CharField,
}


def register_schemas() -> None:
    """Tell the installed apps what the fields of this package are."""
    for app, register in (
        ("drf_spectacular", _register_paths),
        ("graphene_django", _register_graphene),
        ("strawberry_django", _register_strawberry),
    ):
        if apps.is_installed(app):
            register()


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

    ModelSerializer.serializer_field_mapping[SnowflakeField] = NumberField


def _register_graphene() -> None:
    from graphene_django.converter import convert_django_field, convert_field_to_id
    from graphene_django.forms.converter import convert_form_field, convert_form_field_to_id

    convert_django_field.register(SnowflakeField, convert_field_to_id)
    convert_form_field.register(SnowflakeFormField, convert_form_field_to_id)


def _register_strawberry() -> None:
    from strawberry_django.fields.types import field_type_map, relay_field_type_map

    for types in (field_type_map, relay_field_type_map):
        for field, like in _LIKE.items():
            if like in types:
                types.setdefault(field, types[like])
