"""Recovery truncates a tail that was never durable after the last whole batch, and nothing else."""

from collections.abc import Iterator
from random import Random

import pytest

from tests.logstore.logs import (
    Image,
    Opened,
    Producer,
    batch_bounds,
    disk_of,
    expected,
    image_of,
    name_of,
    new_log,
    numbered,
    read_all,
    reopen,
    stored,
)
from tidelog.logstore.log import Appended
from tidelog.logstore.segments.segment_format import SegmentFooter

FIRST = name_of(0)
DURABLE_COUNT = 3


def check_that_it_goes_on(opened: Opened, end: int) -> None:
    """Check the log end, and that appends and another restart continue from there."""
    assert opened.log.log_end_offset == opened.log.durable_end_offset == end
    assert not opened.report.damage
    opened.append(numbered(end), leader_epoch=9)
    again = opened.kill()
    assert read_all(again.log) == expected(0, end + 1)
    assert not again.report.damage


@pytest.fixture(scope="module")
def image() -> Image:
    """A log with a checkpoint after 3 batches, and 4 batches after the checkpoint."""
    opened = new_log()
    opened.append_many(DURABLE_COUNT)
    opened.flush(checkpoint=True)
    opened.append_many(4)
    return image_of(opened.disk)


@pytest.fixture(scope="module")
def rolled() -> Image:
    """The same, but with a new segment among the batches after the checkpoint."""
    opened = new_log()
    opened.append_many(DURABLE_COUNT)
    opened.flush(checkpoint=True)
    opened.append_many(2)
    opened.log.roll_if_old(now_ms=1 << 50)
    opened.append_many(2)
    return image_of(opened.disk)


def prefixes(data: bytes, start: int) -> Iterator[bytes]:
    return (data[:size] for size in range(start, len(data) + 1))


@pytest.mark.invariant("I8")
def test_every_prefix_is_truncated_to_its_whole_batches(image: Image) -> None:
    bounds = batch_bounds(image[FIRST])
    for data in prefixes(image[FIRST], bounds[DURABLE_COUNT]):
        end = sum(bound <= len(data) for bound in bounds) - 1

        opened = reopen(disk_of({**image, FIRST: data}))

        assert opened.report.truncated_bytes == len(data) - bounds[end]
        check_that_it_goes_on(opened, end)


def test_every_prefix_without_a_checkpoint_is_truncated_to_its_whole_batches(image: Image) -> None:
    bounds = batch_bounds(image[FIRST])
    for data in prefixes(image[FIRST], 0):
        end = max(sum(bound <= len(data) for bound in bounds) - 1, 0)

        opened = reopen(disk_of({FIRST: data}))

        check_that_it_goes_on(opened, end)


@pytest.mark.invariant("I8")
def test_every_prefix_of_a_new_segment_is_truncated_to_its_whole_batches(rolled: Image) -> None:
    second = name_of(5)
    bounds = batch_bounds(rolled[second])
    for data in prefixes(rolled[second], 0):
        end = 5 + max(sum(bound <= len(data) for bound in bounds) - 1, 0)

        opened = reopen(disk_of({**rolled, second: data}))

        check_that_it_goes_on(opened, end)


def test_a_torn_batch_takes_later_segments_with_it_and_a_torn_footer_does_not(
    rolled: Image,
) -> None:
    bounds = batch_bounds(rolled[FIRST])
    for data in prefixes(rolled[FIRST], bounds[DURABLE_COUNT]):
        count = sum(bound <= len(data) for bound in bounds) - 1
        end = 7 if count == 5 else count

        opened = reopen(disk_of({**rolled, FIRST: data}))

        check_that_it_goes_on(opened, end)


@pytest.mark.invariant("I10")
@pytest.mark.parametrize("length", [1, 63, 64, 88, 89, 5000, 3 << 20])
def test_a_tail_of_zeros_is_truncated(image: Image, length: int) -> None:
    bounds = batch_bounds(image[FIRST])
    for end in range(DURABLE_COUNT, len(bounds)):
        opened = reopen(disk_of({**image, FIRST: image[FIRST][: bounds[end]] + bytes(length)}))

        assert opened.report.truncated_bytes == length
        check_that_it_goes_on(opened, end)


