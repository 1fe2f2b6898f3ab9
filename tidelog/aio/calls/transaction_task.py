"""The calls of `tidelog.TransactionTask`, for asyncio; written by `tools.face_calls`."""

from collections.abc import Iterable, Sequence
from functools import partial

from tidelog.aio.forwarding import Forwarding
from tidelog.client.producer.producer_record import ProducerRecord
from tidelog.client.transactions.transaction import TaskResult
from tidelog.client.transactions.transaction import TransactionTask as InnerTransactionTask


class TransactionTaskCalls(Forwarding[InnerTransactionTask]):
    """See `tidelog.TransactionTask`."""

    __slots__ = ()

    @property
    def is_committed(self) -> bool:
        """Whether the transaction was committed before: then nothing is staged."""
        return self._inner.is_committed

    @property
    def result(self) -> TaskResult:
        """Staged records of the task.

        Raises:
            TidelogError: A record failed, or the block has not ended.
        """
        return self._inner.result

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Iterable[tuple[str, bytes]] = (),
        timestamp_ms: int | None = None,
    ) -> None:
        """Stage one record, and wait until it is durable; it is not visible before the commit.

        Raises:
            TransactionGoneError: The transaction is over, or was begun again; stage its records
                again.
            TypeError: A part of the record has a wrong type.
            TidelogError: The record failed; the task is of no further use. See `Producer.send`.
        """
        await self._guest.call(
            partial(
                self._inner.send,
                topic,
                value,
                key=key,
                partition=partition,
                headers=list(headers),
                timestamp_ms=timestamp_ms,
            )
        )

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
        """Take one record, to be staged by `flush`, by the next call that waits, or at the end.

        Raises:
            BufferFullError: `buffer_memory` is full; `flush` and call again.
            ClosedError: The block has not begun, or has ended.
            TypeError: A part of the record has a wrong type.
            TidelogError: Earlier records failed; the task is of no further use.
        """
        self._here.send_nowait(
            topic,
            value,
            key=key,
            partition=partition,
            headers=list(headers),
            timestamp_ms=timestamp_ms,
        )

    async def send_many(
        self,
        topic: str,
        values: Sequence[bytes | None],
        *,
        keys: Sequence[bytes | None] | None = None,
        partition: int | None = None,
    ) -> None:
        """Stage records, and wait until they are durable; see `Producer.send_many`.

        Raises:
            TransactionGoneError: The transaction is over, or was begun again; stage its records
                again.
            TidelogError: Some records failed; the task is of no further use.
        """
        await self._guest.call(
            partial(self._inner.send_many, topic, values, keys=keys, partition=partition)
        )

    async def send_records(self, topic: str, records: Sequence[ProducerRecord]) -> None:
        """Stage records of one topic with their own headers, times and partitions.

        Raises:
            TransactionGoneError: The transaction is over, or was begun again; stage its records
                again.
            TidelogError: Some records failed; the task is of no further use.
        """
        await self._guest.call(partial(self._inner.send_records, topic, records))

    async def send_batch(self, records: Sequence[ProducerRecord]) -> None:
        """Stage records of any topics, in their order in each partition; see `send_records`."""
        await self._guest.call(partial(self._inner.send_batch, records))

    async def flush(self) -> None:
        """Wait until the records of `send_nowait` are durable.

        Raises:
            TransactionGoneError: The transaction is over, or was begun again; stage its records
                again.
            TidelogError: Some records failed; the task is of no further use.
        """
        await self._guest.call(self._inner.flush)
