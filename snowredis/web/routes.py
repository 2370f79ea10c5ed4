"""All paths except ids (service.py) and pages (pages.py): lookups, live feed, health, metrics, API description."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from snowredis.process.threads import in_thread
from snowredis.web.access import ID_PATHS, RequestGuard
from snowredis.web.drain import Drain
from snowredis.web.feed import events_of, newest_events
from snowredis.web.json_values import decoded_id, jsonable, pool_state, to_json
from snowredis.web.messages import (
    PLAIN_HEADERS,
    PROBLEM_JSON,
    Problem,
    json_response,
    parse_event_filter,
    parse_id,
    parse_query,
    shared_response,
)
from snowredis.web.metrics_endpoint import MetricsEndpoint, RequestCounts
from snowredis.web.openapi import description
from snowredis.web.pages import EndedSessions
from snowredis.web.served_kinds import ServedKinds
from snowredis.web.served_pools import ServedPool, ServedPools
from snowredis.web.settings import Limits
from snowredis.web.shared_reads import SharedAnswers

# how long a refused lookup waits for its response, and how many do
_PAUSE_S = 0.1
_MAX_PAUSING = 200


class Routes:
    """Handlers of the service; those that read from Redis share one rate limit."""

    def __init__(
        self,
        pools: ServedPools,
        guard: RequestGuard,
        limits: Limits,
        counts: RequestCounts,
        sessions: EndedSessions,
        drain: Drain,
        kinds: ServedKinds,
    ) -> None:
        self._pools, self._guard, self._limits, self._counts = pools, guard, limits, counts
        self._sessions, self._drain, self._kinds = sessions, drain, kinds
        # requests that are refused after a pause, and open dashboards by client
        self._pausing = 0
        self._viewers: Counter[str] = Counter()
        # of all pools
        self._answers = SharedAnswers()
        self._metrics_endpoint: MetricsEndpoint | None = None

    def all(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/decode/{text:path}", self._decode),
            Route("/whois/{text:path}", self._whois),
            Route("/workers", self._workers),
            Route("/pool", self._pool),
            Route("/pools", self._pool_names),
            Route("/kinds", self._kinds_served),
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
            lambda: MetricsEndpoint(self._counts, self._pools.url, self._pools.names, self._kinds)
        )

    # --- lookups -----------------------------------------------------------------------------------

    async def _decode(self, request: Request) -> Response:
        pool = self._pools.find(_query(request))
        # without a generator the layout is read from Redis
        layout = pool.layout or (await pool.ask(lambda monitor: monitor.info())).layout
        form, an_id = parse_id(request.path_params["text"], _query(request), layout)
        return json_response(decoded_id(layout, an_id, form))

    async def _whois(self, request: Request) -> Response:
        pool = await self._pool_for_lookup(request)
        layout = (await pool.ask(lambda monitor: monitor.info())).layout
        form, an_id = parse_id(request.path_params["text"], _query(request), layout)
        whois = jsonable(await pool.ask_alone(lambda monitor: monitor.whois(an_id)))
        del whois["parts"]
        decoded = decoded_id(layout, an_id, form)
        return json_response({"decoded": decoded, "whois": whois | {"id": str(an_id)}})

    async def _workers(self, request: Request) -> Response:
        pool = await self._pool_for_lookup(request)
        answer = await pool.answer(
            "workers", lambda monitor: {"pool": pool.name, "workers": monitor.workers()}
        )
        return shared_response(request, answer)

    async def _pool(self, request: Request) -> Response:
        pool = await self._pool_for_lookup(request)
        answer = await pool.answer(
            "pool",
            lambda monitor: pool_state(monitor.info()) | {"served_by": pool.worker, "ready": pool.ready},
        )
        return shared_response(request, answer)

    async def _pool_names(self, _request: Request) -> Response:
        return json_response({"pools": self._pools.names})

    async def _kinds_served(self, request: Request) -> Response:
        if not self._kinds.served:
            return json_response({"kinds": []})
        # without a limit: all dashboards ask, and the tags are read once for all of them
        answer = await self._answers.get("kinds", lambda: to_json(self._kinds.state()))
        return shared_response(request, answer)

    async def _events(self, request: Request) -> Response:
        pool = await self._pool_for_lookup(request)
        kind, worker = parse_event_filter(_query(request))
        if kind is None and worker is None:
            answer = await pool.answer(
                "events", lambda monitor: {"pool": pool.name, "events": newest_events(monitor)}
            )
            return shared_response(request, answer)
        events = await pool.ask_alone(lambda monitor: events_of(monitor, kind, worker))
        return json_response({"pool": pool.name, "events": events})

    async def _history(self, request: Request) -> Response:
        """Return the use of the pool in the last day: [ms, ids per second, living workers, deaths] for each minute."""
        pool = self._pools.find(_query(request))
        points = [
            (point.at_ms, point.ids_per_second, point.living, point.deaths)
            for point in pool.feed.history.points()
        ]
        return json_response({"pool": pool.name, "points": points})

    async def _pool_for_lookup(self, request: Request) -> ServedPool:
        pool = self._pools.find(_query(request))
        await self._check_lookup_rate()
        return pool

    async def _check_lookup_rate(self) -> None:
        """Raise Problem, after a pause, if there are too many lookups: who repeats them at once slows down ids."""
        try:
            self._guard.check_lookup_rate()
        except Problem:
            if self._pausing < _MAX_PAUSING:
                self._pausing += 1
                try:
                    await asyncio.sleep(_PAUSE_S)
                finally:
                    self._pausing -= 1
            raise

    async def _live(self, request: Request) -> Response:
        """Stream the dashboard's feed as server-sent events."""
        pool = self._pools.find(_query(request))
        client = request.client.host if request.client else ""
        limits = self._limits
        if self._drain.draining:
            raise Problem(503, "Draining", "this process of the service is stopping", 1)
        if self._pools.viewers >= limits.max_viewers:
            raise Problem(503, "Busy", f"{limits.max_viewers} dashboards are already open", 30)
        if self._viewers[client] >= limits.max_viewers_per_address:
            detail = f"{limits.max_viewers_per_address} dashboards are already open at this address"
            raise Problem(503, "Busy", detail, 30)
        # for proxies that would buffer it
        headers = PLAIN_HEADERS | {"x-accel-buffering": "no"}
        stream = self._stream(pool, client, request.scope.get("snowredis.session"))
        return StreamingResponse(stream, headers=headers, media_type="text/event-stream")

    async def _stream(self, pool: ServedPool, client: str, session: str | None) -> AsyncIterator[bytes]:
        """Yield the feed of a pool until the session ends."""
        self._viewers[client] += 1
        try:
            async for event in pool.feed.stream():
                if session is not None:
                    await self._sessions.check(session)
                yield event
        except Problem:
            return
        finally:
            self._viewers[client] -= 1
            self._viewers += Counter()

    # --- for machines ------------------------------------------------------------------------------

    async def _healthz(self, _request: Request) -> Response:
        return json_response({"ok": True})

    async def _readyz(self, request: Request) -> Response:
        """Return whether the chosen pools, by default all, can make ids here, and why not; with each pool's status.

        A tag that hands out no numbers is in the body, and in the statuses: pools make ids all the same.
        """
        pools = self._pools.chosen(_query(request))
        tags = {tag.name: {"state": tag.state, "level": tag.level} for tag in self._kinds.verdicts}
        if self._drain.draining:
            draining = Problem(503, "Draining", "this process of the service is stopping", 1)
            return _readiness(pools, tags, draining, {pool.name: draining for pool in pools})
        problems = {pool.name: await pool.reason() for pool in pools if not pool.ready}
        # the longest wait: all of them are needed
        problem = max(problems.values(), key=lambda one: one.retry_after_s) if problems else None
        return _readiness(pools, tags, problem, problems)

    async def _metrics(self, request: Request) -> Response:
        await self._check_lookup_rate()
        endpoint = self._metrics_endpoint
        if endpoint is None:
            raise Problem(503, "NotReady", "the service has not started yet. Try again.", 1)
        answer = await self._answers.get("metrics", endpoint.text)
        return shared_response(request, answer, media_type=endpoint.media_type)

    async def _openapi(self, _request: Request) -> Response:
        return json_response(description(self._limits, self._pools.names, self._kinds.served))


def _readiness(
    pools: Iterable[ServedPool],
    tags: Mapping[str, Any],
    problem: Problem | None,
    problems: Mapping[str, Problem],
) -> Response:
    """Return the response of /readyz: *problem*, if there is one; problem and status of each pool; the tags."""
    values = {}
    for pool in pools:
        status = pool.feed.status
        values[pool.name] = {
            "ready": pool.name not in problems,
            "status": {"level": status.level, "headline": status.headline},
        }
        if (one := problems.get(pool.name)) is not None:
            values[pool.name] |= {"error": one.error, "detail": one.detail}
    state: dict[str, Any] = {"ready": problem is None, "pools": values, "tags": tags}
    if problem is None:
        return json_response(state)
    fields = problem.fields() | state
    retry = {"retry-after": str(problem.retry_after_s)} if problem.retry_after_s else {}
    return json_response(fields, status=problem.status, more=retry, media_type=PROBLEM_JSON)


async def _no_id(_request: Request) -> Response:
    return Response(headers=PLAIN_HEADERS)


def _query(request: Request) -> dict[str, str]:
    return parse_query(request.scope["query_string"])
