"""Tests of provable damage in a log."""

from tests.simulation.broker.bit_rot import (
    provable_batches,
    provable_sectors,
    rebuilt_bytes,
    visible_log_ends,
)
from tests.simulation.machine.faulty_disk import FaultyDisk
from tests.simulation.machine.file_tree import SECTOR_BYTES
from tidelog.logstore.segments.segment_format import (
    SEGMENT_FOOTER_SIZE,
    SEGMENT_HEADER_SIZE,
    SegmentFooter,
)
from tidelog.wire.batch.record_batch import Columns, encode_batch, stamp_leader, stamp_replica

PATH = f"topics/flights.{bytes(16).hex()}/1/{0:020}.log"
BATCH_COUNT = 9


def disk_with_batches() -> FaultyDisk:
    """Return a disk with batches smaller than a sector, each written after the one before."""
    disk = FaultyDisk()
    disk.make_directory(PATH.rpartition("/")[0])
    file = disk.open(PATH, create=True)
    file.write_at(0, [bytes(SEGMENT_HEADER_SIZE)])
    for number in range(BATCH_COUNT):
        batch = encode_batch(Columns(1, values=[bytes(200)]), first_timestamp_ms=0)
        stamp_leader(memoryview(batch), base_offset=number, leader_epoch=0)
        stamp_replica(memoryview(batch), durable_position=file.size())
        file.write_at(file.size(), [batch])
    file.sync()
    return disk


def test_all_batches_but_the_last_are_proven_by_the_one_behind_them() -> None:
    offsets = [
        batch.header.base_offset for batch in provable_batches(disk_with_batches(), "flights")
    ]

    assert offsets == list(range(BATCH_COUNT - 1))


def test_a_sector_is_provable_if_it_holds_nothing_but_provable_batches() -> None:
    disk = disk_with_batches()
    batches = provable_batches(disk, "flights")
    end = batches[-1].position + batches[-1].header.size

    sectors = provable_sectors(disk, "flights")

    assert [sector.position for sector in sectors] == list(
        range(SECTOR_BYTES, end - SECTOR_BYTES + 1, SECTOR_BYTES)
    )
    for sector in sectors:
        touched = [
            batch.header
            for batch in batches
            if batch.position < sector.position + SECTOR_BYTES
            and batch.position + batch.header.size > sector.position
        ]
        assert sector.partition == 1
        assert sector.offset == touched[0].base_offset
        assert sector.next_offset == touched[-1].next_offset


def test_a_log_ends_behind_its_last_batch_in_the_page_cache() -> None:
    disk = disk_with_batches()

    assert visible_log_ends(disk, "flights") == {1: BATCH_COUNT}
    assert visible_log_ends(disk, "gates") == {}


def test_a_log_whose_end_is_hidden_by_damage_may_end_anywhere() -> None:
    disk = disk_with_batches()
    disk.flip_bit(PATH, SEGMENT_HEADER_SIZE + 250, 0)

    assert visible_log_ends(disk, "flights")[1] > 10**15


def test_segment_headers_footers_and_indexes_are_rebuilt_bytes() -> None:
    disk = disk_with_batches()
    index_path = PATH.replace(".log", ".index")
    disk.open(index_path, create=True).write_at(0, [b"unsynced"])
    file = disk.open(PATH)
    assert rebuilt_bytes(disk, "flights") == [(PATH, 0, SEGMENT_HEADER_SIZE)]
    assert rebuilt_bytes(disk, "gates") == []

    end = file.size()
    file.write_at(end, [SegmentFooter(BATCH_COUNT, end, 0, 0).to_bytes()])
    file.sync()
    disk.open(index_path).sync()

    assert rebuilt_bytes(disk, "flights") == [
        (index_path, 0, len(b"unsynced")),
        (PATH, 0, SEGMENT_HEADER_SIZE),
        (PATH, end, end + SEGMENT_FOOTER_SIZE),
    ]
