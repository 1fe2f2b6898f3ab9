"""Client for asyncio: the methods that are not generated in `calls`."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from inspect import iscoroutinefunction
from types import TracebackType
from typing import Self, TypeVar, Unpack, cast, final

from tidelog.aio.calls.access import AccessAdmin
from tidelog.aio.calls.admin import Admin
from tidelog.aio.calls.security_admin import SecurityAdmin
from tidelog.aio.consumer import Consumer
from tidelog.aio.forwarding import ClientGuest, Openable, in_turn
from tidelog.aio.guest import TrioGuest
from tidelog.aio.processor import Processor, on_host
from tidelog.aio.producer import Producer
from tidelog.aio.queue import Queue
from tidelog.aio.transaction import Transaction
from tidelog.client import client as inner_client
from tidelog.client.config import (
    AllConsumerSettings,
    ClientConfig,
    ClientSettings,
    ConsumerConfig,
    ProducerConfig,
    ProducerSettings,
    RebalanceCallback,
    configured,
)
from tidelog.client.consumer.fetch.record import Record
from tidelog.client.metrics.statistics import ClientStatistics
from tidelog.client.processing.config import (
    ProcessorConfig,
    ProcessorSettings,
    ProcessorStatistics,
)
from tidelog.client.processing.processor import ProcessorInput
from tidelog.client.processing.transform import Function
from tidelog.client.topic_partition import TopicPartition
from tidelog.client.tracing.tracing import Tracing

Result = TypeVar("Result")


def connect(
    addresses: str | None = None,
    *,
    profile: str | None = None,
    config: ClientConfig | None = None,
    **settings: Unpack[ClientSettings],
) -> "Client":
    """Return a client of a cluster, which `async with` or `await` connects; see `tidelog.connect`.

    `async with tidelog.aio.connect("127.0.0.1:8433") as client` closes it at the end of the block.
    `client = await tidelog.aio.connect(...)` leaves that to `await client.close()`, for instance in
    a notebook. A client belongs to the event loop and the thread that connect it. A coroutine
    function as `token` runs as a task of asyncio.

    Connecting raises:
        ConfigError: An address or a setting is not valid.
        ConnectError: No broker is reachable; one line names the address, the failure and the
            remedy.
        RuntimeError: A program of trio runs in this thread.
    """
    token = settings.get("token") if config is None else config.token
    if iscoroutinefunction(token):
        # It needs asyncio, and the logins of the client run on trio.
        source = cast("Callable[[], Awaitable[str]]", token)

        def on_host() -> Awaitable[str]:
            return guest.call_host(source)

        if config is None:
            settings["token"] = on_host
        else:
            config = replace(config, token=on_host)
    guest = TrioGuest(inner_client.connect(addresses, profile=profile, config=config, **settings))
    return Client(guest)


@final
class Client(Openable):
    """See `tidelog.Client`."""

    def __init__(self, guest: ClientGuest) -> None:
        """Use `connect`."""
        self._guest = guest

    async def __aenter__(self) -> Self:
        """Connect; see `connect`."""
        await self._guest.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close all connections and abandon records that are not acknowledged."""
        await self._guest.close()

    @property
    def admin(self) -> Admin:
        """Administration of topics, queues, groups and the cluster."""
        return Admin(self._guest, self._guest.resource.admin)

    @property
    def security(self) -> SecurityAdmin:
        """Administration of users and tokens."""
        return SecurityAdmin(self._guest, self._guest.resource.security)

    @property
    def access(self) -> AccessAdmin:
        """Administration of access: rules and roles."""
        return AccessAdmin(self._guest, self._guest.resource.access)

    @property
    def tracing(self) -> Tracing | None:
        """See `tidelog.Client.tracing`."""
        return self._guest.resource.tracing

    @tracing.setter
    def tracing(self, tracing: Tracing | None) -> None:
        self._guest.resource.tracing = tracing

    @property
    def client_id(self) -> str:
        """See `tidelog.Client.client_id`."""
        return self._guest.resource.client_id

    def producer(
        self, config: ProducerConfig | None = None, **settings: Unpack[ProducerSettings]
    ) -> Producer:
        """Return a producer: `async with client.producer() as producer`; see `tidelog.Client`.

        Raises:
            ConfigError: A setting is not valid.
        """
        return Producer(self._guest, self._guest.resource.producer(config, **settings))

    def consumer(
        self,
        topics: str | Sequence[str] = (),
        *,
        partitions: Sequence[int] | None = None,
        group_id: str | None = None,
        pattern: str | None = None,
        config: ConsumerConfig | None = None,
        **settings: Unpack[AllConsumerSettings],
    ) -> Consumer:
        """Return a consumer: `async with client.consumer("orders") as consumer`.

        See `tidelog.Client`. Rebalance callbacks run as tasks of asyncio.

        Raises:
            ConfigError: A setting is not valid.
        """
        on_host = self._on_host
        if config is None:
            settings["on_assigned"] = on_host(settings.get("on_assigned"))
            settings["on_revoked"] = on_host(settings.get("on_revoked"))
            settings["on_lost"] = on_host(settings.get("on_lost"))
        else:
            config = replace(
                config,
                on_assigned=on_host(config.on_assigned),
                on_revoked=on_host(config.on_revoked),
                on_lost=on_host(config.on_lost),
            )
        consumer = self._guest.resource.consumer(
            topics,
            partitions=partitions,
            group_id=group_id,
            pattern=pattern,
            config=config,
            **settings,
        )
        return Consumer(self._guest, consumer)

    def chunks(self, record: Record) -> AsyncIterator[bytes]:
        """Iterate over the value of a record; see `tidelog.Client.chunks`."""
        return in_turn(self._guest, self._guest.resource.chunks(record))

    def transaction(
        self, name: str, transaction_id: int, *, timeout: float = 3600.0
    ) -> Transaction:
        """Return a transaction; see `tidelog.Client.transaction`."""
        transaction = self._guest.resource.transaction(name, transaction_id, timeout=timeout)
        return Transaction(self._guest, transaction)

    def processor(
        self,
        topics: str | Sequence[str],
        transform: Function,
        *,
        name: str,
        partitions: Sequence[int] | None = None,
        consumer: ConsumerConfig | None = None,
        producer: ProducerConfig | None = None,
        **settings: Unpack[ProcessorSettings],
    ) -> Processor:
        """Return a processor; see `tidelog.Client.processor`.

        `transform` runs in tasks of asyncio, one after the other.

        Raises:
            ConfigError: A setting is not valid.
        """
        source = ProcessorInput.of(
            name, topics, partitions=partitions, consumer=consumer, producer=producer
        )
        config = configured(ProcessorConfig, None, settings, of="processor")
        inner = self._guest.resource.processor_of(
            transform, source, config, through=on_host(self._guest)
        )
        return Processor(self._guest, inner)

    async def process(
        self,
        topics: str | Sequence[str],
        transform: Function,
        *,
        name: str,
        partitions: Sequence[int] | None = None,
        consumer: ConsumerConfig | None = None,
        producer: ProducerConfig | None = None,
        **settings: Unpack[ProcessorSettings],
    ) -> ProcessorStatistics:
        """Consume, transform and produce, exactly once; see `tidelog.Client.process`.

        It runs until it is cancelled; with `until_end`, until the present records are processed.

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
        return await processor.run()

    def queue(self, name: str, *, holder: str = "") -> Queue:
        """Return a queue; see `tidelog.Client.queue`."""
        return Queue(self._guest, self._guest.resource.queue(name, holder=holder))

    async def run_async(self, work: Callable[[inner_client.Client], Awaitable[Result]]) -> Result:
        """Return the result of `await work(client)`, with the client for trio, in a task of trio.

        Raises:
            ClosedError: The client is closed.
            Exception: The error that `work` raised.
        """
        return await self._guest.call(partial(work, self._guest.resource))

    def statistics(self) -> ClientStatistics:
        """Return a snapshot of what the client counts; see `tidelog.Client.statistics`."""
        return self._guest.resource_for_any_thread.statistics()

    def _on_host(self, callback: RebalanceCallback | None) -> RebalanceCallback | None:
        """Return a callback that runs as a task of asyncio."""
        if callback is None:
            return None

        def call(partitions: list[TopicPartition]) -> Awaitable[object]:
            return self._guest.call_host(partial(callback, partitions))

        return call
