"""`serve`: serve ids over HTTP and the dashboard, by uvicorn. Addresses other than loopback need a token."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from snowredis.cli.exit_codes import ExitCode, missing_extra
from snowredis.cli.options import Command, Parser, add_redis, between, natural, positive
from snowredis.errors import ConfigError
from snowredis.web import PREFIX

if TYPE_CHECKING:
    from snowredis.web.service import Service


def add_arguments(parser: Parser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=between(0, 65535, natural), default=8600, help="default: 8600")
    add_redis(parser, pool=False)
    text = "repeat for more (default: SNOWREDIS_POOL, else 'default')"
    parser.add_argument("--pool", action="append", metavar="NAME", help=text)
    text = f"file that contains the token (default: {PREFIX}TOKEN, else none)"
    parser.add_argument("--token-file", metavar="FILE", help=text)
    text = "host name that clients use for the service, besides localhost; repeat for more"
    parser.add_argument("--allow-host", action="append", metavar="NAME", help=text)
    text = "address or network of a proxy whose X-Forwarded-For and -Proto count; repeat for more"
    parser.add_argument("--trust-proxy", action="append", metavar="ADDRESS", help=text)
    text = "another kind of ids, such as uuid7 or 'segment:?tag=invoices'; repeat for more"
    parser.add_argument("--kind", action="append", metavar="KIND", help=text)
    text = "create pools that do not exist, instead of refusing to start; their first worker waits"
    parser.add_argument("--create", action="store_true", help=text)
    parser.add_argument("--insecure", action="store_true", help="serve everybody, without a token")
    text = "most ids in one response (default: 10000)"
    parser.add_argument("--max-count", type=positive, metavar="N", help=text)
    parser.add_argument("--access-log", action="store_true", help="log every request")


def run(args: argparse.Namespace) -> int:
    try:
        from snowredis.web import server
        from snowredis.web.service import from_environment
    except ImportError as error:
        raise missing_extra(error, "web") from error
    app = from_environment(_environment(args))
    _check_host(args.host, app)
    server.run(app, args.host, args.port, access_log=args.access_log)
    return ExitCode.OK


def _environment(args: argparse.Namespace) -> dict[str, str]:
    """Return the environment, overridden by the options."""
    options = {
        "SNOWREDIS_URL": args.url,
        f"{PREFIX}POOLS": " ".join(args.pool) if args.pool else None,
        f"{PREFIX}TOKEN_FILE": args.token_file,
        f"{PREFIX}HOSTS": " ".join(args.allow_host) if args.allow_host else None,
        f"{PREFIX}TRUSTED_PROXIES": " ".join(args.trust_proxy) if args.trust_proxy else None,
        f"{PREFIX}KINDS": " ".join(args.kind) if args.kind else None,
        f"{PREFIX}CREATE": "1" if args.create else None,
        f"{PREFIX}INSECURE": "1" if args.insecure else None,
        f"{PREFIX}MAX_COUNT": str(args.max_count) if args.max_count else None,
    }
    environment = dict(os.environ) | {name: text for name, text in options.items() if text is not None}
    if not _is_any(args.host):
        environment[f"{PREFIX}HOSTS"] = f"{environment.get(f'{PREFIX}HOSTS', '')} {args.host}".strip()
    return environment


def _is_any(host: str) -> bool:
    """Return whether *host* stands for every address, and so is not a name of the service."""
    return host in ("0.0.0.0", "::", "")  # noqa: S104 - the operator chose it


def _check_host(host: str, app: Service) -> None:
    """Raise ConfigError if other machines can reach the service without a token."""
    from snowredis.web.access import is_loopback

    if app.guard.local_only and not is_loopback(host):
        raise ConfigError(
            f"{host} can be reached from other machines, and there is no token; the service was not started. Add "
            "--token-file, or --insecure if everybody who can reach it may have ids."
        )


SERVE = Command(
    "serve",
    "serve ids over HTTP, and a dashboard",
    """GET /id, /ids?count=, /decode/ID, /whois/ID, /workers, /pool, /metrics; the dashboard is at /. Settings
that are in no SNOWREDIS_* variable are those of the pools.""",
    [
        ("snowredis serve", "on http://127.0.0.1:8600"),
        ("snowredis serve --pool orders --pool users", "two pools"),
        ("snowredis serve --kind 'segment:?tag=bills'", "/id?tag=bills, too"),
        ("snowredis serve --url embedded://", "needs no Redis server"),
        ("snowredis serve --host 0.0.0.0 --token-file FILE", "for other machines"),
    ],
    add_arguments,
    run,
)
