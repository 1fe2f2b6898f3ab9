"""The calls of `tidelog.TransactionTask`, for asyncio; written by `tools.face_calls`."""

from collections.abc import Sequence
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
