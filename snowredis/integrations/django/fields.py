"""Model fields that fill themselves with ids, and their form field, which takes them as text."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django import forms
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

from snowredis.core.layout import MAX_ID
from snowredis.core.text import parse
from snowredis.errors import InvalidId
from snowredis.integrations.django.filled import FilledField
from snowredis.integrations.id_source import IdSource


class SnowflakeFormField(forms.IntegerField):
    """Form field for ids, as text: a browser's number input, and JavaScript, may lose digits past 2**53."""

    widget = forms.TextInput(attrs={"inputmode": "numeric"})

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"min_value": 1, "max_value": MAX_ID, **kwargs})

    def to_python(self, value: Any) -> int | None:
        if value in self.empty_values:
            return None
        try:
            return parse(str(value).strip(), "decimal")
        except InvalidId:
            raise ValidationError(self.error_messages["invalid"], code="invalid") from None


class SnowflakeField(FilledField, models.BigIntegerField):
    """Model field in a 64-bit column that fills itself with an id, 0 < id < 2**63, unless it has a default.

    It is filled when its row is inserted, like an AutoField: forms, pages of the admin and tests that only make objects
    need no Redis, and an object that is never saved uses no id.

    Args:
        generator: dotted path of a function that makes an id; default: snowredis.next_id.
        kind: kind of ids that are numbers, as snowredis.generator() takes it, instead of a function.
        lazy: False fills a primary key as soon as an object is made, like a UUIDField with default=uuid4.
        default: with any value, None too, the field does not fill itself.
        others: as BigIntegerField, but editable=False and blank=True by default if the field fills itself.
    """

    id_type = int
    description = _("snowredis id (8 byte integer)")
    default_validators = [MinValueValidator(1), MaxValueValidator(MAX_ID)]  # noqa: RUF012 as Django's own fields

    def to_python(self, value: Any) -> Any:
        if isinstance(value, float | bool):
            # its digits past 2**53 are lost already
            raise ValidationError(self.error_messages["invalid"], code="invalid", params={"value": value})
        return super().to_python(value)

    def formfield(self, **kwargs: Any) -> Any:
        return super().formfield(**{"form_class": SnowflakeFormField, "min_value": 1, **kwargs})


class SnowflakeAutoField(SnowflakeField, models.BigAutoField):
    """SnowflakeField for the default_auto_field of an app; Django allows only subclasses of its AutoFields there.

    The primary key of every model that declares none, and of the tables of ManyToManyFields. Its column is a plain
    BIGINT, without a sequence. As DEFAULT_AUTO_FIELD of a project it breaks link tables of apps that name another
    field, such as django.contrib.auth: the check snowredis.E012.
    """

    # the database makes no id that an INSERT would have to return
    db_returning = False

    def get_internal_type(self) -> str:
        return "BigIntegerField"


class GeneratedUUIDField(FilledField, models.UUIDField):
    """UUIDField that fills itself when its row is inserted: uuid7 unless *kind* says otherwise. See FilledField."""

    id_type = UUID
    default_kind = "uuid7"
    description = _("snowredis id (UUID)")


class GeneratedCharField(FilledField, models.CharField):
    """CharField that fills itself when its row is inserted: ulid unless *kind* says otherwise. See FilledField.

    Args:
        max_length: by default, the length of the longest id of the kind.
    """

    id_type = str
    default_kind = "ulid"
    description = _("snowredis id (text)")

    def options_of(self, source: IdSource | None) -> dict[str, Any]:
        return {"max_length": source.description.text_length} if source is not None else {}
