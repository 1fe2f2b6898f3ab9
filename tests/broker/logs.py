"""Logs of one partition on a disk in memory, for tests."""

from tests.broker.broker_requests import batch_of
from tests.simulation.machine.faulty_disk import FaultyDisk
from tidelog.coordinator.metadata.topic_config import TopicConfig, topic_config
from tidelog.logstore.log import PartitionLog
from tidelog.logstore.recovery.recovery import open_log
from tidelog.logstore.segments.file_cache import FileCache
from tidelog.logstore.segments.segment_format import SegmentHeader
from tidelog.wire.batch.record_batch import check_produced

TOPIC_ID = b"t" * 16


def open_partition_log(disk: FaultyDisk, config: TopicConfig, number: int = 0) -> PartitionLog:
    """Open the log of a number: an empty one, or the existing files."""
    owner = SegmentHeader(TOPIC_ID, number, 0)
    return open_log(str(number), owner, FileCache(disk), config=config.log, now_ms=0)[0]


def config_of(durability: str) -> TopicConfig:
    """Return the settings of a topic with this durability."""
    return topic_config({"durability": durability})


def append(log: PartitionLog, *values: bytes) -> int:
    """Append a batch and return the offset after it."""
    batch = memoryview(batch_of(*values))
    return log.append(batch, check_produced(batch), leader_epoch=0, now_ms=0).next_offset


def flush(log: PartitionLog) -> None:
    """Make all records durable."""
    work = log.begin_flush()
    assert work is not None
    work.run()
    log.end_flush(work)
