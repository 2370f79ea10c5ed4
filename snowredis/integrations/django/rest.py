"""Django REST framework integration: ids as strings in JSON, since JavaScript loses digits past 2**53.

    class OrderSerializer(SnowflakeModelMixin, serializers.ModelSerializer): ...

One line in a module that Django loads does the same for every ModelSerializer, except for foreign keys:

    ModelSerializer.serializer_field_mapping[SnowflakeField] = SnowflakeSerializerField
"""

from __future__ import annotations

from typing import Any

from rest_framework.relations import PrimaryKeyRelatedField
from rest_framework.serializers import IntegerField, ModelSerializer, ValidationError

from snowredis.core.text import parse
from snowredis.core.values import MAX_ID
from snowredis.errors import InvalidId
from snowredis.integrations.django.fields import SnowflakeField


class SnowflakeSerializerField(IntegerField):
    """Serializer field that writes an id as a string of digits and reads such a string or an int, but no float."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"min_value": 1, "max_value": MAX_ID, **kwargs})

    def to_internal_value(self, data: Any) -> int:
        try:
            # the text of a float is refused: its digits may be lost already
            return parse(str(data).strip(), "decimal")
        except InvalidId:
            raise ValidationError(self.error_messages["invalid"], "invalid") from None

    def to_representation(self, value: Any) -> str:
        return str(value)


class SnowflakeModelMixin:
    """Mixin for a ModelSerializer: ids, and foreign keys to models with such ids, are strings, nested ones too."""

    serializer_field_mapping = {  # noqa: RUF012 as ModelSerializer's
        **ModelSerializer.serializer_field_mapping,
        SnowflakeField: SnowflakeSerializerField,
    }

    def build_standard_field(self, field_name: str, model_field: Any) -> Any:
        # such as a primary key that is a link to the row of a parent model
        return _with_text(super().build_standard_field(field_name, model_field), model_field)  # type: ignore[misc]

    def build_relational_field(self, field_name: str, relation_info: Any) -> Any:
        built = super().build_relational_field(field_name, relation_info)  # type: ignore[misc]
        return _with_text(built, relation_info.related_model._meta.pk)

    def build_nested_field(self, field_name: str, relation_info: Any, nested_depth: int) -> Any:
        # Meta.depth: REST framework makes a serializer for the related model
        field_class, kwargs = super().build_nested_field(field_name, relation_info, nested_depth)  # type: ignore[misc]
        return type(field_class.__name__, (SnowflakeModelMixin, field_class), {}), kwargs


def _with_text(built: tuple[type, dict[str, Any]], key: Any) -> tuple[type, dict[str, Any]]:
    """Return *built*, a field class and its arguments, such that keys to a SnowflakeField are strings."""
    field_class, kwargs = built
    while key.remote_field is not None:
        key = key.target_field
    if issubclass(field_class, PrimaryKeyRelatedField) and isinstance(key, SnowflakeField):
        kwargs = {**kwargs, "pk_field": SnowflakeSerializerField()}
    return field_class, kwargs
