"""All paths except ids and the page (service.py): lookups, health, metrics."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from snowredis.core.as_json import DecodedId, decoded
from snowredis.monitor.history import Event
from snowredis.monitor.metrics import SERVICE
from snowredis.process.coroutines import in_thread
from snowredis.web import messages
from snowredis.web.access import Guard
from snowredis.web.messages import HttpProblem
from snowredis.web.served import ServedPool, ServedPools, SharedAnswer, SharedAnswers, answer_of, part_of, report_of
from snowredis.worker_pool import WorkerPool

# events in a response
MAX_EVENTS = 100
ID_PATHS = frozenset({"/id", "/ids"})
_METRICS_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class RequestCounts:
    """Counts of one process, from 0. Plain ints: only the event loop changes them."""

    def __init__(self, pools: Iterable[str] = ()) -> None:
        self.ids = Counter(dict.fromkeys(pools, 0))
        self.responses, self.errors = self.ids.copy(), Counter(dict.fromkeys(SERVICE[2].values, 0))

    def count_ids(self, pool: str, count: int) -> None:
        """Count a response with *count* ids."""
        self.ids[pool] += count
        self.responses[pool] += 1

    def count_error(self, status: int) -> None:
        """Count a response with an error status."""
        self.errors[str(status)] += 1

    def collect(self) -> Iterable[Any]:
        """Return the counts as prometheus-client takes them."""
        from snowredis.integrations.prometheus import as_prometheus

        for metric, numbers in zip(SERVICE, (self.ids, self.responses, self.errors), strict=True):
            yield as_prometheus(metric, {(label,): number for label, number in numbers.items()})


@dataclass(eq=False)
class Routes:
    """Handlers of the service."""

    pools: ServedPools
    guard: Guard
    counts: RequestCounts
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
            Route("/healthz", self._healthz),
            Route("/readyz", self._readyz),
            Route("/metrics", self._metrics),
            # HEAD; GET is in service.py
            *(Route(path, _no_id) for path in ID_PATHS),
        ]

    async def start(self) -> None:
        """Import what /metrics needs, in a thread."""
        self._metrics_text = await in_thread(lambda: metrics_text(self.counts, self.pools))

    # --- lookups -----------------------------------------------------------------------------------

    async def _decode(self, request: Request) -> Response:
        return messages.json_response((await self._decoded(request))[1])

    async def _whois(self, request: Request) -> Response:
        pool, parts = await self._decoded(request)
        whois = await pool.answers.get(("whois", parts.id), lambda: pool.monitor().whois(parts.id))
        return messages.json_response({"decoded": parts, "whois": whois})

    async def _decoded(self, request: Request) -> tuple[ServedPool, DecodedId]:
        """Return the pool and the fields of the id that a request names. Raises HttpProblem, SnowredisError."""
        query = _query(request, "pool", "form")
        pool = self.pools.find(query)
        # without a generator the layout is read from Redis
        layout = pool.layout or (await pool.answers.get("info", pool.monitor().info)).layout
        form, an_id = messages.parse_id(request.path_params["text"], query, layout)
        return pool, decoded(layout, an_id, form)

    async def _workers(self, request: Request) -> Response:
        query = _query(request, "pool", "filter", "limit")
        pool = self.pools.find(query)
        text = query.get("filter", "").lower()
        if len(text) > messages.MAX_FILTER:
            raise HttpProblem(400, "BadFilter", f"a filter may have {messages.MAX_FILTER} characters at most")
        limit = messages.parse_whole(query, "limit") if "limit" in query else None
        report = await pool.answers.get("report", lambda: report_of(pool.monitor()))
        answer = await pool.answers.get(("workers", text, limit), lambda: part_of(report, text, limit))
        return _shared(request, answer)

    async def _pool_names(self, _request: Request) -> Response:
        return messages.json_response({"pools": self.pools.names})

    async def _events(self, request: Request) -> Response:
        query = _query(request, "pool", "worker")
        worker = messages.parse_whole(query, "worker", 0, messages.MAX_WORKER_ID) if "worker" in query else None
        pool = self.pools.find(query)
        make = lambda: answer_of({"pool": pool.name, "events": _events_of(pool.monitor(), worker)})  # noqa: E731
        return _shared(request, await pool.answers.get(("events", worker), make))

    # --- for machines ------------------------------------------------------------------------------

    async def _healthz(self, _request: Request) -> Response:
        return messages.json_response({"ok": True})

    async def _readyz(self, request: Request) -> Response:
        """Return whether the chosen pools, by default all, can make ids here, and why not.

        A stranger, who has not the token of the service, learns yes or no about all pools, and no name or text.
        """
        query, is_draining = _query(request, "pool"), self.is_draining()
        known = self.guard.knows(request.scope)
        if "pool" in query:
            self.guard.check(request.scope)
        pools = self.pools.chosen(query)
        problems = {pool.name: _DRAINING if is_draining else pool.reason() for pool in pools
                    if is_draining or not pool.ready}  # fmt: skip
        states = {pool.name: _readiness(problems.get(pool.name)) for pool in pools} if known else {}
        if not problems:
            return messages.json_response({"ready": True, "pools": states})
        # the longest wait: all of them are needed
        problem = max(problems.values(), key=lambda one: one.retry_after_s)
        text = {} if known else {"detail": "a request with the token is told the reason"}
        retry = {"retry-after": str(problem.retry_after_s)} if problem.retry_after_s else {}
        fields = problem.fields() | {"ready": False, "pools": states} | text
        return messages.json_response(fields, status=problem.status, more=retry, media_type=messages.PROBLEM_JSON)

    async def _metrics(self, _request: Request) -> Response:
        # raises before the start
        self.pools.find({})
        text = await self._answers.get("metrics", self._metrics_text)
        return Response(text, 200, messages.PLAIN_HEADERS, _METRICS_TEXT)


async def _no_id(_request: Request) -> Response:
    response = Response(headers=messages.PLAIN_HEADERS)
    # it would have to be that of the body of GET
    del response.headers["content-length"]
    return response


_DRAINING = HttpProblem(503, "Draining", "this process of the service is stopping", 1)


def _readiness(problem: HttpProblem | None) -> dict[str, Any]:
    error, detail = (problem.error, problem.detail) if problem else (None, None)
    return {"ready": problem is None, "error": error, "detail": detail}


def _query(request: Request, *known: str) -> dict[str, str]:
    return messages.parse_query(request.scope["query_string"], *known)


def _shared(request: Request, answer: SharedAnswer) -> Response:
    """Return an answer in the form that the client accepts, or nothing but its tag if the client has it."""
    # weak: the time of the reading may be another one
    headers = messages.PLAIN_HEADERS | {
        "etag": f'W/"{answer.tag}"',
        "vary": "Accept-Encoding",
        "cache-control": "no-cache",
    }
    if answer.tag in request.headers.get("if-none-match", ""):
        return Response(None, 304, headers)
    if messages.qualities(request.headers.get("accept-encoding", "")).get("gzip"):
        return Response(answer.zipped, 200, headers | {"content-encoding": "gzip"}, messages.JSON)
    return Response(answer.body, 200, headers, messages.JSON)


def _events_of(monitor: WorkerPool, worker: int | None) -> Sequence[Event]:
    """Return the newest events, of a worker id if given, oldest first. Blocks: then it reads all events."""
    if worker is None:
        return monitor.events(newest=MAX_EVENTS)
    return [event for event in monitor.events() if event.worker == worker][-MAX_EVENTS:]


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
