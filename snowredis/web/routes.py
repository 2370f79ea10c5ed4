"""All paths except ids (service.py) and pages (pages.py): lookups, live feed, health, metrics, API description."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from snowredis.runtime.aio import in_thread
from snowredis.web.json_values import decoded_id, jsonable, pool_state
from snowredis.web.limits import Limits
from snowredis.web.live_feed import events_of, newest_events
from snowredis.web.metrics_endpoint import MetricsEndpoint, RequestCounts
from snowredis.web.openapi import description
from snowredis.web.parameters import parse_event_filter, parse_id, parse_query
from snowredis.web.problems import Problem
from snowredis.web.request_guard import ID_PATHS, RequestGuard
from snowredis.web.responses import PLAIN_HEADERS, json_response
from snowredis.web.served_pool import ServedPool, ServedPools


class Routes:
    """Handlers of the service; those that read from Redis share one rate limit."""

    def __init__(
        self, pools: ServedPools, guard: RequestGuard, limits: Limits, counts: RequestCounts
    ) -> None:
        self._pools, self._guard, self._limits, self._counts = pools, guard, limits, counts
        self._metrics_endpoint: MetricsEndpoint | None = None

    def all(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/decode/{text:path}", self._decode),
            Route("/whois/{text:path}", self._whois),
            Route("/workers", self._workers),
            Route("/pool", self._pool),
            Route("/pools", self._pool_names),
            Route("/events", self._events),
            Route("/history", self._history),
            Route("/live", self._live),
            Route("/healthz", self._healthz),
            Route("/readyz", self._readyz),
            Route("/metrics", self._metrics),
            Route("/openapi.json", self._openapi),
            # HEAD; GET is in service.py
            *(Route(path, _no_id) for path in ID_PATHS),
        ]

    async def start(self) -> None:
        """Import what /metrics needs, in a thread."""
        self._metrics_endpoint = await in_thread(
            lambda: MetricsEndpoint(self._counts, self._pools.url, self._pools.names)
        )

    # --- lookups -----------------------------------------------------------------------------------

    async def _decode(self, request: Request) -> Response:
        pool = self._pools.find(_query(request))
        # without a generator the layout is read from Redis
        layout = pool.layout or (await pool.ask(lambda monitor: monitor.info())).layout
        form, an_id = parse_id(request.path_params["text"], _query(request), layout)
        return json_response(decoded_id(layout, an_id, form))

    async def _whois(self, request: Request) -> Response:
        pool = self._pool_for_lookup(request)
        layout = (await pool.ask(lambda monitor: monitor.info())).layout
        form, an_id = parse_id(request.path_params["text"], _query(request), layout)
        whois = jsonable(await pool.ask(lambda monitor: monitor.whois(an_id)))
        del whois["parts"]
        decoded = decoded_id(layout, an_id, form)
        return json_response({"decoded": decoded, "whois": whois | {"id": str(an_id)}})

    async def _workers(self, request: Request) -> Response:
        pool = self._pool_for_lookup(request)
        workers = await pool.ask(lambda monitor: monitor.workers())
        return json_response({"pool": pool.name, "workers": workers})

    async def _pool(self, request: Request) -> Response:
        pool = self._pool_for_lookup(request)
        info = await pool.ask(lambda monitor: monitor.info())
        return json_response(pool_state(info) | {"served_by": pool.worker, "ready": pool.ready})

    async def _pool_names(self, _request: Request) -> Response:
        return json_response({"pools": self._pools.names})

    async def _events(self, request: Request) -> Response:
        pool = self._pool_for_lookup(request)
        query = _query(request)
        kind, worker = parse_event_filter(query)
        if kind is None and worker is None:
            return json_response({"pool": pool.name, "events": await pool.ask(newest_events)})
        events = await pool.ask(lambda monitor: events_of(monitor, kind, worker))
        return json_response({"pool": pool.name, "events": events})

    async def _history(self, request: Request) -> Response:
        """Return the use of the pool in the last day: [ms, ids per second, living workers, deaths] for each minute."""
        pool = self._pools.find(_query(request))
        points = [
            (point.at_ms, point.ids_per_second, point.living, point.deaths)
            for point in pool.feed.history.points()
        ]
        return json_response({"pool": pool.name, "points": points})

    def _pool_for_lookup(self, request: Request) -> ServedPool:
        pool = self._pools.find(_query(request))
        self._guard.check_lookup_rate()
        return pool

    async def _live(self, request: Request) -> Response:
        """Stream the dashboard's feed as server-sent events."""
        pool = self._pools.find(_query(request))
        if self._pools.viewers >= self._limits.max_viewers:
            raise Problem(503, "Busy", f"{self._limits.max_viewers} dashboards are already open", 30)
        # for proxies that would buffer it
        headers = PLAIN_HEADERS | {"x-accel-buffering": "no"}
        return StreamingResponse(pool.feed.stream(), headers=headers, media_type="text/event-stream")

    # --- for machines ------------------------------------------------------------------------------

    async def _healthz(self, _request: Request) -> Response:
        return json_response({"ok": True})

    async def _readyz(self, _request: Request) -> Response:
        if self._pools.ready:
            return json_response({"ready": True})
        return json_response({"ready": False}, status=503, more={"retry-after": "1"})

    async def _metrics(self, _request: Request) -> Response:
        self._guard.check_lookup_rate()
        if self._metrics_endpoint is None:
            raise Problem(503, "NotReady", "the service has not started yet. Try again.", 1)
        media_type, text = await in_thread(self._metrics_endpoint.text)
        return Response(text, headers=PLAIN_HEADERS | {"content-type": media_type})

    async def _openapi(self, _request: Request) -> Response:
        return json_response(description(self._limits, self._pools.names))


async def _no_id(_request: Request) -> Response:
    return Response(headers=PLAIN_HEADERS)


def _query(request: Request) -> dict[str, str]:
    return parse_query(request.scope["query_string"])
