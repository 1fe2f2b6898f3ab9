"""How far the commits of transactions are in a partition, as the partition itself knows it.

Pure: no clock, no I/O. Leaders append what is committed as one producer, whose sequences are the
number of the commit and the place of the record in it. So a log knows what it has of which commit
as it knows how far any producer is: over crashes, in checkpoints, at every replica. Commits are
appended in the order of their numbers, and the records of one in the order of its pieces.
"""

from typing import Final

PLACE_BITS: Final = 32
"""A commit has fewer than 2^32 records in one partition, and there are fewer than 2^31 commits."""
UNCOMMITTED_MAX: Final = 4
"""Batches that a leader appends before the first of them is committed: fewer than a log keeps of a
producer. So what is cut off when leaders change never takes away all that is known of it."""


def sequence_of(commit_number: int, place: int) -> int:
    """Return the sequence of the record at a place of what a commit has for one partition."""
    assert 0 <= place < 1 << PLACE_BITS
    return (commit_number << PLACE_BITS) + place


def appended_count(commit_number: int, record_count: int, next_sequence: int | None) -> int:
    """Return how many of the records of a commit are in the log.

    Args:
        commit_number: Which commit.
        record_count: Its records in this partition.
        next_sequence: What follows the last record of any commit in the log; `None` if there is
            none.
    """
    if next_sequence is None:
        return 0
    return min(max(next_sequence - sequence_of(commit_number, 0), 0), record_count)
