"""Producer of records (Kafka: `KafkaProducer`).

Shell: checks the records of the application, appends them to the accumulator, and lets callers
wait. The accumulator decides, the sender sends requests.
"""

import copy
from collections.abc import Coroutine, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, final

import msgspec
import trio
from msgspec.structs import replace

from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.config import ProducerConfig
from tidelog.client.errors import BufferFullError, ClosedError
from tidelog.client.metrics.counters import ProducerGauges
from tidelog.client.producer.partition_batches import DeliveryRules, PartitionBatches
from tidelog.client.producer.producer_batch import RECORD_OVERHEAD_BYTES, ProducerBatch
from tidelog.client.producer.producer_record import ProducerRecord, checked_record
from tidelog.client.producer.receipt import (
    RangeReceipt,
    Receipt,
    SentSlice,
    chosen,
    outcome,
    outcomes,
    receipts,
)
from tidelog.client.producer.record_accumulator import AppendResult, Limits, RecordAccumulator
from tidelog.client.producer.sender import Sender
from tidelog.client.tracing.trace_context import with_context
from tidelog.client.tracing.tracing import Tracing
from tidelog.wire.batch.compression import CODEC_NAMES
from tidelog.wire.batch.record_batch import Headers
from tidelog.wire.errors import TidelogError, UnknownPartitionError
from tidelog.wire.messages.produce import Acks
from tidelog.wire.messages.transactions import STAGING_PREFIX

_ACKS = {"all": Acks.ALL, 1: Acks.LEADER, 0: Acks.NONE}
_FEW: Final = 4
"""Number of values up to which records cost less than columns."""
_QueuesByTopic = dict[str, dict[bytes | None, PartitionBatches]]


class ProducerStatistics(msgspec.Struct, frozen=True):
    """Snapshot of a producer's state."""

    buffered_bytes: int
    """Bytes in use of `ProducerConfig.buffer_memory`."""
    unsettled_record_count: int
    """Records that are neither acknowledged nor failed."""
    acknowledged_record_count: int
    """Records that were acknowledged so far; with `acks=0`, those that were sent."""
    in_flight_request_count: int
    """Produce requests that wait for their reply."""


