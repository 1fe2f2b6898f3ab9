"""Entries of an index beside batches."""

from tidelog.broker.inspection.index_check import IndexCheck
from tidelog.logstore.segments.offset_index import SegmentIndex

BATCHES = ((10, 64, 0), (12, 164, 500), (15, 264, 900))
"""Offset, position, and the largest timestamp before."""


def problem_of(*entries: tuple[int, int, int]) -> str | None:
    index = SegmentIndex(base_offset=10, interval_bytes=1)
    for offset, position, before_ms in entries:
        index.add(offset, position, max_timestamp_before=before_ms)
    check = IndexCheck(index)
    for offset, position, before_ms in BATCHES:
        check.batch(offset, position, max_timestamp_before=before_ms)
    return check.end()


def test_entries_for_some_of_the_batches_are_right() -> None:
    assert problem_of() is None
    assert problem_of(*BATCHES) is None
    assert problem_of(BATCHES[0], BATCHES[2]) is None


def test_an_entry_may_know_of_a_larger_timestamp_that_was_cut_off_but_not_of_a_smaller_one() -> (
    None
):
    assert problem_of(BATCHES[0], (12, 164, 501)) is None
    assert problem_of(BATCHES[0], (12, 164, 499)) == (
        "an entry says that all before offset 12 is of 499 at most, and there is a record of 500"
    )


def test_an_entry_between_or_behind_batches_is_wrong() -> None:
    assert problem_of((11, 100, 0)) == "no batch begins at position 100, as an entry says"
    assert problem_of((16, 300, 0)) == "no batch begins at position 300, as an entry says"


def test_an_entry_with_another_offset_is_wrong() -> None:
    assert problem_of((11, 64, 0)) == (
        "an entry says that offset 11 is at position 64, where offset 10 is"
    )
