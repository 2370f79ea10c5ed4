"""The command `manage.py snowredis_workers`: list the workers of the pool in the Django settings. Only reads."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from snowredis.cli import main
from snowredis.integrations.django.checks import effective_settings


class Command(BaseCommand):
    help = "List the workers of the pool in your settings, as `snowredis workers` does."
    # it has to run when a check fails, too
    requires_system_checks: list[str] = []  # noqa: RUF012 as BaseCommand's

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--json", action="store_true", help="JSON: one object")

    def handle(self, **options: Any) -> None:
        """Print the table or the JSON. Raises CommandError where the URL is not text."""
        settings = effective_settings()
        if not isinstance(settings["url"], str):
            raise CommandError(
                "SNOWREDIS['url'] is an object of this process. A pool in memory has no workers elsewhere; for a "
                "redis-py client name its URL: snowredis workers --url redis://…"
            )
        arguments = ["workers", "--url", settings["url"], "--pool", settings["pool"]]
        arguments += ["--json"] if options["json"] else []
        # the stream of call_command(stdout=…), without Django's wrapper, which adds a newline to each piece
        with contextlib.redirect_stdout(getattr(self.stdout, "_out", sys.stdout)):
            code = main(arguments)
        if code:
            sys.exit(code)
