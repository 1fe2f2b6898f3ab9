"""Mutations of the broker: acknowledgements, reads, and the catalog."""

# A mutation replaces private parts of the code.
# pyright: reportPrivateUsage=false

from typing import Any, Final

import msgspec
import trio

import tidelog.broker.handlers.fetch
import tidelog.broker.handlers.produce
import tidelog.broker.partitions.idle_replicas
import tidelog.broker.partitions.partition
import tidelog.broker.partitions.replica_manager
import tidelog.coordinator.metadata.topic_commands
from tests.simulation.mutations.mutation import Mutation
from tidelog.broker.handlers.fetch import FetchHandler, FoundBatches
from tidelog.broker.handlers.produce import DelayedProduce, ProduceHandler
from tidelog.broker.maintenance.group_commit import GroupCommit
from tidelog.broker.maintenance.maintenance import Maintenance
from tidelog.broker.partitions.partition import AckWaiter, Partition
from tidelog.broker.partitions.replica_manager import ReplicaManager
from tidelog.coordinator.metadata.catalog import (
    PRODUCER_ID_BLOCK,
    AlterTopic,
    Catalog,
    Record,
    TakeProducerIds,
    Topic,
)
from tidelog.coordinator.metadata.commands import CommandOutcome, ProducerIds
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.coordinator.raft_node.storage import RaftStorage
from tidelog.isr.divergence import LogShape, find_truncation
from tidelog.isr.leader import PartitionLeader
from tidelog.logstore.log import Appended, PartitionLog
from tidelog.logstore.recovery.recovery import RecoveryReport
from tidelog.logstore.segments.log_slice import LogSlice
from tidelog.wire.errors import CorruptRecordError, OffsetOutOfRangeError
from tidelog.wire.messages.fetch import PartitionFetch
from tidelog.wire.messages.produce import AckLevel, Acks, PartitionAppended
from tidelog.wire.messages.replication import Diverging

_read = PartitionLog.read


def _read_uncommitted(
    self: PartitionLog, offset: int, *, max_bytes: int, high_watermark: int
) -> LogSlice | None:
    del high_watermark
    return _read(self, offset, max_bytes=max_bytes, high_watermark=self.log_end_offset)


_read_partition = FetchHandler._read_partition


def _look_at_the_end(
    self: FetchHandler,
    wanted: PartitionFetch,
    *,
    max_bytes: int,
    is_full: bool,
    in_journal: bool = False,
) -> FoundBatches:
    found = _read_partition(
        self, wanted, max_bytes=max_bytes, is_full=is_full, in_journal=in_journal
    )
    if found.partition is not None:
        found.high_watermark = found.partition.log.log_end_offset
    return found


def _look_as_if_deleted(
    self: FetchHandler,
    wanted: PartitionFetch,
    *,
    max_bytes: int,
    is_full: bool,
    in_journal: bool = False,
) -> FoundBatches:
    found = _read_partition(
        self, wanted, max_bytes=max_bytes, is_full=is_full, in_journal=in_journal
    )
    damage = found.error
    if isinstance(damage, CorruptRecordError):
        found.error = OffsetOutOfRangeError(
            "deleted",
            log_start_offset=damage.next_offset or 0,
            log_end_offset=found.high_watermark,
        )
    return found


def _look_without_start(
    self: FetchHandler,
    wanted: PartitionFetch,
    *,
    max_bytes: int,
    is_full: bool,
    in_journal: bool = False,
) -> FoundBatches:
    found = _read_partition(
        self, wanted, max_bytes=max_bytes, is_full=is_full, in_journal=in_journal
    )
    if found.part is None:
        found.log_start_offset = 0
    return found


def _truncated_at_the_end_of_an_epoch(
    leader: LogShape, *, fetch_offset: int, last_fetched_epoch: int
) -> Diverging | None:
    return find_truncation(
        leader, fetch_offset=fetch_offset + 1, last_fetched_epoch=last_fetched_epoch
    )


_alter = Catalog._alter


def _alter_from_scratch(
    self: Catalog, command: AlterTopic, replication_factor: int
) -> list[Record]:
    topic = self.topic(command.name, command.topic_id)
    self._put(msgspec.structs.replace(topic, overrides={}))
    try:
        return _alter(self, command, replication_factor)
    finally:
        self._put(topic)


_expect = DelayedProduce.expect


def _expect_one_later(
    self: DelayedProduce, index: int, base_offset: int, log_start_offset: int
) -> None:
    _expect(self, index, base_offset + 1, log_start_offset)


_wait_for_ack = Partition.wait_for_ack


def _wait_for_one_less(
    self: Partition, acks: Acks, offset: int, waiter: AckWaiter, *, index: int
) -> None:
    _wait_for_ack(self, acks, offset - 1, waiter, index=index)


def _say_durable(*_: object) -> AckLevel:
    return AckLevel.DURABLE


_settle_or_wait = ProduceHandler._settle_or_wait


def _settle_duplicates(
    partition: Partition, appended: Appended, acks: Acks, *, pending: DelayedProduce, index: int
) -> None:
    if appended.is_duplicate:
        pending.settle(index, PartitionAppended(appended.base_offset, AckLevel.DURABLE, 0))
    else:
        _settle_or_wait(partition, appended, acks, pending=pending, index=index)


