"""The calls of `tidelog.Consumer`, for asyncio; written by `tools.face_calls`."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from tidelog.aio.forwarding import Forwarding
from tidelog.client.consumer.consumer import Consumer as InnerConsumer
from tidelog.client.consumer.fetch.record import RecordBatch
from tidelog.client.topic_partition import TopicPartition


class ConsumerCalls(Forwarding[InnerConsumer]):
    """See `tidelog.Consumer`."""

    __slots__ = ()

    @property
    def assignment(self) -> list[TopicPartition]:
        """Partitions that are read; in a group, those assigned to this member now."""
        return self._inner.assignment

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
        await self._guest.call(partial(self._inner.assign, list(partitions)))

    def subscribe(self, topics: str | Sequence[str] = (), *, pattern: str | None = None) -> None:
        """Replace the subscription of this member; the rebalance takes a while.

        Args:
            topics: Names; topics that do not exist yet are read as soon as they do.
            pattern: Instead of names: globs with commas, such as `orders-*,billing`.

        Raises:
            ConfigError: Neither or both were given, or there is no group.
        """
        self._here.subscribe(topics, pattern=pattern)

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
        await self._guest.call(partial(self._inner.commit, offsets, metadata=metadata))

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
        return await self._guest.call(partial(self._inner.committed, partitions))

    async def extend_poll_interval(self, seconds: float) -> None:
        """Announce to the group that this program may be silent for `seconds`, before it blocks.

        Heartbeats continue while the application awaits something, however long that takes. This
        is for computations that keep all tasks from running for longer than a session. A member
        that dies meanwhile is fenced only when the time is over. If cancelled, the group may or may
        not know.

        Raises:
            ConfigError: There is no group.
        """
        await self._guest.call(partial(self._inner.extend_poll_interval, seconds))

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Continue with the record at `offset` of a partition; drop prefetched records.

        Raises:
            ValueError: The partition is not assigned, or the offset is negative.
        """
        self._here.seek(topic, partition, offset)

    async def seek_to_beginning(self) -> None:
        """Continue with the first record of every partition. If cancelled, nothing happens."""
        await self._guest.call(self._inner.seek_to_beginning)

    async def seek_to_end(self) -> None:
        """Continue with records appended from now on. If cancelled, nothing happens."""
        await self._guest.call(self._inner.seek_to_end)

    async def seek_to_time(self, timestamp_ms: int) -> None:
        """Continue with the first record of this time (Unix milliseconds) or later.

        A partition without such a record continues at its end. If cancelled, nothing happens.
        """
        await self._guest.call(partial(self._inner.seek_to_time, timestamp_ms))

    def position(self, topic: str, partition: int) -> int | None:
        """Return the offset of the next record to hand out, `None` without a position.

        Raises:
            ValueError: The partition is not assigned.
        """
        return self._here.position(topic, partition)

    def topic_id(self, topic: str, partition: int) -> bytes:
        """Return the id of the topic of an assigned partition; a recreated topic has another id.

        Raises:
            ValueError: The partition is not assigned.
        """
        return self._here.topic_id(topic, partition)

    async def beginning_offsets(self) -> dict[TopicPartition, int]:
        """Return the first readable offset of every partition."""
        return await self._guest.call(self._inner.beginning_offsets)

    async def end_offsets(self) -> dict[TopicPartition, int]:
        """Return the offset of the next readable record of every partition.

        To read all current records and then stop: `consumer.batches(await consumer.end_offsets())`.
        """
        return await self._guest.call(self._inner.end_offsets)

    def give_back(self, batch: RecordBatch) -> None:
        """Return the last batch, or its end, to the consumer, which hands it out again next.

        For programs that used a part of a batch: `consumer.give_back(batch.between(offset, None))`.
        """
        self._here.give_back(batch)
