"""All partitions that this broker leads, from directories to open logs.

Shell: opens, makes and removes logs on the disk.
"""

from typing import final

from broker.data_directory import DataDirectory
from broker.partition import Partition
from coordinator.catalog import Catalog, Topic
from logstore.file_cache import FileCache
from logstore.log import PartitionLog
from logstore.recovery import RecoveryReport, open_log
from logstore.segment_format import SegmentHeader
from wire.env import Env
from wire.errors import UnknownPartitionError, UnknownTopicIdError


@final
class Partitions:
    """Open partitions by topic id and number."""

    def __init__(self, env: Env, directory: DataDirectory, files: FileCache) -> None:
        """Keep partitions in `directory`."""
        self._env = env
        self._directory = directory
        self._files = files
        self._partitions: dict[tuple[bytes, int], Partition] = {}

    def all(self) -> list[Partition]:
        """Return every open partition."""
        return list(self._partitions.values())

    def find(self, topic_id: bytes, number: int) -> Partition:
        """Return one partition.

        Raises:
            UnknownTopicIdError: No topic has this id (any more).
            UnknownPartitionError: The topic has fewer partitions.
        """
        partition = self._partitions.get((topic_id, number))
        if partition is not None:
            return partition
        count = sum(1 for known_id, _ in self._partitions if known_id == topic_id)
        if count:
            raise UnknownPartitionError(
                f"there is no partition {number}; the topic has partitions 0 to {count - 1}"
            )
        raise UnknownTopicIdError(
            f"no topic has the id {topic_id.hex()}; it was deleted, or never was here"
        )

    async def open_all(self, catalog: Catalog) -> None:
        """Open the logs of all topics, and settle what topics left behind.

        Raises:
            OSError: The disk failed.
            DataDirectoryError: A file belongs elsewhere, or to a newer version.
        """
        await self._env.offload(lambda: self._settle_left_overs(catalog))
        topics = catalog.topics
        total = sum(topic.partition_count for topic in topics)
        opened = 0
        for topic in topics:
            for number in range(topic.partition_count):
                await self._open(topic, number)
                opened += 1
                if opened % 100 == 0:
                    self._env.probe("opening_logs", opened=opened, total=total)

    async def create(self, topic: Topic) -> None:
        """Make and open the logs of a new topic."""
        await self._env.offload(
            lambda: self._directory.make_topic_directory(
                topic.name, topic.topic_id, topic.partition_count
            )
        )
        for number in range(topic.partition_count):
            await self._open(topic, number)

    def reconfigure(self, topic: Topic) -> None:
        """Let a topic's new settings be in force."""
        for number in range(topic.partition_count):
            self._partitions[topic.topic_id, number].reconfigure(topic.config)

    async def delete(self, topic: Topic) -> list[Partition]:
        """Close the logs of a deleted topic, remove its files, and return its partitions."""
        removed: list[Partition] = []
        for number in range(topic.partition_count):
            partition = self._partitions.pop((topic.topic_id, number))
            partition.log.close()
            removed.append(partition)
        for partition in removed:
            partition.failed(UnknownTopicIdError(f"topic {topic.name!r} was deleted"))
        await self._env.offload(lambda: self._directory.set_aside(topic.name, topic.topic_id))
        await self._env.offload(self._directory.remove_deleted)
        return removed

    async def _open(self, topic: Topic, number: int) -> None:
        path = self._directory.partition_directory(topic.name, topic.topic_id, number)

        def open_it() -> tuple[PartitionLog, RecoveryReport]:
            owner = SegmentHeader(topic.topic_id, number, 0)
            now_ms = self._env.clock.now_ms()
            return open_log(path, owner, self._files, topic.config.log, now_ms=now_ms)

        log, report = await self._env.offload(open_it)
        self._report(topic, number, report)
        partition = Partition(topic.topic_id, number, log, topic.config)
        self._partitions[topic.topic_id, number] = partition

    def _report(self, topic: Topic, number: int, report: RecoveryReport) -> None:
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
        if report.scanned_bytes or report.truncated_bytes:
            self._env.probe(
                "log_recovered",
                topic=topic.name,
                partition=number,
                scanned_bytes=report.scanned_bytes,
                truncated_bytes=report.truncated_bytes,
            )

    def _settle_left_overs(self, catalog: Catalog) -> None:
        for name, topic_id in self._directory.stored_topics():
            if catalog.topic_by_id(topic_id) is not None:
                continue
            if catalog.was_deleted(topic_id):
                self._directory.set_aside(name, topic_id)
            else:
                # Never deleted as far as anybody knows: refuse rather than guess.
                self._env.probe(
                    "topic_without_metadata",
                    severity="warning",
                    directory=self._directory.topic_directory(name, topic_id),
                )
        self._directory.remove_deleted()
