"""tidelog for programs without trio: the same names, and calls that wait.

Shell: the client runs in a thread of its own; calls wait for it. Errors are those of the client,
unchanged. Ctrl-C interrupts any call. Objects may be shared between threads, except that one
consumer is iterated by one thread at a time. A process that forks must connect after the fork.

    with tidelog.blocking.connect("127.0.0.1:8433") as client:
        with client.producer() as producer:
            producer.send_many("orders", [b"paid", b"sent"])
        with client.consumer("orders", auto_offset_reset="earliest") as consumer:
            for record in consumer: ...
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Unpack, cast, final

from tidelog.blocking.admin import Admin
from tidelog.blocking.handover import Handover
from tidelog.blocking.queue import Queue, in_turn
from tidelog.blocking.thread import TrioThread
from tidelog.blocking.transaction import Transaction
from tidelog.client import client as trio_client
from tidelog.client.config import AllConsumerSettings as TrioConsumerSettings
from tidelog.client.config import (
    ClientConfig,
    ClientSettings,
    ConsumerConfig,
    ConsumerSettings,
    ProducerConfig,
    ProducerSettings,
)
from tidelog.client.config import RebalanceCallback as TrioRebalanceCallback
from tidelog.client.consumer.consumer import Consumer as TrioConsumer
from tidelog.client.consumer.fetch.fetch_state import Until
from tidelog.client.consumer.fetch.record import Record, RecordBatch
from tidelog.client.consumer.fetch.record_iterator import RecordIterator
from tidelog.client.producer.producer import Producer as TrioProducer
from tidelog.client.producer.producer import ProducerStatistics
from tidelog.client.producer.producer_record import checked_record
from tidelog.client.producer.receipt import RangeReceipt, Receipt
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.env.real_env import run_in_thread

_Thread = TrioThread[trio_client.Client]
RebalanceCallback = Callable[[list[TopicPartition]], object]
"""Told of partitions, in order."""


class AllConsumerSettings(ConsumerSettings, total=False):
    """All fields of `ConsumerConfig`, as keywords, with callbacks that need not be awaited."""

    on_assigned: RebalanceCallback | None
    on_revoked: RebalanceCallback | None
    on_lost: RebalanceCallback | None


def connect(
    addresses: str, *, config: ClientConfig | None = None, **settings: Unpack[ClientSettings]
) -> "Client":
    """Connect to a cluster; see `tidelog.connect`. The client is to be closed, or used by `with`.

    Raises:
        ConfigError: An address or a setting is not legal.
        ConnectError: No broker can be reached; one line that says which address, what failed,
            and what to try.
    """
    return Client(TrioThread(trio_client.connect(addresses, config=config, **settings)))


@final
class Client:
    """See `tidelog.Client`."""

    def __init__(self, thread: _Thread) -> None:
        """Use `connect`."""
        self._thread = thread
        self.admin = Admin(thread)
        """Creates, describes, changes and deletes topics."""

    def __enter__(self) -> "Client":
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    def producer(
        self, config: ProducerConfig | None = None, **settings: Unpack[ProducerSettings]
    ) -> "Producer":
        """Return a producer, which is to be closed, or used by `with`.

        Raises:
            ConfigError: A setting is not legal.
        """
        producer = self._thread.resource.producer(config, **settings)
        self._thread.call(producer.__aenter__)
        return Producer(self._thread, producer)

    def consumer(
        self,
        topics: str | Sequence[str] = (),
        *,
        partitions: Sequence[int] | None = None,
        group_id: str | None = None,
        pattern: str | None = None,
        config: ConsumerConfig | None = None,
        **settings: Unpack[AllConsumerSettings],
    ) -> "Consumer":
        """Return a consumer, which is to be closed, or used by `with`; see `tidelog.Client`.

        Callbacks of a group run in a thread of their own, while no record is in hand.

        Raises:
            ConfigError: A setting is not legal.
            UnknownTopicError: There is no such topic.
            UnknownPartitionError: The topic does not have a partition that was asked for.
            InvalidRequestError: The group refuses what it is asked for, such as the pattern.
        """
        consumer = self._thread.resource.consumer(
            topics,
            partitions=partitions,
            group_id=group_id,
            pattern=pattern,
            config=config,
            **_with_awaitable_callbacks(settings),
        )
        self._thread.call(consumer.__aenter__)
        return Consumer(self._thread, consumer)

    def chunks(self, record: Record) -> Iterator[bytes]:
        """Iterate over the value of a record; see `tidelog.Client.chunks`."""
        return in_turn(self._thread, self._thread.resource.chunks(record))

    def transaction(
        self, name: str, transaction_id: int, *, timeout: float = 3600.0
    ) -> Transaction:
        """Return a transaction; see `tidelog.Client.transaction`."""
        transaction = self._thread.resource.transaction(name, transaction_id, timeout=timeout)
        return Transaction(self._thread, transaction)

    def queue(self, name: str, *, holder: str = "") -> Queue:
        """Return a queue; see `tidelog.Client.queue`."""
        return Queue(self._thread, self._thread.resource.queue(name, holder=holder))

    def close(self) -> None:
        """Close all connections. Records that are not acknowledged are abandoned."""
        self._thread.close()


@final
class Producer:
    """See `tidelog.Producer`."""

    def __init__(self, thread: _Thread, producer: TrioProducer) -> None:
        """Use `client.producer()`."""
        self._thread = thread
        self._producer = producer
        self._handover = Handover(thread, producer)

    def __enter__(self) -> "Producer":
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Flush and stop; see `tidelog.Producer`."""
        self._thread.call(partial(self._handover.aclose, kind, error, traceback))

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
        """Hand over one record without waiting for it to be acknowledged.

        When the buffer is full, this waits until there is room.

        Raises:
            TidelogError: Earlier records, whose fate nobody waited for, failed; this record was
                not taken. The failure is raised once.
            TypeError: The record is not made of the right types.
            trio.ClosedResourceError: The client is closed.
        """
        self._handover.put(
            checked_record(
                topic, value, key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
            )
        )

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
        """Send one record and wait until it is acknowledged; see `tidelog.Producer.send`."""
        send = partial(
            self._producer.send,
            topic,
            value,
            key=key,
            partition=partition,
            headers=headers,
            timestamp_ms=timestamp_ms,
        )
        return self._handover.call(send)

    def send_many(
        self,
        topic: str,
        values: Sequence[bytes | None],
        *,
        keys: Sequence[bytes | None] | None = None,
        partition: int | None = None,
    ) -> list[RangeReceipt]:
        """Send records and wait until all are acknowledged; see `tidelog.Producer.send_many`."""
        send = partial(self._producer.send_many, topic, values, keys=keys, partition=partition)
        return self._handover.call(send)

    def flush(self) -> None:
        """Wait until all records handed over so far are acknowledged or failed.

        Raises:
            TidelogError: The first failure of records whose fate nobody waited for, once.
        """
        self._handover.call(self._producer.flush)

    def statistics(self) -> ProducerStatistics:
        """Return what the producer is busy with."""
        return self._thread.call_sync(self._producer.statistics)

    def close(self) -> None:
        """Flush and stop; see `tidelog.Producer`."""
        self.__exit__(None, None, None)


