"""Entry point of the client: connections that producers, consumers and administration share.

Shell: owns the tasks of a client.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, Unpack, final

import trio

from tidelog.client.cluster.address import Address, parse_addresses
from tidelog.client.cluster.background_tasks import BackgroundTasks
from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.config import (
    DEFAULT_BROKER,
    AllConsumerSettings,
    ClientConfig,
    ClientSettings,
    ConsumerConfig,
    ProducerConfig,
    ProducerSettings,
    SigningKeySource,
    configured,
)
from tidelog.wire.env.env import Env
from tidelog.wire.env.real.real_env import real_env
from tidelog.wire.errors import ConfigError

if TYPE_CHECKING:
    # Each part is imported by the method that returns it, so that a command starts in half the
    # time. `tidelog.surface` imports all parts: in a program, no call waits for an import.
    from tidelog.client.admin.access import AccessAdmin
    from tidelog.client.admin.admin import Admin
    from tidelog.client.admin.security_admin import SecurityAdmin
    from tidelog.client.consumer.consumer import Consumer
    from tidelog.client.consumer.fetch.record import Record
    from tidelog.client.metrics.statistics import ClientStatistics
    from tidelog.client.processing.config import (
        ProcessorConfig,
        ProcessorSettings,
        ProcessorStatistics,
    )
    from tidelog.client.processing.processor import Processor, ProcessorInput
    from tidelog.client.processing.transform import Function, FunctionCalls, Transform
    from tidelog.client.producer.producer import Producer
    from tidelog.client.queue.context import QueueContext
    from tidelog.client.queue.queue import Queue
    from tidelog.client.tracing.tracing import Tracing
    from tidelog.client.transactions.name_session import NameSessions
    from tidelog.client.transactions.transaction import Transaction

_SUBSCRIPTION: Final = ("partitions", "group_id", "pattern")
"""Arguments of `consumer` besides the settings."""
_TIMEOUT_MIN: Final = 1.0
_TIMEOUT_MAX: Final = 24 * 3600.0


@final
class Client:
    """Connection to a cluster: `async with tidelog.connect("127.0.0.1:8433") as client`."""

    def __init__(self, cluster: ClusterClient) -> None:
        """Use `tidelog.connect`."""
        self._cluster = cluster

    @cached_property
    def _sessions(self) -> "NameSessions":
        from tidelog.client.transactions.name_session import NameSessions

        return NameSessions(self._cluster)

    @cached_property
    def admin(self) -> "Admin":
        """Administration of topics, queues, groups and the cluster."""
        from tidelog.client.admin.admin import Admin

        return Admin(self._cluster)

    @cached_property
    def security(self) -> "SecurityAdmin":
        """Administration of users and tokens."""
        from tidelog.client.admin.security_admin import SecurityAdmin

        return SecurityAdmin(self._cluster)

    @cached_property
    def access(self) -> "AccessAdmin":
        """Administration of access: rules and roles."""
        from tidelog.client.admin.access import AccessAdmin

        return AccessAdmin(self._cluster)

    @cached_property
    def _queues(self) -> "QueueContext":
        from tidelog.client.queue.context import QueueContext

        return QueueContext(self._cluster)

    @property
    def tracing(self) -> "Tracing | None":
        """What makes the spans of this client, `None` without; see `tidelog.tracing.instrument`."""
        return self._cluster.tracing

    @tracing.setter
    def tracing(self, tracing: "Tracing | None") -> None:
        self._cluster.tracing = tracing

    @property
    def client_id(self) -> str:
        """Name of this client, as brokers know it."""
        return self._cluster.config.client_id

    def producer(
        self, config: ProducerConfig | None = None, **settings: Unpack[ProducerSettings]
    ) -> "Producer":
        """Return a producer: `async with client.producer(linger=0.005) as producer`.

        Args:
            config: All settings in one object, instead of keywords.
            settings: The fields of `ProducerConfig`.

        Raises:
            ConfigError: A setting is not legal.
        """
        from tidelog.client.producer.producer import Producer

        return Producer(self._cluster, configured(ProducerConfig, config, settings, of="producer"))

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
        """Return a consumer: `async with client.consumer("orders", ...) as consumer`.

        Args:
            topics: Topics to read; empty if the program calls `assign`.
            partitions: Partitions to read, if there is one topic; all by default.
            group_id: Consumer group to join. The group shares the partitions among its members and
                stores their committed offsets.
            pattern: Pattern of topic names, in a group and instead of topics. It must match the
                whole name.
            config: All settings in one object, instead of keywords.
            settings: The fields of `ConsumerConfig`.

        Raises:
            ConfigError: A setting is not legal.
        """
        from tidelog.client.consumer.consumer import (
            Consumer,
            GroupMembership,
            subscription_of,
        )

        config = configured(ConsumerConfig, config, settings, of="consumer", others=_SUBSCRIPTION)
        if group_id is not None:
            if partitions is not None:
                raise ConfigError(
                    "partitions cannot be combined with group_id: the group assigns partitions;"
                    " leave one of them out"
                )
            group = GroupMembership(group_id, subscription_of(topics, pattern))
            return Consumer(self._cluster, (), None, config=config, group=group)
        only_in_groups = config.first_group_setting() if pattern is None else "pattern"
        if only_in_groups is not None:
            raise ConfigError(f"{only_in_groups} is for members of a group: give group_id too")
        names = [topics] if isinstance(topics, str) else list(topics)
        if partitions is not None and len(names) != 1:
            raise ConfigError("partitions can be chosen for one topic; for several, use assign()")
        return Consumer(self._cluster, names, partitions, config=config)

    def statistics(self) -> "ClientStatistics":
        """Return a snapshot of what the client counts: requests, records, messages, and buffers.

        It costs no request and waits for nothing. Any thread may call it, also after the client is
        closed. `docs/metrics.md` lists the same numbers as metrics.
        """
        from tidelog.client.metrics.statistics import statistics_of

        return statistics_of(self._cluster.counters, self._cluster.config.client_id)

    def chunks(self, record: "Record") -> AsyncIterator[bytes]:
        """Iterate over the value of a record, which may be a large message of a queue.

        Consumers also receive the chunks, as records (`Record.is_chunk`). A consumer that reads
        large messages with this method skips them.

        Raises:
            MessageBodyLostError: The topic has deleted a part of the value.
            CorruptRecordError: A part of the value is corrupt.
            TidelogError: No broker answered within `ClientConfig.request_timeout`.
        """
        from tidelog.client.queue.receive.chunk_reader import ChunkReader

        return ChunkReader(self._cluster).value_of(record)

    def transaction(
        self, name: str, transaction_id: int, *, timeout: float = 3600.0
    ) -> "Transaction":
        """Return a transaction: its records become visible together, exactly once, or never.

        Several tasks, on any machines, stage records for it; one commit names the tasks that count.
        See `docs/transactions.md`. Sends no request yet.

        Args:
            name: Name of the sequence of transactions (Kafka: `transactional.id`). Transactions of
                one name are committed in the order of their ids.
            transaction_id: Number of the transaction. It is committed once; later calls for it
                succeed and do nothing.
            timeout: Seconds that the cluster keeps the transaction after the last keep-alive of its
                tasks, from 1 s to 24 h.

        Raises:
            ConfigError: The timeout is out of range.
        """
        from tidelog.client.transactions.transaction import Transaction

        if not _TIMEOUT_MIN <= timeout <= _TIMEOUT_MAX:
            raise ConfigError(f"a transaction can be kept for 1 s to 24 h, not for {timeout:g} s")
        session = self._sessions.of(name)
        return Transaction(self._cluster, name, transaction_id, timeout=timeout, session=session)

    def processor(
        self,
        topics: str | Sequence[str],
        transform: "Function",
        *,
        name: str,
        partitions: Sequence[int] | None = None,
        consumer: ConsumerConfig | None = None,
        producer: ProducerConfig | None = None,
        **settings: "Unpack[ProcessorSettings]",
    ) -> "Processor":
        """Return a processor: `run` consumes, transforms and produces, exactly once.

        Several processors of one name share the partitions of their topics, as members of the
        consumer group `name`. See `docs/howto/exactly-once.md`.

        Args:
            topics: Topics to read.
            transform: Function of a `Record`, which returns a `ProducerRecord`, an iterable of
                them, or `None`; it may be async, and a generator.
            name: Name of the processor and of its consumer group, the same after each restart, at
                most 150 characters. Another name starts without a position.
            partitions: Partitions to read of one topic, without a group: for programs that share
                partitions themselves.
            consumer: How to read; without callbacks, commits and `auto_offset_reset`.
            producer: How to batch and compress the output.
            settings: The fields of `ProcessorConfig`.

        Raises:
            ConfigError: A setting is not legal.
        """
        from tidelog.client.processing.config import ProcessorConfig
        from tidelog.client.processing.processor import ProcessorInput

        source = ProcessorInput.of(
            name, topics, partitions=partitions, consumer=consumer, producer=producer
        )
        return self.processor_of(
            transform, source, configured(ProcessorConfig, None, settings, of="processor")
        )

    def processor_of(
        self,
        transform: "Function",
        source: "ProcessorInput",
        config: "ProcessorConfig",
        *,
        through: "Callable[[FunctionCalls], Transform] | None" = None,
    ) -> "Processor":
        """Return a processor; `through` says where it calls `transform`, such as in a thread."""
        from tidelog.client.processing.processor import Processor
        from tidelog.client.processing.transform import FunctionCalls

        calls = FunctionCalls(
            transform,
            is_batch=config.batch,
            is_isolating=config.dead_letter_topic is not None,
            tracing=self._cluster.tracing,
            now=self._cluster.counters.now,
        )
        transformed = calls.run if through is None else through(calls)
        return Processor(self._cluster, transformed, source=source, config=config)

    async def process(
        self,
        topics: str | Sequence[str],
        transform: "Function",
        *,
        name: str,
        partitions: Sequence[int] | None = None,
        consumer: ConsumerConfig | None = None,
        producer: ProducerConfig | None = None,
        **settings: "Unpack[ProcessorSettings]",
    ) -> "ProcessorStatistics":
        """Consume, transform and produce, exactly once; see `processor` and `Processor.run`.

        It runs until it is cancelled; with `until_end`, until the present records are processed.

        Raises:
            ConfigError: A setting is not legal.
            Exception: The error of the transform, or of `Processor.run`.
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

    def queue(self, name: str, *, holder: str = "") -> "Queue":
        """Return a queue: `await client.queue("payments").send(b"...")`. Sends no request yet.

        Args:
            name: Name of the queue; `client.admin.create_queue` creates it.
            holder: Name of this receiver, shown with messages in flight: at most 128 characters;
                by default the name of the client.
        """
        from tidelog.client.queue.queue import Queue

        return Queue(self._queues, name, holder=holder)

    @asynccontextmanager
    async def acting_for(self, source: SigningKeySource) -> AsyncGenerator["Client", None]:
        """Connect to the same cluster for the user of an access key, while the block runs.

        Brokers check the grants and quotas of the user. This client must be of a principal with
        the action `impersonate` of the cluster; see `docs/authentication.md`.

        Args:
            source: Returns the newest signing key of the user; each connection calls it.

        Raises:
            AuthenticationFailedError: The access key is gone, or the credentials of this client.
            ConnectError: No broker can be reached.
            NotAuthorizedError: This client may not act for users.
            TidelogError: A broker was reached and gave an invalid answer.
        """
        own = self._cluster
        config = replace(own.config, impersonate=source)
        async with _open(own.addresses, config, own.env) as client:
            yield client


