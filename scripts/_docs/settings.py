"""Tables of settings, from their declarations."""

from __future__ import annotations

from collections.abc import Iterable

from scripts._docs.tables import table
from snowredis.numbers.settings import NUMBER_SETTINGS
from snowredis.settings import SETTINGS, Setting
from snowredis.web import PREFIX
from snowredis.web.service import SERVICE_SETTINGS


def of_connect() -> str:
    """Return the table of the arguments of connect() that take text."""
    rows = (
        (f"`{one.name}`", _default(one), "yes" if one.of_pool else "", one.help)
        for one in SETTINGS.values()
        if one.name != "clock"
    )
    return table(("setting", "default", "of the pool", "what it is"), rows)


def of_numbers() -> str:
    """Return the table of the settings of numbers."""
    return _table("setting", ((one.name, one) for one in NUMBER_SETTINGS.values()))


def of_the_service() -> str:
    """Return the table of the service's variables."""
    return _table("variable", ((f"{PREFIX}{one.name.upper()}", one) for one in SERVICE_SETTINGS.values()))


def _table(title: str, settings: Iterable[tuple[str, Setting]]) -> str:
    rows = ((f"`{name}`", _default(one), one.help) for name, one in settings)
    return table((title, "default", "what it is"), rows)


def _default(setting: Setting) -> str:
    text = setting.default_text
    is_code = " " not in text and (text == setting.default or text.isupper() or text.count("/") > 1)
    return f"`{text}`" if is_code else text
