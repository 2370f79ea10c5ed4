"""`manage.py snowredis_workers`: who holds which worker id of the pool in your settings. Only reads."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from snowredis.cli import main
from snowredis.integrations.django.settings import effective_settings


class Command(BaseCommand):
    help = "Shows who holds which worker id of the pool in your settings, as `snowredis workers` does."
    # it is asked for when something does not work
    requires_system_checks: list[str] = []  # noqa: RUF012 as BaseCommand's

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--json", action="store_true", help="one object; with --watch one a line")
        parser.add_argument("--all", action="store_true", help="also worker ids whose lease ended")
        parser.add_argument(
            "--watch", nargs="?", const="2", metavar="SECONDS", help="again and again (every 2 s)"
        )

    def handle(self, **options: Any) -> None:
        settings = effective_settings()
        urls = settings["url"] if isinstance(settings["url"], list | tuple) else [settings["url"]]
        if not all(isinstance(url, str) for url in urls):
            raise CommandError(
                "SNOWREDIS['url'] is an object of this process. A pool in memory has no workers elsewhere; of a "
                "redis-py client give the URL: snowredis workers --url redis://…"
            )
        line = ["workers", "--url", " ".join(urls), "--pool", settings.get("pool", "default")]
        line += [f"--{name}" for name in ("json", "all") if options[name]]
        line += [f"--watch={options['watch']}"] if options["watch"] else []
        # what call_command(stdout=…) was given, without the newline that Django's wrapper adds to each piece
        with contextlib.redirect_stdout(getattr(self.stdout, "_out", sys.stdout)):
            code = main(line)
        if code:
            sys.exit(code)