@final
class Consumer:
    """See `tidelog.Consumer`."""

    def __init__(self, thread: _Thread, consumer: TrioConsumer) -> None:
        """Use `client.consumer(...)`."""
        self._thread = thread
        self._consumer = consumer

    def __enter__(self) -> "Consumer":
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop reading."""
        self.close()

    def __iter__(self) -> Iterator[Record]:
        """Iterate over records, for ever."""
        return self.records()

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read."""
        return self._consumer.assignment

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read exactly these partitions; see `tidelog.Consumer.assign`."""
        self._thread.call(partial(self._consumer.assign, partitions))

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Go on with the record at `offset` of a partition; see `tidelog.Consumer.seek`."""
        self._thread.call_sync(partial(self._consumer.seek, topic, partition, offset))

    def seek_to_beginning(self) -> None:
        """Go on with the first record of every partition."""
        self._thread.call(self._consumer.seek_to_beginning)

    def seek_to_end(self) -> None:
        """Go on with what is appended from now on."""
        self._thread.call(self._consumer.seek_to_end)

    def seek_to_time(self, timestamp_ms: int) -> None:
        """Go on with the first record of this time or later; see `tidelog.Consumer`."""
        self._thread.call(partial(self._consumer.seek_to_time, timestamp_ms))

    def position(self, topic: str, partition: int) -> int | None:
        """Return the offset of the next record to hand out; see `tidelog.Consumer.position`."""
        return self._thread.call_sync(partial(self._consumer.position, topic, partition))

    def beginning_offsets(self) -> dict[TopicPartition, int]:
        """Return the first readable offset of every partition."""
        return self._thread.call(self._consumer.beginning_offsets)

    def end_offsets(self) -> dict[TopicPartition, int]:
        """Return the offset that the next readable record of every partition will have."""
        return self._thread.call(self._consumer.end_offsets)

    def records(self, until: Until | None = None) -> Iterator[Record]:
        """Iterate over records; see `tidelog.Consumer.batches` for `until` and for errors."""
        return self._records(self._thread.call_sync(partial(self._consumer.records, until)))

    def batches(self, until: Until | None = None) -> Iterator[RecordBatch]:
        """Iterate over batches; see `tidelog.Consumer.batches`."""
        return self._batches(until)

    def give_back(self, batch: RecordBatch) -> None:
        """Take back the batch handed out last, or its end; see `tidelog.Consumer.give_back`."""
        self._thread.call_sync(partial(self._consumer.give_back, batch))

    def subscribe(self, topics: str | Sequence[str] = (), *, pattern: str | None = None) -> None:
        """Have the group share other topics; see `tidelog.Consumer.subscribe`."""
        self._thread.call_sync(partial(self._consumer.subscribe, topics, pattern=pattern))

    def commit(self, offsets: Mapping[tuple[str, int], int] | None = None) -> None:
        """Store how far the group is; see `tidelog.Consumer.commit`."""
        self._thread.call(partial(self._consumer.commit, offsets))

    def committed(
        self, partitions: Iterable[tuple[str, int]] | None = None
    ) -> dict[TopicPartition, int | None]:
        """Return how far the group is; see `tidelog.Consumer.committed`."""
        return self._thread.call(partial(self._consumer.committed, partitions))

    def extend_poll_interval(self, seconds: float) -> None:
        """Tell the group that nothing may be heard for so long.

        Only for what keeps all threads from running: heartbeats go on in a thread of their own. See
        `tidelog.Consumer.extend_poll_interval`.
        """
        self._thread.call(partial(self._consumer.extend_poll_interval, seconds))

    def close(self) -> None:
        """Stop reading; commit what was processed, and leave the group."""
        self._thread.call(partial(self._consumer.__aexit__, None, None, None))

    def _records(self, records: RecordIterator) -> Iterator[Record]:
        async def next_record() -> Record | None:
            return await anext(records, None)

        while True:
            yield from records.cursor.unread  # Without a call to the other thread.
            record = self._thread.call(next_record)
            if record is None:
                return
            yield record

    def _batches(self, until: Until | None) -> Iterator[RecordBatch]:
        batches = self._thread.call_sync(partial(self._consumer.batches, until))

        async def next_batch() -> RecordBatch | None:
            return await anext(batches, None)

        while (batch := self._thread.call(next_batch)) is not None:
            yield batch


def _with_awaitable_callbacks(settings: AllConsumerSettings) -> TrioConsumerSettings:
    """Return settings whose callbacks run in a thread."""
    found = cast("TrioConsumerSettings", dict(settings))
    on_assigned, on_revoked = settings.get("on_assigned"), settings.get("on_revoked")
    on_lost = settings.get("on_lost")
    if on_assigned is not None:
        found["on_assigned"] = _in_a_thread(on_assigned)
    if on_revoked is not None:
        found["on_revoked"] = _in_a_thread(on_revoked)
    if on_lost is not None:
        found["on_lost"] = _in_a_thread(on_lost)
    return found


def _in_a_thread(callback: RebalanceCallback) -> TrioRebalanceCallback:
    async def call(partitions: list[TopicPartition]) -> None:
        await run_in_thread(partial(callback, partitions))

    return call
