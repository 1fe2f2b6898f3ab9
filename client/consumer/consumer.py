"""Consumer of records (Kafka: `KafkaConsumer`).

Shell: combines a fetcher of partitions with, for members of a group, the membership.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, final

import trio

from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.cluster.list_offsets import OffsetSpec, list_offsets_at
from tidelog.client.cluster.metadata import partition_of
from tidelog.client.config import ConsumerConfig
from tidelog.client.consumer.fetch.fetch_state import Until
from tidelog.client.consumer.fetch.fetcher import Fetcher
from tidelog.client.consumer.fetch.record import RecordBatch
from tidelog.client.consumer.fetch.record_iterator import BatchIterator, RecordIterator
from tidelog.client.consumer.group.committed_offsets import fetch_committed
from tidelog.client.consumer.group.member import GroupMember
from tidelog.client.consumer.group.membership_protocol import (
    GroupPartition,
    MemberSettings,
    MembershipProtocol,
)
from tidelog.client.errors import ClosedError
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.errors import ConfigError
from tidelog.wire.messages.groups import Subscription


class GroupMembership(NamedTuple):
    """Consumer group of a consumer, and its subscription."""

    group_id: str
    subscription: Subscription


@final
class Consumer:
    """Reads partitions, each in the order of its offsets.

    `async for record in consumer` reads record by record and `batches()` batch by batch, which is
    several times faster. Both wait for new records without end, unless they have a place to stop.
    They may be left and started again at any time, also in the middle of a batch: `position` is the
    next offset. Only one of them is in use at a time: starting another ends it.

    An error leaves the position where it was, so that the program may repeat the call or seek.
    While a broker cannot be reached, the consumer waits and retries; limit that with
    `trio.fail_after`. A broker whose replies are wrong for `request_timeout` is an error.

    With a `group_id` the consumer is a member of a consumer group. The group shares the partitions
    of some topics among its members and stores committed offsets. Partitions of this member come
    and go, and start at the group's committed offset. A record counts as **processed when the next
    one is requested**, or when `commit` says so; a batch likewise. The consumer commits processed
    records by itself, unless `enable_auto_commit` is off; after a crash, records since the last
    commit are processed again. The record in hand at the end of the block is not processed, unless
    `commit` was called.

    Rebalances happen in the background. A partition is released only when the application has
    asked past its last record, `on_revoked` has returned, and processed records are committed.
    Callbacks run in a task of their own while no record is in hand, and no record is handed out
    meanwhile; an exception in a callback ends the membership and is raised by the iteration.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        topics: Sequence[str],
        partitions: Sequence[int] | None,
        *,
        config: ConsumerConfig,
        group: GroupMembership | None = None,
    ) -> None:
        """Use `async with client.consumer(...)`."""
        self.config = config
        self._cluster = cluster
        self._topics = topics
        self._chosen_partitions = partitions
        self._fetcher = Fetcher(cluster, config, is_member=group is not None)
        self._group = group
        self._member: GroupMember | None = None

    async def __aenter__(self) -> "Consumer":
        """Find the partitions and their start; or join the group, which assigns them later.

        Raises:
            UnknownTopicError: There is no such topic. A group waits for it instead.
            UnknownPartitionError: The topic does not have one of the partitions.
            InvalidRequestError: The group refuses the subscription, such as its pattern.
            TidelogError: No broker answered.
        """
        self._fetcher.open()
        try:
            if self._group is None:
                await self.assign(await self._initial_assignment())
            else:
                self._member = self._make_member(self._group)
                await self._member.open()
        except BaseException:
            self._fetcher.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop reading; commit processed records, and leave the group.

        A static member keeps its partitions until it returns; those of other members are shared
        among the rest. If cancelled, this takes up to a second more; if the client is cancelled
        too, the last commit is only attempted.
        """
        try:
            await trio.lowlevel.checkpoint()
        finally:
            try:
                if self._member is not None:
                    await self._member.close()
            finally:
                self._fetcher.close()

    def __aiter__(self) -> RecordIterator:
        """Iterate over records without end."""
        return self.records()

    @property
    def assignment(self) -> list[TopicPartition]:
        """Partitions that are read; in a group, those assigned to this member now."""
        return self._fetcher.assignment

    async def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read exactly these partitions; those that were read before keep their position.

        The others start according to `auto_offset_reset`, or wait for a `seek`. If cancelled, the
        old assignment may be replaced already.

        Raises:
            UnknownTopicError: There is no such topic.
            UnknownPartitionError: A topic does not have the partition.
            ConfigError: The consumer is a member of a group, which assigns partitions.
            TidelogError: No broker answered.
        """
        if self._group is not None:
            raise ConfigError(
                "partitions cannot be assigned in a group: the group assigns them; use subscribe()"
            )
        topic_ids: dict[TopicPartition, bytes] = {}
        for name, partition in partitions:
            topic = await self._cluster.topic(name)
            partition_of(topic, partition)
            topic_ids[TopicPartition(name, partition)] = topic.topic_id
        self._fetcher.assign(topic_ids)
        if self.config.auto_offset_reset is not None:
            await self._seek_to(self._fetcher.unplaced, self.config.auto_offset_reset)
        self._fetcher.pump()

    def subscribe(self, topics: str | Sequence[str] = (), *, pattern: str | None = None) -> None:
        """Replace the subscription of this member; the rebalance takes a while.

        Args:
            topics: Names; topics that do not exist yet are read as soon as they do.
            pattern: Instead of names: globs with commas, such as `orders-*,billing`.

        Raises:
            ConfigError: Neither or both were given, or there is no group.
        """
        self._require_member("subscribe").subscribe(subscription_of(topics, pattern))

    async def commit(
        self, offsets: Mapping[tuple[str, int], int] | None = None, *, metadata: str = ""
    ) -> None:
        """Commit offsets of the group; they are durable on a majority when this returns.

        Args:
            offsets: By topic and partition, the offset of the next record to process. By default,
                everything that was handed out counts as processed, the record or batch in hand
                included, and is committed.
            metadata: Text of the application that is committed with `offsets`: at most 4,096 bytes
                of UTF-8; `admin.describe_group` shows it.

        If cancelled, the commit may or may not happen. An offset below the committed offset moves
        the group back.

        Raises:
            PartitionNotOwnedError: The group assigned a partition to another member, which starts
                at the last commit. Without `offsets`, this is raised if the record in hand is of
                such a partition: a program that commits before processing must not process it.
            OffsetOutOfRangeError: There is no such offset; the error has both bounds.
            ConfigError: There is no group.
            TidelogError: No broker answered within `request_timeout`; the commit may have happened.
        """
        await self._require_member("commit").offsets.commit(offsets, metadata)

    async def committed(
        self, partitions: Iterable[tuple[str, int]] | None = None
    ) -> dict[TopicPartition, int | None]:
        """Return the committed offsets of the group, `None` where nothing was committed.

        Args:
            partitions: Topics and numbers; by default the partitions of this member.

        Raises:
            UnknownTopicError: There is no such topic.
            ConfigError: There is no group.
            TidelogError: No broker answered.
        """
        self._require_member("committed")
        assert self._group is not None, "a member has a group"
        wanted: list[GroupPartition] = []
        for name, partition in self.assignment if partitions is None else partitions:
            topic = await self._cluster.topic(name)
            partition_of(topic, partition)
            wanted.append(GroupPartition(name, topic.topic_id, partition))
        return await fetch_committed(self._cluster, self._group.group_id, wanted)

    async def extend_poll_interval(self, seconds: float) -> None:
        """Announce to the group that this program may be silent for `seconds`, before it blocks.

        Heartbeats continue while the application awaits something, however long that takes. This
        is for computations that keep all tasks from running for longer than a session. A member
        that dies meanwhile is fenced only when the time is over. If cancelled, the group may or may
        not know.

        Raises:
            ConfigError: There is no group.
        """
        await self._require_member("extend_poll_interval").extend_poll_interval(seconds)

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Continue with the record at `offset` of a partition; drop prefetched records.

        Raises:
            ValueError: The partition is not assigned, or the offset is negative.
        """
        if offset < 0:
            raise ValueError(f"offset {offset} is negative; the first offset is 0")
        self._fetcher.seek(TopicPartition(topic, partition), offset)

    async def seek_to_beginning(self) -> None:
        """Continue with the first record of every partition. If cancelled, nothing happens."""
        await self._seek_to(self._fetcher.assignment, "earliest")

    async def seek_to_end(self) -> None:
        """Continue with records appended from now on. If cancelled, nothing happens."""
        await self._seek_to(self._fetcher.assignment, "latest")

    async def seek_to_time(self, timestamp_ms: int) -> None:
        """Continue with the first record of this time (Unix milliseconds) or later.

        A partition without such a record continues at its end. If cancelled, nothing happens.
        """
        await self._seek_to(self._fetcher.assignment, timestamp_ms)

    def position(self, topic: str, partition: int) -> int | None:
        """Return the offset of the next record to hand out, `None` without a position.

        Raises:
            ValueError: The partition is not assigned.
        """
        return self._fetcher.position(TopicPartition(topic, partition))

    def topic_id(self, topic: str, partition: int) -> bytes:
        """Return the id of the topic of an assigned partition; a recreated topic has another id.

        Raises:
            ValueError: The partition is not assigned.
        """
        return self._fetcher.topic_id(TopicPartition(topic, partition))

    async def beginning_offsets(self) -> dict[TopicPartition, int]:
        """Return the first readable offset of every partition."""
        return await self._offsets(self._fetcher.assignment, "earliest")

    async def end_offsets(self) -> dict[TopicPartition, int]:
        """Return the offset of the next readable record of every partition.

        To read all current records and then stop: `consumer.batches(await consumer.end_offsets())`.
        """
        return await self._offsets(self._fetcher.assignment, "latest")

    def records(self, until: Until | None = None) -> RecordIterator:
        """Iterate over records; for `until` and the errors see `batches`."""
        return self._fetcher.records(until)

    def batches(self, until: Mapping[TopicPartition, int] | None = None) -> BatchIterator:
        """Iterate over batches, from the position of each partition on.

        Args:
            until: Where to stop in each partition (exclusive end); other partitions are not read.
                `None` reads without end. In a group only partitions count that are assigned to
                this member; while it has none of them, it waits for an assignment.

        Iterating raises:
            NoPositionError: A partition has no position.
            OffsetOutOfRangeError: The position is not in the log; the error has both bounds.
            LogTruncatedError: Records that were read are lost, and the log has others at their
                offsets, or ends (KIP-320). It is raised until a `seek`; the error has the first
                lost offset in `truncated_to`, and in `fetch_offset` the offset after the last.
            CorruptRecordError: A batch is corrupt; the error has its offset, and the offset to
                `seek` to for skipping it. Like every error of a broker, it has the topic and the
                partition in `at`.
            UnknownTopicError: A topic was deleted.
            WireFormatError: The replies of a broker were wrong for `request_timeout`; the error
                names the broker and the API.
            TidelogError: A partition cannot be read for another reason.
        """
        return self._fetcher.batches(until)

    def give_back(self, batch: RecordBatch) -> None:
        """Return the last batch, or its end, to the consumer, which hands it out again next.

        For programs that used a part of a batch: `consumer.give_back(batch.between(offset, None))`.
        """
        self._fetcher.give_back(batch)

    async def _initial_assignment(self) -> list[TopicPartition]:
        found: list[TopicPartition] = []
        for name in self._topics:
            topic = await self._cluster.topic(name)
            chosen = self._chosen_partitions
            partitions = range(len(topic.partitions)) if chosen is None else chosen
            found.extend(TopicPartition(name, partition) for partition in partitions)
        return found

    def _require_member(self, what: str) -> GroupMember:
        if self._group is None:
            raise ConfigError(
                f"{what} is for members of a group: client.consumer(..., group_id=...)"
            )
        if self._member is None:
            raise ClosedError("use 'async with client.consumer(...) as consumer'")
        return self._member

    def _make_member(self, group: GroupMembership) -> GroupMember:
        config, env = self.config, self._cluster.env
        settings = MemberSettings(
            group_id=group.group_id,
            instance_id=config.group_instance_id,
            incarnation=env.clock.now_ms(),
            client_id=self._cluster.config.client_id,
            assignor=config.assignor,
            rebalance_timeout=config.rebalance_timeout,
        )
        membership = MembershipProtocol(settings, group.subscription, env.random)
        return GroupMember(
            self._cluster, self._fetcher, membership, group_id=group.group_id, config=config
        )

    async def _seek_to(self, partitions: Sequence[TopicPartition], place: OffsetSpec) -> None:
        for tp, offset in (await self._offsets(partitions, place)).items():
            self._fetcher.seek(tp, offset)

    async def _offsets(
        self, partitions: Sequence[TopicPartition], place: OffsetSpec
    ) -> dict[TopicPartition, int]:
        await trio.lowlevel.checkpoint()
        return await list_offsets_at(self._cluster, partitions, place)


def subscription_of(topics: str | Sequence[str], pattern: str | None) -> Subscription:
    """Return the subscription of a member.

    Raises:
        ConfigError: Neither names nor a pattern were given, or both.
    """
    names = [topics] if isinstance(topics, str) else list(topics)
    if bool(names) == (pattern is not None):
        raise ConfigError("give either names of topics or a pattern to subscribe to, not both")
    return Subscription(names, pattern)
