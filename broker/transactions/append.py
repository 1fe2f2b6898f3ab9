"""Append of committed records to one partition, exactly once over crashes and leader changes.

Shell without tasks of its own. All leaders append committed records as one producer. Its sequences
consist of the number of the commit and the place of the record in it. So each log knows the
progress of each commit as it knows that of any producer: over crashes, in checkpoints, at every
replica. The next leader continues where the last one stopped, after all records that it found in
its log are committed. Commits are appended in the order of their numbers, the records of one in the
order of its pieces.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, final

import trio

from tidelog.broker.hot.hot_traffic import Sample, no_sample
from tidelog.broker.maintenance.group_commit import GroupCommit
from tidelog.broker.partitions.log_reader import SliceReader
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.partitions.replica_manager import ReplicaManager
from tidelog.broker.requests.commit_wait import CommitWait
from tidelog.broker.transactions.staged_reader import PieceReader, PiecesLostError
from tidelog.coordinator.metadata.transactions import TransactionCommitted
from tidelog.isr.leader import PartitionLeader
from tidelog.wire.batch.record_batch import (
    BatchHeader,
    check_header,
    has_valid_payload,
    restamp_producer,
)
from tidelog.wire.env.env import Env
from tidelog.wire.errors import (
    BrokerError,
    CorruptBatchError,
    LeaderNotAvailableError,
    NotLeaderError,
)
from tidelog.wire.messages.produce import STAGED_PRODUCER_ID, AckLevel, Acks
from tidelog.wire.messages.transactions import StagedPiece

PLACE_BITS: Final = 32
"""Bits of a sequence for the place: a commit has fewer than 2^32 records in one partition, and
there are fewer than 2^31 commits."""
UNCOMMITTED_MAX: Final = 64
"""Maximum number of batches that a leader appends before the first of them is committed: fewer than
a log keeps of the producer. So a truncation at a change of leaders never removes all that the log
knows of the producer."""
_UNCOMMITTED_BEFORE: Final = 4
"""The same while the cluster may have a broker that keeps fewer."""


def uncommitted_max(feature_level: int) -> int:
    """Return the maximum number of uncommitted batches of a leader in a cluster of this level."""
    is_new = feature_level >= TransactionCommitted.NEW_LEVEL
    return UNCOMMITTED_MAX if is_new else _UNCOMMITTED_BEFORE


def sequence_of(commit_number: int, place: int) -> int:
    """Return the sequence of the record at a place in a commit's records for one partition."""
    assert 0 <= place < 1 << PLACE_BITS
    return (commit_number << PLACE_BITS) + place


def appended_count(commit_number: int, record_count: int, next_sequence: int | None) -> int:
    """Return how many of the records of a commit are in the log.

    Args:
        commit_number: Number of the commit.
        record_count: Its records in this partition.
        next_sequence: Sequence after the last record of any commit in the log; `None` if there is
            none.
    """
    if next_sequence is None:
        return 0
    return min(max(next_sequence - sequence_of(commit_number, 0), 0), record_count)


