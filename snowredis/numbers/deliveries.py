"""Make numbers for many callers with few requests: one caller asks the server for all that wait at that moment.

Threads that wait at the same time take turns as the *leader*, which makes the numbers of every order in the queue.
Coroutines put their orders into the same queue, and one thread leads for all of them.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any, Generic, NamedTuple, TypeVar

from snowredis.numbers.errors import NumbersExhausted
from snowredis.process.coroutines import result_of
from snowredis.process.threads import NotAcquired, locked, start_thread
from snowredis.snowflake.batches import MAX_BATCH

Id = TypeVar("Id")

# how long a caller waits before it looks again whether it has to lead: in a forked child nobody wakes it
LOOK_S = 0.1


class Made(NamedTuple, Generic[Id]):
    """Numbers, and what takes some of them back whose caller has gone."""

    numbers: list[Id]
    give_back: Callable[[list[Id]], object]


class _Order(Generic[Id]):
    """Numbers that one caller waits for. It ends once: with numbers, with an error, or abandoned."""

    def __init__(self, count: int, wake: Callable[[], object]) -> None:
        self.count, self.wake = count, wake
        self._end: dict[str, Any] = {}

    @property
    def ended(self) -> bool:
        return bool(self._end)

    @property
    def how(self) -> Made[Id] | Exception | None:
        """The numbers, the error, or None if the order was abandoned."""
        how: Made[Id] | Exception | None = self._end["end"][0]
        return how

    def end(self, how: Made[Id] | Exception | None) -> bool:
        """End the order with numbers, an error, or None: abandoned. Returns False if it had ended before."""
        # one step of the interpreter: of two threads, one wins
        first = self._end.setdefault("end", (how,))
        if first[0] is not how:
            return False
        self.wake()
        return True

    def result(self) -> list[Id]:
        """Return the numbers, or raise the error, of an order that has ended."""
        how = self.how
        if isinstance(how, Exception):
            raise again(how)
        return how.numbers if how is not None else []


class Deliveries(Generic[Id]):
    """Orders of one generator.

    Args:
        make: makes that many numbers, in one request if possible; raises errors for all who wait.
        at_once: the most numbers that it is asked for, unless one caller wants more.
    """

    def __init__(self, make: Callable[[int], Made[Id]], at_once: int = MAX_BATCH) -> None:
        self._make, self._at_once = make, at_once
        self.after_fork()

    def after_fork(self) -> None:
        """In a forked child: forget the parent's orders and locks. Callers that go on there order again."""
        self._orders: deque[_Order[Id]] = deque()
        # reentrant: a signal handler may order in the thread that leads
        self._lead = threading.RLock()
        self._pumping = threading.Lock()

    def take(self, count: int) -> list[Id]:
        """Return *count* numbers. Blocks as *make*, for the leader's request and the next one at most."""
        woken = threading.Event()
        order: _Order[Id] = _Order(count, woken.set)
        queue = None
        try:
            while not order.ended:
                if queue is not self._orders:
                    queue = self._orders
                    queue.append(order)
                woken.clear()
                try:
                    locked(self._lead, self._serve, 0)
                except NotAcquired:
                    if not order.ended:
                        woken.wait(LOOK_S)
                else:
                    self._wake_next()
            return order.result()
        except BaseException:
            self._abandon(order)
            raise

    async def atake(self, count: int) -> list[Id]:
        """Return *count* numbers. Async version of take(); if it is canceled, the numbers are given back."""
        ready: Future[None] = Future()

        def wake() -> None:
            # not to lead: the thread of _pump() does
            if order.ended:
                with contextlib.suppress(InvalidStateError):
                    ready.set_result(None)

        order: _Order[Id] = _Order(count, wake)
        self._orders.append(order)
        try:
            self._start_pump()
            await result_of(ready)
            return order.result()
        except BaseException:
            self._abandon(order)
            raise

    def _start_pump(self) -> None:
        """Start the thread that leads for coroutines, unless it runs."""
        if self._pumping.acquire(blocking=False):
            try:
                start_thread(self._pump, "snowredis-numbers")
            except RuntimeError:
                # no more threads, or the interpreter is about to end
                self._pumping.release()
                raise

    def _pump(self) -> None:
        pumping = self._pumping
        while True:
            try:
                while self._orders:
                    locked(self._lead, self._serve)
            finally:
                pumping.release()
            # an order may have come after the last look
            if not self._orders or not pumping.acquire(blocking=False):
                return

    def _wake_next(self) -> None:
        """Let one of those that wait lead: its order came after the leader's look at the queue."""
        for order in list(self._orders)[:1]:
            order.wake()

    def _serve(self) -> None:
        """Make the numbers of all orders in the queue, as many as one request may ask for."""
        orders: list[_Order[Id]] = []
        total = 0
        while self._orders and (not orders or total + self._orders[0].count <= self._at_once):
            order = self._orders.popleft()
            if not order.ended:
                orders.append(order)
                total += order.count
        try:
            if orders:
                self._fulfil(orders)
        finally:
            # what a signal handler raised in this thread is not theirs
            self._orders.extendleft(order for order in reversed(orders) if not order.ended)

    def _fulfil(self, orders: Sequence[_Order[Id]]) -> None:
        try:
            made = self._make(sum(order.count for order in orders))
        except Exception as error:  # noqa: BLE001 - raised in the callers
            if isinstance(error, NumbersExhausted) and len(orders) > 1:
                # some of them may ask for less than is left
                for order in orders:
                    self._fulfil([order])
                return
            for order in orders:
                order.end(error)
            return
        numbers, at = made.numbers, 0
        for order in orders:
            mine = Made(numbers[at : at + order.count], made.give_back)
            at += order.count
            if not order.end(mine):
                mine.give_back(mine.numbers)

    def _abandon(self, order: _Order[Id]) -> None:
        if not order.end(None) and isinstance(order.how, Made):
            order.how.give_back(order.how.numbers)


def again(error: Exception) -> Exception:
    """Return a copy of *error* that can be raised in several threads; itself, if that is not possible."""
    try:
        copy = type(error)(*error.args)
    except Exception:  # noqa: BLE001 - an error of the application, of any kind
        return error
    copy.__cause__ = error.__cause__
    return copy
