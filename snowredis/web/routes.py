"""All paths except ids (service.py) and pages (pages.py): lookups, live feed, health, metrics, API description."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from snowredis.core.as_json import to_json
from snowredis.core.decoded import decoded
from snowredis.monitor.conditions import status_of
from snowredis.monitor.events import Event
from snowredis.monitor.metric_values import Family
from snowredis.monitor.metrics import SERVICE
from snowredis.monitor.pool_monitor import PoolReport, Reading
from snowredis.process.coroutines import in_thread
from snowredis.snowflake.record import EventKind
from snowredis.web import messages, records
from snowredis.web.access import ID_PATHS, RequestGuard
from snowredis.web.feed import MAX_EVENTS, SharedAnswers
from snowredis.web.messages import HttpProblem
from snowredis.web.pages import EndedSessions
from snowredis.web.served import ServedKinds, ServedPool, ServedPools
from snowredis.web.settings import Limits
from snowredis.worker_pool import WorkerPool

_ASK_WITH_TOKEN = "a request with the token is told the reason"  # noqa: S105 - a text
_METRICS_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class RequestCounts:
    """Counts of one process, from 0. Plain ints: only the event loop changes them."""

    def __init__(self, pools: Iterable[str] = ()) -> None:
        names = list(pools)
        self.ids, self.responses = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
        self.errors = dict.fromkeys(SERVICE[2].values, 0)

    def count_ids(self, pool: str, count: int) -> None:
        """Count a response with *count* ids."""
        self.ids[pool] = self.ids.get(pool, 0) + count
        self.responses[pool] = self.responses.get(pool, 0) + 1

    def count_error(self, status: int) -> None:
        """Count a response with an error status."""
        self.errors[str(status)] = self.errors.get(str(status), 0) + 1

    def collect(self) -> Iterable[Any]:
        """Return the counts as prometheus-client takes them."""
        from snowredis.integrations.prometheus import as_prometheus

        for metric, numbers in zip(SERVICE, (self.ids, self.responses, self.errors), strict=True):
            yield as_prometheus(Family(metric, {(label,): number for label, number in numbers.items()}))


@dataclass(eq=False)
class Routes:
    """Handlers of the service; those that read from Redis share one rate limit."""

    pools: ServedPools
    guard: RequestGuard
    limits: Limits
    counts: RequestCounts
    sessions: EndedSessions
    kinds: ServedKinds
    is_draining: Callable[[], bool]
    # answers about all pools
    _answers: SharedAnswers = field(default_factory=SharedAnswers)

    def all(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/decode/{text:path}", self._decode),
            Route("/whois/{text:path}", self._whois),
            Route("/workers", self._workers),
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
        self._metrics_text = await in_thread(lambda: metrics_text(self.counts, self.pools))

    # --- lookups -----------------------------------------------------------------------------------

    async def _decode(self, request: Request) -> Response:
        pool = self.pools.find(_query(request))
        # without a generator the layout is read from Redis
        layout = pool.layout or (await pool.ask(lambda monitor: monitor.info())).layout
        form, an_id = messages.parse_id(request.path_params["text"], _query(request), layout)
        return messages.json_response(decoded(layout, an_id, form))

    async def _whois(self, request: Request) -> Response:
        pool = self._pool_for_lookup(request)
        layout = (await pool.ask(lambda monitor: monitor.info())).layout
        form, an_id = messages.parse_id(request.path_params["text"], _query(request), layout)
        whois = await pool.ask_alone(lambda monitor: monitor.whois(an_id))
        return messages.json_response({"decoded": decoded(layout, an_id, form), "whois": whois})

    async def _workers(self, request: Request) -> Response:
        pool = self._pool_for_lookup(request)
        return messages.bytes_response(await pool.answer("workers", report_of))

    async def _pool_names(self, _request: Request) -> Response:
        return messages.json_response({"pools": self.pools.names})

    async def _events(self, request: Request) -> Response:
        pool = self._pool_for_lookup(request)
        kind, worker = messages.parse_event_filter(_query(request))
        if kind is None and worker is None:
            answer = await pool.answer(
                "events", lambda monitor: {"pool": pool.name, "events": monitor.events(newest=MAX_EVENTS)}
            )
            return messages.bytes_response(answer)
        events = await pool.ask_alone(lambda monitor: _events_of(monitor, kind, worker))
        return messages.json_response({"pool": pool.name, "events": events})

    async def _history(self, request: Request) -> Response:
        pool = self.pools.find(_query(request))
        return messages.json_response({"pool": pool.name, "points": pool.feed.history.points()})

    def _pool_for_lookup(self, request: Request) -> ServedPool:
        """Return the pool that a lookup names. Raises HttpProblem, also if there are too many lookups."""
        pool = self.pools.find(_query(request))
        self.guard.lookups.check()
        return pool

    async def _live(self, request: Request) -> Response:
        """Stream the dashboard's feed as server-sent events."""
        pool = self.pools.find(_query(request))
        if self.is_draining():
            raise _draining()
        if self.pools.viewers >= self.limits.max_viewers:
            raise HttpProblem(503, "Busy", f"{self.limits.max_viewers} dashboards are already open", 30)
        # this header asks proxies not to buffer the stream
        headers = messages.PLAIN_HEADERS | {"x-accel-buffering": "no"}
        # a response to HEAD ends with its headers, and the next request of the connection is served
        is_head = request.method == "HEAD"
        stream = iter(()) if is_head else self._stream(pool, request.scope.get("snowredis.session"))
        return StreamingResponse(stream, headers=headers, media_type="text/event-stream")

    async def _stream(self, pool: ServedPool, session: str | None) -> AsyncIterator[bytes]:
        """Yield the feed of a pool until the session ends."""
        with contextlib.suppress(HttpProblem):
            async for event in pool.feed.stream():
                if session is not None:
                    await self.sessions.check(session)
                yield event

    # --- for machines ------------------------------------------------------------------------------

    async def _healthz(self, _request: Request) -> Response:
        return messages.json_response({"ok": True})

    async def _readyz(self, request: Request) -> Response:
        """Return whether the chosen pools, by default all, can make ids here, and why not; with each pool's status.

        Without the token of the service the response has no names and no texts: they say too much to strangers.
        """
        known, is_draining = self.guard.knows(request.scope), self.is_draining()
        try:
            pools = self.pools.chosen(_query(request))
        except HttpProblem as error:
            raise error if known else HttpProblem(error.status, error.error, _ASK_WITH_TOKEN) from None
        problems = {
            pool.name: _draining() if is_draining else await pool.reason()
            for pool in pools
            if is_draining or not pool.ready
        }
        # the longest wait: all of them are needed
        problem = max(problems.values(), key=lambda one: one.retry_after_s) if problems else None
        state = records.Readiness(
            problem is None, {pool.name: _readiness(pool, problems.get(pool.name)) for pool in pools} if known else {}
        )
        if problem is None:
            return messages.json_response(state)
        fields = problem.fields() | to_json(state) | ({} if known else {"detail": _ASK_WITH_TOKEN})
        retry = {"retry-after": str(problem.retry_after_s)} if problem.retry_after_s else {}
        return messages.json_response(fields, status=problem.status, more=retry, media_type=messages.PROBLEM_JSON)

    async def _metrics(self, _request: Request) -> Response:
        self.guard.metrics.check()
        answer = await self._answers.get("metrics", self._metrics_text)
        return messages.bytes_response(answer, media_type=_METRICS_TEXT)

    async def _openapi(self, _request: Request) -> Response:
        others = [(one.kind, one.tag) for one in self.kinds.served]
        return messages.json_response(records.description(self.limits, self.pools.names, others))


