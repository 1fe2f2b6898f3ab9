"""What a log that is truncated keeps: never less than was asked for without a word."""

import pytest

from tests.logstore.logs import new_log, numbered, stored
from tidelog.logstore.damage import DamagedRange
from tidelog.logstore.segments.segment_format import SEGMENT_HEADER_SIZE
from tidelog.wire.errors import CorruptRecordError


def _position_of(number: int) -> int:
    """Return where the header is of the batch with this number in its segment."""
    return SEGMENT_HEADER_SIZE + number * len(stored([numbered(0)], base_offset=0)) + 20


@pytest.mark.parametrize("cut_at", [5, 30, 60])
def test_what_has_rotted_below_the_cut_is_noted_and_not_cut_off(cut_at: int) -> None:
    opened = new_log()
    opened.append_many(100, flush_every=10)
    base = max(base for base in opened.segment_bases() if base < cut_at)
    opened.disk.flip_bit(opened.path(base), _position_of(cut_at - 1 - base), 0)
    opened.log.close()
    opened = opened.kill()

    with pytest.raises(CorruptRecordError):
        opened.log.truncate(cut_at)

    assert opened.log.damage == (DamagedRange(cut_at - 1, cut_at),)
    assert opened.log.log_end_offset == 100
    with pytest.raises(CorruptRecordError):
        opened.log.truncate(cut_at)
    opened.log.truncate(cut_at, may_drop_damage=True)
    assert opened.log.log_end_offset == cut_at - 1
    assert not opened.log.damage


def test_a_cut_in_a_batch_takes_the_batch_and_finds_no_damage() -> None:
    opened = new_log()
    opened.append(b"0", b"1", b"2")

    opened.log.truncate(2)

    assert opened.log.log_end_offset == 0
    assert not opened.log.damage


def test_what_has_rotted_behind_the_cut_is_cut_off_with_it() -> None:
    opened = new_log()
    opened.append_many(20, flush_every=10)
    opened.disk.flip_bit(opened.path(0), _position_of(10), 0)
    opened.log.close()
    opened = opened.kill()

    opened.log.truncate(10)

    assert opened.log.log_end_offset == 10
    assert not opened.log.damage
