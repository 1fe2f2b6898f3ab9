"""Reading clients: one on the wire protocol, which sees each reply, and one on the library."""

# Reads private state of the client.
# pyright: reportPrivateUsage=false

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from math import inf
from typing import final

import trio

from tests.simulation.broker.keys import value_sent
from tests.simulation.broker.plans import ReadingPlan
from tests.simulation.broker.sometimes import Sometimes
from tests.simulation.checkers.history import Operation, Outcome, Poll
from tests.simulation.checkers.run_history import (
    Consumed,
    DamageReported,
    Fetched,
    FinalLog,
    OutOfRange,
    Place,
    RunHistory,
    ViolationError,
)
from tests.simulation.machine.broker_host import HOST, PORT, TOPIC
from tests.simulation.machine.process import Process
from tidelog.client.client import Client, connect
from tidelog.client.config import ConsumerConfig
from tidelog.client.consumer.consumer import Consumer
from tidelog.client.consumer.fetch.record import RecordBatch
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.batch.batch_columns import decode_columns
from tidelog.wire.batch.record_batch import (
    FORMAT_COLUMNAR,
    FORMAT_VERSION,
    BatchHeader,
    has_valid_payload,
    parse_header,
)
from tidelog.wire.errors import (
    BrokerError,
    ConnectionLostError,
    CorruptRecordError,
    LogOfflineError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    RetriableError,
    TidelogError,
    from_wire,
)
from tidelog.wire.messages.fetch import FetchRequest, PartitionFetch, PartitionFetched
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import RpcConnection, open_rpc

PATIENCE_S = 4.0
BACKOFF_S = 0.1
_OLDER = {api.ApiKey.FETCH: 4, api.ApiKey.RECEIVE: 3, api.ApiKey.PEEK: 1}
"""Last versions of the APIs whose clients know format version 1 of batches only."""
_WAIT_MS = 500
_FETCH_BYTES_MAX = 1 << 20
_UNPACKED_MAX = 1 << 24


async def with_connection(
    process: Process, use: Callable[[RpcConnection], Awaitable[None]]
) -> None:
    """Connect to the broker and call `use`; retry until `use` returns."""
    while True:
        try:
            with trio.fail_after(PATIENCE_S) as patience:
                async with open_rpc(
                    process.env.network, HOST, PORT, client_id=process.name, client_version="1"
                ) as connection:
                    patience.deadline = inf
                    await use(connection)
                    return
        except (ConnectionLostError, RetriableError, LogOfflineError, trio.TooSlowError):
            await trio.sleep(BACKOFF_S)


def values_of(batch: RecordBatch) -> list[tuple[int, bytes]]:
    """Return offsets and values of the records of these runs, including tombstones."""
    return [
        (record.offset, value)
        for record in batch.records()
        if (value := value_sent(record.value, record.headers)) is not None
    ]


def ask_as_older(connection: RpcConnection) -> None:
    """Let a client ask as one that knows format version 1 of batches only."""
    connection._core._versions.update(_OLDER)


def all_ask_as_older(client: Client) -> None:
    """Let all connections of a client ask as those of an older client, from their first request."""
    connections = client._cluster._connections._connections

    def tell() -> None:
        for connection in connections.values():
            ask_as_older(connection)

    client._cluster.subscribe(tell)
    tell()


def check_format(name: str, header: BatchHeader) -> None:
    """Check that an older client got a batch of a format version that it knows.

    Raises:
        ViolationError: It got another one.
    """
    if header.format_version != FORMAT_VERSION:
        raise ViolationError(
            "NothingPhantom",
            f"{name} got a batch of format version {header.format_version} at offset"
            f" {header.base_offset}, which its version does not know",
        )


