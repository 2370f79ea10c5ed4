"""Path converter for ids.

register_converter(SnowflakeConverter, "snowflake")
path("orders/<snowflake:pk>/", …)
"""

from __future__ import annotations

from snowredis.core.layout import MAX_ID
from snowredis.core.text import DECIMAL_ID


class SnowflakeConverter:
    """Path converter for the decimal digits of an id, 0 < id < 2**63. Other text does not match, so it gets a 404."""

    regex = DECIMAL_ID

    def to_python(self, text: str) -> int:
        """Return the id. Raises ValueError for 2**63 and more, which Django takes for "does not match"."""
        an_id = int(text)
        if an_id > MAX_ID:
            raise ValueError(text)
        return an_id

    def to_url(self, an_id: int | str) -> str:
        return str(an_id)
