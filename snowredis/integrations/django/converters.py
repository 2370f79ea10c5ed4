"""Ids in URLs: ``register_converter(SnowflakeConverter, "snowflake")``, then ``path("orders/<snowflake:pk>/", …)``."""

from __future__ import annotations

from snowredis.core.layout import MAX_ID


class SnowflakeConverter:
    """Decimal digits, 0 < id < 2**63. What else there is does not match, so it ends in a 404."""

    regex = "[1-9][0-9]{0,18}"

    def to_python(self, text: str) -> int:
        an_id = int(text)
        if an_id > MAX_ID:
            raise ValueError(text)
        return an_id

    def to_url(self, an_id: int | str) -> str:
        return str(an_id)
