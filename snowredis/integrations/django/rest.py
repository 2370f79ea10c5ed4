"""Django REST framework integration: ids as strings in JSON, since JavaScript loses digits past 2**53.

    class OrderSerializer(SnowflakeModelMixin, serializers.ModelSerializer): ...

What describes the API (drf-spectacular, generateschema, OPTIONS) says string for the same fields.
"""

from __future__ import annotations

from typing import Any, ClassVar

from rest_framework.relations import PrimaryKeyRelatedField
from rest_framework.serializers import CharField, IntegerField, ModelSerializer, ValidationError

from snowredis.core.text import parse
from snowredis.core.values import MAX_ID
from snowredis.errors import InvalidId
from snowredis.integrations.django.apps import ID_SCHEMA
from snowredis.integrations.django.fields import SnowflakeField


class SnowflakeSerializerField(CharField):
    """Serializer field that writes an id as a string of digits and reads such a string or an int, but no float.

    A CharField, so that descriptions and forms take it for text.

    Args:
        min_value, max_value: the range of ids that it reads, by default all.
    """

    default_error_messages: ClassVar[dict[str, Any]] = {"invalid": IntegerField.default_error_messages["invalid"]}
    # what drf-spectacular writes for the field
    _spectacular_annotation: ClassVar[dict[str, Any]] = {"field": ID_SCHEMA}

    def __init__(self, *, min_value: int = 1, max_value: int = MAX_ID, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.min_value, self.max_value = min_value, max_value

    def to_internal_value(self, data: Any) -> int:
        try:
            # the text of a float is refused: its digits may be lost already
            an_id = parse(str(data).strip(), "decimal")
        except InvalidId:
            an_id = None
        if an_id is None or not self.min_value <= an_id <= self.max_value:
            raise ValidationError(self.error_messages["invalid"], "invalid")
        return an_id

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
