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
    """Open partitions by topic id and number.

    Invariant: all partitions of a topic are open, or none. A topic of which none is open is being
    created, or could not be created yet because the disk is full.
    """

    def __init__(self, env: Env, directory: DataDirectory, files: FileCache) -> None:
        """Keep partitions in `directory`."""
        self._env = env
        self._directory = directory
        self._files = files
        self._by_topic: dict[bytes, list[Partition]] = {}

    def all(self) -> list[Partition]:
        """Return every open partition."""
        return [partition for topic in self._by_topic.values() for partition in topic]

    def of_topic(self, topic_id: bytes) -> list[Partition] | None:
        """Return the partitions of a topic in order, `None` when they are not open."""
        return self._by_topic.get(topic_id)

    def find(self, topic_id: bytes, number: int) -> Partition:
        """Return one partition.

        Raises:
            UnknownTopicIdError: No topic has this id, any more or yet.
            UnknownPartitionError: The topic has fewer partitions.
        """
        partitions = self._by_topic.get(topic_id)
        if partitions is None:
            raise UnknownTopicIdError(
                f"no topic has the id {topic_id.hex()}; it was deleted, or never was here"
            )
        if not 0 <= number < len(partitions):
            raise UnknownPartitionError(
                f"there is no partition {number}; the topic has partitions 0 to"
                f" {len(partitions) - 1}"
            )
        return partitions[number]

    async def open_all(self, catalog: Catalog) -> None:
        """Open the logs of all topics, and settle what topics left behind.

        Raises:
            OSError: The disk failed.
            DataDirectoryError: A file belongs elsewhere, or to a newer version.
        """
        topics = catalog.topics
        await self._env.offload(lambda: self._settle_left_overs(catalog))
        total = sum(topic.partition_count for topic in topics)
        opened = 0
        for topic in topics:
            partitions: list[Partition] = []
            for number in range(topic.partition_count):
                partitions.append(await self._open(topic, number))
                opened += 1
                if opened % 100 == 0:
                    self._env.probe("opening_logs", opened=opened, total=total)
            self._by_topic[topic.topic_id] = partitions

    async def create(self, topic: Topic) -> None:
        """Make and open the logs of a new topic, or of one that could not be made before.

        Raises:
            OSError: The disk is full or failed; none of them is open.
        """
        partitions = [await self._open(topic, number) for number in range(topic.partition_count)]
        self._by_topic[topic.topic_id] = partitions

    def drop_files(self) -> None:
        """Keep no file open and no index in memory; whoever needs them loads them again."""
        self._files.clear()

    def reconfigure(self, topic: Topic) -> list[Partition]:
        """Let a topic's new settings be in force; return its partitions."""
        partitions = self._by_topic.get(topic.topic_id, [])
        for partition in partitions:
            partition.reconfigure(topic.config)
        return partitions

    def close(self, topic: Topic) -> list[Partition]:
        """Close the logs of a deleted topic, tell everybody who waits there, and return them."""
        partitions = self._by_topic.pop(topic.topic_id, [])
        for partition in partitions:
            partition.log.close()
        for partition in partitions:
            partition.failed(UnknownTopicIdError(f"topic {topic.name!r} was deleted"))
        return partitions

    async def remove_files(self, topic: Topic) -> None:
        """Remove the files of a topic whose logs are closed, and that nobody flushes.

        Raises:
            OSError: Some are still there; the next start removes them.
        """
        await self._env.offload(lambda: self._directory.set_aside(topic.name, topic.topic_id))
        await self._env.offload(self._directory.remove_deleted)

    async def _open(self, topic: Topic, number: int) -> Partition:
        path = self._directory.partition_directory(topic.name, topic.topic_id, number)

        def open_it() -> tuple[PartitionLog, RecoveryReport]:
            owner = SegmentHeader(topic.topic_id, number, 0)
            now_ms = self._env.clock.now_ms()
            return open_log(path, owner, self._files, topic.config.log, now_ms=now_ms)

        log, report = await self._env.offload(open_it)
        self._report(topic, number, report)
        self._env.probe(
            "log_opened",
            severity="debug",
            directory=path,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            truncated_bytes=report.truncated_bytes,
        )
        return Partition(topic.topic_id, number, log, topic.config, self._env.probe)

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
