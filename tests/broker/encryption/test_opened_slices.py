"""Tests of slices of encrypted logs, as a reply to a client opens them."""

from random import Random
from typing import NamedTuple

import pytest
from trio.testing import MockClock

from tests.broker.broker_requests import batch_of
from tests.broker.encryption.keyrings import TOPIC_ID, Keys
from tests.broker.logs import append, config_of, flush, open_partition_log
from tests.broker.world import World
from tests.simulation.machine.faulty_disk import FaultyDisk
from tidelog.broker.partitions.log_reader import SliceReader
from tidelog.broker.partitions.partition import Partition
from tidelog.logstore.segments.log_slice import LogSlice
from tidelog.wire.batch.record_batch import header_of, stamp_leader, stamp_replica
from tidelog.wire.errors import CorruptRecordError, LogOfflineError

VALUES = (b"small", Random(7).randbytes(300_000), b"x" * 100_000, b"last")
"""Batches of one record each. One is longer than a window of reads."""


class Encrypted(NamedTuple):
    """An encrypted partition and all of its batches."""

    disk: FaultyDisk
    partition: Partition
    part: LogSlice
    starts: list[int]
    """Positions of the batches in their file."""
    plain: list[bytes]
    """Batches as their producer sent them, with the fields of the leader."""


def encrypted(time: MockClock) -> Encrypted:
    keys, disk, config = Keys(), FaultyDisk(), config_of("fsync")
    keys.rotate()
    log = open_partition_log(disk, config)
    log.cipher = cipher = keys.cipher()
    starts, plain = [log.size_bytes], list[bytes]()
    for offset, value in enumerate(VALUES):
        append(log, value)
        starts.append(log.size_bytes)
        batch = batch_of(value)
        stamp_leader(memoryview(batch), base_offset=offset, leader_epoch=0)
        stamp_replica(memoryview(batch), durable_position=0)
        plain.append(bytes(batch))
    flush(log)
    partition = Partition(
        TOPIC_ID, 0, log, topic="orders", config=config, probe=World(time).env.probe
    )
    partition.cipher = cipher
    part = log.read(0, max_bytes=1 << 20, high_watermark=len(VALUES))
    assert part is not None
    first = part.position - starts[0]
    return Encrypted(disk, partition, part, [start + first for start in starts], plain)


def opened(world: Encrypted, room_bytes: int = 1 << 20) -> list[bytes]:
    data = memoryview(SliceReader.open_now(world.partition, world.part, room_bytes, is_older=False))
    batches: list[bytes] = []
    while data:
        batch = bytearray(data[: header_of(data).size])
        stamp_replica(memoryview(batch), durable_position=0)
        batches.append(bytes(batch))
        data = data[len(batch) :]
    return batches


def test_a_slice_opens_to_the_batches_of_its_producers(mock_clock: MockClock) -> None:
    world = encrypted(mock_clock)

    assert opened(world) == world.plain


@pytest.mark.parametrize(
    ("room_bytes", "count"), [(1, 1), (300_000, 1), (301_000, 2), (402_000, 4)]
)
def test_a_slice_ends_where_the_room_does_but_has_a_batch(
    mock_clock: MockClock, room_bytes: int, count: int
) -> None:
    world = encrypted(mock_clock)

    assert opened(world, room_bytes) == world.plain[:count]


@pytest.mark.parametrize("byte", [20, 130])
def test_a_slice_ends_before_a_batch_whose_bytes_have_rotted(
    mock_clock: MockClock, byte: int
) -> None:
    world = encrypted(mock_clock)
    (path,) = (name for name in world.disk.paths() if name.endswith(".log"))
    world.disk.flip_bit(path, world.starts[2] + byte, 3)

    assert opened(world) == world.plain[:2]

    world.disk.flip_bit(path, world.starts[0] + byte, 3)
    with pytest.raises(CorruptRecordError, match="records 0 to 1"):
        opened(world)


def test_a_file_that_is_shorter_than_it_was_takes_the_log_offline(mock_clock: MockClock) -> None:
    world = encrypted(mock_clock)
    world.part.file.truncate(world.starts[1] + 1000)

    with pytest.raises(LogOfflineError, match="shorter than it was"):
        opened(world)