@final
class Producer:
    """Sends records, in batches and in order.

    Records of one partition are appended in the order of the calls. No failure is silent: `send`
    and `send_many` return or raise the outcome of their records. The first failure of records sent
    by `send_nowait` is raised by the next call of `send_nowait` or `flush`, or at the end of the
    `async with` block.

    The block ends with a `flush`, also when it is left by an exception. When it is cancelled,
    records that are not acknowledged are abandoned: they may or may not be in the log.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        config: ProducerConfig,
        *,
        transaction: int = 0,
        is_traced: bool = True,
    ) -> None:
        """Use `async with client.producer()`.

        Args:
            cluster: Brokers to send to.
            config: Settings.
            transaction: Transaction to stage records for; 0 to append at once.
            is_traced: Whether the tracing of the client makes spans of its calls.
        """
        acks = _ACKS[config.acks]
        self.config = config
        self._cluster = cluster
        self._tasks = cluster.tasks
        self._accumulator = RecordAccumulator(
            Limits(
                batch_size=config.batch_size,
                buffer_memory=config.buffer_memory,
                linger=config.linger,
                delivery_timeout=config.delivery_timeout,
            ),
            DeliveryRules(
                codec=CODEC_NAMES[config.compression_type],
                # A leader that does not know yet that it may accept a format cannot say so.
                metadata=None if acks is Acks.NONE else cluster.metadata,
                is_idempotent=config.enable_idempotence and acks is not Acks.NONE,
                in_flight_max=config.max_in_flight_requests_per_connection,
                backoff=cluster.backoff,
            ),
            cluster.env.random,
            counters=cluster.counters.producers,
        )
        self._sender = Sender(cluster, self._accumulator, acks, transaction=transaction)
        self._scope = trio.CancelScope()
        self._is_open = False
        self._tracing = cluster.tracing if is_traced else None
        # Batches for the fast path of `send_nowait`; empty while there is an error to raise, and
        # with tracing, which may add headers to any record.
        self._queues: _QueuesByTopic = {}

    async def __aenter__(self) -> "Producer":
        """Start."""
        assert not self._is_open, "a producer is opened once"
        await trio.lowlevel.checkpoint()
        self._cluster.tasks.require_open()
        self._is_open = True
        if self._tracing is None:
            self._queues = self._accumulator.queues_by_topic
        self._cluster.counters.producers.gauges[self] = self._gauges
        self._cluster.tasks.start_soon(self._run)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Flush, and stop.

        Raises:
            TidelogError: The first failure of records that no call waited for. If the block was
                left by an exception, that is raised and the failure is added to it as a note.
        """
        try:
            if error is None:
                await self.flush()
            elif isinstance(error, Exception):
                try:
                    await self.flush()
                except (TidelogError, trio.ClosedResourceError) as failure:
                    error.add_note(f"besides, records could not be delivered: {failure}")
        finally:
            self._is_open = False
            self._cluster.counters.producers.gauges.pop(self, None)
            self._queues = {}
            self._scope.cancel()
            abandoned_count = self._accumulator.unsettled_record_count
            if abandoned_count:
                self._cluster.env.probe("client.records_abandoned", count=abandoned_count)

    @property
    def producer_id(self) -> int | None:
        """Current producer id; `None` before there is one."""
        return self._accumulator.producer_id

    def statistics(self) -> ProducerStatistics:
        """Return a snapshot of buffers, records and requests."""
        return ProducerStatistics(
            buffered_bytes=self._accumulator.buffered_bytes,
            unsettled_record_count=self._accumulator.unsettled_record_count,
            acknowledged_record_count=self._accumulator.acknowledged_record_count,
            in_flight_request_count=self._sender.in_flight_request_count,
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
        """Append one record to its batch without waiting.

        A record without `timestamp_ms` gets the time at which its batch was opened; in a batch
        that stays open for long, the time is read again every 50 ms.

        Raises:
            BufferFullError: The buffer is full; `wait_writable` and call again.
            ClosedError: The producer is not open.
            TidelogError: Earlier records that no call waited for failed; this record was not taken.
                The failure is raised once.
            UnknownPartitionError: The topic is known not to have this partition.
            RecordTooLargeError: The record can never fit into the buffer.
            TypeError: A part of the record has a wrong type.
        """
        if partition is None and timestamp_ms is None and not headers and type(value) is bytes:
            try:
                batch = self._queues[topic][key].open
            except (KeyError, TypeError):
                pass
            else:
                room = batch.room - len(value) - RECORD_OVERHEAD_BYTES
                if key is not None:
                    room -= len(key)
                if room >= 0:
                    batch.room = room
                    if key is None:
                        batch.append_value(value)
                    else:
                        batch.append_keyed(key, value)
                    return
        record = checked_record(
            topic, value, key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
        )
        self._raise_failure()
        if self._tracing is not None:
            record = self.with_context(record)
        if not self._take(record):
            raise BufferFullError(
                f"no room for a record of {record.size} bytes: {self._accumulator.free_bytes} of"
                f" buffer_memory={self.config.buffer_memory} are free; call wait_writable, and send"
                " again"
            )

    @property
    def is_traced(self) -> bool:
        """Whether calls make spans."""
        return self._tracing is not None

    def with_context(self, record: ProducerRecord) -> ProducerRecord:
        """Return a record of `send_nowait` with the current trace context in its headers."""
        if self._tracing is None:
            return record
        headers = self._tracing.create(record.topic, record.headers)
        return record if headers is record.headers else replace(record, headers=headers)

    def stage_for(self, transaction: int) -> None:
        """Stage all further records for another transaction; none may be unsettled."""
        assert not self._accumulator.unsettled_record_count, "its records are of one transaction"
        self._sender.transaction = transaction

    def take_failure(self) -> Exception | None:
        """Return, instead of raising, the first failure of records that no call waited for."""
        return self._accumulator.take_failure()

    async def wait_writable(self) -> None:
        """Wait until `send_nowait` has room for a batch, or an error to raise.

        A checkpoint. If cancelled, nothing happens.
        """
        await trio.lowlevel.checkpoint()
        while not self._accumulator.has_failure:
            if self._accumulator.free_bytes >= self.config.batch_size:
                return
            await self._wait_progress()

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
        record = checked_record(
            topic, value, key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
        )
        if self._tracing is not None:
            return await self._send_traced(self._tracing, record)
        if not self._is_ready(topic):
            await self._know(topic)
        while (appended := self._append(record)) is None:
            await self._wait_free(record.size)
        batch = appended.batch
        batch.awaited_count += 1
        try:
            await self._sender.deliver((batch,))
        except BaseException:
            self._accumulator.stop_awaiting(appended)
            raise
        return _receipt(appended, timestamp_ms)

    def begin_send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Iterable[tuple[str, bytes]] = (),
        timestamp_ms: int | None = None,
    ) -> "AwaitedSend | None":
        """Append one record that a caller waits for without a task of trio.

        The caller then calls `send_open`, once for all records of a turn of its loop, waits for
        the batch, and takes the receipt.

        Returns:
            `None` if the call has to wait first, or is traced: then `send` does both.

        Raises:
            ClosedError: The producer is not open.
            TidelogError: The record is refused.
            TypeError: A part of the record has a wrong type.
        """
        record = checked_record(
            topic, value, key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
        )
        self._require_open()
        if self._tracing is not None or not self._accumulator.knows(topic):
            return None
        appended = self._append(record)
        if appended is None:
            return None
        appended.batch.awaited_count += 1
        return AwaitedSend(self._accumulator, appended, timestamp_ms)

    def send_open(self) -> None:
        """Send the records of `begin_send`."""
        if self._is_open:
            self._sender.send()

    async def _send_traced(self, tracing: Tracing, record: ProducerRecord) -> Receipt:
        with tracing.send(record.topic, [record.headers], count=1) as span:
            traced = replace(record, headers=with_context(record.headers, span.context))
            (result,) = await self.send_records(record.topic, [traced], in_span=True)
            if isinstance(result, TidelogError):
                raise result
            span.sent([result])
        sent_ms = result.timestamp_ms if record.timestamp_ms is None else record.timestamp_ms
        return replace(result, timestamp_ms=sent_ms)

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
        if keys is not None and len(keys) != len(values):
            raise ValueError(f"{len(keys)} keys for {len(values)} values")
        if self._tracing is None:
            return receipts(await self._send_columns(topic, values, keys, partition=partition))
        destination = topic.removeprefix(STAGING_PREFIX)
        with self._tracing.send(destination, (), count=len(values)) as span:
            return receipts(
                await self._send_columns(
                    topic, values, keys, partition=partition, headers=span.context
                )
            )

    def send_values(
        self, topic: str, values: Sequence[bytes], *, headers: Headers = ()
    ) -> Coroutine[Any, Any, list[Receipt | TidelogError]]:
        """Send records without keys, all with the same headers; return receipt or error of each.

        Cancellation and errors as for `send_records`, but much faster.
        """
        if len(values) > _FEW:
            return self._send_values(topic, values, headers)
        records = [ProducerRecord(topic, value, headers=headers) for value in values]
        return self.send_records(topic, records)

    async def _send_values(
        self, topic: str, values: Sequence[bytes], headers: Headers
    ) -> list[Receipt | TidelogError]:
        slices = await self._send_columns(topic, values, None, partition=None, headers=headers)
        return outcomes(slices, len(values))

    async def send_records(
        self, topic: str, records: Sequence[ProducerRecord], *, in_span: bool = False
    ) -> list[Receipt | TidelogError]:
        """Send records of one topic; return the receipt or the error of each.

        If cancelled, any part of the records may be sent; their failures are kept like those of
        `send_nowait`.

        Args:
            topic: Topic of all records.
            records: Records.
            in_span: Whether the caller has a span for them.

        Raises:
            UnknownTopicError: There is no such topic.
            ClosedError: The producer is not open.
        """
        if self._tracing is not None and not in_span:
            return await self._send_records_traced(self._tracing, topic, records)
        if not self._is_ready(topic):
            await self._know(topic)
        results: list[Receipt | TidelogError | AppendResult] = []
        try:
            batches: list[ProducerBatch] = []
            for record in records:
                appended = self._append_awaited(record) or await self._append_later(record)
                results.append(appended)
                if isinstance(appended, AppendResult):
                    batches.append(appended.batch)
            await self._sender.deliver(batches)
        except BaseException:
            for each in results:
                if isinstance(each, AppendResult):
                    self._accumulator.stop_awaiting(each)
                elif isinstance(each, TidelogError):
                    self._accumulator.keep_failure(each, 1)
            raise
        return [outcome(each) if isinstance(each, AppendResult) else each for each in results]

    async def _send_records_traced(
        self, tracing: Tracing, topic: str, records: Sequence[ProducerRecord]
    ) -> list[Receipt | TidelogError]:
        given = [record.headers for record in records]
        destination = topic.removeprefix(STAGING_PREFIX)
        with tracing.send(destination, given, count=len(records)) as span:
            context = span.context
            if context:
                records = [
                    replace(record, headers=with_context(record.headers, context))
                    for record in records
                ]
            results = await self.send_records(topic, records, in_span=True)
            span.sent(results)
        return results

    async def _send_columns(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        *,
        partition: int | None,
        headers: Headers = (),
    ) -> list[SentSlice]:
        """Send records and wait until each is acknowledged or failed."""
        if not self._is_ready(topic):
            await self._know(topic)
        slices: list[SentSlice] = []
        try:
            for target, indexes in self._groups(topic, len(values), keys, partition=partition):
                records = chosen(values, keys, indexes, headers=headers)
                while records.remaining_count:
                    first = records.taken_count
                    now = self._sender.now()
                    appended = self._accumulator.append_many(topic, target, records, now=now)
                    if appended is None:
                        await self._wait_free(records.next_size)
                    else:
                        appended.batch.awaited_count += appended.count
                        slices.append(SentSlice(appended, indexes[first : records.taken_count]))
                        if self._accumulator.has_full_batch:
                            self._sender.send(only_full=True)
            await self._sender.deliver([part.appended.batch for part in slices])
        except BaseException:
            for part in slices:
                self._accumulator.stop_awaiting(part.appended)
            raise
        return slices

    async def flush(self) -> None:
        """Wait until all records appended so far are acknowledged or failed.

        Open batches are sent at once, regardless of `linger`. If cancelled, they are sent
        nevertheless.

        Raises:
            TidelogError: The first failure of records that no call waited for. It is raised once.
            ClosedError: The producer is not open.
        """
        await trio.lowlevel.checkpoint()
        self._require_open()
        while self._accumulator.has_unrouted:
            await self._wait_progress()
        barrier = self._accumulator.close_all()
        self._sender.send()
        while not self._accumulator.is_settled(barrier):
            await self._wait_progress()
        self._raise_failure()

    async def _run(self) -> None:
        try:
            with self._scope:
                await self._sender.run()
        finally:
            self._queues = {}
            self._cluster.counters.producers.gauges.pop(self, None)

    def _require_open(self) -> None:
        if not self._is_open:
            raise ClosedError("use 'async with client.producer() as producer'")
        self._cluster.tasks.require_open()

    def _is_ready(self, topic: str) -> bool:
        """Return whether records of a topic can be appended at once."""
        return self._is_open and not self._tasks.is_closed and self._accumulator.knows(topic)

    def _is_known(self, topic: str) -> bool:
        """Return whether records of a topic can be routed; if not, fetch its metadata."""
        if self._accumulator.knows(topic) or self._sender.learn_topic(topic):
            return True
        if topic not in self._accumulator.topics:
            self._cluster.metadata.forget([topic])
            self._cluster.request_refresh([topic])
        return False

    async def _know(self, topic: str) -> None:
        """Wait until the partitions of a topic are known."""
        self._require_open()
        if not self._accumulator.knows(topic):
            await self._cluster.topic(topic)
            self._require_open()
            self._sender.learn_topic(topic)

    def _take(self, record: ProducerRecord) -> bool:
        """Append a record that no call waits for; return whether there was room."""
        if not self._is_known(record.topic):
            return self._accumulator.append_unrouted(record, self._sender.now())
        appended = self._append(record)
        if self._accumulator.has_full_batch:
            self._sender.send(only_full=True)
        self._sender.wake()
        return appended is not None

    def _append(self, record: ProducerRecord) -> AppendResult | None:
        try:
            return self._accumulator.append(record, self._sender.now())
        except UnknownPartitionError:
            self._cluster.request_refresh([record.topic])  # It may have been added.
            raise

    async def _append_later(self, record: ProducerRecord) -> AppendResult | TidelogError:
        """Append a record that a call waits for, once there is room; see `_append_awaited`."""
        await self._wait_free(record.size)
        while (appended := self._append_awaited(record)) is None:
            await self._wait_free(record.size)
        return appended

    def _append_awaited(self, record: ProducerRecord) -> AppendResult | TidelogError | None:
        """Append a record that a call waits for.

        Returns:
            Its place, or the error if that is impossible; `None` if there is no room now.
        """
        try:
            appended = self._append(record)
        except TidelogError as error:
            return error
        if appended is None:
            return None
        appended.batch.awaited_count += 1
        if self._accumulator.has_full_batch:
            self._sender.send(only_full=True)
        return appended

    def _groups(
        self,
        topic: str,
        count: int,
        keys: Sequence[bytes | None] | None,
        *,
        partition: int | None,
    ) -> list[tuple[int | None, Sequence[int]]]:
        """Return the indexes of records by partition."""
        if keys is None or partition is not None:
            return [(partition, range(count))]
        return list(self._accumulator.places_by_partition(topic, keys).items())

    async def _wait_free(self, size: int) -> None:
        """Send everything, and wait until `size` bytes of the buffer are free."""
        counters = self._cluster.counters
        began_at = counters.now()
        self._sender.send()
        try:
            while self._accumulator.free_bytes < size:
                await self._wait_progress()
        finally:
            counters.producers.buffer_wait_s += counters.now() - began_at

    def _gauges(self) -> ProducerGauges:
        """Return the state for `Client.statistics`; any thread may call this."""
        return ProducerGauges(
            queued_records=self._accumulator.unsettled_record_count,
            buffer_bytes=self._accumulator.buffered_bytes,
            buffer_limit_bytes=self.config.buffer_memory,
            requests_in_flight=self._sender.in_flight_request_count,
        )

    async def _wait_progress(self) -> None:
        self._require_open()
        await self._sender.wait_progress()

    def _raise_failure(self) -> None:
        """Raise the failure of records that no call waited for, if there is one, once."""
        self._require_open()
        count = self._accumulator.failed_record_count
        failure = self._accumulator.take_failure()
        if failure is not None:
            failure = copy.copy(failure)
            failure.add_note(
                f"records that no call waited for and that were not acknowledged: {count}"
            )
            raise failure


@final
class AwaitedSend:
    """Record that was appended, and whose sender waits for its batch to be settled."""

    __slots__ = ("_accumulator", "_appended", "_timestamp_ms", "batch")

    def __init__(
        self, accumulator: RecordAccumulator, appended: AppendResult, timestamp_ms: int | None
    ) -> None:
        """Use `Producer.begin_send`."""
        self.batch = appended.batch
        self._accumulator = accumulator
        self._appended = appended
        self._timestamp_ms = timestamp_ms

    def abandon(self) -> None:
        """Wait no more: a failure of the record is kept like that of a `send_nowait`."""
        self._accumulator.stop_awaiting(self._appended)

    def receipt(self) -> Receipt:
        """Return the receipt of a record in a settled batch.

        Raises:
            TidelogError: The record was not acknowledged.
        """
        return _receipt(self._appended, self._timestamp_ms)


def _receipt(appended: AppendResult, timestamp_ms: int | None) -> Receipt:
    """Return the receipt of a record in a settled batch; `None` is the time of the batch.

    Raises:
        TidelogError: The record was not acknowledged.
    """
    result = outcome(appended, timestamp_ms)
    if isinstance(result, TidelogError):
        raise result
    return result
