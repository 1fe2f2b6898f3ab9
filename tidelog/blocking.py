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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Unpack, final

from client import client as trio_client
from client.admin import Admin as TrioAdmin
from client.admin import Setting
from client.config import (
    ClientConfig,
    ClientSettings,
    ConsumerConfig,
    ConsumerSettings,
    ProducerConfig,
    ProducerSettings,
)
from client.consumer import Consumer as TrioConsumer
from client.metadata import TopicPartition
from client.offsets import OffsetPlace
from client.outgoing import checked_record
from client.producer import Producer as TrioProducer
from client.producer import ProducerStatistics
from client.receipt import RangeReceipt, Receipt
from client.record import Record, RecordBatch
from client.record_iterator import RecordCursor
from client.subscription import Until
from tidelog.handover import Handover
from tidelog.trio_thread import TrioThread
from wire.errors import CorruptRecordError
from wire.fetch import PartitionOffset
from wire.topics import CreateTopicReply, DeleteRecordsReply, TopicDescription

_Thread = TrioThread[trio_client.Client]


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
        config: ConsumerConfig | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> "Consumer":
        """Return a consumer, which is to be closed, or used by `with`; see `tidelog.Client`.

        Raises:
            ConfigError: A setting is not legal.
            UnknownTopicError: There is no such topic.
            UnknownPartitionError: The topic does not have a partition that was asked for.
        """
        consumer = self._thread.resource.consumer(
            topics, partitions=partitions, group_id=group_id, config=config, **settings
        )
        self._thread.call(consumer.__aenter__)
        return Consumer(self._thread, consumer)

    def close(self) -> None:
        """Close all connections. Records that are not acknowledged are abandoned."""
        self._thread.close()


@final
class Admin:
    """See `tidelog.Admin`."""

    def __init__(self, thread: _Thread) -> None:
        """Use `client.admin`."""
        self._thread = thread

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        config: Mapping[str, Setting] | None = None,
        validate_only: bool = False,
        **settings: Setting,
    ) -> CreateTopicReply:
        """Create a topic; see `tidelog.Admin.create_topic`."""
        create = partial(
            self._admin.create_topic,
            name,
            partitions,
            config={**(config or {}), **settings},
            validate_only=validate_only,
        )
        return self._thread.call(create)

    def list_topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return self._thread.call(self._admin.list_topics)

    def describe_topics(self, names: Iterable[str] | None = None) -> list[TopicDescription]:
        """Return settings and extent of topics; see `tidelog.Admin.describe_topics`."""
        return self._thread.call(partial(self._admin.describe_topics, names))

    def alter_topic(
        self,
        name: str,
        *,
        set: Mapping[str, Setting] | None = None,  # noqa: A002  (the word of the command line)
        reset: Iterable[str] = (),
    ) -> dict[str, str]:
        """Change settings of a topic; see `tidelog.Admin.alter_topic`."""
        return self._thread.call(partial(self._admin.alter_topic, name, set=set, reset=reset))

    def delete_topic(self, name: str) -> None:
        """Delete a topic and all of its records."""
        self._thread.call(partial(self._admin.delete_topic, name))

    def delete_records(
        self, topic: str, partition: int, before_offset: int | None
    ) -> DeleteRecordsReply:
        """Make old records unreadable; see `tidelog.Admin.delete_records`."""
        delete = partial(self._admin.delete_records, topic, partition, before_offset)
        return self._thread.call(delete)

    def list_offsets(
        self, topic: str, at: OffsetPlace, *, partitions: Iterable[int] | None = None
    ) -> dict[int, PartitionOffset]:
        """Return an offset of each partition; see `tidelog.Admin.list_offsets`."""
        find = partial(self._admin.list_offsets, topic, at, partitions=partitions)
        return self._thread.call(find)

    @property
    def _admin(self) -> TrioAdmin:
        return self._thread.resource.admin


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
        self._handover.put(checked_record(topic, value, key, partition, headers, timestamp_ms))

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
        self._cursor = RecordCursor()

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
        self._give_back_rest()
        self._thread.call(partial(self._consumer.assign, partitions))

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Go on with the record at `offset` of a partition; see `tidelog.Consumer.seek`."""
        self._give_back_rest()
        self._thread.call_sync(partial(self._consumer.seek, topic, partition, offset))

    def seek_to_beginning(self) -> None:
        """Go on with the first record of every partition."""
        self._give_back_rest()
        self._thread.call(self._consumer.seek_to_beginning)

    def seek_to_end(self) -> None:
        """Go on with what is appended from now on."""
        self._give_back_rest()
        self._thread.call(self._consumer.seek_to_end)

    def seek_to_time(self, timestamp_ms: int) -> None:
        """Go on with the first record of this time or later; see `tidelog.Consumer`."""
        self._give_back_rest()
        self._thread.call(partial(self._consumer.seek_to_time, timestamp_ms))

    def position(self, topic: str, partition: int) -> int | None:
        """Return the offset of the next record to hand out; see `tidelog.Consumer.position`."""
        rest = self._cursor.rest()
        if rest is not None and (rest.topic, rest.partition) == (topic, partition):
            return rest.base_offset
        return self._thread.call_sync(partial(self._consumer.position, topic, partition))

    def beginning_offsets(self) -> dict[TopicPartition, int]:
        """Return the first readable offset of every partition."""
        return self._thread.call(self._consumer.beginning_offsets)

    def end_offsets(self) -> dict[TopicPartition, int]:
        """Return the offset that the next readable record of every partition will have."""
        return self._thread.call(self._consumer.end_offsets)

    def records(self, until: Until | None = None) -> Iterator[Record]:
        """Iterate over records; see `tidelog.Consumer.batches` for `until` and for errors."""
        self._give_back_rest()
        self._cursor = RecordCursor()
        return self._records(self._cursor, until)

    def batches(self, until: Until | None = None) -> Iterator[RecordBatch]:
        """Iterate over batches; see `tidelog.Consumer.batches`."""
        self._give_back_rest()
        return self._batches(until)

    def give_back(self, batch: RecordBatch) -> None:
        """Take back the batch handed out last, or its end; see `tidelog.Consumer.give_back`."""
        self._thread.call_sync(partial(self._consumer.give_back, batch))

    def close(self) -> None:
        """Stop reading."""
        self._thread.call(partial(self._consumer.__aexit__, None, None, None))

    def _records(self, cursor: RecordCursor, until: Until | None) -> Iterator[Record]:
        for batch in self._batches(until):
            try:
                cursor.begin(batch)
            except CorruptRecordError:
                self.give_back(batch)
                raise
            yield from cursor.unread

    def _batches(self, until: Until | None) -> Iterator[RecordBatch]:
        batches = self._thread.call_sync(partial(self._consumer.batches, until))

        async def next_batch() -> RecordBatch | None:
            return await anext(batches, None)

        while (batch := self._thread.call(next_batch)) is not None:
            yield batch

    def _give_back_rest(self) -> None:
        rest = self._cursor.stop()
        if rest is not None:
            self.give_back(rest)
