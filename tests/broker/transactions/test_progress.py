"""How far commits are, told from one sequence."""

import pytest

from tidelog.broker.transactions.progress import UNCOMMITTED_MAX, appended_count, sequence_of
from tidelog.logstore.producer_state import WINDOW_BATCHES
from tidelog.wire.batch.record_batch import SEQUENCE_END


@pytest.mark.parametrize(
    ("next_sequence", "count"),
    [
        (None, 0),
        (sequence_of(6, 100), 0),
        (sequence_of(7, 0), 0),
        (sequence_of(7, 1), 1),
        (sequence_of(7, 20), 20),
        (sequence_of(8, 3), 20),
    ],
)
def test_a_log_knows_how_much_of_a_commit_it_has(next_sequence: int | None, count: int) -> None:
    assert appended_count(7, 20, next_sequence) == count


def test_the_last_record_of_the_last_commit_has_a_sequence_that_fits() -> None:
    assert sequence_of((1 << 31) - 1, (1 << 32) - 1) < SEQUENCE_END


def test_what_may_be_cut_off_is_less_than_a_log_knows_of_a_producer() -> None:
    assert UNCOMMITTED_MAX < WINDOW_BATCHES
