"""A misdirected sector hides no good record after it."""

from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.logstore.logs import (
    Image,
    Opened,
    batch_bounds,
    disk_of,
    image_of,
    name_of,
    new_log,
    read_all,
    records_in,
    reopen,
)
from tidelog.logstore.config import LogConfig
from tidelog.wire.errors import CorruptRecordError

SECTOR_BYTES = 512
CONFIG = LogConfig(
    segment_bytes=1 << 20,
    index_interval_bytes=256,
    max_message_bytes=2048,
    checkpoint_bytes=1 << 30,
)
SEGMENT = name_of(0)
CHECKPOINTED = 12
"""Batches below the recovery point; every start scans the others."""


def written() -> Opened:
    """Return a log of batches of all sizes, each durable before the next."""
    opened = new_log(CONFIG)
    for number in range(40):
        values = [bytes([65 + number % 26]) * (7 * number % 40) for _ in range(number % 4 + 1)]
        opened.append(*values)
        opened.flush(checkpoint=number + 1 == CHECKPOINTED)
    return opened


def misdirected(image: Image) -> Iterator[tuple[int, Image]]:
    """Yield (position, image) with each sector but the last in the place of each later one."""
    data = image[SEGMENT]
    for position in range(SECTOR_BYTES, len(data) - 2 * SECTOR_BYTES, SECTOR_BYTES):
        for source in range(0, position, SECTOR_BYTES):
            bad = bytearray(data)
            bad[position : position + SECTOR_BYTES] = data[source : source + SECTOR_BYTES]
            yield position, {**image, SEGMENT: bytes(bad)}


def untouched(data: bytes, position: int) -> dict[int, bytes]:
    """Return the records of the batches that do not reach into the sector at `position`."""
    bounds = batch_bounds(data)
    records: dict[int, bytes] = {}
    for start, end in pairwise(bounds):
        if end <= position or start >= position + SECTOR_BYTES:
            records |= records_in(data[start:end])
    return records


@pytest.fixture(scope="module")
def image() -> Image:
    return image_of(written().disk)


def test_all_records_outside_of_the_sector_are_read(image: Image) -> None:
    for position, bad in misdirected(image):
        opened = reopen(disk_of(bad), CONFIG)

        assert read_all(opened.log) == untouched(image[SEGMENT], position)


def read_one(opened: Opened, offset: int) -> None:
    part = opened.log.read(offset, max_bytes=1, high_watermark=opened.log.log_end_offset)
    assert part is not None
    part.load()


def next_offset(opened: Opened, offset: int) -> int:
    """Return the next readable offset in the error for this offset."""
    with pytest.raises(CorruptRecordError) as refusal:
        read_one(opened, offset)
    assert refusal.value.next_offset is not None
    return refusal.value.next_offset


def test_from_every_offset_on_the_first_good_record_is_found(image: Image) -> None:
    for position, bad in misdirected(image):
        good = untouched(image[SEGMENT], position)
        opened = reopen(disk_of(bad), CONFIG)
        end = opened.log.log_end_offset
        for offset in set(range(end)) - good.keys():
            next_good = min((at for at in good if at > offset), default=end)
            assert offset < next_offset(opened, offset) <= next_good