@asynccontextmanager
async def connect(
    addresses: str | None = None,
    *,
    profile: str | None = None,
    config: ClientConfig | None = None,
    env: Env | None = None,
    **settings: Unpack[ClientSettings],
) -> AsyncGenerator[Client, None]:
    """Connect to a cluster, and stay connected while the block runs.

    The end of the block closes the client and all that it returned. Waiting calls of other tasks
    and later requests then raise `ClosedError`. Messages of queues that still arrive are returned,
    which takes up to a second; not if the block is cancelled from outside.

    Args:
        addresses: One or more brokers, `host:port`, separated by commas; the default port is 8433.
            One broker that answers is enough: it knows the others. By default those of
            `TIDELOG_BROKER` or of the profile, or else `127.0.0.1:8433`.
        profile: Table of `~/.config/tidelog/profiles.toml` with brokers, credentials and TLS for
            what is given neither here nor in the environment (`TIDELOG_USER` and others, see
            `docs/authentication.md`); by default that of `TIDELOG_PROFILE`, or none. With `""`,
            neither environment nor profile count.
        config: All settings in one object, instead of keywords.
        env: Clock, network and entropy; those of the system by default. With another one, neither
            environment nor profile count.
        settings: The fields of `ClientConfig`.

    Raises:
        AuthenticationFailedError: The broker refuses the credentials.
        AuthenticationRequiredError: The broker requires some.
        ConfigError: An address or a setting is not legal, or a file of the profile is not.
        ConnectError: No broker can be reached; one line with the address, the failure and what to
            try.
        TidelogError: A broker was reached and gave an invalid answer.
    """
    config = configured(ClientConfig, config, settings, of="client", others=("profile",))
    if env is None and profile != "":
        # Not at the top: commands have their own settings, and pass an environment.
        from tidelog.client.security.settings import connection_settings
        from tidelog.wire.env.real.user_files import UserFiles

        brokers, config = connection_settings(config, UserFiles(), profile=profile)
        addresses = brokers if addresses is None else addresses
    config.require_password()
    seeds = parse_addresses(DEFAULT_BROKER if addresses is None else addresses)
    async with _open(seeds, config, _secured(env or real_env(), config)) as client:
        yield client


@asynccontextmanager
async def _open(
    seeds: list[Address], config: ClientConfig, env: Env
) -> AsyncGenerator[Client, None]:
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        tasks = BackgroundTasks(nursery)
        cluster = ClusterClient(seeds, config, env, tasks=tasks)
        try:
            await cluster.start()
            yield Client(cluster)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  (raised again below)
            # Raised outside of the nursery, so that the error does not arrive in a group.
            failure = error
        finally:
            try:
                await cluster.open_work.end()
            except KeyboardInterrupt as error:
                failure = error
            finally:
                tasks.close()
    if failure is not None:
        raise failure


def _secured(env: Env, config: ClientConfig) -> Env:
    """Return the environment with TLS, if the settings ask for that.

    Raises:
        ConfigError: The files of certificates cannot be used.
    """
    if config.tls_ca is None:
        return env
    # Not at the top: `ssl` takes longer to load than a short command takes without it.
    from tidelog.wire.env.real.certificate_files import TlsFiles
    from tidelog.wire.env.real.tls import TlsClientNetwork

    files = TlsFiles.of_settings(config.tls_ca, config.tls_certificate, config.tls_key)
    return replace(env, network=TlsClientNetwork(files))
