"""pydantic 2 integration: a type for ids in models, and in FastAPI's paths, queries, bodies and responses.

    class Order(BaseModel):
        id: JsonSnowflakeId

An int in Python, a string of digits in JSON, because JavaScript loses digits of numbers past 2**53.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from annotated_types import Interval
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import PydanticCustomError, core_schema

from snowredis.core.text import DECIMAL_ID
from snowredis.core.values import MAX_ID

__all__ = ["JsonSnowflakeId"]

PATTERN = f"^{DECIMAL_ID}$"
_is_decimal = re.compile(DECIMAL_ID).fullmatch


def _parse_text(value: Any) -> Any:
    """Turn decimal text into an int; values of other types are returned, and the int schema checks them."""
    if not isinstance(value, str):
        return value
    if not _is_decimal(value):
        raise PydanticCustomError(
            "snowflake_id", "Input should be an id: an integer, or its decimal digits as a string"
        )
    return int(value)


class _SnowflakeId:
    """Annotation that gives pydantic the schemas of an id."""

    @staticmethod
    def __get_pydantic_core_schema__(_: Any, __: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(
            _parse_text,
            # strict: refuses 1.0, True and Decimal("1")
            core_schema.int_schema(strict=True, gt=0, le=MAX_ID),
            serialization=core_schema.plain_serializer_function_ser_schema(
                str, return_schema=core_schema.str_schema(), when_used="json-unless-none"
            ),
        )

    @staticmethod
    def __get_pydantic_json_schema__(_: Any, __: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"type": "string", "pattern": PATTERN, "examples": ["249734652741287936"]}


# the interval is for tools that make values, such as hypothesis and polyfactory
JsonSnowflakeId = Annotated[int, Interval(gt=0, le=MAX_ID), _SnowflakeId]
