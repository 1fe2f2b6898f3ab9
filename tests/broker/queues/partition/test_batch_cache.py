"""Tests of the batch cache: known batches are found without a read, as long as they are valid."""

from msgspec.structs import replace

from tests.broker.logs import TOPIC_ID, append, config_of, open_partition_log
from tests.simulation.machine.faulty_disk import FaultyDisk
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.queues.partition.batch_cache import Batch, BatchCache, EmptyCache
from tidelog.logstore.disk.disk import File
from tidelog.queue_layer.commands.receive import ReceiveCommand
from tidelog.queue_layer.queue_partition import QueuePartition
from tidelog.queue_layer.receipts import Receipts
from tidelog.wire.config.queue_config import QueueConfig
from tidelog.wire.messages.queue_journal import JournalFrame


def unheard(event: str, **fields: object) -> None:
    """Ignore an event."""


def led_partition() -> tuple[Partition, File]:
    """Return a partition that is led here, and some file."""
    config, disk = config_of("fsync"), FaultyDisk()
    log = open_partition_log(disk, config)
    partition = Partition(TOPIC_ID, 0, log, topic="orders", config=config, probe=unheard)
    partition.lead(1)
    return partition, disk.open("0/" + "0" * 20 + ".log")


def in_a_row(file: File, *, first: int, count: int) -> list[Batch]:
    """Return contiguous batches of ten records and a hundred bytes."""
    return [
        Batch(10 * number, 10 * number + 10, file, 100 * number, 100)
        for number in range(first, first + count)
    ]


def test_cached_batches_are_found_from_an_offset_up_to_an_end() -> None:
    partition, file = led_partition()
    known, batches = BatchCache(), in_a_row(file, first=0, count=6)
    known.add(partition, batches)

    assert known.find(partition, 15, 31, max_bytes=1 << 20) == batches[1:4]
    assert known.find(partition, 20, 30, max_bytes=1 << 20) == batches[2:3]


def test_cached_batches_are_limited_by_bytes_but_at_least_one() -> None:
    partition, file = led_partition()
    known, batches = BatchCache(), in_a_row(file, first=0, count=6)
    known.add(partition, batches)

    assert known.find(partition, 0, 60, max_bytes=250) == batches[:2]
    assert known.find(partition, 0, 60, max_bytes=1) == batches[:1]


def test_batches_that_were_not_read_are_not_cached() -> None:
    partition, file = led_partition()
    known = BatchCache()
    known.add(partition, in_a_row(file, first=3, count=2))

    assert not known.find(partition, 29, 40, max_bytes=1 << 20)
    assert not known.find(partition, 50, 60, max_bytes=1 << 20)
    assert known.find(partition, 45, 60, max_bytes=1 << 20) == in_a_row(file, first=4, count=1)


def test_cached_batches_of_another_file_are_not_joined() -> None:
    partition, file = led_partition()
    _, other = led_partition()
    known, (first, second) = BatchCache(), in_a_row(file, first=0, count=2)
    known.add(partition, [first, replace(second, file=other)])

    assert known.find(partition, 0, 20, max_bytes=1 << 20) == [first]


def test_batches_that_are_read_again_replace_cached_ones() -> None:
    partition, file = led_partition()
    known = BatchCache()
    known.add(partition, in_a_row(file, first=0, count=4))
    known.add(partition, in_a_row(file, first=2, count=3))

    assert known.find(partition, 0, 100, max_bytes=1 << 20) == in_a_row(file, first=0, count=5)


def test_the_batch_cache_is_limited_to_some_hundred_batches() -> None:
    partition, file = led_partition()
    known, batches = BatchCache(), in_a_row(file, first=0, count=600)
    for batch in batches:
        known.add(partition, [batch])

    assert known.find(partition, 5990, 6000, max_bytes=1 << 20) == batches[-1:]
    assert not known.find(partition, 0, 10, max_bytes=1 << 20)


def test_the_batch_cache_is_invalid_in_another_leader_epoch() -> None:
    partition, file = led_partition()
    known, batches = BatchCache(), in_a_row(file, first=0, count=2)
    known.add(partition, batches)
    assert known.last(partition) == batches[-1]
    partition.lead(2)

    assert not known.find(partition, 0, 20, max_bytes=1 << 20)
    assert known.last(partition) is None
    known.add(partition, batches)
    assert known.find(partition, 0, 20, max_bytes=1 << 20)
    partition.follow(2, 3)
    assert not known.find(partition, 0, 20, max_bytes=1 << 20)
    known.add(partition, batches)
    assert not known.find(partition, 0, 20, max_bytes=1 << 20)


def test_the_batch_cache_is_invalid_for_a_failed_log() -> None:
    partition, file = led_partition()
    known = BatchCache()
    known.add(partition, in_a_row(file, first=0, count=2))
    append(partition.log, b"a")

    partition.log.fail("the disk is gone")

    assert not known.find(partition, 0, 20, max_bytes=1 << 20)
    assert known.last(partition) is None


def test_the_batch_cache_is_invalid_for_deleted_records() -> None:
    partition, file = led_partition()
    known = BatchCache()
    known.add(partition, in_a_row(file, first=0, count=2))
    end = append(partition.log, b"a", b"b")

    partition.log.delete_records(1, high_watermark=end)

    assert not known.find(partition, 0, 20, max_bytes=1 << 20)


START_MS = 1_800_000_000_000


def queue_with_a_lease() -> QueuePartition:
    """Return a queue whose only message is leased for ten seconds."""
    receipts = Receipts(queue_id=bytes(16), partition=0, key=bytes(16))
    queue = QueuePartition(QueueConfig(), receipts)
    _carry_out(queue, queue.seek(0, now_ms=START_MS).frames)
    queue.start(START_MS)
    queue.state.on_records(0, 1)
    plan = queue.plan(ReceiveCommand(max_messages=1, visibility_timeout_ms=10_000), now_ms=START_MS)
    taken = [(run.first_offset, run.count) for run in plan]
    _carry_out(queue, queue.receive(plan, taken, now_ms=START_MS).frames)
    return queue


def _carry_out(queue: QueuePartition, frames: list[JournalFrame]) -> None:
    (frame,) = frames
    queue.state.apply(frame)


def test_the_empty_cache_is_invalid_before_a_receive() -> None:
    assert not EmptyCache().is_empty(queue_with_a_lease(), 1, START_MS)


def test_the_empty_cache_is_valid_until_a_record_or_the_end_of_a_lease() -> None:
    queue, known = queue_with_a_lease(), EmptyCache()

    known.set_empty(queue, 1)

    assert known.is_empty(queue, 1, START_MS)
    assert known.is_empty(queue, 1, START_MS + 9_999)
    assert not known.is_empty(queue, 1, START_MS + 10_000)
    assert not known.is_empty(queue, 2, START_MS)


def test_the_empty_cache_is_invalid_after_a_decision_or_an_invalidation() -> None:
    queue, known = queue_with_a_lease(), EmptyCache()
    known.set_empty(queue, 1)
    _carry_out(queue, queue.purge(1, now_ms=START_MS).frames)
    assert not known.is_empty(queue, 1, START_MS)

    known.set_empty(queue, 1)
    assert known.is_empty(queue, 1, START_MS)
    known.invalidate()
    assert not known.is_empty(queue, 1, START_MS)
