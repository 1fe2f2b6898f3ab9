"""Replica manager of a broker, from directories to open logs (Kafka: ReplicaManager).

Shell: opens, creates and removes logs on the disk.
"""

import errno
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, final

import msgspec
import trio

from tidelog.broker.encryption.keyring import Keyring
from tidelog.broker.metrics.object_counts import ObjectCounts
from tidelog.broker.metrics.topic_totals import TopicTotals
from tidelog.broker.partitions.data_directory import DataDirectory
from tidelog.broker.partitions.idle_replicas import (
    DescribedReplica,
    IdleReplica,
    IdleReplicas,
    QueueRest,
)
from tidelog.broker.partitions.mover_ids import MoverIds
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.partitions.replica_manifest import ReplicaManifest, SuspectReplica
from tidelog.broker.partitions.traffic import PartitionTraffic
from tidelog.coordinator.metadata.broker_delta import Key
from tidelog.coordinator.metadata.catalog import Catalog, Topic, unknown_topic_id
from tidelog.coordinator.metadata.leaderless import why_leaderless
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.isr.durability import Durability
from tidelog.logstore.disk.disk import DISK_FULL_ERRNOS, Disk
from tidelog.logstore.idle_log import is_unchanged
from tidelog.logstore.log import PartitionLog
from tidelog.logstore.recovery.idle_scrub import closed_scrubs
from tidelog.logstore.recovery.log_presence import LogPresence, presence_of
from tidelog.logstore.recovery.log_reset import truncate_fully
from tidelog.logstore.recovery.recovery import RecoveryReport, open_log
from tidelog.logstore.segments.file_cache import FileCache
from tidelog.logstore.segments.segment_format import SegmentHeader
from tidelog.logstore.segments.segment_scrub import SegmentScrub
from tidelog.wire.env.env import Env
from tidelog.wire.errors import (
    BrokerError,
    DataDirectoryError,
    InvalidTopicError,
    LeaderNotAvailableError,
    LogOfflineError,
    NotLeaderError,
    UnknownPartitionError,
    UnknownQueueError,
)

CREATED_AT_ONCE: Final = 16
"""Number of logs that are created together, at the cost of one for the file system. Of more, each
is created when it is needed."""
_READING_S: Final = 5.0
"""Time in seconds for which a client counts as a reader after a read from a follower."""


