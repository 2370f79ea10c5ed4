"""Run the service with uvicorn until a signal."""

from __future__ import annotations

import asyncio
import copy
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.config import LOGGING_CONFIG

from snowredis.process.log import log

if TYPE_CHECKING:
    from snowredis.web.service import Service

# how long responses in progress may take after the drain
GRACE_S = 4
# longer than proxies keep theirs, so that it is not the service that closes
KEEP_ALIVE_S = 75
_LAST_RESPONSES_S = 0.2
# how long a thread that reads for the page may keep the event loop waiting; 5 ms is the interpreter's default
_SWITCH_INTERVAL_S = 0.0005


def run(app: Service, host: str, port: int, *, proxies: str = "") -> None:
    """Serve *app* until SIGTERM, SIGHUP or Ctrl-C. Ends the process if it cannot listen there.

    Args:
        proxies: addresses and networks whose X-Forwarded-For and X-Forwarded-Proto count, separated by commas.

    Raises:
        SnowredisError: as Service.start().
    """
    sys.setswitchinterval(min(_SWITCH_INTERVAL_S, sys.getswitchinterval()))
    log_config = copy.deepcopy(LOGGING_CONFIG)
    log_config["loggers"]["snowredis"] = {"handlers": ["default"], "level": "INFO", "propagate": False}
    # uvicorn logs every step of a start and of a stop
    log_config["loggers"]["uvicorn.error"]["level"] = "WARNING"
    options: dict[str, Any] = {"proxy_headers": bool(proxies), "forwarded_allow_ips": proxies, "log_config": log_config}
    options |= {"server_header": False, "date_header": False, "access_log": False, "ws": "none"}
    options |= {"timeout_keep_alive": KEEP_ALIVE_S, "timeout_graceful_shutdown": GRACE_S}
    # startup() and shutdown() start and stop the application
    _Server(uvicorn.Config(app, host, port, lifespan="off", **options), app).run()


class _Server(uvicorn.Server):
    """uvicorn's server; an error of the start is raised instead of logged."""

    def __init__(self, config: uvicorn.Config, app: Service) -> None:
        super().__init__(config)
        self._app = app

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            # the signal handlers that it wraps are installed
            await self._app.start()
            await super().startup(sockets)
        except BaseException:
            await self._app.stop()
            raise
        # a terminal that closes; nohup ignores it
        if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
            signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
        where = " and ".join(f"{host}:{port}" for host, port, *_ in (
            each.getsockname() for server in self.servers for each in server.sockets))  # fmt: skip
        log.info("serving %s on http://%s (Ctrl-C to stop)", ", ".join(self._app.pools.names), where)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            for each in self.servers:
                each.close()
            # connections that were accepted just now still get a response, which uvicorn would not wait for
            await asyncio.sleep(_LAST_RESPONSES_S)
            await super().shutdown(sockets)
        finally:
            await self._app.stop()