async def _no_id(_request: Request) -> Response:
    return Response(headers=messages.PLAIN_HEADERS)


def _draining() -> HttpProblem:
    return HttpProblem(503, "Draining", "this process of the service is stopping", 1)


def _query(request: Request) -> dict[str, str]:
    return messages.parse_query(request.scope["query_string"])


def report_of(monitor: WorkerPool) -> PoolReport:
    """Return the pool as `snowredis workers --json` shows it. Blocks for a few round trips to Redis."""
    snapshot = monitor.snapshot()
    return Reading(status_of(snapshot), snapshot).report


def _events_of(monitor: WorkerPool, kind: EventKind | None, worker: int | None) -> tuple[Event, ...]:
    """Return the newest events of a kind, of a worker id, or both, oldest first. Blocks: it reads all events."""
    found = [event for event in monitor.events() if kind in (None, event.kind) and worker in (None, event.worker)]
    return tuple(found[-MAX_EVENTS:])


def _readiness(pool: ServedPool, problem: HttpProblem | None) -> records.PoolReadiness:
    error, detail = (problem.error, problem.detail) if problem is not None else (None, None)
    return records.PoolReadiness(problem is None, pool.feed.status, error, detail)


# --- metrics ----------------------------------------------------------------------------------------


def metrics_text(counts: RequestCounts, pools: ServedPools) -> Callable[[], bytes]:
    """Return a function that makes the text of /metrics, and blocks for a few round trips to Redis.

    Under PROMETHEUS_MULTIPROC_DIR the text sums up all processes and leaves out *counts*, which are of one process.
    Importing what it needs takes a while.
    """
    from prometheus_client import REGISTRY, CollectorRegistry, generate_latest, multiprocess

    from snowredis.integrations import prometheus

    prometheus.register()
    of_pools = prometheus.PoolCollector(None, *pools.names, open_pool=pools.monitor)
    all_processes = CollectorRegistry()
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        multiprocess.MultiProcessCollector(all_processes)  # type: ignore[no-untyped-call]
        return lambda: generate_latest(all_processes) + generate_latest(of_pools)
    return lambda: generate_latest(counts) + generate_latest(of_pools) + generate_latest(REGISTRY)
