"""The handover of records from callers' threads to the producer in the client's thread.

Shell: a call between threads takes tens of microseconds. Therefore callers append records to a
deque, and a task in the client's thread, woken once, sends all records of the deque.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TypeVar, final

import trio

from tidelog.blocking.forwarding import ClientThread, Forwarding
from tidelog.client.errors import ClosedError
from tidelog.client.producer.producer import Producer
from tidelog.client.producer.producer_record import ProducerRecord
from tidelog.wire.errors import TidelogError

Result = TypeVar("Result")

_PENDING_MAX = 10_000
"""Records in the deque at which `put` waits."""


@final
class Handover:
    """Passes records to one producer, in the order of `put`.

    `put` and `call` run in the callers' threads, everything else in the client's.
    """

    def __init__(self, thread: ClientThread, producer: Producer) -> None:
        """Pass records to `producer`, which runs in `thread`."""
        self._thread = thread
        self._producer = producer
        self._pending: deque[ProducerRecord] = deque()
        self._is_awake = False
        self._wake = trio.Event()
        self._emptied = trio.lowlevel.ParkingLot()
        self._failure: Exception | None = None
        self._is_closed = False
        # The context of the caller is current in the caller's thread only.
        self._with_context = producer.with_context if producer.is_traced else None
        self._scope = trio.CancelScope()
        thread.start_soon(self._carry)

    def put(self, record: ProducerRecord) -> None:
        """Append a record; wait first while the deque is full.

        Raises:
            TidelogError: An earlier record failed, and this one was not appended.
            ClosedError: The client or the producer is closed.
        """
        self._require_open()
        if len(self._pending) >= _PENDING_MAX or self._failure is not None:
            self._thread.call(self._wait_empty)
            self._raise_failure()
        if self._with_context is not None:
            record = self._with_context(record)
        self._pending.append(record)
        # The task clears `_is_awake` before its last look at the deque. Therefore it either finds
        # this record or is woken.
        if not self._is_awake:
            self._is_awake = True
            self._thread.call_soon(self._woken)

    def call(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Run `work` after the producer has all earlier records, and return its result.

        Raises:
            TidelogError: An earlier record failed, and `work` did not run.
            Exception: The error that `work` raised.
        """

        async def in_turn() -> Result:
            await self._wait_empty()
            self._raise_failure()
            return await work()

        return self._thread.call(in_turn)

    async def aclose(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Pass all records to the producer, then leave its block."""
        try:
            if kind is None or issubclass(kind, Exception):
                await self._wait_empty()
        finally:
            self._is_closed = True
            self._scope.cancel()
            await self._producer.__aexit__(kind, error, traceback)
        self._raise_failure()

    def _require_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the producer is closed")
        self._thread.require_open()

    def _woken(self) -> None:
        self._wake.set()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def _wait_empty(self) -> None:
        while self._pending:
            self._require_open()
            await self._emptied.park()

    async def _carry(self) -> None:
        with self._scope:
            while True:
                await self._wake.wait()
                self._wake = trio.Event()
                self._is_awake = False
                while self._pending:
                    await self._carry_one(self._pending[0])
                self._emptied.unpark_all()
        self._emptied.unpark_all()

    async def _carry_one(self, record: ProducerRecord) -> None:
        self._keep(self._producer.take_failure())
        try:
            self._producer.send_nowait(
                record.topic,
                record.value,
                key=record.key,
                partition=record.partition,
                headers=record.headers,
                timestamp_ms=record.timestamp_ms,
            )
        except trio.WouldBlock:
            await self._producer.wait_writable()
            return
        except TidelogError as error:
            self._keep(error)
        self._pending.popleft()

    def _keep(self, failure: Exception | None) -> None:
        self._failure = self._failure or failure


class HandedOver(Forwarding[Producer]):
    """A producer whose calls run after all records of `send_nowait` before them."""

    __slots__ = ("_handover",)

    def __init__(self, thread: ClientThread, producer: Producer) -> None:
        """Use `client.producer()`."""
        super().__init__(thread, producer)
        self._handover = Handover(thread, producer)
