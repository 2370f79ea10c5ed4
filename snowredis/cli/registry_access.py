"""Shared parts of the commands for registries: their options, and the registry that these name."""

from __future__ import annotations

import argparse
import contextlib
from typing import TYPE_CHECKING

from snowredis.cli.exit_codes import CommandError, ExitCode
from snowredis.cli.options import Parser, settings
from snowredis.snowflake.open import DEFAULT_REGISTRY

if TYPE_CHECKING:
    from snowredis.snowflake.registry import Place, Registry


def add_registry(parser: Parser, *, positional: bool = True) -> None:
    """Add NAME, a registry, or --registry NAME; and --url, where it is."""
    text = f"default: SNOWREDIS_REGISTRY, else {DEFAULT_REGISTRY}"
    if positional:
        parser.add_argument("registry", nargs="?", metavar="NAME", help=text)
    else:
        parser.add_argument("--registry", metavar="NAME", help=text)
    text = "the Redis of the registry (default: SNOWREDIS_REGISTRY_URL, else SNOWREDIS_URL)"
    parser.add_argument("--url", dest="registry_url", metavar="URL", help=text)


def open_named(
    args: argparse.Namespace, place: Place | None = None, name: str | None = None
) -> contextlib.closing[Registry]:
    """Open the registry that the command line or the environment names, or *name*."""
    from snowredis.snowflake.registered_store import open_registry

    url, options = settings(args)
    server = options.get("registry_url") or (url[0] if isinstance(url, list) else url)
    return contextlib.closing(
        open_registry(server, name or options.get("registry") or DEFAULT_REGISTRY, place)
    )


def not_found(registry: Registry) -> CommandError:
    """Return the error for a registry that does not exist."""
    return CommandError(
        ExitCode.POOL_NOT_FOUND,
        f"there is no registry {registry.name!r} at {registry.where}. If it never existed, create it once: snowredis "
        f"registry create {registry.name} --layout LAYOUT. If Redis lost it, its pools create it again within a "
        "minute, as far as their processes are alive",
    )
