"""Worker class for gunicorn: uvicorn with the limits of connections that `snowredis serve` has.

    gunicorn -k snowredis.web.gunicorn_worker.ServiceWorker 'snowredis.web.service:from_environment()'

Needs gunicorn and uvicorn-worker.
"""

from __future__ import annotations

from uvicorn_worker import UvicornWorker

from snowredis.web.server import options, prepare_process


class ServiceWorker(UvicornWorker):
    """One process of the service."""

    def init_process(self) -> None:
        prepare_process()
        super().init_process()

    def load_wsgi(self) -> None:
        super().load_wsgi()
        # the application is known only now
        for name, value in options(self.wsgi).items():
            setattr(self.config, name, value)
