"""Random damage of one replica is repaired from the other."""

from collections.abc import Callable
from random import Random

import pytest

from tests.logstore.logs import (
    NOW_MS,
    Image,
    Opened,
    disk_of,
    image_of,
    new_log,
    read_all,
    reopen,
)
from tests.logstore.replica_pair import batches_of, note_all_damage, sent_by
from tidelog.logstore.config import LogConfig
from tidelog.logstore.log import PartitionLog
from tidelog.wire.errors import InvalidBatchError

CONFIG = LogConfig(segment_bytes=3000, index_interval_bytes=300, max_message_bytes=2500)
SECTOR_BYTES = 512
LIVES = range(60)

Fault = Callable[[Random, Image, str], None]


def flip_bits(random: Random, image: Image, name: str) -> None:
    data = bytearray(image[name])
    for _ in range(random.randint(1, 4)):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    image[name] = bytes(data)


def zero_sectors(random: Random, image: Image, name: str) -> None:
    data = bytearray(image[name])
    start = random.randrange(0, len(data), SECTOR_BYTES)
    end = min(start + random.randint(1, 6) * SECTOR_BYTES, len(data))
    data[start:end] = bytes(end - start)
    image[name] = bytes(data)


def misdirect_a_sector(random: Random, image: Image, name: str) -> None:
    data = bytearray(image[name])
    source, target = (random.randrange(0, len(data), SECTOR_BYTES) for _ in range(2))
    sector = data[source : source + SECTOR_BYTES]
    length = min(len(sector), len(data) - target)
    data[target : target + length] = sector[:length]
    image[name] = bytes(data)


def cut_off(random: Random, image: Image, name: str) -> None:
    image[name] = image[name][: random.randrange(len(image[name]))]


def lose(_: Random, image: Image, name: str) -> None:
    del image[name]


FAULTS: list[Fault] = [flip_bits, flip_bits, zero_sectors, misdirect_a_sector, cut_off, lose]


def whole_log(random: Random) -> Opened:
    """Return a log of batches of many sizes, with a checkpoint at its end."""
    source = new_log(CONFIG)
    epoch = 0
    while source.log.log_end_offset < 120:
        epoch += random.random() < 0.05
        values = [random.randbytes(random.randint(0, 250)) for _ in range(random.randint(1, 5))]
        source.append(*values, leader_epoch=epoch, timestamp_ms=NOW_MS + random.randint(0, 999))
        if random.random() < 0.3:
            source.flush()
    source.flush(checkpoint=True)
    return source


def repair_piece(random: Random, log: PartitionLog, source: PartitionLog) -> None:
    """Repair a part of the lowest damage, as much as one answer has."""
    damaged, *others = log.damage
    end_offset = min(damaged.end_offset, damaged.offset + random.choice([1, 10, 200]))
    data = batches_of(source, damaged.offset, end_offset)
    try:
        log.repair_range(damaged.offset, end_offset, memoryview(data), now_ms=NOW_MS)
    except InvalidBatchError:
        # More was damaged: the next call repairs all of it.
        assert log.damage != (damaged, *others)


@pytest.mark.parametrize("seed", LIVES)
def test_a_replica_is_repaired_completely(seed: int) -> None:
    random = Random(seed)
    source = whole_log(random)
    image = image_of(source.disk)
    for _ in range(random.randint(1, 4)):
        names = sorted(name for name in image if name.endswith(".log"))
        if names:
            random.choice(FAULTS)(random, image, random.choice(names))
    opened = reopen(disk_of(image), CONFIG)
    note_all_damage(opened.log)

    for _ in range(10_000):
        if not opened.log.damage:
            break
        repair_piece(random, opened.log, source.log)
        if random.random() < 0.1:
            opened.flush()
            opened = opened.kill() if random.random() < 0.5 else opened.cut_power(seed)

    assert not opened.log.damage
    start = opened.log.log_start_offset
    records = {at: value for at, value in read_all(source.log).items() if at >= start}
    check(opened, source, records)
    check(opened.kill(), source, records)


def check(opened: Opened, source: Opened, records: dict[int, bytes]) -> None:
    assert opened.log.log_end_offset == source.log.log_end_offset
    assert read_all(opened.log) == records
    if opened.log.log_start_offset == 0:
        assert sent_by(opened.log) == sent_by(source.log)