@pytest.mark.invariant("I10")
@pytest.mark.parametrize("seed", range(20))
def test_a_tail_of_garbage_is_truncated(image: Image, seed: int) -> None:
    random = Random(seed)
    marker = image[FIRST][64:68]
    garbage = b"".join(
        random.choice([random.randbytes(random.randint(1, 300)), marker]) for _ in range(20)
    )

    opened = reopen(disk_of({**image, FIRST: image[FIRST] + garbage}))

    check_that_it_goes_on(opened, 7)


def stale_tails() -> dict[str, list[bytes]]:
    """Return valid batches that cannot follow the end of `epochs`."""
    value = [b"stale"]
    return {
        "an older epoch": [stored(value, base_offset=7, leader_epoch=1)],
        "an older epoch, further on": [stored(value, base_offset=90, leader_epoch=1)],
        "a lower offset": [stored(value, base_offset=6, leader_epoch=2)],
        "a durable position that fell": [stored(value, base_offset=7, leader_epoch=2)],
        "a durable position behind it": [
            stored(value, base_offset=7, leader_epoch=2, durable_position=100_000)
        ],
        "one behind garbage": [
            b"garbage",
            stored(value, base_offset=8, leader_epoch=2, durable_position=64),
        ],
        "one behind zeros that says that they were durable, of an older epoch": [
            bytes(200),
            stored(value, base_offset=8, leader_epoch=1, durable_position=1000),
        ],
    }


@pytest.mark.invariant("I10")
@pytest.mark.parametrize("kind", stale_tails())
def test_a_stale_batch_on_a_recycled_block_is_truncated(kind: str) -> None:
    opened = new_log()
    for offset in range(5):
        opened.append(numbered(offset), leader_epoch=1)
    opened.flush(checkpoint=True)
    opened.append(numbered(5), leader_epoch=2)
    opened.append(numbered(6), leader_epoch=2)
    image = image_of(opened.disk)
    image[FIRST] += b"".join(stale_tails()[kind])

    check_that_it_goes_on(reopen(disk_of(image)), 7)


def test_a_lost_unsynced_batch_truncates_the_batches_after_it(image: Image) -> None:
    bounds = batch_bounds(image[FIRST])
    for lost in range(DURABLE_COUNT, len(bounds) - 1):
        data = bytearray(image[FIRST])
        data[bounds[lost] : bounds[lost + 1]] = bytes(bounds[lost + 1] - bounds[lost])

        opened = reopen(disk_of({**image, FIRST: bytes(data)}))

        check_that_it_goes_on(opened, lost)


def test_a_flipped_bit_above_the_durable_position_is_a_torn_tail(image: Image) -> None:
    bounds = batch_bounds(image[FIRST])
    for position in range(bounds[DURABLE_COUNT], bounds[-1]):
        data = bytearray(image[FIRST])
        data[position] ^= 1 << position % 8
        end = sum(bound <= position for bound in bounds) - 1

        opened = reopen(disk_of({**image, FIRST: bytes(data)}))

        check_that_it_goes_on(opened, end)


@pytest.mark.invariant("I11")
def test_a_segment_whose_only_bytes_are_garbage_is_usable_again() -> None:
    opened = reopen(disk_of({FIRST: b"garbage"}))

    check_that_it_goes_on(opened, 0)


def test_a_footer_of_an_earlier_end_does_not_hide_batches(image: Image) -> None:
    bounds = batch_bounds(image[FIRST])
    early = SegmentFooter(5, bounds[5], 0, 0).to_bytes()

    opened = reopen(disk_of({**image, FIRST: image[FIRST] + early}))

    check_that_it_goes_on(opened, 7)


@pytest.mark.invariant("I8")
def test_the_rest_of_a_torn_tail_is_indexed_and_deduplicated() -> None:
    before = new_log()
    for sequence in range(4):
        before.append(b"value", producer=Producer(1, 0, sequence), leader_epoch=sequence)
    image = image_of(before.disk)

    opened = reopen(disk_of({**image, FIRST: image[FIRST][:-1]}))

    part = opened.log.read(2, max_bytes=1, high_watermark=3)
    assert part is not None
    assert part.is_ready()
    assert opened.append(b"value", producer=Producer(1, 0, 2)) == Appended(2, 3, True)
    assert opened.log.leader_epochs.entries == ((0, 0), (1, 1), (2, 2))
    assert not opened.append(b"value", producer=Producer(1, 0, 3), leader_epoch=2).is_duplicate
