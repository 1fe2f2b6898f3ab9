"""Blocking client, producer and consumer: the methods that are not generated in `calls`."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from types import TracebackType
from typing import Self, TypeVar, Unpack, cast, final

from tidelog.blocking.calls.access import AccessAdmin
from tidelog.blocking.calls.admin import Admin
from tidelog.blocking.calls.consumer import ConsumerCalls
from tidelog.blocking.calls.producer import ProducerCalls
from tidelog.blocking.calls.security_admin import SecurityAdmin
from tidelog.blocking.forwarding import ClientThread, in_turn
from tidelog.blocking.processor import Processor, in_a_thread
from tidelog.blocking.queue import Queue
from tidelog.blocking.thread import TrioThread
from tidelog.blocking.transaction import Transaction
from tidelog.client import client as async_client
from tidelog.client.config import AllConsumerSettings as AsyncConsumerSettings
from tidelog.client.config import (
    ClientConfig,
    ClientSettings,
    ConsumerConfig,
    ConsumerSettings,
    ProducerConfig,
    ProducerSettings,
    configured,
)
from tidelog.client.config import RebalanceCallback as AsyncRebalanceCallback
from tidelog.client.consumer.fetch.fetch_state import Until
from tidelog.client.consumer.fetch.record import Record, RecordBatch
from tidelog.client.consumer.fetch.record_iterator import RecordIterator
from tidelog.client.metrics.statistics import ClientStatistics
from tidelog.client.processing.config import (
    ProcessorConfig,
    ProcessorSettings,
    ProcessorStatistics,
)
from tidelog.client.processing.processor import ProcessorInput
from tidelog.client.processing.transform import PlainFunction
from tidelog.client.producer.producer_record import checked_record
from tidelog.client.topic_partition import TopicPartition
from tidelog.client.tracing.tracing import Tracing
from tidelog.wire.env.real.real_env import run_in_thread

Result = TypeVar("Result")
RebalanceCallback = Callable[[list[TopicPartition]], object]
"""Callback for assigned, revoked or lost partitions, in order."""


class AllConsumerSettings(ConsumerSettings, total=False):
    """All fields of `ConsumerConfig`, as keywords, with synchronous callbacks."""

    on_assigned: RebalanceCallback | None
    on_revoked: RebalanceCallback | None
    on_lost: RebalanceCallback | None


def connect(
    addresses: str | None = None,
    *,
    profile: str | None = None,
    config: ClientConfig | None = None,
    **settings: Unpack[ClientSettings],
) -> "Client":
    """Connect to a cluster; see `tidelog.connect`. Close the client, or use it with `with`.

    Raises:
        ConfigError: An address or a setting is not valid.
        ConnectError: No broker is reachable; one line names the address, the failure and the
            remedy.
    """
    client = async_client.connect(addresses, profile=profile, config=config, **settings)
    return Client(TrioThread(client))


@final
class Client:
    """See `tidelog.Client`."""

    def __init__(self, thread: ClientThread) -> None:
        """Use `connect`."""
        self._thread = thread

    @cached_property
    def admin(self) -> Admin:
        """The admin client: topics, queues, groups, transactions and the cluster."""
        return Admin(self._thread, self._thread.resource.admin)

    @cached_property
    def security(self) -> SecurityAdmin:
        """Administration of users and tokens."""
        return SecurityAdmin(self._thread, self._thread.resource.security)

    @cached_property
    def access(self) -> AccessAdmin:
        """Administration of access: rules and roles."""
        return AccessAdmin(self._thread, self._thread.resource.access)

    def __enter__(self) -> Self:
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

    @property
    def tracing(self) -> Tracing | None:
        """See `tidelog.Client.tracing`."""
        return self._thread.resource.tracing

    @tracing.setter
    def tracing(self, tracing: Tracing | None) -> None:
        self._thread.resource.tracing = tracing

    @property
    def client_id(self) -> str:
        """See `tidelog.Client.client_id`."""
        return self._thread.resource.client_id

    def producer(
        self, config: ProducerConfig | None = None, **settings: Unpack[ProducerSettings]
    ) -> "Producer":
        """Return a producer; close it, or use it with `with`.

        Raises:
            ConfigError: A setting is not valid.
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
        """Return a consumer; close it, or use it with `with`; see `tidelog.Client`.

        Rebalance callbacks run in a thread of their own, while no batch is in flight.

        Raises:
            ConfigError: A setting is not valid.
            UnknownTopicError: There is no such topic.
            UnknownPartitionError: The topic has no such partition.
            InvalidRequestError: The group coordinator rejects the request, such as its pattern.
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

    def processor(
        self,
        topics: str | Sequence[str],
        transform: PlainFunction,
        *,
        name: str,
        partitions: Sequence[int] | None = None,
        consumer: ConsumerConfig | None = None,
        producer: ProducerConfig | None = None,
        **settings: Unpack[ProcessorSettings],
    ) -> Processor:
        """Return a processor; see `tidelog.Client.processor`.

        `transform` is a plain function or a generator. It runs in one thread of its own, one call
        after the other.

        Raises:
            ConfigError: A setting is not valid.
        """
        source = ProcessorInput.of(
            name, topics, partitions=partitions, consumer=consumer, producer=producer
        )
        config = configured(ProcessorConfig, None, settings, of="processor")
        inner = self._thread.resource.processor_of(transform, source, config, through=in_a_thread)
        return Processor(self._thread, inner)

    def process(
        self,
        topics: str | Sequence[str],
        transform: PlainFunction,
        *,
        name: str,
        partitions: Sequence[int] | None = None,
        consumer: ConsumerConfig | None = None,
        producer: ProducerConfig | None = None,
        **settings: Unpack[ProcessorSettings],
    ) -> ProcessorStatistics:
        """Consume, transform and produce, exactly once; see `tidelog.Client.process`.

        It runs until it is interrupted; with `until_end`, until the present records are processed.

        Raises:
            ConfigError: A setting is not valid.
            Exception: The error of the transform, or of `tidelog.Processor.run`.
        """
        processor = self.processor(
            topics,
            transform,
            name=name,
            partitions=partitions,
            consumer=consumer,
            producer=producer,
            **settings,
        )
        return processor.run()

    def queue(self, name: str, *, holder: str = "") -> Queue:
        """Return a queue; see `tidelog.Client.queue`."""
        return Queue(self._thread, self._thread.resource.queue(name, holder=holder))

    def statistics(self) -> ClientStatistics:
        """Return a snapshot of what the client counts; see `tidelog.Client.statistics`."""
        return self._thread.resource.statistics()

    def run_async(self, work: Callable[[async_client.Client], Awaitable[Result]]) -> Result:
        """Return the result of `await work(client)`, with the asynchronous client.

        It runs in the thread of the client, under trio; Ctrl-C and `close` cancel it.

        Raises:
            ClosedError: The client is closed.
            Exception: The error that `work` raised.
        """
        return self._thread.call(partial(work, self._thread.resource))

    def close(self) -> None:
        """Close all connections and abandon records that are not acknowledged."""
        self._thread.close()


@final
class Producer(ProducerCalls):
    """See `tidelog.Producer`."""

    def __enter__(self) -> Self:
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
        """Queue one record for sending without waiting for its acknowledgement.

        While the buffer is full, the call waits.

        Raises:
            TidelogError: An earlier record of `send_nowait` failed, and this record was not
                accepted. The failure is raised once.
            TypeError: A field of the record has a wrong type.
            ClosedError: The client is closed.
        """
        self._handover.put(
            checked_record(
                topic, value, key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
            )
        )

    def close(self) -> None:
        """Flush and stop; see `tidelog.Producer`."""
        self.__exit__(None, None, None)


@final
class Consumer(ConsumerCalls):
    """See `tidelog.Consumer`."""

    def __enter__(self) -> Self:
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

    def __iter__(self) -> Iterator[Record]:
        """Iterate over records without an end."""
        return self.records()

    def records(self, until: Until | None = None) -> Iterator[Record]:
        """Iterate over records; see `tidelog.Consumer.batches` for `until` and for errors."""
        return self._records(self._thread.call_sync(partial(self._inner.records, until)))

    def batches(self, until: Until | None = None) -> Iterator[RecordBatch]:
        """Iterate over batches; see `tidelog.Consumer.batches`."""
        return self._batches(until)

    def close(self) -> None:
        """Stop fetching, commit processed records, and leave the group."""
        self._thread.call(partial(self._inner.__aexit__, None, None, None))

    def _records(self, records: RecordIterator) -> Iterator[Record]:
        async def next_record() -> Record | None:
            return await anext(records, None)

        while True:
            yield from records.cursor.unread  # They need no call to the client's thread.
            record = self._thread.call(next_record)
            if record is None:
                return
            yield record

    def _batches(self, until: Until | None) -> Iterator[RecordBatch]:
        batches = self._thread.call_sync(partial(self._inner.batches, until))

        async def next_batch() -> RecordBatch | None:
            return await anext(batches, None)

        while (batch := self._thread.call(next_batch)) is not None:
            yield batch


def _with_awaitable_callbacks(settings: AllConsumerSettings) -> AsyncConsumerSettings:
    """Return settings whose callbacks run in a thread."""
    found = cast("AsyncConsumerSettings", dict(settings))
    on_assigned, on_revoked = settings.get("on_assigned"), settings.get("on_revoked")
    on_lost = settings.get("on_lost")
    if on_assigned is not None:
        found["on_assigned"] = _in_a_thread(on_assigned)
    if on_revoked is not None:
        found["on_revoked"] = _in_a_thread(on_revoked)
    if on_lost is not None:
        found["on_lost"] = _in_a_thread(on_lost)
    return found


def _in_a_thread(callback: RebalanceCallback) -> AsyncRebalanceCallback:
    async def call(partitions: list[TopicPartition]) -> None:
        await run_in_thread(partial(callback, partitions))

    return call
