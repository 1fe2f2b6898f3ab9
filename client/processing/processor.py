"""Processor: consumes, transforms and produces, exactly once (Kafka Streams: `exactly_once_v2`).

Shell: owns the tasks of one processor. One task reads and transforms, in the order of each
partition. Each input partition has a task that commits its output, while the first task goes on.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, final

import trio

from tidelog.client.cluster.backoff import Backoff
from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.cluster.list_offsets import list_offsets_at
from tidelog.client.config import ConsumerConfig, ProducerConfig
from tidelog.client.consumer.consumer import Consumer, GroupMembership
from tidelog.client.consumer.fetch.record import Record, RecordBatch
from tidelog.client.consumer.group.committed_offsets import fetch_positions
from tidelog.client.consumer.group.membership_protocol import GroupPartition
from tidelog.client.processing.config import ProcessorConfig, ProcessorStatistics
from tidelog.client.processing.dead_letters import dead_letter
from tidelog.client.processing.input_progress import (
    GroupOffset,
    InputProgress,
    PlannedTransaction,
    offset_of,
    start_of,
)
from tidelog.client.processing.input_transactions import (
    NAME_LENGTH_MAX,
    OVERTAKEN,
    InputTransactions,
    transaction_name,
)
from tidelog.client.processing.transform import Transform, Transformed
from tidelog.client.producer.producer_record import ProducerRecord
from tidelog.client.queue.receive.worker import reason_of
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.errors import (
    ConfigError,
    ConnectionLostError,
    DeliveryTimeoutError,
    OffsetOutOfRangeError,
    PartitionNotOwnedError,
    RetriableError,
    TidelogError,
    WireFormatError,
)
from tidelog.wire.messages.groups import Subscription

_PASSING: Final = (
    *OVERTAKEN,
    ConnectionLostError,
    DeliveryTimeoutError,
    RetriableError,
    WireFormatError,
)
"""Errors after which a partition begins again at its last committed transaction."""
_COMMITS_MAX: Final = 16
"""Maximum transactions of a processor in flight; the cluster has 1,000."""
_HELD_S: Final = 1.0
"""Seconds after which the rest of a batch returns to the consumer, so that rebalances continue."""
_OFFSETS_S: Final = 1.0
"""Minimum seconds between two commits of offsets of the group."""
_USE_S: Final = 24 * 3600.0
"""Seconds without input after which a name is used, which the cluster forgets after 7 days."""
_OWN: Final = "tidelog.processor"
"""Metadata of the offsets that a processor commits."""
_BACKOFF_S: Final = 0.1
_BACKOFF_MAX_S: Final = 5.0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorInput:
    """Input of a processor: topics of a group, or chosen partitions without one."""

    name: str
    topics: Sequence[str]
    partitions: Sequence[int] | None = None
    group: GroupMembership | None = None
    """Consumer group that assigns the partitions."""
    consumer: ConsumerConfig = field(default_factory=ConsumerConfig)
    producer: ProducerConfig = field(default_factory=ProducerConfig)

    @classmethod
    def of(
        cls,
        name: str,
        topics: str | Sequence[str],
        *,
        partitions: Sequence[int] | None = None,
        consumer: ConsumerConfig | None = None,
        producer: ProducerConfig | None = None,
    ) -> "ProcessorInput":
        """Return the input of the arguments of `client.processor`.

        Raises:
            ConfigError: They do not go together.
        """
        names = [topics] if isinstance(topics, str) else list(topics)
        if partitions is not None and len(names) != 1:
            raise ConfigError("partitions can be chosen for one topic only")
        group = None if partitions is not None else GroupMembership(name, Subscription(names, None))
        return cls(
            name=name,
            topics=names,
            partitions=partitions,
            group=group,
            consumer=consumer or ConsumerConfig(),
            producer=producer or ProducerConfig(),
        )

    def __post_init__(self) -> None:
        """Check the name.

        Raises:
            ConfigError: It is too long or empty.
        """
        if not self.topics:
            raise ConfigError("a processor needs a topic to read")
        if not 1 <= len(self.name) <= NAME_LENGTH_MAX:
            raise ConfigError(
                f"the name of a processor has 1 to {NAME_LENGTH_MAX} characters, not"
                f" {len(self.name)}"
            )


@final
class _InputPartition:
    """An assigned partition, and what its task and the reader share."""

    def __init__(
        self, tp: TopicPartition, topic_id: bytes, transactions: InputTransactions
    ) -> None:
        self.tp = tp
        self.topic_id = topic_id
        self.transactions = transactions
        self.progress: InputProgress | None = None
        """`None` while the start is not known."""
        self.first_offset: int | None = None
        """Start that the consumer has chosen."""
        self.failure_count = 0
        """Failures since the last commit."""
        self.used_at = 0.0
        self.is_closing = False
        self.scope = trio.CancelScope()
        self.is_placed = trio.Event()
        self.has_ended = trio.Event()
        self._changed = trio.Event()

    def notify(self) -> None:
        """Wake the task and the reader."""
        self._changed.set()
        self._changed = trio.Event()

    async def changed(self) -> None:
        """Wait for the next `notify`."""
        await self._changed.wait()

    def close(self) -> None:
        """Commit what is pending, and end."""
        self.is_closing = True
        if self.progress is not None:
            self.progress.hurry()
        self.notify()


@final
class Processor:
    """Reads records, transforms them, and makes each output visible exactly once.

    The output of some input records of one partition is one transaction, whose id is the offset of
    the next input record. So output and position in the input are one decision of the cluster, and
    after a crash, a rebalance or a lost reply the next owner continues behind the last committed
    transaction. A processor that was presumed dead cannot commit what another one has committed.

    The transform is called at least once for each record: only its output is exactly once. Output
    records of one input partition become visible in the order of the input.

    While brokers cannot be reached, the processor waits. If the transform raises an exception and
    there is no `dead_letter_topic`, or an error occurs that waiting does not cure, the processor
    stops as by `stop`, and `run` raises it. When `run` is cancelled, open transactions are
    aborted, and the processor leaves its group; that takes up to two seconds.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        transform: Transform,
        *,
        source: ProcessorInput,
        config: ProcessorConfig,
    ) -> None:
        """Use `client.processor(...)`."""
        self.statistics = ProcessorStatistics()
        """Counts of what is committed."""
        self._cluster = cluster
        self._transform = transform
        self._source = source
        self._config = config
        self._consumer = Consumer(
            cluster,
            () if source.group is not None else source.topics,
            source.partitions,
            group=source.group,
            config=replace(
                source.consumer,
                auto_offset_reset=config.auto_offset_reset,
                enable_auto_commit=False,
                on_assigned=None if source.group is None else self._on_assigned,
                on_revoked=None if source.group is None else self._on_revoked,
                on_lost=None if source.group is None else self._on_lost,
            ),
        )
        self._partitions: dict[TopicPartition, _InputPartition] = {}
        self._done: dict[tuple[str, int], int] = {}
        """Offsets that the group has not committed yet."""
        self._limiter = trio.CapacityLimiter(_COMMITS_MAX)
        self._backoff = Backoff(_BACKOFF_S, _BACKOFF_MAX_S, cluster.env.random)
        self._nursery: trio.Nursery | None = None
        self._reading = trio.CancelScope()
        self._is_stopping = False
        self._failure: Exception | None = None

    def stop(self) -> None:
        """End `run` in order: after the record at work, it commits what it has.

        If a commit is refused meanwhile, the next processor makes that output again.
        """
        self._is_stopping = True
        self._reading.cancel()
        for each in self._partitions.values():
            each.notify()

    async def run(self) -> ProcessorStatistics:
        """Process until stopped, or with `until_end` until the end; return the counts.

        Raises:
            UnknownTopicError: A topic does not exist. A group waits for those of its input.
            NoPositionError: A partition has no position, and `auto_offset_reset` is `None`.
            OffsetOutOfRangeError: Input was deleted before it was processed.
            LogTruncatedError: Input that was processed is lost.
            StagedRecordsLostError: Output is committed, and an operator accepted its loss.
            TidelogError: Waiting does not help.
            Exception: The error of the transform, with the place of the record in a note.
            ClosedError: The client is closed.
        """
        async with trio.open_nursery() as nursery:
            assert self._nursery is None, "a processor runs once"
            self._nursery = nursery
            try:
                async with self._consumer:
                    await self._process(nursery)
            except (TidelogError, trio.ClosedResourceError) as error:
                self._fail(error)
            nursery.cancel_scope.cancel()
        if self._failure is not None:
            raise self._failure
        return self.statistics

    async def _process(self, nursery: trio.Nursery) -> None:
        if self._source.group is None:
            await self._on_assigned(self._consumer.assignment)
        else:
            nursery.start_soon(self._commit_offsets_regularly)
        try:
            ends = await self._ends() if self._config.until_end else None
            restart_count = -1
            while not self._is_stopping and restart_count != self.statistics.restart_count:
                # Input whose commit is refused at the end is read again.
                restart_count = self.statistics.restart_count
                await self._read(ends)
                await self._settle()
        except (TidelogError, trio.ClosedResourceError) as error:
            self._fail(error)
        self.stop()
        await self._close(list(self._partitions))

    # -- reading ----------------------------------------------------------------------------------

    async def _read(self, ends: Mapping[TopicPartition, int] | None) -> None:
        batches = self._consumer.batches(ends)
        while not self._is_stopping:
            batch = None
            with trio.CancelScope() as self._reading:
                batch = await anext(batches, None)
            if batch is None:
                return
            await self._process_batch(batch)

    async def _settle(self) -> None:
        """Wait until all output is committed, or its input is to be read again."""
        for partition in list(self._partitions.values()):
            while not (self._is_stopping or partition.has_ended.is_set()):
                progress = partition.progress
                if progress is not None:
                    if progress.is_idle:
                        break
                    progress.hurry()
                    partition.notify()
                await partition.changed()

    async def _ends(self) -> dict[TopicPartition, int]:
        """Return the ends of all partitions of the input."""
        if self._source.group is None:
            return await self._consumer.end_offsets()
        found: list[TopicPartition] = []
        for name in self._source.topics:
            topic = await self._cluster.topic(name)
            found.extend(TopicPartition(name, number) for number in range(len(topic.partitions)))
        return await list_offsets_at(self._cluster, found, "latest")

    async def _process_batch(self, batch: RecordBatch) -> None:
        """Transform a batch, and add its output to that of its partition.

        After a while the rest of the batch returns to the consumer.
        """
        partition = self._partitions.get(TopicPartition(batch.topic, batch.partition))
        progress = None if partition is None else partition.progress
        if partition is None or progress is None:
            return  # It is read again from the last transaction on, or belongs to another owner.
        rest: Sequence[Record] = batch.records()
        held_until = trio.current_time() + _HELD_S
        while True:
            done = await self._transform(rest) if rest else Transformed((), 0)
            if partition.progress is not progress:
                return
            is_poison = done.failure is not None
            letters = self._dead_letters(rest[done.count], done.failure) if is_poison else ()
            rest = rest[done.count + len(letters) :]
            next_offset = rest[0].offset if rest else batch.next_offset
            if done.count or letters or not rest:
                progress.add(
                    next_offset,
                    [*done.outputs, *letters],
                    input_count=done.count + len(letters),
                    dead_letter_count=len(letters),
                    now=trio.current_time(),
                )
                partition.notify()
            if not rest or self._is_stopping:
                return
            while partition.progress is progress and not progress.has_room:
                await partition.changed()
            await trio.lowlevel.checkpoint()
            if partition.progress is not progress:
                return
            if trio.current_time() >= held_until:
                self._consumer.give_back(batch.between(next_offset, None))
                return

    def _dead_letters(self, record: Record, error: Exception | None) -> Sequence[ProducerRecord]:
        """Return the dead letter for a record; without a topic for it, stop."""
        assert error is not None, "the record has failed"
        if self._config.dead_letter_topic is not None:
            self._cluster.env.probe(
                "processor.dead_letter",  # As information: the topic is for them.
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
                error=reason_of(error),
            )
            return [dead_letter(self._config.dead_letter_topic, record, error)]
        where = "in a batch from" if self._config.batch else "of"
        error.add_note(
            f"the transform {where} {record.topic}/{record.partition} offset {record.offset}"
            " failed; the next run begins behind the last transaction"
        )
        self._fail(error)
        return ()

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self.stop()

    # -- committing -------------------------------------------------------------------------------

    async def _run_partition(self, partition: _InputPartition) -> None:
        try:
            with partition.scope:
                await self._place(partition)
                while await self._wait_due(partition):
                    await self._commit_next(partition)
        except (TidelogError, trio.ClosedResourceError) as error:
            self._fail(error)
        finally:
            partition.transactions.close()
            partition.progress = None
            partition.is_placed.set()
            partition.has_ended.set()
            partition.notify()

    async def _wait_due(self, partition: _InputPartition) -> bool:
        """Wait until a transaction is due; return whether there is one before the end."""
        while True:
            progress = partition.progress
            if progress is None or (partition.is_closing and progress.is_idle):
                return False
            now = trio.current_time()
            if progress.due_at <= now:
                return True
            use_at = partition.used_at + _USE_S if progress.is_idle else math.inf
            if use_at <= now:
                await self._keep(partition, progress)
                continue
            with trio.CancelScope(deadline=min(progress.due_at, use_at)):
                await partition.changed()

    async def _commit_next(self, partition: _InputPartition) -> None:
        progress = partition.progress
        assert progress is not None, "a transaction is due"
        planned = progress.begin()
        try:
            async with self._limiter:
                is_own = await partition.transactions.commit(planned)
        except _PASSING as error:
            await self._begin_again(partition, error)
            return
        progress.committed()
        partition.failure_count = 0
        partition.used_at = trio.current_time()
        self._done[partition.tp] = planned.next_offset
        if is_own:
            self._count(planned)
        partition.notify()

    def _count(self, planned: PlannedTransaction) -> None:
        counts = self.statistics
        counts.input_count += planned.input_count
        counts.output_count += len(planned.outputs)
        counts.dead_letter_count += planned.dead_letter_count
        counts.transaction_count += 1

    async def _keep(self, partition: _InputPartition, progress: InputProgress) -> None:
        """Use the name of a partition without input, so that the cluster does not forget it."""
        partition.used_at = trio.current_time()
        try:
            await partition.transactions.keep(progress.previous_id)
        except _PASSING as error:
            await self._begin_again(partition, error)

    async def _begin_again(self, partition: _InputPartition, error: Exception) -> None:
        """Drop all output that is not committed, and read its input again."""
        partition.progress = None
        partition.notify()
        self.statistics.restart_count += 1
        self._probe("processor.begun_again", partition, severity="warning", reason=str(error))
        partition.failure_count += 1
        if not partition.is_closing:
            with trio.move_on_after(self._backoff.delay(partition.failure_count)):
                await partition.changed()
            await self._place(partition)

    async def _place(self, partition: _InputPartition) -> None:
        """Find the start of a partition, and tell the consumer."""
        while not partition.is_closing:
            try:
                await self._try_place(partition)
            except _PASSING as error:
                self._probe("processor.waits", partition, reason=str(error))
            except (PartitionNotOwnedError, ValueError):
                return  # The group has assigned it to another member meanwhile.
            else:
                return
            partition.failure_count += 1
            with trio.move_on_after(self._backoff.delay(partition.failure_count)):
                await partition.changed()

    async def _try_place(self, partition: _InputPartition) -> None:
        tp, consumer = partition.tp, self._consumer
        last_id = await partition.transactions.take_over()
        committed = await self._committed(partition)
        if not partition.is_placed.is_set():
            partition.first_offset = consumer.position(*tp)
        start = start_of(last_id, committed)
        if start.is_moved:
            self._probe(
                "processor.moved",
                partition,
                severity="warning",
                old_offset=offset_of(last_id),
                new_offset=start.offset,
            )
            await partition.transactions.move(last_id, start.previous_id)
        if committed is not None and not committed.is_own:
            # Before the first transaction: afterwards it would mean another move.
            await self._mark_own(partition, committed.offset)
        offset = partition.first_offset if start.offset is None else start.offset
        if offset is not None and offset != consumer.position(*tp):
            consumer.seek(*tp, offset)
        partition.used_at = trio.current_time()
        partition.progress = InputProgress(
            start.previous_id,
            commit_interval=self._config.commit_interval,
            max_records=self._config.max_records,
        )
        partition.is_placed.set()
        partition.notify()

    async def _committed(self, partition: _InputPartition) -> GroupOffset | None:
        """Return the committed offset of the group."""
        group, tp = self._source.group, partition.tp
        if group is None:
            return None
        wanted = [GroupPartition(tp.topic, partition.topic_id, tp.partition)]
        found = (await fetch_positions(self._cluster, group.group_id, wanted))[tp]
        if found.offset is None:
            return None
        return GroupOffset(found.offset, is_own=found.metadata == _OWN)

    async def _mark_own(self, partition: _InputPartition, offset: int) -> None:
        """Commit the offset of the group again, as one of the processor."""
        await self._consumer.commit({partition.tp: offset}, metadata=_OWN)

    # -- the group --------------------------------------------------------------------------------

    async def _on_assigned(self, assigned: Sequence[TopicPartition]) -> None:
        if self._nursery is None or self._is_stopping:
            return
        begun: list[_InputPartition] = []
        for tp in assigned:
            topic_id = self._consumer.topic_id(*tp)
            transactions = InputTransactions(
                self._cluster,
                transaction_name(self._source.name, topic_id, tp.partition),
                timeout=self._config.transaction_timeout,
                config=self._source.producer,
            )
            partition = self._partitions[tp] = _InputPartition(tp, topic_id, transactions)
            self._nursery.start_soon(self._run_partition, partition)
            begun.append(partition)
        for partition in begun:
            await partition.is_placed.wait()

    async def _on_revoked(self, revoked: Sequence[TopicPartition]) -> None:
        await self._close(revoked)

    async def _on_lost(self, lost: Sequence[TopicPartition]) -> None:
        for tp in lost:
            partition = self._partitions.pop(tp, None)
            self._done.pop(tp, None)
            if partition is not None:
                partition.scope.cancel()
                await partition.has_ended.wait()

    async def _close(self, closed: Iterable[TopicPartition]) -> None:
        """Commit all output of partitions, and forget them."""
        found = [self._partitions[tp] for tp in closed if tp in self._partitions]
        for partition in found:
            partition.close()
        for partition in found:
            await partition.has_ended.wait()
        await self._commit_offsets()
        for partition in found:
            self._partitions.pop(partition.tp, None)
            self._done.pop(partition.tp, None)

    async def _commit_offsets_regularly(self) -> None:
        with suppress(trio.ClosedResourceError):
            while True:
                await trio.sleep(max(self._config.commit_interval, _OFFSETS_S))
                await self._commit_offsets()

    async def _commit_offsets(self) -> None:
        """Commit the offsets of the group, for its lag, and for a group without transactions."""
        due, self._done = self._done, {}
        if self._source.group is None or not due:
            return
        try:
            await self._consumer.commit(due, metadata=_OWN)
        except (PartitionNotOwnedError, OffsetOutOfRangeError) as error:
            self._cluster.env.probe("processor.offsets_not_committed", reason=str(error))
        except TidelogError as error:
            self._done = {**due, **self._done}
            self._cluster.env.probe("processor.offsets_not_committed", reason=str(error))

    def _probe(self, event: str, partition: _InputPartition, **fields: object) -> None:
        tp = partition.tp
        self._cluster.env.probe(event, topic=tp.topic, partition=tp.partition, **fields)
