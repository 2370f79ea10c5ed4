"""`serve`: serve ids over HTTP and a page to look at, by uvicorn. Addresses other than loopback need a token."""

from __future__ import annotations

import argparse
import ipaddress
import os
from typing import TYPE_CHECKING

from snowredis.cli.exit_codes import missing_extra
from snowredis.cli.options import Command, Parser, number
from snowredis.errors import ConfigError
from snowredis.web import PREFIX

if TYPE_CHECKING:
    from snowredis.web.service import Service


def add_arguments(parser: Parser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=number(0, 65535), default=8600, help="default: 8600")
    parser.add_redis(pool=False)
    text = "a pool (default: SNOWREDIS_SERVE_POOLS, else SNOWREDIS_POOL); may be repeated"
    parser.add_argument("--pool", dest="pools", action="append", metavar="NAME", help=text)
    text = "file with the token that is required from every client (default: SNOWREDIS_SERVE_TOKEN_FILE)"
    parser.add_argument("--token-file", metavar="FILE", help=text)
    text = "address or network of a proxy whose X-Forwarded-For is the client; may be repeated"
    parser.add_argument("--trust-proxy", action="append", metavar="ADDRESS", default=[], help=text)


def run(args: argparse.Namespace) -> None:
    """Serve ids over HTTP, and a page to look at.

    GET /id, /ids?count=, /decode/ID, /whois/ID, /workers, /metrics; the page is at /. SNOWREDIS_SERVE_* variables are
    further settings of the service. Settings that are in no SNOWREDIS_* variable are those of the pools.

    examples:
      snowredis serve                                   on http://127.0.0.1:8600
      snowredis serve --pool orders --pool users        two pools
      SNOWREDIS_SERVE_KINDS=uuid7 snowredis serve       /id?kind=uuid7, too
      snowredis serve --url embedded://                 needs no Redis server
      snowredis serve --host 0.0.0.0 --token-file FILE  for other machines
    """
    try:
        from snowredis.web import server
        from snowredis.web.service import from_environment
    except ImportError as error:
        raise missing_extra(error, "web") from error
    app = from_environment(_environment(args))
    _check_host(args.host, app)
    server.run(app, args.host, args.port, proxies=_proxies(args.trust_proxy))


def _proxies(addresses: list[str]) -> str:
    """Return the addresses as uvicorn takes them. Raises ConfigError for those of every client."""
    for address in addresses:
        try:
            is_everybody = ipaddress.ip_network(address).prefixlen == 0
        except ValueError:
            is_everybody = True
        if is_everybody:
            raise ConfigError(
                f"--trust-proxy {address!r} is not the address of a proxy; the service was not started. Use addresses "
                "such as 10.0.0.7 and networks such as 10.0.0.0/8. If all were trusted, each client could choose the "
                "address that its wrong tokens are counted for."
            )
    return ",".join(addresses)


def _environment(args: argparse.Namespace) -> dict[str, str]:
    """Return the environment, overridden by the options."""
    given = {"SNOWREDIS_URL": args.url, f"{PREFIX}TOKEN_FILE": args.token_file, f"{PREFIX}POOLS": args.pools}
    values = {name: " ".join(value) if isinstance(value, list) else value for name, value in given.items()}
    environment = dict(os.environ) | {name: value for name, value in values.items() if value}
    # these stand for every address, so they are no names of the service
    if args.host not in ("0.0.0.0", "::", ""):  # noqa: S104 - the operator chose it
        environment[f"{PREFIX}HOSTS"] = f"{environment.get(f'{PREFIX}HOSTS', '')} {args.host}".strip()
    return environment


def _check_host(host: str, app: Service) -> None:
    """Raise ConfigError if other machines can reach the service without a token."""
    from snowredis.web.access import is_loopback

    if app.guard.local_only and not is_loopback(host):
        raise ConfigError(
            f"{host} can be reached from other machines, and there is no token; the service was not started. Add "
            "--token-file, or set SNOWREDIS_SERVE_INSECURE=1 if every client that can reach it may have ids."
        )


SERVE = Command("serve", run, add_arguments)