@final
class ReplicaManager:
    """Open partitions, by topic id and number."""

    def __init__(
        self,
        env: Env,
        directory: DataDirectory,
        files: FileCache,
        *,
        state: Callable[[], ClusterState],
        may_lead: Callable[[], bool],
    ) -> None:
        """Keep partitions in `directory`.

        Args:
            env: The environment.
            directory: Directory of the logs.
            files: The open files.
            state: Returns the metadata that this broker has.
            may_lead: Returns whether this broker may act as a leader at the moment.
        """
        self._env = env
        self._directory = directory
        self._files = files
        self._state = state
        self._may_lead = may_lead
        self.listeners: list[Callable[[Partition], None]] = []
        """Called for each partition that this broker begins to lead in a leader epoch."""
        self.movers = MoverIds(lambda: state().catalog)
        """Producers that no log expires."""
        self.keyring = Keyring(lambda: state().security, env.random)
        """Data keys of encrypted topics."""
        self._manifest = ReplicaManifest(env, directory.disk)
        self._open: dict[Key, Partition] = {}
        self.idle = IdleReplicas(env, directory.disk)
        """Replicas whose logs stay closed until they are needed."""
        self._strays: set[bytes] = set()
        """Topics with a directory that held no assigned replica: it may have files."""
        self._unopened: dict[Key, IdleReplica] = {}
        """Replicas that were closed and are being opened, or could not be."""
        self.on_open: Callable[[Partition], object] = _ignore
        """Called for each replica that was closed and is open now."""
        self.open_soon: Callable[[Key], None] = _ignore
        """Called for each closed replica that is to be opened in a thread."""
        self.rest_of_queue: Callable[[Partition], QueueRest | None] = _no_rest
        """Returns what a journal waits for, `None` while its queue partition has work."""
        self.topic_counts = ObjectCounts(TopicTotals)
        """Traffic by name of the topic."""
        self._internal_traffic = PartitionTraffic(ObjectCounts(TopicTotals), "")
        """Shared by journals and staging logs, which have no traffic with clients."""
        self._read_at = -math.inf
        """Time of the last read from a follower here, in seconds of trio's clock."""

    @property
    def disk(self) -> Disk:
        """Disk of the logs."""
        return self._files.disk

    def all(self) -> list[Partition]:
        """Return every open partition."""
        return list(self._open.values())

    def idle_topics(self) -> list[Topic]:
        """Return the topics with closed replicas."""
        catalog = self._state().catalog
        found = [catalog.topic_by_id(each) for each in {key[0] for key, _ in self.idle.items()}]
        return [topic for topic in found if topic is not None]

    def replica(self, topic_id: bytes, number: int) -> Partition | None:
        """Return an open partition, whether or not this broker leads it; an idle one is opened."""
        key = (topic_id, number)
        return self._open.get(key) or self._open_idle(key)

    def is_open(self, partition: Partition) -> bool:
        """Return whether a replica is open, and was not closed or replaced."""
        return self._open.get(partition.key) is partition

    def bounds(self, topic_id: bytes, number: int) -> tuple[int, int] | None:
        """Return log start and high watermark of a replica, without opening it; `None`: not here.

        All records of a closed log are committed.
        """
        key = (topic_id, number)
        partition = self._open.get(key)
        if partition is not None:
            return partition.log.log_start_offset, partition.high_watermark
        idle = self.idle.get(key)
        return None if idle is None else (idle.log_start_offset, idle.log_end_offset)

    def is_led(self, topic_id: bytes, number: int) -> bool:
        """Return whether this broker leads a partition, without opening it."""
        key = (topic_id, number)
        partition = self._open.get(key)
        if partition is not None:
            return partition.leader is not None
        known = self._state().partition(topic_id, number) if key in self.idle else None
        return known is not None and known.leader == self._own_id

    def is_opening(self, topic_id: bytes, number: int) -> bool:
        """Return whether this broker leads a partition as soon as its log is open."""
        known = self._state().partition(topic_id, number)
        is_here = known is not None and known.leader == self._own_id
        return is_here and (topic_id, number) not in self._open

    @property
    def _own_id(self) -> int:
        return self._directory.identity.node_id

    @property
    def may_lead(self) -> bool:
        """Whether this broker may act as a leader."""
        return self._may_lead()

    def find(self, topic_id: bytes, number: int) -> Partition:
        """Return a partition that this broker leads, and that clients may use.

        Raises:
            InvalidTopicError: The partition is a queue journal or a staging log.
            BrokerError: As for `led`.
        """
        partition = self._open.get((topic_id, number))
        if partition is None or partition.leader is None or not self._may_lead():
            partition = self.led(topic_id, number)
        if partition.queue_name or partition.is_staging:
            _check_no_internal_topic(partition)
        return partition

    def find_journal(self, queue_id: bytes, number: int) -> Partition:
        """Return the journal of a partition of a queue, if this broker leads it.

        Raises:
            UnknownQueueError: The id is not that of a queue.
            BrokerError: As for `led`.
        """
        partition = self.led(queue_id, number)
        if not partition.queue_name:
            raise UnknownQueueError(f"{queue_id.hex()} is the id of a topic, not that of a queue")
        return partition

    def led(self, topic_id: bytes, number: int) -> Partition:
        """Return a partition that this broker leads.

        Raises:
            UnknownTopicIdError: The topic was deleted, or is not known here yet.
            UnknownPartitionError: The topic has fewer partitions.
            NotLeaderError: Another broker leads the partition.
            LeaderNotAvailableError: The partition has no leader at the moment.
        """
        key = (topic_id, number)
        partition = self._open.get(key) or self._open_idle(key)
        if partition is not None and partition.leader is not None and self._may_lead():
            return partition
        raise self._why_not(topic_id, number)

    def readable(self, topic_id: bytes, number: int) -> Partition:
        """Return a partition that this broker leads, or follows with a usable log.

        A follower has the committed records that it knows of. A follower without contact to its
        cluster would serve stale data without end, so it serves none.

        Raises:
            BrokerError: As for `find`.
        """
        partition = self._open.get((topic_id, number))
        if (
            partition is not None
            and partition.follower is not None
            and not partition.is_held
            and self._may_lead()
        ):
            _check_no_internal_topic(partition)
            self._read_at = trio.current_time()
            return partition
        return self.find(topic_id, number)

    @property
    def has_readers(self) -> bool:
        """Whether a client reads from a follower here, or did so a moment ago."""
        return trio.current_time() - self._read_at < _READING_S

    def _why_not(self, topic_id: bytes, number: int) -> BrokerError:
        state, own_id = self._state(), self._own_id
        partition = state.partition(topic_id, number)
        if partition is None and not state.partitions(topic_id):
            return unknown_topic_id(topic_id)
        if partition is None:
            return UnknownPartitionError(
                f"there is no partition {number}; the topic has partitions 0 to"
                f" {len(state.partitions(topic_id)) - 1}"
            )
        if partition.leader is None:
            topic = state.catalog.topic_by_id(topic_id)
            reason = None if topic is None else why_leaderless(state, topic, number)
            return LeaderNotAvailableError(
                f"partition {number} has no leader at the moment"
                f"{'' if reason is None else f': {reason.text}'}"
            )
        if partition.leader != own_id:
            return NotLeaderError(
                f"broker {partition.leader} leads partition {number}, not this one"
            )
        if (topic_id, number) in self._open:
            return LeaderNotAvailableError(
                f"broker {own_id} leads partition {number}, and has lost contact with its cluster"
            )
        return LeaderNotAvailableError(
            f"partition {number} is being opened, or its disk has no room"
        )

    async def settle_left_overs(self, catalog: Catalog) -> None:
        """Remove the files of deleted topics; called at the start of a broker.

        Raises:
            OSError: The disk failed.
        """
        await self._env.run_in_thread(lambda: self._settle_left_overs(catalog))

    @property
    def suspects(self) -> Mapping[Key, SuspectReplica]:
        """Replicas that have lost files, until the cluster has recorded that."""
        return self._manifest.suspects

    async def take_stock(self, replicas: Sequence[tuple[Topic, int]]) -> None:
        """Find the replicas that have lost their files, before any log is opened.

        Raises:
            OSError: The disk failed.
            DataDirectoryError: A newer version wrote a file.
        """
        manifest, directory = self._manifest, self._directory
        await manifest.load(is_expected=directory.keeps_manifest)
        keys = [(topic.topic_id, number) for topic, number in replicas]
        stored = await self._env.run_in_thread(directory.stored_topics)
        stored_ids = {topic_id for _, topic_id in stored}
        self._strays = stored_ids - {topic.topic_id for topic, _ in replicas}
        if not manifest.is_lost:
            await self._find_idle(replicas)
            await self._find_blank(replicas, stored_ids)
        entered = [
            (topic, number)
            for topic, number in replicas
            if manifest.is_lost
            or (manifest.has(key := (topic.topic_id, number)) and key not in self.idle)
        ]
        found = await self._env.run_in_thread(
            lambda: [self._look_at(*replica) for replica in entered]
        )
        suspects = [each for each in found if each is not None]
        await manifest.begin(set(keys), suspects, is_new=not directory.keeps_manifest)
        for topic, number in replicas:
            suspect = manifest.suspects.get((topic.topic_id, number))
            if suspect is not None:
                self._env.probe(
                    "replica_suspect",
                    severity="error",
                    topic=topic.name,
                    partition=number,
                    is_empty=suspect.is_empty,
                )

    async def settle_suspects(self) -> None:
        """Record that no suspect replica is in the ISR any more; all replicas are open.

        Raises:
            OSError: The disk is full or failed.
        """
        await self._manifest.settle()
        if not self._directory.keeps_manifest and all(map(self._manifest.has, self._open)):
            await self._env.run_in_thread(self._directory.note_manifest)

    async def open(self, topic: Topic, number: int) -> Partition:
        """Open or create the log of a replica, and add it to the manifest.

        Raises:
            OSError: The disk is full or failed, or has lost a log that was closed.
            DataDirectoryError: A file belongs to another broker, or to a newer version.
        """
        key = (topic.topic_id, number)
        idle = self.idle.take(key) or self._unopened.get(key)
        if idle is not None:
            self._unopened[key] = idle
        partition = await self._open_log(topic, number)
        self._unopened.pop(key, None)
        try:
            await self._manifest.add(partition.key)
        except OSError as error:
            # Logs of versions before the manifest are served even if the disk has no room for one.
            if error.errno not in DISK_FULL_ERRNOS or not partition.log.log_end_offset:
                partition.log.close()
                raise
        self._open[key] = partition
        return partition

    async def _find_idle(self, replicas: Sequence[tuple[Topic, int]]) -> None:
        """Find the replicas whose logs stay closed."""
        await self.idle.load()
        await self.idle.keep_unchanged(
            (
                (topic.topic_id, number),
                self._directory.partition_directory(topic.name, topic.topic_id, number),
            )
            for topic, number in replicas
            if self._manifest.has((topic.topic_id, number)) and self.may_be_idle(topic, number)
        )
        for topic, number in replicas:
            # A queue has work when its topic gets records, so the two are opened together.
            if topic.queue is not None and (topic.source_id, number) not in self.idle:
                self.idle.take((topic.topic_id, number))

    async def _find_blank(
        self, replicas: Sequence[tuple[Topic, int]], stored_ids: set[bytes]
    ) -> None:
        """Find the replicas that were never created."""
        unlisted = [
            (topic, number)
            for topic, number in replicas
            if number not in self._manifest.numbers(topic.topic_id)
        ]
        missing = await self._env.run_in_thread(
            lambda: [
                (topic, number)
                for topic, number in unlisted
                if topic.topic_id not in stored_ids
                or not self.disk.exists(
                    self._directory.partition_directory(topic.name, topic.topic_id, number)
                )
            ]
        )
        if self.are_many(len(missing)):
            for topic, number in sorted(missing, key=lambda each: each[0].is_internal):
                self.leave_blank(topic, number)

    def are_many(self, count: int) -> bool:
        """Return whether so many new replicas are left without files until they are needed."""
        return count > CREATED_AT_ONCE or self._env.buggify("blank replicas")

    def leave_blank(self, topic: Topic, number: int) -> bool:
        """Leave a replica without files until it is needed, if none was ever created here.

        A replica outside the manifest takes no role, so no acknowledgement rests on it. A journal
        is blank only with its topic: it has no messages.
        """
        key = (topic.topic_id, number)
        is_new = not (key in self._open or key in self._unopened or key in self.idle)
        if (
            is_new
            and not self._manifest.is_lost
            and not (topic.is_audit or topic.staging_of is not None)
            and topic.topic_id not in self._strays
            and number not in self._manifest.numbers(topic.topic_id)
            and (topic.queue is None or self.idle.is_blank((topic.source_id, number)))
            and self.may_be_idle(topic, number)
        ):
            self.idle.add_blank(key)
            return True
        return False

    def create_soon(self, topic_id: bytes, number: int) -> None:
        """Have a blank replica created, with all others of its topic and queues."""
        topic = self._state().catalog.topic_by_id(topic_id)
        source_id = topic_id if topic is None else topic.source_id
        journals = self._state().catalog.journals_of(source_id)
        for each in (source_id, *(journal.topic_id for journal in journals)):
            if self.idle.is_blank((each, number)):
                self._open_later((each, number))

    def _open_later(self, key: Key) -> None:
        """Have a closed replica opened in a thread; requests for it are refused until then."""
        idle = self.idle.take(key)
        assert idle is not None, "it is closed"
        self._unopened[key] = idle
        self.open_soon(key)

    def may_be_idle(self, topic: Topic, number: int) -> bool:
        """Return whether the log of a replica may stay closed, as far as the metadata tells.

        Followers and leaders of followers exchange the ends of their logs. Compaction and new data
        keys look at all logs of their topics.
        """
        known, own = self._state().partition(topic.topic_id, number), self._own_id
        return (
            known is not None
            and known.replicas == (own,)
            and (own in known.in_sync_replicas or own in known.eligible_leader_replicas)
            and topic.config.compaction is None
            and not topic.config.is_encrypted
        )

    def _open_idle(self, key: Key) -> Partition | None:
        """Open an idle replica at once, for its first use.

        Its recovery has nothing to scan, as its files are unchanged. Otherwise `open_soon` has a
        thread recover it.
        """
        idle = self.idle.get(key)
        topic = None if idle is None else self._state().catalog.topic_by_id(key[0])
        if idle is None or topic is None:
            return None
        if idle.is_blank:
            self.create_soon(*key)
            return None
        path = self._directory.partition_directory(topic.name, *key)
        partition, now_ms = None, self._env.clock.now_ms()
        if is_unchanged(self.disk, path, idle):
            with suppress(OSError, DataDirectoryError):  # Opened again in a thread, and reported.
                log, report = self._open_files(topic, key[1], path, now_ms=now_ms)
                partition = self._opened(topic, key[1], log, report=report)
        if partition is None:
            self._open_later(key)
            return None
        self.idle.take(key)
        self._open[key] = partition
        self.on_open(partition)
        if not topic.is_internal:
            for journal in self._state().catalog.journals_of(topic.topic_id):
                self._open_idle((journal.topic_id, key[1]))
        return self._open.get(key)

    def describe(self, partition: Partition) -> DescribedReplica | None:
        """Return the description of a replica that a start may leave closed, or `None`."""
        topic = self._state().catalog.topic_by_id(partition.topic_id)
        is_free = partition.leader is not None and not (partition.is_held or partition.is_removing)
        if topic is None or not is_free or not self.may_be_idle(topic, partition.number):
            return None
        log = partition.log.idle_log(now_ms=self._env.clock.now_ms())
        if log is None or (partition.is_staging and log.log_start_offset < log.log_end_offset):
            return None  # Transactions delete what is staged.
        replica = IdleReplica(*msgspec.structs.astuple(log))
        if partition.queue_name:
            rest = self.rest_of_queue(partition)
            if rest is None:
                return None
            times = [each for each in (log.due_ms, rest.due_ms) if each is not None]
            replica = msgspec.structs.replace(
                replica, due_ms=min(times, default=None), is_drained=rest.is_drained
            )
        return DescribedReplica(partition.key, partition.log.directory, replica)

    def closed_scrubs(self, key: Key) -> Iterator[SegmentScrub]:
        """Return the scrubs of an idle replica, none if it is open by now; see `idle_scrub`."""
        topic = self._state().catalog.topic_by_id(key[0])
        if topic is None or key not in self.idle or self.idle.is_blank(key):
            return iter(())
        path = self._directory.partition_directory(topic.name, *key)
        owner = SegmentHeader(*key, 0)
        return closed_scrubs(path, owner, self._files, config=topic.config.log)

    def open_all_soon(self) -> None:
        """Have all idle replicas with files opened, one after the other."""
        for key, idle in list(self.idle.items()):
            if not idle.is_blank:
                self._open_later(key)

    async def restart(self, partition: Partition, offset: int) -> None:
        """Recreate the log of a replica at an offset; no other task may use it meanwhile.

        Raises:
            DiskFullError: The disk is full; the log may have lost its end.
            LogOfflineError: The disk failed.
        """
        now_ms = self._env.clock.now_ms()

        def restart_it() -> PartitionLog:
            owner = SegmentHeader(partition.topic_id, partition.number, 0)
            try:
                return truncate_fully(
                    partition.log, offset, owner, files=self._files, now_ms=now_ms
                )
            except OSError as error:
                raise LogOfflineError(f"the log could not be recreated: {error}") from error

        partition.log = await self._env.run_in_thread(restart_it)
        partition.update_cipher()  # The topic may have been encrypted meanwhile.

    def drop_files(self) -> None:
        """Close all files and drop all indexes in memory; readers load them again."""
        self._files.clear()

    def close(self, key: Key, error: BrokerError) -> Partition | None:
        """Close the log of a partition, fail its waiting requests with `error`, and return it."""
        self.forget_closed(key)
        partition = self._open.pop(key, None)
        if partition is not None:
            partition.close(error)
        return partition

    def forget_closed(self, key: Key) -> None:
        """Forget a replica that may be closed: its topic is deleted, or it has left."""
        self.idle.take(key)
        self._unopened.pop(key, None)

    async def remove_replica(self, name: str, topic_id: bytes, number: int) -> None:
        """Remove the files of a reassigned partition; its log is closed.

        Raises:
            OSError: Some files are left; the next start removes them.
        """
        self._strays.add(topic_id)
        await self._manifest.remove([(topic_id, number)])
        await self._env.run_in_thread(
            lambda: self._directory.set_aside_partition(name, topic_id, number)
        )
        await self._env.run_in_thread(self._directory.remove_deleted)

    async def remove_files(self, name: str, topic_id: bytes) -> None:
        """Remove the files of a deleted topic; its logs are closed, and no flush uses them.

        Raises:
            OSError: Some files are left; the next start removes them.
        """
        await self._manifest.remove_topic(topic_id)
        await self._env.run_in_thread(lambda: self._directory.set_aside(name, topic_id))
        await self._env.run_in_thread(self._directory.remove_deleted)

    async def _open_log(self, topic: Topic, number: int) -> Partition:
        path = self._directory.partition_directory(topic.name, topic.topic_id, number)
        now_ms = self._env.clock.now_ms()
        log, report = await self._env.run_in_thread(
            lambda: self._open_files(topic, number, path, now_ms=now_ms)
        )
        return self._opened(topic, number, log, report=report)

    def _open_files(
        self, topic: Topic, number: int, path: str, *, now_ms: int
    ) -> tuple[PartitionLog, RecoveryReport]:
        """Recover a log; blocks.

        Raises:
            OSError: The disk is full or failed, or has lost a log that was closed.
            DataDirectoryError: A file belongs to another broker, or to a newer version.
        """
        key = (topic.topic_id, number)
        idle = self._unopened.get(key)
        had_files = idle is not None and not idle.is_blank
        if had_files and presence_of(self.disk, path) is LogPresence.MISSING:
            raise OSError(errno.EIO, f"the files of the closed log in {path} are lost")
        log, report = open_log(
            path,
            SegmentHeader(topic.topic_id, number, 0),
            self._files,
            config=topic.config.log,
            now_ms=now_ms,
            is_suspect=key in self.suspects and self._has_others(key),
            # The start at which a log stayed closed may have been one after a crash.
            checks_end=not self._directory.was_clean or idle is not None or key in self.idle,
        )
        if idle is not None and log.log_end_offset < idle.log_end_offset:
            log.close()
            raise OSError(errno.EIO, f"the closed log in {path} went back in time")
        if not self._manifest.has(key):
            _write_checkpoint(log)
        return log, report

    def _opened(
        self, topic: Topic, number: int, log: PartitionLog, *, report: RecoveryReport
    ) -> Partition:
        """Return the partition of a log, and report what recovery found."""
        self._report(topic, number, report, log=log)
        self._env.probe(
            "log_opened",
            severity="debug",
            topic=topic.name,
            partition=number,
            directory=log.directory,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            truncated_bytes=report.truncated_bytes,
        )
        partition = Partition(
            topic.topic_id,
            number,
            log,
            topic=topic.name,
            config=topic.config,
            probe=self._env.probe,
            traffic=(
                self._internal_traffic
                if topic.is_internal
                else PartitionTraffic(self.topic_counts, topic.name)
            ),
        )
        partition.queue_name = topic.queue_name
        partition.is_staging = topic.staging_of is not None
        partition.keyring = self.keyring
        partition.update_cipher()
        return partition

    def _report(
        self, topic: Topic, number: int, report: RecoveryReport, *, log: PartitionLog
    ) -> None:
        for damaged in report.damage:
            self._env.probe(
                "log_damaged",
                severity="error",
                topic=topic.name,
                partition=number,
                offset=damaged.offset,
                end_offset=damaged.end_offset,
            )
        for note in report.notes:
            self._env.probe(
                "log_note", severity="warning", topic=topic.name, partition=number, note=note
            )
        if report.truncated_bytes:
            is_fsync = topic.config.durability is Durability.FSYNC
            self._env.probe(
                "torn_tail_truncated",
                severity="warning",
                topic=topic.name,
                partition=number,
                offset=log.log_end_offset,
                truncated_bytes=report.truncated_bytes,
                high_watermark=log.high_watermark,
                may_lack_committed=not is_fsync,
                reason=(
                    "the last bytes were never synced, so no record in them was acknowledged,"
                    " unless the disk lost synced bytes"
                    if is_fsync
                    else "records that were committed in memory may be among them; other replicas"
                    " have those"
                ),
            )
        if report.scanned_bytes or report.truncated_bytes:
            self._env.probe(
                "log_recovered",
                topic=topic.name,
                partition=number,
                scanned_bytes=report.scanned_bytes,
                truncated_bytes=report.truncated_bytes,
            )

    def _has_others(self, key: Key) -> bool:
        known = self._state().partition(*key)
        return known is not None and len(known.replicas) > 1

    def _look_at(self, topic: Topic, number: int) -> SuspectReplica | None:
        path = self._directory.partition_directory(topic.name, topic.topic_id, number)
        presence = presence_of(self.disk, path)
        if presence is LogPresence.INTACT:
            return None
        return SuspectReplica(topic.topic_id, number, presence is LogPresence.MISSING)

    def _settle_left_overs(self, catalog: Catalog) -> None:
        for name, topic_id in self._directory.stored_topics():
            topic = catalog.topic_by_id(topic_id)
            if topic is not None:
                self._settle_replicas(topic)
                continue
            if catalog.was_deleted(topic_id):
                self._directory.set_aside(name, topic_id)
            else:
                # The metadata has no deletion of this topic: keep the files rather than guess.
                self._env.probe(
                    "topic_without_metadata",
                    severity="warning",
                    topic=name,
                    directory=self._directory.topic_directory(name, topic_id),
                )
        self._directory.remove_deleted()

    def _settle_replicas(self, topic: Topic) -> None:
        """Set aside the partitions that the metadata assigns to other brokers."""
        for number, known in enumerate(self._state().partitions(topic.topic_id)):
            if self._own_id not in known.replicas:
                self._directory.set_aside_partition(topic.name, topic.topic_id, number)


def _write_checkpoint(log: PartitionLog) -> None:
    """Write a checkpoint, so that its loss can be detected; blocks.

    Raises:
        OSError: The disk failed, or has no room for the first checkpoint of an empty log.
    """
    log.request_checkpoint(is_due=True)
    flush = log.begin_flush()
    assert flush is not None, "a checkpoint is due"
    flush.run()
    log.end_flush(flush)
    if not log.log_end_offset:
        if flush.had_no_room:
            raise OSError(errno.ENOSPC, f"no room for the checkpoint of {log.directory}")
        # With the first records another checkpoint is written: it is the evidence of them.
        log.request_checkpoint(is_due=True)


def _ignore(each: object) -> None:
    del each


def _no_rest(journal: Partition) -> QueueRest | None:
    del journal
    return None


def _check_no_internal_topic(partition: Partition) -> None:
    if partition.queue_name:
        raise InvalidTopicError(
            f"this is the journal of queue {partition.queue_name!r}, which only brokers read and"
            " write"
        )
    if partition.is_staging:
        raise InvalidTopicError("this is a staging log, which only brokers read")
