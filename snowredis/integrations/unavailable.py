"""A response 503 where there is no id now, one line for each framework.

    app.add_exception_handler(snowredis.SnowredisError, unavailable.starlette)   # Starlette, FastAPI
    app.register_error_handler(snowredis.SnowredisError, unavailable.flask)      # Flask
    MIDDLEWARE = [..., "snowredis.integrations.unavailable.django"]              # Django, Django REST framework

A setting or an id that is not valid stays an error 500: no later try would succeed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from snowredis.errors import SnowredisError

_TEXT, _STATUS, _HEADERS = "no ids now, try again", 503, {"Retry-After": "2"}


def starlette(_: Any, error: Exception) -> Any:
    """Handle an exception of Starlette or FastAPI."""
    from starlette.responses import JSONResponse

    _raise_unless_unavailable(error)
    return JSONResponse({"detail": _TEXT}, _STATUS, _HEADERS)


def flask(error: Exception) -> tuple[dict[str, str], int, dict[str, str]]:
    """Handle an error of Flask."""
    _raise_unless_unavailable(error)
    return {"detail": _TEXT}, _STATUS, _HEADERS


def django(get_response: Callable[[Any], Any]) -> Any:
    """Return a middleware of Django, for WSGI or ASGI."""
    from django.http import JsonResponse

    def process_exception(_: Any, error: Exception) -> Any:
        return JsonResponse({"detail": _TEXT}, status=_STATUS, headers=_HEADERS) if _is_unavailable(error) else None

    # to Django, a partial of a coroutine function is one
    middleware: Any = partial(get_response)
    middleware.process_exception = process_exception
    return middleware


# looked at by Django
django.async_capable = True  # type: ignore[attr-defined]


def _is_unavailable(error: Exception) -> bool:
    # the errors of settings and of ids are ValueErrors
    return isinstance(error, SnowredisError) and not isinstance(error, ValueError)


def _raise_unless_unavailable(error: Exception) -> None:
    if not _is_unavailable(error):
        raise error
