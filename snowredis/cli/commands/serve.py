"""`serve`: serve ids over HTTP and the dashboard, by uvicorn. Addresses other than loopback need a token."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

from snowredis.cli.exit_codes import ExitCode, missing_extra
from snowredis.cli.options import Parser, add_redis, between, natural, positive
from snowredis.errors import ConfigError
from snowredis.web import PREFIX

if TYPE_CHECKING:
    from snowredis.web.service import Service

# limit for request line and headers; uvicorn has none with httptools
_MAX_HEAD_BYTES = 32_768
_GRACE_S = 10

SUMMARY = "serve ids over HTTP, and a dashboard"
ABOUT = """GET /id, /ids?count=, /decode/ID, /whois/ID, /workers, /pool, /metrics; the dashboard is at /. Settings
that are in no SNOWREDIS_* variable are those of the pools."""
EXAMPLES = [
    ("snowredis serve", "on http://127.0.0.1:8600"),
    ("snowredis serve --pool orders --pool users", "two pools"),
    ("snowredis serve --url embedded://", "needs no Redis server"),
    ("snowredis serve --host 0.0.0.0 --token-file FILE", "for other machines"),
]


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
    parser.add_argument("--insecure", action="store_true", help="serve everybody, without a token")
    text = "most ids in one response (default: 10000)"
    parser.add_argument("--max-count", type=positive, metavar="N", help=text)
    parser.add_argument("--access-log", action="store_true", help="log every request")


def run(args: argparse.Namespace) -> int:
    try:
        import uvicorn

        from snowredis.web.service import from_environment
    except ImportError as error:
        raise missing_extra(error, "web") from error
    app = from_environment(_environment(args))
    _check_host(args.host, app)
    config = uvicorn.Config(
        app,
        host=args.host,
        port=args.port,
        access_log=args.access_log,
        http=_protocol(),
        ws="none",
        lifespan="on",
        server_header=False,
        date_header=False,
        # clients can forge X-Forwarded-* headers
        proxy_headers=False,
        # connections: requests, dashboards, and idle ones
        limit_concurrency=2 * app.limits.max_at_once + app.limits.max_viewers,
        timeout_graceful_shutdown=_GRACE_S,
    )
    server = uvicorn.Server(config)
    server.run()
    # uvicorn has logged why the server did not start
    return ExitCode.OK if server.started else ExitCode.ERROR


def _environment(args: argparse.Namespace) -> dict[str, str]:
    """Return the environment, overridden by the options."""
    options = {
        "SNOWREDIS_URL": args.url,
        f"{PREFIX}POOLS": " ".join(args.pool) if args.pool else None,
        f"{PREFIX}TOKEN_FILE": args.token_file,
        f"{PREFIX}HOSTS": " ".join(args.allow_host) if args.allow_host else None,
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


def _protocol() -> Any:
    """Return httptools' parser with a limit for the size of a request's head, else h11, which has such a limit."""
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    except ImportError:
        return "h11"

    class Bounded(HttpToolsProtocol):
        """Close a connection whose request line and headers are too large."""

        _in_head = False
        _head_bytes = 0

        def on_message_begin(self) -> None:
            self._in_head = True
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._in_head = False
            super().on_headers_complete()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._head_bytes = self._head_bytes + len(data) if self._in_head else 0
            if self._head_bytes > _MAX_HEAD_BYTES:
                self.send_400_response("The head of the request is too large.")

    return Bounded
