"""The calls of `tidelog.Producer`, which wait; written by `tools.face_calls`."""

from collections.abc import Iterable, Sequence
from functools import partial

from tidelog.blocking.handover import HandedOver
from tidelog.client.producer.producer import ProducerStatistics
from tidelog.client.producer.receipt import RangeReceipt, Receipt


class ProducerCalls(HandedOver):
    """See `tidelog.Producer`."""

    __slots__ = ()

    def statistics(self) -> ProducerStatistics:
        """Return a snapshot of buffers, records and requests."""
        return self._thread.call_sync(self._inner.statistics)

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Iterable[tuple[str, bytes]] = (),
        timestamp_ms: int | None = None,
    ) -> Receipt:
        """Send one record and wait until it is acknowledged.

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
        return self._handover.call(
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

    def send_many(
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
        return self._handover.call(
            partial(self._inner.send_many, topic, values, keys=keys, partition=partition)
        )

    def flush(self) -> None:
        """Wait until all records appended so far are acknowledged or failed.

        Open batches are sent at once, regardless of `linger`. If cancelled, they are sent
        nevertheless.

        Raises:
            TidelogError: The first failure of records that no call waited for. It is raised once.
            ClosedError: The producer is not open.
        """
        self._handover.call(self._inner.flush)