@final
class RawReader:
    """Reads all partitions from their start and adds each reply to the run history."""

    def __init__(
        self,
        name: str,
        run_history: RunHistory,
        sometimes: Sometimes,
        *,
        topic_id: bytes,
        partition_count: int,
        fetch_bytes: int = 4096,
        is_older: bool = False,
    ) -> None:
        """Begin at the start; fetch `fetch_bytes` from each partition at a time.

        An older client (`is_older`) asks as one that knows format version 1 of batches only.
        """
        self.should_stop = False
        self._is_older = is_older
        self._fetch_bytes = fetch_bytes
        self._first = run_history.numbers.first(topic_id)
        self.logs: dict[int, FinalLog] = {}
        """Everything that was read since the beginning, by the number of the partition."""
        self._name = name
        self._run_history = run_history
        self._sometimes = sometimes
        self._topic_id = topic_id
        self._next_offsets: list[int] = []
        self.grow(partition_count)

    def grow(self, partition_count: int) -> None:
        """Set the number of partitions to read."""
        for partition in range(len(self._next_offsets), partition_count):
            self.logs[self._first + partition] = FinalLog()
            self._next_offsets.append(0)

    async def run(self, process: Process) -> None:
        """Read until told to stop, and then to the end of the log."""
        await with_connection(process, self.read)

    async def read(self, connection: RpcConnection) -> None:
        """Read until told to stop and then to the end, or until the connection fails."""
        if self._is_older:
            ask_as_older(connection)
        is_at_end = False
        while not (is_at_end and self.should_stop):
            partitions = [
                PartitionFetch(self._topic_id, partition, offset, self._fetch_bytes)
                for partition, offset in enumerate(self._next_offsets)
            ]
            asked_count = len(partitions)
            asked_at = trio.current_time()
            with trio.fail_after(PATIENCE_S):
                results, data = await connection.call(
                    api.FETCH,
                    FetchRequest(_WAIT_MS, 1, _FETCH_BYTES_MAX, partitions),
                    take=lambda reply, data: (reply.results, bytes(data)),
                )
            self._note_wait(asked_at, has_data=bool(data))
            is_at_end = asked_count == len(self._next_offsets)
            for partition, result in enumerate(results):
                self._take(partition, result, data[: result.batch_bytes], asked_at=asked_at)
                data = data[result.batch_bytes :]
                is_error = result.error is not None
                is_at_end &= not is_error and self._next_offsets[partition] == result.high_watermark
            if any(result.error is not None for result in results):
                await trio.sleep(BACKOFF_S)

    def _note_wait(self, asked_at: float, *, has_data: bool) -> None:
        waited_ms = (trio.current_time() - asked_at) * 1000
        if has_data and 100 < waited_ms < _WAIT_MS:
            self._sometimes.reached("poll woken")
        elif not has_data and waited_ms >= _WAIT_MS:
            self._sometimes.reached("poll expired")

    def _take(
        self, partition: int, result: PartitionFetched, batches: bytes, *, asked_at: float
    ) -> None:
        if result.error is not None:
            self._take_error(partition, from_wire(result.error), asked_at)
            return
        number = self._first + partition
        log = self.logs[number]
        fetch_offset = self._next_offsets[partition]
        records, next_offset = self._decode(batches, fetch_offset)
        log.log_start_offset = result.log_start_offset
        log.high_watermark = result.high_watermark
        log.values.update(records)
        self._next_offsets[partition] = next_offset
        self._run_history.fetched(
            Fetched(
                self._name,
                number,
                fetch_offset,
                next_offset,
                records,
                result.high_watermark,
                result.log_start_offset,
                asked_at,
            )
        )

    def _decode(self, batches: bytes, offset: int) -> tuple[list[tuple[int, bytes]], int]:
        records: list[tuple[int, bytes]] = []
        while batches:
            header = parse_header(batches)
            if header is None or not has_valid_payload(header, batches[: header.size]):
                raise ViolationError("NothingPhantom", f"{self._name} got a bad batch at {offset}")
            if self._is_older:
                check_format(self._name, header)
            elif header.format_version == FORMAT_COLUMNAR:
                self._sometimes.reached("columnar batch")
            columns = decode_columns(
                header, batches[: header.size], uncompressed_length_max=_UNPACKED_MAX
            )
            deltas = columns.offset_deltas or range(header.record_count)
            values = columns.values or [None] * len(deltas)
            headers = columns.headers or [()] * len(deltas)
            for delta, record_value, each in zip(deltas, values, headers, strict=True):
                value = value_sent(record_value, each)
                assert value is not None
                if header.base_offset + delta >= offset:
                    records.append((header.base_offset + delta, value))
            offset = max(offset, header.next_offset)
            batches = batches[header.size :]
        return records, offset

    def _take_error(self, partition: int, error: BrokerError, asked_at: float) -> None:
        offset = self._next_offsets[partition]
        number = self._first + partition
        if isinstance(error, CorruptRecordError):
            assert error.next_offset is not None
            damage = DamageReported(number, offset, error.next_offset)
            self._sometimes.reached("damage read")
            self._run_history.damage_reported(damage)
            self.logs[number].damage.append(damage)
            self._next_offsets[partition] = error.next_offset
        elif isinstance(error, OffsetOutOfRangeError):
            assert error.log_start_offset is not None
            assert error.log_end_offset is not None
            start, end = error.log_start_offset, error.log_end_offset
            self._run_history.out_of_range(
                OutOfRange(self._name, number, offset, start, end, asked_at)
            )
            if offset < start:
                self._sometimes.reached("reader overtaken")
            self._next_offsets[partition] = max(start, min(offset, end))
        else:
            self._run_history.told(number, error, asked_at)


