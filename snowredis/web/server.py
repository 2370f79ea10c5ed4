"""Run the service with uvicorn: open the socket, apply the limits of connections, serve until a signal."""

from __future__ import annotations

import contextlib
import copy
import logging
import resource
import socket
import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.config import LOGGING_CONFIG

from snowredis.errors import ConfigError
from snowredis.web.connections import PROBE_RESERVE, ConnectionGuard, GuardedProtocol
from snowredis.web.settings import Limits

if TYPE_CHECKING:
    from snowredis.web.service import Service


log = logging.getLogger("snowredis")

# how long responses in progress may take after the drain
GRACE_S = 4
# a year, as uvicorn takes no "never"
_NEVER_S = 31_536_000
# connections that may wait for accept(); the system lowers it to its own limit
_BACKLOG = 2048
# files that Redis, logs and the event loop need
_OTHER_FILES = 256
# how long a thread that reads for a dashboard may keep the event loop waiting; 5 ms is the interpreter's default
_SWITCH_INTERVAL_S = 0.0005


def run(app: Service, host: str, port: int, *, access_log: bool = False) -> None:
    """Serve *app* until SIGTERM, or Ctrl-C.

    Raises:
        ConfigError: it cannot listen there.
        SnowredisError: as Service.start().
    """
    with contextlib.closing(open_socket(host, port)) as listening:
        ConfiguredServer(app, listening, access_log).run([listening])


class ConfiguredServer(uvicorn.Server):
    """uvicorn's server with the settings of the service; an error of the start is raised instead of logged."""

    def __init__(self, app: Service, listening: socket.socket, access_log: bool) -> None:
        prepare_process()
        # startup() and shutdown() start and stop the application
        own: dict[str, Any] = {"lifespan": "off", "log_config": _log_config(), "timeout_graceful_shutdown": GRACE_S}
        super().__init__(uvicorn.Config(app, access_log=access_log, **options(app), **own))
        self._app = app
        self._address = listening.getsockname()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            # the signal handlers that it wraps are installed
            await self._app.start()
            await super().startup(sockets)
        except BaseException:
            await self._app.stop()
            raise
        host, port = self._address[:2]
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        log.info("serving %s on http://%s (Ctrl-C to stop)", ", ".join(self._app.pools.names), where)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().shutdown(sockets)
        finally:
            await self._app.stop()


def options(app: Service) -> dict[str, Any]:
    """Return the options of uvicorn.Config for *app*, under `snowredis serve` and under gunicorn."""
    guard = ConnectionGuard(_within_file_limit(app.limits), lambda address: not app.proxies.trusts(address))
    return {
        "http": partial(GuardedProtocol, guard),
        "ws": "none",
        "server_header": False,
        "date_header": False,
        # the application reads X-Forwarded-* headers itself, of proxies that it was told of
        "proxy_headers": False,
        # connections.py closes idle connections; uvicorn does not know of all requests
        "timeout_keep_alive": _NEVER_S,
    }


def prepare_process() -> None:
    """Let threads share the interpreter in short turns."""
    sys.setswitchinterval(min(_SWITCH_INTERVAL_S, sys.getswitchinterval()))


def _within_file_limit(limits: Limits) -> Limits:
    """Raise the limit of open files for all connections, or return limits with fewer connections."""
    more = PROBE_RESERVE + _OTHER_FILES
    needed = limits.max_connections + more
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # RLIM_INFINITY is negative
    if 0 <= soft < needed:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed if hard < 0 else min(needed, hard), hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if not 0 <= soft < needed:
        return limits
    fewer = max(1, soft - more)
    log.warning("open files are limited to %d here: at most %d connections at once", soft, fewer)
    return replace(limits, max_connections=fewer)


def _log_config() -> dict[str, Any]:
    """Return uvicorn's configuration of logging, with the library's messages in it."""
    config = copy.deepcopy(LOGGING_CONFIG)
    config["loggers"]["snowredis"] = {"handlers": ["default"], "level": "INFO", "propagate": False}
    # uvicorn logs every step of a start and of a stop
    config["loggers"]["uvicorn.error"]["level"] = "WARNING"
    return config


def open_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens on *host* and *port*. Raises ConfigError."""
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        # "::" is every address of both families
        both: Any = host == "::" and socket.has_dualstack_ipv6()
        listening = socket.create_server(address, family=family, backlog=_BACKLOG, dualstack_ipv6=both)
    except (socket.gaierror, UnicodeError) as error:
        raise _refusal(host, port, f"{host!r} is not an address of this machine", error) from error
    except OSError as error:
        raise _refusal(host, port, "choose another --host or --port", error) from error
    listening.set_inheritable(True)
    return listening


def _refusal(host: str, port: int, hint: str, error: Exception) -> ConfigError:
    # leaves out the address, which socket.create_server() adds to the reason
    reason = (getattr(error, "strerror", None) or str(error)).partition(" (while")[0]
    return ConfigError(f"the service cannot listen on {host}:{port}: {reason}; it was not started: {hint}")
