"""The calls of `tidelog.Producer`, for asyncio; written by `tools.face_calls`."""

from collections.abc import Sequence
from functools import partial

from tidelog.aio.forwarding import Forwarding
from tidelog.client.producer.producer import Producer as InnerProducer
from tidelog.client.producer.producer import ProducerStatistics
from tidelog.client.producer.receipt import RangeReceipt


class ProducerCalls(Forwarding[InnerProducer]):
    """See `tidelog.Producer`."""

    __slots__ = ()

    def statistics(self) -> ProducerStatistics:
        """Return a snapshot of buffers, records and requests."""
        return self._here.statistics()

    async def wait_writable(self) -> None:
        """Wait until `send_nowait` has room for a batch, or an error to raise.

        A checkpoint. If cancelled, nothing happens.
        """
        await self._guest.call(self._inner.wait_writable)

    async def send_many(
        self,
        topic: str,
        values: Sequence[bytes | None],
        *,
        keys: Sequence[bytes | None] | None = None,
        partition: int | None = None,
    ) -> list[RangeReceipt]:
        """Send records and wait until all are acknowledged; much faster than one by one.

        Without keys, they are cut into batches that go to the partitions in turn, or all to
        `partition`. With keys, records of one key stay in order. Neither sequence may change
        before this returns. The receipts are in no particular order and cover all records.

        If cancelled, any part of the records may be sent; their failures are kept like those of
        `send_nowait`.

        Raises:
            ValueError: There are not as many keys as values.
            TypeError: A key or value is not bytes and not `None`.
            TidelogError: Some records failed; the others were acknowledged. A note has the number.
                For the kinds of errors see `send`.
        """
        return await self._guest.call(
            partial(self._inner.send_many, topic, values, keys=keys, partition=partition)
        )

    async def flush(self) -> None:
        """Wait until all records appended so far are acknowledged or failed.

        Open batches are sent at once, regardless of `linger`. If cancelled, they are sent
        nevertheless.

        Raises:
            TidelogError: The first failure of records that no call waited for. It is raised once.
            ClosedError: The producer is not open.
        """
        await self._guest.call(self._inner.flush)
