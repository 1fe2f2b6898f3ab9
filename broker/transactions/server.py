"""Transaction server: stages records, appends committed ones, deletes finished ones.

Shell: owns a task for each partition with committed records to append, and one that deletes staged
records. `broker.transactions.finished_parts` tells others what is appended.
"""

from contextlib import suppress
from functools import partial
from typing import Final, final

import trio

from tidelog.broker.hot.hot_traffic import Sample
from tidelog.broker.maintenance.group_commit import GroupCommit
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.partitions.replica_manager import ReplicaManager
from tidelog.broker.queues.supervisor import start_supervised, supervising
from tidelog.broker.transactions.append import CommitAppender
from tidelog.broker.transactions.finished_parts import FinishedParts
from tidelog.broker.transactions.low_watermark import StagingLowWatermark
from tidelog.coordinator.metadata.broker_delta import BrokerDelta, Key
from tidelog.coordinator.metadata.transactions import Transactions
from tidelog.coordinator.node import ClusterNode
from tidelog.wire.env.env import Env
from tidelog.wire.errors import (
    BrokerError,
    InvalidTopicError,
    LeaderNotAvailableError,
    OverloadedError,
    TransactionGoneError,
)
from tidelog.wire.messages.transactions import NAMES_MAX, NAMES_WARNED

_RETRY_MIN_S: Final = 0.1
_RETRY_MAX_S: Final = 5.0
_DELETE_S: Final = 60.0
"""Maximum seconds for which staged records of ended transactions stay. Each deletion writes a
checkpoint, which syncs twice."""
_DELETE_MIN_S: Final = 1.0
"""The same in rare cases, so that simulations delete while transactions are open."""
_DELETE_BYTES: Final = 16 << 20
"""Staged bytes in a partition that are deleted without waiting for that."""


@final
class _AppendTask:
    """One partition with records to append; see `broker.queues.supervisor`."""

    def __init__(self, server: "TransactionServer", name: str, key: Key) -> None:
        self.name = name
        self.number = key[1]
        self._server = server
        self._key = key

    def drop(self, error: BrokerError) -> None:
        self._server.failed(self._key, error)


