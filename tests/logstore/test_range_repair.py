"""Damage is repaired from another replica; batches that do not fit are refused."""

from collections.abc import Callable, Sequence

import pytest

from tests.logstore.logs import (
    DIRECTORY,
    NOW_MS,
    SMALL,
    Image,
    Opened,
    batch_bounds,
    disk_of,
    expected,
    image_of,
    name_of,
    new_log,
    numbered,
    read_all,
    reopen,
)
from tests.logstore.replica_pair import (
    COUNT,
    Spoil,
    batches_of,
    check_whole,
    cut,
    flip,
    lose,
    note_all_damage,
    producers_of,
    repair,
    repair_all,
    sizes,
    source_of,
    spoiled,
)
from tidelog.logstore.damage import DamagedRange
from tidelog.logstore.range_repair import check_repair
from tidelog.logstore.segments.segment import segment_path
from tidelog.logstore.segments.segment_format import SEGMENT_FOOTER_SIZE, SEGMENT_HEADER_SIZE
from tidelog.wire.batch.record_batch import HEADER_SIZE, parse_header, stamp_leader, stamp_replica
from tidelog.wire.errors import (
    BrokerError,
    CorruptBatchError,
    CorruptRecordError,
    DiskFullError,
    InvalidBatchError,
    LogOfflineError,
    OffsetOutOfRangeError,
)

FIRST, SECOND, THIRD = BASES = (0, 34, 68)
DAMAGED = [[0], [3], [33], [32, 33], [3, 4, 5, 9], [35, 69], [31, 32, 33, 34, 35], range(COUNT)]
LOST: dict[str, Spoil] = {
    "the first file": lose(FIRST),
    "the second file": lose(SECOND),
    "the active file": lose(THIRD),
    "two files": lose(FIRST, SECOND),
    "the last two files": lose(SECOND, THIRD),
    "all files": lose(*BASES),
}


@pytest.fixture(scope="module")
def source() -> Opened:
    """The intact replica; tests only read it."""
    opened = source_of()
    assert tuple(opened.segment_bases()) == BASES
    return opened


@pytest.mark.invariant("I9")
@pytest.mark.parametrize("at_once", [1, 5, COUNT])
@pytest.mark.parametrize("place", [8, HEADER_SIZE + 2], ids=["header", "payload"])
@pytest.mark.parametrize("offsets", DAMAGED, ids=str)
def test_flipped_bits_are_repaired(
    source: Opened, offsets: Sequence[int], place: int, *, at_once: int
) -> None:
    opened = spoiled(source, flip(offsets, at=place))
    assert opened.log.damage

    repair_all(opened.log, source.log, at_once=at_once)

    assert read_all(opened.log) == expected(0, COUNT)
    assert sizes(opened) == sizes(source)
    check_whole(opened, source)


@pytest.mark.parametrize("at_once", [1, 7, COUNT])
@pytest.mark.parametrize("has_checkpoint", [True, False])
@pytest.mark.parametrize("what", LOST)
def test_lost_files_are_repaired(
    source: Opened, what: str, at_once: int, *, has_checkpoint: bool
) -> None:
    def spoil(image: Image) -> None:
        LOST[what](image)
        if not has_checkpoint:
            del image["checkpoint"]

    opened = spoiled(source, spoil)
    start, end = opened.log.log_start_offset, opened.log.log_end_offset

    repair_all(opened.log, source.log, at_once=at_once)

    assert read_all(opened.log) == expected(start, end)
    assert not has_checkpoint or end == COUNT
    again = opened.kill()
    assert not again.report.damage
    assert read_all(again.log) == expected(start, end)
    assert len(again.segment_bases()) <= len(BASES) + 1, "files have their maximum length"


@pytest.mark.parametrize("at_once", [3, COUNT])
@pytest.mark.parametrize("base", BASES)
def test_every_lost_end_of_a_file_is_repaired(source: Opened, base: int, at_once: int) -> None:
    for size in range(0, len(image_of(source.disk)[name_of(base)]), 101):
        opened = spoiled(source, cut(base, size))

        repair_all(opened.log, source.log, at_once=at_once)

        assert [each for each in opened.segment_bases() if each < THIRD] == [FIRST, SECOND]
        check_whole(opened, source)


