"""Model fields that fill themselves with ids, their form field, which takes ids as text, and a path converter.

register_converter(SnowflakeConverter, "snowflake")
path("orders/<snowflake:pk>/", …)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django import forms
from django.core import checks
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

from snowredis.core.text import DECIMAL_ID, parse
from snowredis.core.values import MAX_ID
from snowredis.errors import InvalidId, SnowredisError
from snowredis.process_generator import IdSource, effective_kind, next_id


class FilledField(models.Field):
    """Model field that fills itself with an id when its row is inserted, unless it has a default.

    Forms, pages of the admin and tests that only make objects need no server, and an object that is never saved uses no
    id.

    Args:
        kind: kind of ids, as snowredis.generator() takes it, such as "uuid7"; what it does not say is in SNOWREDIS.
        lazy: False fills a primary key as soon as an object is made, like a UUIDField with default=uuid4.
        default: with any value, None too, the field does not fill itself.
        others: as the field that this class stands beside, but editable=False and blank=True by default if the field
            fills itself.

    Raises ConfigError for an unknown kind, and for settings that it does not know.
    """

    # type of an id in Python
    id_type: type
    # the kind of ids if none is given
    default_kind: str | None = None

    def __init__(self, verbose_name: Any = None, *, kind: str | None = None, lazy: bool = True, **kwargs: Any) -> None:
        self.kind, self.lazy = kind or self.default_kind, lazy
        self._source = IdSource(self.kind) if self.kind else None
        # without a kind: one C call a row, which testing.use() and configure() switch
        self._make_id: Callable[[], Any] = self._source.next_id if self._source is not None else next_id
        if kwargs.keys().isdisjoint({"default", "db_default"}):
            kwargs = {"editable": False, "blank": True, **kwargs}
            if kwargs.get("primary_key"):
                # Django inserts a new row whose primary key has a default at once, without an UPDATE before
                kwargs["default"] = self._make_id
        super().__init__(verbose_name, **{**self.options_of(self._source), **kwargs})

    def options_of(self, source: IdSource | None) -> dict[str, Any]:
        """Return options of the field that follow from its kind."""
        return {}

    @property
    def is_filled(self) -> bool:
        """True if the field fills itself with ids."""
        if self.default is not models.NOT_PROVIDED:
            return self.default is self._make_id
        return self.db_default is models.NOT_PROVIDED

    def deconstruct(self) -> Any:
        """Return what a migration writes, without the defaults of a field that fills itself."""
        name, path, args, kwargs = super().deconstruct()
        if self.is_filled:
            kwargs.pop("default", None)
            for option, default in (("editable", False), ("blank", True)):
                kwargs.pop(option, None)
                if getattr(self, option) != default:
                    kwargs[option] = not default
        if self.kind != self.default_kind:
            kwargs["kind"] = self.kind
        if not self.lazy:
            kwargs["lazy"] = False
        # migrations name the package that models import from
        return name, path.replace(f"{__package__}.fields.", f"{__package__}."), args, kwargs

    def check(self, **kwargs: Any) -> list[Any]:
        return [*super().check(**kwargs), *self._check_kind()]

    def _check_kind(self) -> list[Any]:
        """Return an error if ids of the kind do not fit the column."""
        if not self.is_filled:
            return []
        try:
            described = self._source.description if self._source else effective_kind().describe()
        except SnowredisError:
            return []  # E001
        # the max_length of a UUIDField is 32, that of the digits
        max_length = self.max_length if self.id_type is str else None
        if described.type is not self.id_type:
            reason = f"its ids are {described.type.__name__}, and this column holds {self.id_type.__name__}"
        elif max_length is not None and described.text_length > max_length:
            reason = f"its ids have up to {described.text_length} characters, and this column holds {max_length}"
        else:
            return []
        hint = "Use SnowflakeField for numbers, GeneratedUUIDField for UUIDs, GeneratedCharField for text."
        return [checks.Error(f"kind={described.kind!r}: {reason}", hint=hint, obj=self, id="snowredis.E011")]

    def contribute_to_class(self, cls: Any, name: str, **kwargs: Any) -> None:
        super().contribute_to_class(cls, name, **kwargs)
        if not cls._meta.abstract:
            models.signals.pre_save.connect(self._fill_raw, sender=cls)

    def _fill_raw(self, instance: Any, raw: bool, **_: Any) -> None:
        # loaddata saves rows as they are in a file, and calls no pre_save() of fields
        if raw and getattr(instance, self.attname) is None and self.is_filled and not self.null:
            setattr(instance, self.attname, self._make_id())

    def get_default(self) -> Any:
        """Return the value of the field in a new object."""
        return None if self.lazy and self.is_filled else super().get_default()

    def get_pk_value_on_save(self, instance: Any) -> Any:
        # also called for a field in a CompositePrimaryKey, which has no default
        return self._make_id() if self.is_filled else super().get_pk_value_on_save(instance)

    def pre_save(self, instance: Any, add: bool) -> Any:
        """Return the value to save; make an id for a new row without one. Blocks and raises as next_id()."""
        value = super().pre_save(instance, add)
        if value is None and add and self.is_filled:
            value = self._make_id()
            setattr(instance, self.attname, value)
        return value

    def formfield(self, **kwargs: Any) -> Any:
        # an id made for a form would be lost with the form
        defaults = {"initial": None, "show_hidden_initial": False} if self.is_filled else {}
        return super().formfield(**{**defaults, **kwargs})


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
        kind: kind of ids that are numbers, as snowredis.generator() takes it, instead of snowredis.next_id().
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

    def get_prep_value(self, value: Any) -> Any:
        if isinstance(value, float | bool):
            raise TypeError(f"Field '{self.name}' expected an id but got {value!r}.")
        return super().get_prep_value(value)

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


class SnowflakeConverter:
    """Path converter for the decimal digits of an id, 0 < id < 2**63. Other text does not match, so it gets a 404."""

    regex = DECIMAL_ID

    def to_python(self, text: str) -> int:
        """Return the id. Raises ValueError for 2**63 and more, which Django takes for "does not match"."""
        return parse(text, "decimal")

    def to_url(self, an_id: int | str) -> str:
        return str(an_id)