@final
class TransactionServer:
    """Stages records, and appends and deletes them as transactions end.

    Invariant: every partition that is led here and has committed records to append has a task.
    """

    def __init__(
        self,
        env: Env,
        nursery: trio.Nursery,
        cluster: ClusterNode,
        *,
        partitions: ReplicaManager,
        group_commit: GroupCommit,
        max_transaction_bytes_per_partition: int,
        sample: Sample,
    ) -> None:
        """Create the server; `run` must run in a task."""
        self._env = env
        self._nursery = nursery
        self._cluster = cluster
        self._partitions = partitions
        self._group_commit = group_commit
        self._max_transaction_bytes = max_transaction_bytes_per_partition
        self._sample = sample
        self._low_watermarks: dict[Key, StagingLowWatermark] = {}
        self._running: dict[Key, None] = {}
        self._appenders: dict[Key, CommitAppender] = {}
        self.finished = FinishedParts(env, cluster)
        """Parts that this broker has appended."""
        self._has_ended = trio.Event()
        """Set while a staging log may hold records of ended transactions."""
        self._is_full = trio.Event()
        """Set when many bytes were staged since the last deletion."""
        self._has_warned = False
        """Whether this broker has logged that there are many names."""
        group_commit.idle.is_unneeded = self._is_unneeded
        partitions.listeners.append(self._on_leader)
        cluster.metadata.subscribe(self._on_metadata)
        for partition in partitions.all():
            self._on_leader(partition)

    async def run(self) -> None:
        """Append, delete, and report finished parts to the cluster, until cancelled."""
        for key in self._transactions.keys_with_parts():
            self._start_append(key)
        self._nursery.start_soon(self._delete_when_due)
        await self.finished.report(self._start_append)

    @property
    def _transactions(self) -> Transactions:
        return self._cluster.metadata.state.transactions

    # -- staging --------------------------------------------------------------------------------

    def find_open(self, number: int, topic_id: bytes, partition_number: int) -> Partition:
        """Return a staging log that is led here, in which a transaction may stage records now.

        Raises:
            TransactionGoneError: The transaction is over.
            InvalidTopicError: The partition is not a staging log.
            OverloadedError: The log has reached its size limit.
            BrokerError: This broker does not lead it.
        """
        partition = self._partitions.led(topic_id, partition_number)
        if not partition.is_staging:
            raise InvalidTopicError("records can be staged in staging logs only")
        transactions = self._transactions
        if number not in transactions.open_numbers:
            if number >= transactions.next_number:
                raise LeaderNotAvailableError(f"transaction {number} is not known here yet")
            raise TransactionGoneError(
                f"transaction {number} is over: it was committed or aborted, or its timeout"
                " passed without a keep-alive"
            )
        size_bytes = partition.log.size_bytes
        watermark = self._low_watermark_of(partition)
        if size_bytes >= min(watermark.size_bytes + _DELETE_BYTES, self._max_transaction_bytes):
            self._is_full.set()
        if size_bytes >= self._max_transaction_bytes:
            # Only sealed segments are deleted when their transactions end.
            partition.log.roll_if_old(now_ms=self._env.clock.now_ms(), force=True)
            raise OverloadedError(
                f"{size_bytes} bytes are staged for partition {partition_number},"
                f" the limit is {self._max_transaction_bytes}"
                " (max_transaction_bytes_per_partition); commit or abort some"
            )
        watermark.on_append(number, partition.log.log_end_offset)
        return partition

    # -- deleting -------------------------------------------------------------------------------

    def _low_watermark_of(self, partition: Partition) -> StagingLowWatermark:
        leader = partition.leader
        assert leader is not None, "only a leader has a low watermark"
        watermark, log = self._low_watermarks.get(partition.key), partition.log
        has_inherited = log.log_start_offset < log.log_end_offset
        if watermark is None or watermark.leader_epoch != leader.leader_epoch:
            watermark = self._low_watermarks[partition.key] = StagingLowWatermark(
                leader_epoch=leader.leader_epoch,
                inherited_below=self._transactions.next_number if has_inherited else 0,
            )
        return watermark

    def _delete_finished(self) -> None:
        self._appenders = {key: each for key, each in self._appenders.items() if each.is_led}
        needed = self._transactions.needed_numbers()
        for key in list(self._low_watermarks):
            partition = self._partitions.replica(*key)
            if partition is None or partition.leader is None:
                del self._low_watermarks[key]
                continue
            log = partition.log
            watermark = self._low_watermark_of(partition)
            watermark.size_bytes = log.size_bytes
            start = watermark.low_watermark(
                needed, log_start_offset=log.log_start_offset, log_end_offset=log.log_end_offset
            )
            high_watermark = partition.high_watermark
            if start > high_watermark:
                self._has_ended.set()
                start = high_watermark
            if log.log_start_offset < start:
                with suppress(BrokerError):  # An offline log has no readers.
                    log.delete_records(start, high_watermark=high_watermark)
                    self._group_commit.request(partition)

    def _is_unneeded(self, partition: Partition) -> bool:
        """Return whether no transaction needs a record of a staging log that is led here.

        A commit whose records are in the partition needs none, also if that is not recorded yet.
        """
        watermark = self._low_watermarks.get(partition.key)
        leader = partition.leader
        if watermark is None or leader is None or watermark.leader_epoch != leader.leader_epoch:
            return False
        staging_id, number = partition.key
        staging = self._cluster.metadata.state.catalog.topic_by_id(staging_id)
        if staging is None or staging.staging_of is None:
            return False
        key, finished = (staging.staging_of, number), self.finished.places
        if any((commit, key) not in finished for commit in self._transactions.parts_of(key)):
            return False
        return not watermark.may_have(self._transactions.open_numbers)

    async def _delete_when_due(self) -> None:
        """Delete the records of ended transactions, also those that a new leader found."""
        while True:
            await self._has_ended.wait()
            is_early = self._env.buggify("staged records deleted early")
            with trio.move_on_after(_DELETE_MIN_S if is_early else _DELETE_S):
                await self._is_full.wait()
            self._has_ended, self._is_full = trio.Event(), trio.Event()
            self._delete_finished()

    # -- appending ------------------------------------------------------------------------------

    def _on_leader(self, partition: Partition) -> None:
        if partition.leader is None:
            return
        if partition.is_staging:
            self._low_watermark_of(partition)
            self._has_ended.set()
        else:
            self._start_append(partition.key)

    def _on_metadata(self, delta: BrokerDelta) -> None:
        self.finished.on_metadata(delta)
        for key in delta.committed_parts:
            self._start_append(key)
        if delta.has_transactions:
            self._has_ended.set()
            self._warn_of_names()

    def _warn_of_names(self) -> None:
        """Log once that few names of transactions are left."""
        count = len(self._transactions.names)
        if count < NAMES_WARNED * 9 // 10:
            self._has_warned = False
        elif count >= NAMES_WARNED and not self._has_warned and self._cluster.raft.is_active_leader:
            self._has_warned = True
            self._env.probe(
                "transaction_names_many", severity="warning", count=count, limit=NAMES_MAX
            )

    def _start_append(self, key: Key) -> None:
        partition = self._partitions.replica(*key)
        if partition is None or partition.leader is None:
            return
        if key in self._running:
            if key in self._appenders:
                self._appenders[key].wake()
            return
        topic = self._cluster.metadata.state.catalog.topic_by_id(key[0])
        task = _AppendTask(self, "" if topic is None else topic.name, key)
        self._running[key] = None
        with supervising(task):
            if self._append_now(partition):
                del self._running[key]
            else:
                start_supervised(self._nursery, task, self._run, key)

    def _append_now(self, partition: Partition) -> bool:
        """Append small commits at once, as the leader usually can; return whether none is left."""
        key = partition.key
        commits = self._due(key)
        if not commits:
            return True
        appender = self._appenders.get(key)
        if appender is None or appender.partition is not partition or not appender.is_led:
            return False
        parts = self._transactions.parts_of(key)
        try:
            staging = self._staging_of(key)
            for commit_number in commits:
                if not appender.append_now(commit_number, parts[commit_number], staging):
                    return False
        except BrokerError:
            return False  # The task tries again, and reports the reason.
        return True

    def _due(self, key: Key) -> list[int]:
        """Return the numbers of the commits with records to append to a partition, in order."""
        parts = self._transactions.parts_of(key)
        if not parts:
            return []
        appender = self._appenders.get(key)
        in_flight = () if appender is None else appender.in_flight
        finished = self.finished.places
        return [
            commit_number
            for commit_number in parts
            if commit_number not in in_flight and (commit_number, key) not in finished
        ]

    async def _run(self, key: Key) -> None:
        delay_s = _RETRY_MIN_S
        while True:
            partition = self._partitions.replica(*key)
            if partition is None or partition.leader is None or not self._due(key):
                del self._running[key]
                return
            try:
                await self._append_all(await self._appender_of(partition))
                delay_s = _RETRY_MIN_S
            except BrokerError as error:
                self._appenders.pop(key, None)
                partition.probe(
                    "staged_part_waits",
                    severity="debug",
                    reason=str(error),
                )
                await trio.sleep(delay_s)
                delay_s = min(2 * delay_s, _RETRY_MAX_S)

    async def _appender_of(self, partition: Partition) -> CommitAppender:
        """Return the appender of the current leader epoch.

        A new one begins when all records in the log are committed.
        """
        key = partition.key
        appender = self._appenders.get(key)
        if appender is None or appender.partition is not partition or not appender.is_led:
            self._appenders.pop(key, None)
            leader = partition.leader
            assert leader is not None, "only a leader appends commits"
            appender = CommitAppender(
                self._env,
                self._partitions,
                self._group_commit,
                partition=partition,
                on_committed=partial(self._on_appended, key, leader.leader_epoch),
                on_failed=partial(self._on_failed, key),
                feature_level=lambda: self._cluster.metadata.state.feature_level,
                sample=self._sample,
            )
            await appender.wait_committed()
            self._appenders[key] = appender
        return appender

    def _on_appended(self, key: Key, leader_epoch: int, commit_number: int) -> None:
        self.finished.add((commit_number, key), leader_epoch)

    def _on_failed(self, key: Key) -> None:
        """Let another appender follow one that failed."""
        self._appenders.pop(key, None)
        self._start_append(key)

    async def _append_all(self, appender: CommitAppender) -> None:
        """Append all commits that are there, and those that come before these are committed."""
        key = appender.partition.key
        while appender.is_led:
            commits = self._due(key)
            if not commits:
                if not appender.in_flight:
                    return
                await appender.changed()
                continue
            commit_number = commits[0]
            pieces = self._transactions.parts_of(key)[commit_number]
            if not await appender.append_commit(commit_number, pieces, self._staging_of(key)):
                self.finished.add((commit_number, key), appender.leader_epoch, is_lost=True)

    def _staging_of(self, key: Key) -> Partition:
        """Return the replica of the staging log of a partition.

        Raises:
            LeaderNotAvailableError: There is none.
        """
        staging = self._cluster.metadata.state.catalog.staging_of(key[0])
        replica = None if staging is None else self._partitions.replica(staging.topic_id, key[1])
        if replica is None:
            raise LeaderNotAvailableError("the staging log is not open here")
        return replica

    def failed(self, key: Key, error: BrokerError) -> None:
        """Retry the appends to a partition after an unexpected error."""
        topic = self._cluster.metadata.state.catalog.topic_by_id(key[0])
        self._env.probe(
            "staged_part_failed",
            severity="error",
            topic="" if topic is None else topic.name,
            partition=key[1],
            reason=str(error),
        )

        async def again() -> None:
            await trio.sleep(_RETRY_MAX_S)
            self._running.pop(key, None)
            self._start_append(key)

        self._nursery.start_soon(again)