_request = GroupCommit.request


def _request_unless_flushing(self: GroupCommit, partition: Partition) -> None:
    if not partition.is_flushing:
        _request(self, partition)


def _flush_nothing(_: GroupCommit) -> None:
    """Skip the flush."""


_lead = PartitionLeader.__init__


def _lead_from_zero(self: PartitionLeader, **facts: Any) -> None:  # noqa: ANN401  (passed on)
    facts |= {"log_end_offset": 0, "durable_end_offset": 0}
    _lead(self, **facts)


def _take_the_first_producer_ids(state: ClusterState, command: TakeProducerIds) -> CommandOutcome:
    del state, command
    return CommandOutcome([], ProducerIds(1, 1 + PRODUCER_ID_BLOCK))


def _flush_later(_: RaftStorage) -> None:
    """Skip the flush."""


async def _tidy_for_ever(self: Maintenance) -> None:
    while True:
        await trio.lowlevel.checkpoint()
        self._acceptor.tidy(now=trio.current_time())


async def _do_not_wait(_: GroupCommit) -> None:
    """Skip the wait."""


def _always_unchanged(*_: object) -> bool:
    return True


_open_files = ReplicaManager._open_files


def _open_as_described(
    self: ReplicaManager, topic: Topic, number: int, path: str, *, now_ms: int
) -> tuple[PartitionLog, RecoveryReport]:
    log, report = _open_files(self, topic, number, path, now_ms=now_ms)
    idle = self.idle.get((topic.topic_id, number))
    if idle is not None:
        log.truncate(idle.log_end_offset, may_drop_damage=True)
    return log, report


MUTATIONS: Final = (
    Mutation(
        "old-description-is-believed",
        "a closed log is opened as it was described, whatever was written since",
        (tidelog.broker.partitions.idle_replicas, "is_unchanged", _always_unchanged),
        (tidelog.broker.partitions.replica_manager, "is_unchanged", _always_unchanged),
        (ReplicaManager, "_open_files", _open_as_described),
    ),
    Mutation(
        "read-uncommitted",
        "fetches read beyond the high watermark",
        (PartitionLog, "read", _read_uncommitted),
    ),
    Mutation(
        "committed-is-appended",
        "fetches return uncommitted records, and announce them",
        (PartitionLog, "read", _read_uncommitted),
        (FetchHandler, "_read_partition", _look_at_the_end),
    ),
    Mutation(
        "damage-is-deletion",
        "a reader of damaged records gets an error that they were deleted",
        (FetchHandler, "_read_partition", _look_as_if_deleted),
    ),
    Mutation(
        "empty-fetch-without-start",
        "an empty fetch reply says that the log starts at 0",
        (FetchHandler, "_read_partition", _look_without_start),
    ),
    Mutation(
        "truncated-at-epoch-end",
        "a reader at the end of an epoch gets an error that its last record is lost",
        (tidelog.broker.handlers.fetch, "find_truncation", _truncated_at_the_end_of_an_epoch),
    ),
    Mutation(
        "alter-resets-others",
        "an alteration of settings reverts those before it",
        (Catalog, "_alter", _alter_from_scratch),
    ),
    Mutation(
        "tidying-without-rest",
        "a broker checks its connections in a busy loop",
        (Maintenance, "_tidy", _tidy_for_ever),
    ),
    Mutation(
        "wrong-receipt",
        "a delayed reply has the offset behind the right one",
        (DelayedProduce, "expect", _expect_one_later),
    ),
    Mutation(
        "ack-one-early",
        "a batch is acknowledged when all but its last record is durable",
        (Partition, "wait_for_ack", _wait_for_one_less),
    ),
    Mutation(
        "level-lies",
        "records in memory are acknowledged as if they were on disk",
        (tidelog.broker.partitions.partition, "ack_level", _say_durable),
        (tidelog.broker.handlers.produce, "ack_level", _say_durable),
    ),
    Mutation(
        "duplicate-acked-early",
        "a batch that is sent again is acknowledged before the first copy is durable",
        (ProduceHandler, "_settle_or_wait", staticmethod(_settle_duplicates)),
    ),
    Mutation(
        "flush-not-repeated",
        "records appended while a flush runs get no flush of their own",
        (GroupCommit, "request", _request_unless_flushing),
    ),
    Mutation(
        "lazy-flush-never",
        "the periodic flush never runs",
        (GroupCommit, "flush_lazy", _flush_nothing),
    ),
    Mutation(
        "high-watermark-forgotten",
        "after a start no record counts as committed before the next append",
        (PartitionLeader, "__init__", _lead_from_zero),
    ),
    Mutation(
        "producer-ids-reused",
        "the catalog forgets which producer ids are taken",
        (
            tidelog.coordinator.metadata.topic_commands,
            "_take_producer_ids",
            _take_the_first_producer_ids,
        ),
    ),
    Mutation(
        "catalog-not-flushed",
        "changes of the metadata are answered before they are on disk",
        (RaftStorage, "_flush", _flush_later),
    ),
    Mutation(
        "stop-without-flush",
        "a clean stop does not wait for its flushes",
        (GroupCommit, "wait_idle", _do_not_wait),
    ),
)
"""Mutations of the broker."""
