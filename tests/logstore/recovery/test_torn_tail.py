"""The scan of a segment tells a torn tail, damage and an old footer apart."""

from collections.abc import Sequence

from tests.logstore.logs import stored
from tests.simulation.machine.faulty_disk import FaultyDisk
from tidelog.logstore.damage import DamagedRange
from tidelog.logstore.recovery.torn_tail import Evidence, TornTailScan
from tidelog.logstore.segments.batch_scanner import FileWindow, Predecessor

START = 64
"""Position of the first batch."""


def batch(offset: int, *, durable_position: int = 0, leader_epoch: int = 0) -> bytes:
    """Return a batch of one record, always of the same size."""
    value = b"%04d" % offset
    return stored(
        [value], base_offset=offset, durable_position=durable_position, leader_epoch=leader_epoch
    )


SIZE = len(batch(0))
BAD = bytes(SIZE)


class Scanned:
    """A completed scan."""

    def __init__(
        self,
        *parts: bytes,
        durable_position: int = 0,
        next_base_offsets: Sequence[int] = (),
        was_followed: bool = False,
    ) -> None:
        data = b"".join([bytes(START), *parts])
        file = FaultyDisk().open("segment", create=True)
        file.write_at(0, [data])
        scan = TornTailScan(
            FileWindow(file, end=len(data)),
            position=START,
            end=len(data),
            predecessor=Predecessor(0),
            evidence=Evidence(durable_position, next_base_offsets, lambda: was_followed),
        )
        self.offsets = [header.base_offset for _, header in scan.batches()]
        self.damage = scan.damage
        self.is_torn = scan.is_torn
        self.batch_count_to_end = (scan.end_position - START) / SIZE


def test_a_segment_of_good_batches_has_no_torn_tail() -> None:
    scanned = Scanned(batch(0), batch(1), batch(2))

    assert scanned.offsets == [0, 1, 2]
    assert not scanned.damage
    assert not scanned.is_torn
    assert scanned.batch_count_to_end == 3


def test_bad_bytes_that_were_never_durable_are_a_torn_tail() -> None:
    scanned = Scanned(batch(0), BAD, batch(2), batch(3))

    assert scanned.offsets == [0]
    assert scanned.is_torn
    assert scanned.batch_count_to_end == 1


def test_bad_bytes_below_the_recovery_point_are_damage() -> None:
    scanned = Scanned(batch(0), BAD, batch(2), durable_position=START + SIZE + 1)

    assert scanned.offsets == [0, 2]
    assert scanned.damage == [DamagedRange(1, 2)]
    assert not scanned.is_torn


def test_bad_bytes_at_the_recovery_point_are_a_torn_tail() -> None:
    scanned = Scanned(batch(0), BAD, batch(2), durable_position=START + SIZE)

    assert scanned.is_torn


def test_bad_bytes_below_the_durable_position_of_a_later_batch_are_damage() -> None:
    later = batch(3, durable_position=START + 2 * SIZE)

    scanned = Scanned(batch(0), BAD, batch(2), later)

    assert scanned.offsets == [0, 2, 3]
    assert scanned.damage == [DamagedRange(1, 2)]


def test_bad_bytes_at_the_durable_position_of_a_later_batch_are_a_torn_tail() -> None:
    later = batch(3, durable_position=START + SIZE)

    scanned = Scanned(batch(0), BAD, batch(2), later)

    assert scanned.offsets == [0]
    assert scanned.is_torn


def test_bad_bytes_before_a_durable_segment_are_damage() -> None:
    scanned = Scanned(batch(0), BAD, batch(2), next_base_offsets=[3], was_followed=True)

    assert scanned.offsets == [0, 2]
    assert scanned.damage == [DamagedRange(1, 2)]
    assert not scanned.is_torn


def test_damage_at_the_end_stays_where_it_is() -> None:
    scanned = Scanned(batch(0), BAD, next_base_offsets=[2], was_followed=True)

    assert scanned.offsets == [0]
    assert not scanned.damage, "later segments bound the damage"
    assert not scanned.is_torn
    assert scanned.batch_count_to_end == 2


def test_bytes_behind_the_last_offset_before_the_next_segment_were_a_footer() -> None:
    scanned = Scanned(batch(0), batch(1), BAD, next_base_offsets=[2])

    assert scanned.offsets == [0, 1]
    assert not scanned.is_torn
    assert scanned.batch_count_to_end == 2


def test_bytes_before_a_segment_that_a_swap_left_were_a_footer() -> None:
    scanned = Scanned(batch(0), batch(1), BAD, next_base_offsets=[1, 2], was_followed=True)

    assert scanned.offsets == [0, 1]
    assert scanned.batch_count_to_end == 2


def test_a_batch_that_reaches_into_the_next_segment_is_not_accepted() -> None:
    scanned = Scanned(batch(0), BAD, batch(7), next_base_offsets=[5], was_followed=True)

    assert scanned.offsets == [0]
    assert scanned.batch_count_to_end == 3


def test_damage_in_two_places_is_two_ranges() -> None:
    later = batch(5, durable_position=START + 5 * SIZE)

    scanned = Scanned(batch(0), BAD, batch(2), BAD, batch(4), later)

    assert scanned.offsets == [0, 2, 4, 5]
    assert scanned.damage == [DamagedRange(1, 2), DamagedRange(3, 4)]


def test_damage_and_then_a_torn_tail_are_told_apart() -> None:
    later = batch(2, durable_position=START + 2 * SIZE)

    scanned = Scanned(batch(0), BAD, later, BAD, batch(4))

    assert scanned.offsets == [0, 2]
    assert scanned.damage == [DamagedRange(1, 2)]
    assert scanned.is_torn
    assert scanned.batch_count_to_end == 3


def test_a_valid_batch_of_an_older_epoch_ends_the_segment() -> None:
    scanned = Scanned(batch(0, leader_epoch=2), batch(1, leader_epoch=1))

    assert scanned.offsets == [0]
    assert scanned.is_torn