@final
class CommitAppender:
    """A partition in one leader epoch."""

    def __init__(
        self,
        env: Env,
        partitions: ReplicaManager,
        group_commit: GroupCommit,
        *,
        partition: Partition,
        on_committed: Callable[[int], None],
        on_failed: Callable[[], None],
        feature_level: Callable[[], int],
        sample: Sample = no_sample,
    ) -> None:
        """Append to a partition that is led here.

        Args:
            env: Clock and threads.
            partitions: Replicas of this broker.
            group_commit: Syncs the partition.
            partition: The partition.
            on_committed: Gets the number of each commit when all of its records are committed.
            on_failed: Is called when appended records will not be committed by this leader, or
                not now: a new appender must take over.
            feature_level: Returns the feature level of the cluster.
            sample: Gets the records that are appended.
        """
        leader = partition.leader
        assert leader is not None, "only a leader appends commits"
        self.partition = partition
        self.leader_epoch = leader.leader_epoch
        self._env = env
        self._partitions = partitions
        self._group_commit = group_commit
        self._on_committed = on_committed
        self._on_failed = on_failed
        self._feature_level = feature_level
        self._reader = SliceReader(env)
        self._sample = sample
        self._ends: deque[int] = deque()
        self.in_flight: dict[int, None] = {}
        """Numbers of the commits that are appended, and not committed."""
        self._failure: BrokerError | None = None
        self._changed = trio.Event()

    @property
    def is_led(self) -> bool:
        """Whether this broker still leads it, in the same epoch."""
        leader = self.partition.leader
        return leader is not None and leader.leader_epoch == self.leader_epoch

    def wake(self) -> None:
        """Let `changed` return: there may be another commit."""
        self._changed.set()

    async def changed(self) -> None:
        """Wait until a commit is committed, or `wake` is called.

        Raises:
            BrokerError: This leader will not commit all records.
        """
        await self._changed.wait()
        self._changed = trio.Event()
        if self._failure is not None:
            raise self._failure

    async def wait_committed(self) -> None:
        """Wait until all records in the log are committed.

        Raises:
            BrokerError: This leader will not commit them.
        """
        self._ends.clear()
        await self._wait_below(self.partition.log.log_end_offset)

    async def append_commit(
        self, commit_number: int, pieces: Sequence[StagedPiece], staging: Partition
    ) -> bool:
        """Append a commit's records for the partition; return whether all of them existed.

        If some are lost, no further records are appended, and the appended ones are committed when
        this returns. Otherwise `on_committed` tells when they are: then the next commit need not
        wait for the disk.

        Raises:
            BrokerError: The append is not possible now; another call continues it.
        """
        total = sum(piece.record_count for piece in pieces)
        known = self.partition.log.producers.position(STAGED_PRODUCER_ID)
        done = appended_count(commit_number, total, None if known is None else known.next_sequence)
        if done < total:
            reader = PieceReader(self._reader, staging)
            try:
                await reader.wait_readable(pieces)
                await reader.check(pieces)
                await self._append(commit_number, pieces, reader, done=done)
            except PiecesLostError as error:
                self.partition.probe(
                    "staged_records_lost",
                    severity="error",
                    commit=commit_number,
                    reason=str(error),
                )
                await self.wait_committed()
                return False
        else:
            self._group_commit.appended(self.partition)
        self._follow(commit_number, self._leader())
        return True

    def append_now(
        self, commit_number: int, pieces: Sequence[StagedPiece], staging: Partition
    ) -> bool:
        """Append a small commit without waiting; return whether that was possible.

        Raises:
            BrokerError: As for `append_commit`, which continues it.
        """
        if self._failure is not None:
            return False
        known = self.partition.log.producers.position(STAGED_PRODUCER_ID)
        if appended_count(commit_number, 1, None if known is None else known.next_sequence):
            return False
        leader = self._leader()
        acknowledged = leader.acknowledged_offset(Acks.ALL)
        while self._ends and self._ends[0] <= acknowledged:
            self._ends.popleft()
        room = uncommitted_max(self._feature_level()) - len(self._ends)
        if len(pieces) > room:
            return False
        batches = PieceReader(self._reader, staging).read_now(pieces)
        if batches is None or len(batches) > room:
            return False
        place = 0
        for header, batch in batches:
            sequence = sequence_of(commit_number, place)
            self._append_batch(leader, header, batch, sequence=sequence)
            place += header.record_count
        self._follow(commit_number, leader)
        return True

    def _follow(self, commit_number: int, leader: PartitionLeader) -> None:
        """Tell when all records that are in the log now are committed."""
        end = self.partition.log.log_end_offset
        if end <= leader.acknowledged_offset(Acks.ALL):
            self._on_committed(commit_number)
        else:
            self.in_flight[commit_number] = None
            self.partition.wait_for_ack(Acks.ALL, end, self, index=commit_number)

    def acknowledged(self, index: int, level: AckLevel) -> None:
        """See `broker.partitions.partition.AckWaiter`: a commit is committed."""
        del level
        self.in_flight.pop(index, None)
        self._on_committed(index)
        self._changed.set()

    def failed(self, index: int, error: BrokerError) -> None:
        """See `broker.partitions.partition.AckWaiter`."""
        self.in_flight.pop(index, None)
        self._failure = error
        self._changed.set()
        self._on_failed()

    async def _append(
        self, commit_number: int, pieces: Sequence[StagedPiece], reader: PieceReader, *, done: int
    ) -> None:
        place = 0
        for piece in pieces:
            offset = piece.first_offset
            while offset < piece.end_offset:
                batches, offset = await reader.read(piece, offset)
                for header, batch in batches:
                    if place >= done:
                        if len(self._ends) >= uncommitted_max(self._feature_level()):
                            await self._wait_below(self._ends.popleft())
                        sequence = sequence_of(commit_number, place)
                        self._append_batch(self._leader(), header, batch, sequence=sequence)
                    place += header.record_count

    def _append_batch(
        self, leader: PartitionLeader, header: BatchHeader, batch: bytearray, *, sequence: int
    ) -> None:
        if not has_valid_payload(header, batch):
            raise CorruptBatchError("a staged batch does not match its CRC-32C")
        partition = self.partition
        leader.require_enough_in_sync(Acks.ALL)
        partition.require_disk()
        stamped = restamp_producer(
            batch, producer_id=STAGED_PRODUCER_ID, producer_epoch=0, base_sequence=sequence
        )
        check_header(stamped)
        now_ms = self._env.clock.now_ms()
        appended = partition.log.append(
            memoryview(batch), stamped, leader_epoch=leader.leader_epoch, now_ms=now_ms
        )
        assert not appended.is_duplicate, "records below the producer's sequence are skipped"
        partition.traffic.received(stamped)
        self._ends.append(appended.next_offset)
        self._group_commit.appended(partition)
        partition.progressed()
        self._sample(partition, stamped, batch)

    async def _wait_below(self, offset: int) -> None:
        if offset <= self._leader().acknowledged_offset(Acks.ALL):
            return
        commit = CommitWait()
        self.partition.wait_for_ack(Acks.ALL, offset, commit, index=0)
        self._group_commit.appended(self.partition)
        await commit.wait()

    def _leader(self) -> PartitionLeader:
        """Return this broker's state as the leader.

        Raises:
            NotLeaderError: This broker does not lead in this epoch any more.
            LeaderNotAvailableError: This broker has lost contact with its cluster.
        """
        if not self.is_led:
            raise NotLeaderError("another broker leads the partition now")
        leader = self._partitions.led(*self.partition.key).leader
        if leader is None:
            raise LeaderNotAvailableError("the partition has no leader now")
        return leader
