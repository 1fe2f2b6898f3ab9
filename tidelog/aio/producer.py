"""Producer for asyncio.

Shell: the hot calls need no task of trio. `send_nowait` is a call of the producer, and `send` waits
for the batch of its record with a future.
"""

import asyncio
from collections.abc import Iterable
from functools import partial
from types import TracebackType
from typing import Self, final

from tidelog.aio.calls.producer import ProducerCalls
from tidelog.aio.forwarding import ClientGuest, Openable
from tidelog.client.producer.producer import Producer as InnerProducer
from tidelog.client.producer.receipt import Receipt


@final
class SettledFutures:
    """Futures of the tasks that wait for one batch; a `Signal` of the batch."""

    def __init__(self) -> None:
        """Start without futures."""
        self.futures: list[asyncio.Future[None]] = []

    def set(self) -> None:
        """Wake all tasks."""
        for future in self.futures:
            if not future.done():
                future.set_result(None)


@final
class Producer(ProducerCalls, Openable):
    """See `tidelog.Producer`; use it with `async with`, or with `await` and `close`."""

    def __init__(self, guest: ClientGuest, inner: InnerProducer) -> None:
        """Use `client.producer()`."""
        super().__init__(guest, inner)
        self._will_send = False

    async def __aenter__(self) -> Self:
        """Start."""
        await self._guest.enter(self._inner)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Flush and stop; see `tidelog.Producer`."""
        await self._guest.leave(self._inner, error)

    def send_nowait(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Iterable[tuple[str, bytes]] = (),
        timestamp_ms: int | None = None,
    ) -> None:
        """Append one record to its batch without waiting; see `tidelog.Producer.send_nowait`.

        Raises:
            BufferFullError: The buffer is full; `wait_writable` and call again.
            ClosedError: The producer is not open.
            RuntimeError: The caller is on another event loop, or in another thread.
            TidelogError: Earlier records that no call waited for failed; this record was not taken.
                The failure is raised once.
            UnknownPartitionError: The topic is known not to have this partition.
            RecordTooLargeError: The record can never fit into the buffer.
            TypeError: A part of the record has a wrong type.
        """
        self._guest.require_open()
        self._inner.send_nowait(
            topic, value, key=key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
        )

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Iterable[tuple[str, bytes]] = (),
        timestamp_ms: int | None = None,
    ) -> Receipt:
        """Send one record and wait until it is acknowledged; see `tidelog.Producer.send`.

        If cancelled, the record may or may not be sent; its failure is then kept like that of a
        `send_nowait`.

        Raises:
            UnknownTopicError: There is no such topic.
            UnknownPartitionError: The topic does not have this partition.
            DeliveryTimeoutError: The record was not acknowledged within `delivery_timeout`; the
                message says whether it may be in the log.
            RecordTooLargeError: The record exceeds a limit of the broker or of the buffer.
            TidelogError: The record was refused for another reason.
            ClosedError: The producer is not open.
        """
        guest = self._guest
        loop = guest.loop
        pending = self._inner.begin_send(
            topic, value, key=key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
        )
        if pending is None:
            return await guest.call(
                partial(
                    self._inner.send,
                    topic,
                    value,
                    key=key,
                    partition=partition,
                    headers=headers,
                    timestamp_ms=timestamp_ms,
                )
            )
        if not self._will_send:
            self._will_send = True
            loop.call_soon(self._send_open)
        future = loop.create_future()
        pending.batch.signal_of(SettledFutures).futures.append(future)
        try:
            await guest.wait(future)
        except BaseException:
            pending.abandon()
            raise
        return pending.receipt()

    def _send_open(self) -> None:
        """Send the records of all calls in this turn of the event loop."""
        self._will_send = False
        self._inner.send_open()
