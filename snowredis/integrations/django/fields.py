"""Model fields that fill themselves with ids, and their form field, which takes them as text."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from django import forms
from django.core import checks
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils.module_loading import import_string
from django.utils.translation import gettext_lazy as _

from snowredis.core.layout import MAX_ID
from snowredis.core.text import parse
from snowredis.errors import InvalidId
from snowredis.process_generator import next_id

NEXT_ID = "snowredis.next_id"


class IdMaker:
    """Calls the function that a dotted path names, which is looked up at the first call: it may import the models."""

    def __init__(self, path: str) -> None:
        self.path = path

    @functools.cached_property
    def _function(self) -> Callable[[], int]:
        function: Callable[[], int] = import_string(self.path)
        return function

    def __call__(self) -> int:
        return self._function()


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


class SnowflakeField(models.BigIntegerField):
    """Model field in a 64-bit column that fills itself with an id, 0 < id < 2**63, unless it has a default.

    It is filled when its row is inserted, like an AutoField: forms, pages of the admin and tests that only make objects
    need no Redis, and an object that is never saved uses no id.

    Args:
        generator: dotted path of a function that makes an id; default: snowredis.next_id.
        lazy: False fills a primary key as soon as an object is made, like a UUIDField with default=uuid4.
        default: with any value, None too, the field does not fill itself.
        others: as BigIntegerField, but editable=False and blank=True by default if the field fills itself.
    """

    description = _("snowredis id (8 byte integer)")
    default_validators = [MinValueValidator(1), MaxValueValidator(MAX_ID)]  # noqa: RUF012 as Django's own fields

    def __init__(
        self, verbose_name: Any = None, *, generator: str = NEXT_ID, lazy: bool = True, **kwargs: Any
    ) -> None:
        self.generator, self.lazy = generator, lazy
        # snowredis.next_id() itself: one C call a row, which testing.use() and configure() switch
        self._make_id: Callable[[], int] = next_id if generator == NEXT_ID else IdMaker(generator)
        if kwargs.keys().isdisjoint({"default", "db_default"}):
            kwargs = {"editable": False, "blank": True, **kwargs}
            if kwargs.get("primary_key"):
                # Django inserts a new row whose primary key has a default at once, without an UPDATE before
                kwargs["default"] = self._make_id
        super().__init__(verbose_name, **kwargs)

    @property
    def is_filled(self) -> bool:
        """True if the field fills itself with ids."""
        if self.default is not models.NOT_PROVIDED:
            return self.default is self._make_id
        return getattr(self, "db_default", models.NOT_PROVIDED) is models.NOT_PROVIDED

    def deconstruct(self) -> Any:
        """Return what a migration writes, without the defaults of a field that fills itself."""
        name, path, args, kwargs = super().deconstruct()
        if self.is_filled:
            kwargs.pop("default", None)
            for option, default in (("editable", False), ("blank", True)):
                kwargs.pop(option, None)
                if getattr(self, option) != default:
                    kwargs[option] = not default
        if self.generator != NEXT_ID:
            kwargs["generator"] = self.generator
        if not self.lazy:
            kwargs["lazy"] = False
        # migrations name the package that models import from
        return name, path.replace(f"{__name__}.", f"{__package__}."), args, kwargs

    def check(self, **kwargs: Any) -> list[Any]:
        return [*super().check(**kwargs), *self._check_generator()]

    def _check_generator(self) -> list[Any]:
        try:
            if callable(import_string(self.generator)):
                return []
            reason = "it is not a function"
        except (ImportError, ValueError) as error:
            reason = str(error)
        hint = "Name a function by its dotted path, such as 'shop.ids.next_id'."
        return [
            checks.Error(f"generator={self.generator!r}: {reason}", hint=hint, obj=self, id="snowredis.E010")
        ]

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

    def to_python(self, value: Any) -> Any:
        if isinstance(value, float | bool):
            # its digits past 2**53 are lost already
            raise ValidationError(self.error_messages["invalid"], code="invalid", params={"value": value})
        return super().to_python(value)

    def formfield(self, **kwargs: Any) -> Any:
        defaults = {"form_class": SnowflakeFormField, "min_value": 1}
        if self.is_filled:
            # an id made for a form would be lost with the form
            defaults |= {"initial": None, "show_hidden_initial": False}
        return super().formfield(**{**defaults, **kwargs})


class SnowflakeAutoField(SnowflakeField, models.BigAutoField):
    """SnowflakeField for DEFAULT_AUTO_FIELD, which Django allows for subclasses of its AutoFields only.

    The primary key of every model that declares none, and of the tables of ManyToManyFields. Its column is a plain
    BIGINT, without a sequence.
    """

    # the database makes no id that an INSERT would have to return
    db_returning = False

    def get_internal_type(self) -> str:
        return "BigIntegerField"