@final
class LibraryReader:
    """Reads all partitions with the client library, for the history.

    When it is told to stop, it reads to the end and adds its records to the run history.
    """

    def __init__(
        self,
        name: str,
        run_history: RunHistory,
        history: list[Operation],
        *,
        reading: ReadingPlan,
        addresses: str = f"{HOST}:{PORT}",
    ) -> None:
        """Add the records of the brokers at `addresses` to `history`."""
        self._config = ConsumerConfig(
            auto_offset_reset="earliest",
            fetch_min_bytes=reading.fetch_min_bytes,
            fetch_max_wait=reading.max_wait_s,
            max_partition_fetch_bytes=reading.max_partition_fetch_bytes,
            prefetch_bytes=reading.prefetch_bytes,
            read_from=reading.read_from,
        )
        self._is_older = reading.is_older
        self._name = name
        self._run_history = run_history
        self._history = history
        self._addresses = addresses
        self._should_stop = False
        self._following = trio.CancelScope()
        self._positions: dict[int, int] = {}
        self._moved_at: dict[int, float] = {}
        self._values: dict[Place, bytes] = {}
        self._left_out: list[DamageReported] = []
        self._has_sought = True

    def stop(self) -> None:
        """Read up to the current ends of the logs, and then return."""
        self._should_stop = True
        self._following.cancel()

    async def run(self, process: Process) -> None:
        """Read until told to stop, and then to the end of the log."""
        while True:
            try:
                await self._read(process)
            except TidelogError:
                await trio.sleep(BACKOFF_S)
            else:
                self._run_history.consumed(
                    Consumed(self._name, self._positions, self._values, self._left_out)
                )
                return

    async def _read(self, process: Process) -> None:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(
                connect(self._addresses, env=process.env, request_timeout=PATIENCE_S)
            )
            if self._is_older:
                all_ask_as_older(client)
            consumer = await stack.enter_async_context(client.consumer(TOPIC, config=self._config))
            for topic, partition in consumer.assignment:
                if partition not in self._positions:
                    start = consumer.position(topic, partition)
                    assert start is not None, "it begins at the earliest offset"
                    self._left_out.append(DamageReported(partition, 0, start))
                    self._positions[partition] = start
                self._move(consumer, partition, self._positions[partition])
            while not self._should_stop:
                with trio.CancelScope() as self._following:
                    await self._follow(consumer, None)
            await self._follow(consumer, await consumer.end_offsets())

    async def _follow(self, consumer: Consumer, until: Mapping[TopicPartition, int] | None) -> None:
        """Read up to `until`; skip offsets that are unreadable."""
        while True:
            try:
                async for batch in consumer.batches(until):
                    self._note(batch)
            except CorruptRecordError as error:
                self._pass_damage(consumer, error)
            except OffsetOutOfRangeError as error:
                self._pass_deleted(consumer, error)
            except LogTruncatedError as error:
                self._pass_lost(consumer, error)
            else:
                return

    def _pass_damage(self, consumer: Consumer, error: CorruptRecordError) -> None:
        assert error.at is not None
        assert error.next_offset is not None
        partition = error.at[1]
        damage = DamageReported(partition, self._positions[partition], error.next_offset)
        self._run_history.damage_reported(damage)
        self._left_out.append(damage)
        self._move(consumer, partition, error.next_offset)

    def _pass_deleted(self, consumer: Consumer, error: OffsetOutOfRangeError) -> None:
        assert error.at is not None
        assert error.log_start_offset is not None
        assert error.log_end_offset is not None
        partition, start, end = error.at[1], error.log_start_offset, error.log_end_offset
        position = self._positions[partition]
        # The stop may have been set before the check, but not before the reader was here.
        asked_at = self._moved_at[partition]
        self._run_history.out_of_range(
            OutOfRange(self._name, partition, position, start, end, asked_at)
        )
        self._left_out.append(DamageReported(partition, position, start))
        self._move(consumer, partition, max(start, min(position, end)))

    def _pass_lost(self, consumer: Consumer, error: LogTruncatedError) -> None:
        """Read on at the position: the values of both logs would be two for one place."""
        assert error.at is not None
        partition = error.at[1]
        self._run_history.truncated(partition, error)
        self._move(consumer, partition, self._positions[partition])

    def _move(self, consumer: Consumer, partition: int, offset: int) -> None:
        consumer.seek(TOPIC, partition, offset)
        self._positions[partition] = offset
        self._moved_at[partition] = trio.current_time()
        self._has_sought = True

    def _note(self, batch: RecordBatch) -> None:
        if self._is_older:
            check_format(self._name, batch._header)
        self._positions[batch.partition] = batch.next_offset
        self._moved_at[batch.partition] = trio.current_time()
        values = values_of(batch)
        self._values.update(((batch.partition, offset), value) for offset, value in values)
        if values:
            step = Poll({str(batch.partition): [(at, value.decode()) for at, value in values]})
            self._history.append(Operation(self._name, Outcome.OK, [step], seeks=self._has_sought))
            self._has_sought = False
