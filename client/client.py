"""The client: one connection to each broker, shared by producers, consumers and administration.

Shell: owns the tasks of a client.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, Unpack, final

import trio

from tidelog.client.admin.admin import Admin
from tidelog.client.cluster.address import parse_addresses
from tidelog.client.cluster.background_tasks import BackgroundTasks
from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.config import (
    AllConsumerSettings,
    ClientConfig,
    ClientSettings,
    ConsumerConfig,
    ProducerConfig,
    ProducerSettings,
)
from tidelog.client.consumer.consumer import Consumer, GroupMembership, subscription_of
from tidelog.client.consumer.fetch.record import Record
from tidelog.client.producer.producer import Producer
from tidelog.client.queue.context import QueueContext
from tidelog.client.queue.queue import Queue
from tidelog.client.queue.receive.chunk_reader import ChunkReader
from tidelog.client.transactions.transaction import Transaction
from tidelog.wire.env.env import Env
from tidelog.wire.env.real_env import real_env
from tidelog.wire.errors import ConfigError

_TIMEOUT_MIN: Final = 1.0
_TIMEOUT_MAX: Final = 24 * 3600.0


@final
class Client:
    """Where everything begins: `async with tidelog.connect("127.0.0.1:8433") as client`."""

    def __init__(self, cluster: ClusterClient) -> None:
        """Use `tidelog.connect`."""
        self._cluster = cluster
        self._queues = QueueContext(cluster)
        self.admin = Admin(cluster)
        """Creates, describes, changes and deletes topics."""

    def producer(
        self, config: ProducerConfig | None = None, **settings: Unpack[ProducerSettings]
    ) -> Producer:
        """Return a producer: `async with client.producer(linger=0.005) as producer`.

        Args:
            config: All settings in one object, instead of keywords.
            settings: The fields of `ProducerConfig`.

        Raises:
            ConfigError: A setting is not legal.
        """
        _refuse_both(config, settings)
        return Producer(self._cluster, config or ProducerConfig(**settings))

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
        """Return a consumer: `async with client.consumer("orders", ...) as consumer`.

        Args:
            topics: What to read; nothing, if `assign` will say it.
            partitions: Which partitions, when there is one topic; all by default.
            group_id: The consumer group to be a member of. It shares the partitions among its
                members, and remembers how far it is.
            pattern: In a group, instead of topics: read those whose whole name matches.
            config: All settings in one object, instead of keywords.
            settings: The fields of `ConsumerConfig`.

        Raises:
            ConfigError: A setting is not legal.
        """
        _refuse_both(config, settings)
        config = config or ConsumerConfig(**settings)
        if group_id is not None:
            if partitions is not None:
                raise ConfigError("the group says which partitions a member reads")
            group = GroupMembership(group_id, subscription_of(topics, pattern))
            return Consumer(self._cluster, (), None, config=config, group=group)
        only_in_groups = config.first_group_setting() if pattern is None else "pattern"
        if only_in_groups is not None:
            raise ConfigError(f"{only_in_groups} is for members of a group: give group_id too")
        names = [topics] if isinstance(topics, str) else list(topics)
        if partitions is not None and len(names) != 1:
            raise ConfigError("partitions can be chosen for one topic; for several, use assign()")
        return Consumer(self._cluster, names, partitions, config=config)

    def chunks(self, record: Record) -> AsyncIterator[bytes]:
        """Iterate over the value of a record, which may be a large message of a queue.

        Consumers are given chunks too, as the records that they are (`Record.is_chunk`), and pass
        over them if they read large messages by this.

        Raises:
            MessageBodyLostError: The topic has deleted some of it.
            CorruptRecordError: Some of it is damaged.
            TidelogError: Nobody could be asked for `ClientConfig.request_timeout`.
        """
        return ChunkReader(self._cluster).value_of(record)

    def transaction(
        self, name: str, transaction_id: int, *, timeout: float = 3600.0
    ) -> Transaction:
        """Return a transaction: its records become visible together, once, or never.

        Several tasks, on any machines, stage records for it; one commit names those that count.
        See `docs/transactions.md`. Asks nobody yet.

        Args:
            name: Whose transactions these are; they are committed in the order of their ids.
            transaction_id: Which transaction. It is committed once: after that, all it is asked
                for succeeds and does nothing.
            timeout: Seconds for which it is kept when nobody stages for it any more.

        Raises:
            ConfigError: The timeout is not legal.
        """
        if not _TIMEOUT_MIN <= timeout <= _TIMEOUT_MAX:
            raise ConfigError(f"a transaction can be kept for 1 s to 24 h, not for {timeout:g} s")
        return Transaction(self._cluster, name, transaction_id, timeout=timeout)

    def queue(self, name: str, *, holder: str = "") -> Queue:
        """Return a queue: `await client.queue("payments").send(b"...")`. Asks nobody yet.

        Args:
            name: Which queue; `client.admin.create_queue` makes one.
            holder: Who receives, for people who look at messages in flight: at most 128 characters;
                by default the name of the client.
        """
        return Queue(self._queues, name, holder=holder)


@asynccontextmanager
async def connect(
    addresses: str,
    *,
    config: ClientConfig | None = None,
    env: Env | None = None,
    **settings: Unpack[ClientSettings],
) -> AsyncGenerator[Client, None]:
    """Connect to a cluster, and stay connected while the block runs.

    With the block the client is closed, and all that came from it: what other tasks wait for, and
    what brokers would have to be asked for later, raises `trio.ClosedResourceError`.

    Args:
        addresses: One or more brokers, `host:port`, separated by commas; the port is 8433 unless
            it is given. One that answers is enough: it knows the others.
        config: All settings in one object, instead of keywords.
        env: The world to live in; the real one by default.
        settings: The fields of `ClientConfig`.

    Raises:
        ConfigError: An address or a setting is not legal.
        ConnectError: No broker can be reached; one line that says which address, what failed,
            and what to try.
        TidelogError: A broker was reached and did not answer as it should.
    """
    _refuse_both(config, settings)
    seeds = parse_addresses(addresses)
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        tasks = BackgroundTasks(nursery)
        cluster = ClusterClient(
            seeds, config or ClientConfig(**settings), env or real_env(), tasks=tasks
        )
        try:
            await cluster.start()
            yield Client(cluster)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  (raised again below)
            # Past the nursery, so that it arrives as it is and not in a group.
            failure = error
        finally:
            tasks.close()
    if failure is not None:
        raise failure


def _refuse_both(config: object, settings: object) -> None:
    if config is not None and settings:
        raise ConfigError("give either a config object or keywords, not both")