@pytest.mark.parametrize("base", BASES)
def test_damage_that_reaches_to_a_lost_end_is_repaired(source: Opened, base: int) -> None:
    def spoil(image: Image) -> None:
        last = base + len(batch_bounds(image[name_of(base)])) - 2
        flip([last - 1, last])(image)
        data = image[name_of(base)]
        image[name_of(base)] = data[: len(data) - SEGMENT_FOOTER_SIZE - 3]

    opened = spoiled(source, spoil)

    repair_all(opened.log, source.log, at_once=1)

    check_whole(opened, source)


def test_losses_in_all_files_are_repaired(source: Opened) -> None:
    def spoil(image: Image) -> None:
        for base in BASES:
            flip([base + 1], at=5)(image)
            cut(base, len(image[name_of(base)]) // 2)(image)

    opened = spoiled(source, spoil)

    repair_all(opened.log, source.log, at_once=4)

    check_whole(opened, source)


def test_a_repair_adds_unknown_damage_to_repair_first(source: Opened) -> None:
    image = image_of(source.disk)
    flip([3, 4, 5, 6])(image)
    opened = reopen(disk_of(image))
    opened.log.note_damage(CorruptRecordError("", offset=5, next_offset=6))

    with pytest.raises(InvalidBatchError, match="batches begin at offset 5, damage at 3"):
        repair(opened.log, source.log, 5, end_offset=6)
    assert opened.log.damage == (DamagedRange(3, 6),)
    repair(opened.log, source.log, 3, end_offset=6)
    assert opened.log.damage == (DamagedRange(6, 7),)
    repair(opened.log, source.log, 6, end_offset=7)

    check_whole(opened, source)


def test_a_good_batch_within_known_damage_is_repaired_without_a_write(source: Opened) -> None:
    opened = reopen(disk_of(image_of(source.disk)))
    opened.log.note_damage(CorruptRecordError("", offset=20, next_offset=40))

    repair(opened.log, source.log, 20, end_offset=40)

    assert sizes(opened) == sizes(source)
    check_whole(opened, source)


def test_a_misplaced_batch_counts_as_damage(source: Opened) -> None:
    def spoil(image: Image) -> None:
        data = bytearray(image[name_of(FIRST)])
        bounds = batch_bounds(bytes(data))
        for place, number in {0: 7, 10: 19, 30: 33}.items():
            batch = data[bounds[number] : bounds[number + 1]]
            stamp_replica(memoryview(batch)[:HEADER_SIZE], durable_position=bounds[place])
            data[bounds[place] : bounds[place + 1]] = batch
        image[name_of(FIRST)] = bytes(data)

    opened = spoiled(source, spoil)
    assert [each.offset for each in opened.log.damage] == [0, 10, 30]

    for _ in range(3):
        damaged = opened.log.damage[0]
        with pytest.raises(InvalidBatchError, match="do not fit into the 0 bytes there"):
            repair(opened.log, source.log, damaged.offset, end_offset=damaged.end_offset)
        assert opened.log.damage[0].end_offset > damaged.end_offset
        repair(opened.log, source.log, damaged.offset, end_offset=opened.log.damage[0].end_offset)

    check_whole(opened, source)


def test_a_repaired_log_accepts_appends(source: Opened) -> None:
    opened = spoiled(source, flip([69]))

    repair_all(opened.log, source.log)
    for offset in range(COUNT, COUNT + 5):
        opened.append(numbered(offset), leader_epoch=3)
    opened.flush()

    assert read_all(opened.log) == expected(0, COUNT + 5)
    assert read_all(opened.kill().log) == expected(0, COUNT + 5)


def test_a_repair_keeps_open_files_readable(source: Opened) -> None:
    opened = spoiled(source, flip([20]))
    part = opened.log.read(0, max_bytes=1 << 20, high_watermark=COUNT)
    assert part is not None
    before = part.load()
    data = before.read()

    repair_all(opened.log, source.log)

    assert before.read() == data
    behind = opened.log.read(20, max_bytes=1, high_watermark=COUNT)
    assert behind is not None
    assert part.file.read_at(behind.position, behind.length) == behind.read()


def test_a_search_by_time_finds_repaired_records() -> None:
    source = new_log()
    for number in range(40):
        late = 1000 if number in {7, 33} else 0
        source.append(numbered(number), timestamp_ms=NOW_MS + number + late)
        source.flush()
    image = image_of(source.disk)
    flip([7, 33])(image)
    # Checkpoint and indexes are created during the damage, so they lack its state.
    image = {name: data for name, data in image.items() if name.endswith(".log")}
    opened = reopen(disk_of(image))
    note_all_damage(opened.log)
    assert opened.log.damage[0] == DamagedRange(7, 8)

    repair_all(opened.log, source.log)

    assert first_after(opened, NOW_MS + 900) == 7
    assert first_after(opened.kill(), NOW_MS + 900) == 7


def first_after(opened: Opened, timestamp_ms: int) -> int:
    part = opened.log.find_time(timestamp_ms, high_watermark=opened.log.log_end_offset)
    assert part is not None
    header = parse_header(part.read())
    assert header is not None
    return header.base_offset


def test_a_repair_needs_room_for_what_it_writes(source: Opened) -> None:
    opened = spoiled(source, lose(SECOND))
    before = image_of(opened.disk)
    opened.disk.capacity_bytes = sum(map(len, before.values()))

    with pytest.raises(DiskFullError):
        repair_all(opened.log, source.log)
    assert image_of(opened.disk) == before
    opened.disk.capacity_bytes = None
    repair_all(opened.log, source.log)

    check_whole(opened, source)


@pytest.mark.parametrize("operation", ["write_at", "sync", "rename", "sync_directory"])
def test_a_failed_repair_takes_the_log_offline_and_keeps_the_damage(
    source: Opened, operation: str
) -> None:
    opened = spoiled(source, lose(SECOND))
    opened.flush()
    opened.disk.fail(operation)

    with pytest.raises(LogOfflineError, match="repairing failed"):
        repair_all(opened.log, source.log)
    again = opened.kill()
    assert again.log.damage == (DamagedRange(SECOND, THIRD),)
    repair_all(again.log, source.log)

    check_whole(again, source)


def test_a_repair_that_the_disk_lost_keeps_the_damage(source: Opened) -> None:
    opened = spoiled(source, flip([3]))
    opened.flush()
    bounds = batch_bounds(image_of(source.disk)[name_of(FIRST)])
    path = segment_path(DIRECTORY, FIRST)

    def rot(operation: str, where: str) -> None:
        if (operation, where) == ("drop_cache", path):
            opened.disk.damage(path, bounds[3] + HEADER_SIZE, b"rot")

    opened.disk.before_call = rot
    with pytest.raises(CorruptRecordError) as caught:
        repair_all(opened.log, source.log)
    opened.disk.before_call = None

    assert (caught.value.offset, caught.value.next_offset) == (3, 4)
    assert opened.log.damage == (DamagedRange(3, 4),)
    repair_all(opened.log, source.log)
    check_whole(opened, source)


def flipped(data: bytearray) -> bytearray:
    data[-1] ^= 1
    return data


def of_epoch(leader_epoch: int) -> Callable[[bytearray], bytearray]:
    def change(data: bytearray) -> bytearray:
        header = parse_header(data)
        assert header is not None
        view = memoryview(data)
        stamp_leader(view, base_offset=header.base_offset, leader_epoch=leader_epoch)
        stamp_replica(view[:HEADER_SIZE], durable_position=0)
        return data

    return change


def longer(_: bytearray) -> bytearray:
    other = new_log()
    for number in range(COUNT):
        other.append(numbered(number, size=21), leader_epoch=number // 25)
    return batches_of(other.log, 3, 5)


def in_one_batch(_: bytearray) -> bytearray:
    other = new_log()
    other.append_many(3)
    other.append(numbered(3), numbered(4))
    return batches_of(other.log, 3, 5)


WRONG: dict[str, tuple[Callable[[bytearray], bytearray], type[BrokerError]]] = {
    "a flipped bit": (flipped, CorruptBatchError),
    "nothing": (lambda data: data[:0], InvalidBatchError),
    "no batch": (lambda data: bytearray(len(data)), CorruptBatchError),
    "a batch that is not whole": (lambda data: data[:-1], InvalidBatchError),
    "too few": (lambda data: data[: len(data) // 2], InvalidBatchError),
    "a gap": (lambda data: data[len(data) // 2 :], InvalidBatchError),
    "one twice": (lambda data: data + data[: len(data) // 2], InvalidBatchError),
    "a later epoch": (of_epoch(7), InvalidBatchError),
    "longer records": (longer, InvalidBatchError),
}


@pytest.mark.parametrize("how", WRONG)
def test_a_repair_refuses_batches_that_do_not_fit_the_damage(source: Opened, how: str) -> None:
    change, error = WRONG[how]
    opened = spoiled(source, flip([3, 4]))
    opened.flush()
    before = image_of(opened.disk)
    data = change(batches_of(source.log, 3, 5))

    with pytest.raises(error):
        opened.log.repair_range(3, 5, memoryview(data), now_ms=NOW_MS)

    assert opened.log.damage == (DamagedRange(3, 5),)
    assert image_of(opened.disk) == before
    repair_all(opened.log, source.log)
    check_whole(opened, source)


def test_a_repair_refuses_batches_of_another_lineage(source: Opened) -> None:
    other = new_log()
    for number in range(COUNT):
        other.append(numbered(number + 1), leader_epoch=number // 25)
    opened = spoiled(source, flip([4]))
    data = batches_of(other.log, 3, 5)

    with pytest.raises(InvalidBatchError, match="offset 3 differs from the good batch"):
        opened.log.repair_range(4, 5, memoryview(data), now_ms=NOW_MS)

    assert opened.log.damage == (DamagedRange(4, 5),)


def test_a_repair_refuses_a_batch_that_overlaps_good_ones(source: Opened) -> None:
    opened = spoiled(source, flip([3]))

    with pytest.raises(InvalidBatchError, match="begins at offset 3 and ends at 4"):
        opened.log.repair_range(3, 4, memoryview(in_one_batch(bytearray())), now_ms=NOW_MS)


def test_a_repair_restores_lost_leader_epochs(source: Opened) -> None:
    def spoil(image: Image) -> None:
        flip(range(22, 60))(image)
        del image["checkpoint"]

    opened = spoiled(source, spoil)
    known = list(opened.log.leader_epochs.entries)

    repair_all(opened.log, source.log, at_once=8)

    assert known == [(0, 0), (2, 60)]
    assert list(opened.log.leader_epochs.entries) == [(0, 0), (1, 25), (2, 50)]


@pytest.mark.parametrize("offsets", [range(50, 63), range(60, 62), [57, 61]], ids=str)
@pytest.mark.parametrize("at_once", [1, 5, COUNT])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_repair_restores_the_producer_state(
    source: Opened, offsets: Sequence[int], at_once: int, *, restarts: bool
) -> None:
    """They were in no checkpoint: their batches were damaged before the next checkpoint."""

    def spoil(image: Image) -> None:
        flip(offsets)(image)
        del image["checkpoint"]

    opened = spoiled(source, spoil)
    assert producers_of(opened) != producers_of(source)
    if restarts:
        opened.flush(checkpoint=True)
        opened = opened.kill()

    repair_all(opened.log, source.log, at_once=at_once)

    check_whole(opened, source)


def test_offsets_that_are_not_in_the_log_are_refused(source: Opened) -> None:
    opened = spoiled(source, flip([3, 69]))
    opened.log.delete_records(10, high_watermark=COUNT)
    longer_source = source_of(COUNT + 1)

    with pytest.raises(OffsetOutOfRangeError):
        repair(opened.log, source.log, 3, end_offset=4)
    with pytest.raises(OffsetOutOfRangeError):
        repair(opened.log, longer_source.log, 69, end_offset=COUNT + 1)

    assert opened.log.damage == (DamagedRange(69, 70),)


def test_checked_batches_are_a_copy() -> None:
    data = batches_of(source_of().log, 3, 5)

    batches = check_repair(memoryview(data), offset=3, end_offset=5)
    batches.stamp(SEGMENT_HEADER_SIZE, durable_max=1)

    assert (batches.offset, batches.end_offset) == (3, 5)
    assert batches.data != data
    assert SMALL.segment_bytes > len(data)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("loses_next", [False, True])
@pytest.mark.parametrize("base", [FIRST, SECOND])
def test_damage_below_a_truncation_is_repaired_after_new_appends(
    source: Opened, base: int, *, loses_next: bool, restarts: bool
) -> None:
    """No append goes right after missing batches: they would have no room (seed 7400052)."""
    next_base = BASES[BASES.index(base) + 1]

    for size in range(0, len(image_of(source.disk)[name_of(base)]), 101):

        def spoil(image: Image, size: int = size) -> None:
            cut(base, size)(image)
            if loses_next:
                lose(next_base)(image)

        opened = spoiled(source, spoil)
        opened.log.truncate(next_base, may_drop_damage=loses_next)
        end = opened.log.log_end_offset
        assert end == next_base or loses_next
        for offset in range(end, COUNT):
            opened.append(numbered(offset), leader_epoch=offset // 25)
        opened.flush()
        if restarts:
            opened = opened.kill()
        repair_all(opened.log, source.log, at_once=3)

        assert read_all(opened.log) == expected(0, COUNT)
        assert not opened.kill().report.damage
