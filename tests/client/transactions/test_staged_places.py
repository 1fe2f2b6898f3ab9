"""Where a task has staged its records."""

import pytest

from tidelog.client.transactions.staged_places import Places, StagedPlace, merged
from tidelog.wire.errors import TransactionGoneError
from tidelog.wire.messages.transactions import StagedPart, StagedPiece

A, B = bytes(16), bytes([1] * 16)


def test_a_place_grows_with_each_receipt_in_whatever_order_they_come() -> None:
    places = Places()
    places.add((A, 0), 7, 30, count=2)
    places.add((A, 1), 7, 5, count=1)
    places.add((A, 0), 7, 10, count=3)
    places.add((A, 0), 7, 40, count=1)

    assert places.as_tuple() == (StagedPlace(A, 0, 7, 10, 41, 6), StagedPlace(A, 1, 7, 5, 6, 1))


def test_what_was_sent_under_another_identity_is_refused() -> None:
    places = Places()
    places.add((A, 0), 7, 30, count=2)

    with pytest.raises(TransactionGoneError, match="another identity"):
        places.add((A, 0), 8, 40, count=2)


def test_a_commit_has_what_the_tasks_have_in_their_order() -> None:
    parts = merged(
        [
            StagedPlace(A, 0, 7, 10, 41, 6),
            StagedPlace(B, 0, 7, 0, 1, 1),
            StagedPlace(A, 0, 5, 0, 9, 3),
        ]
    )

    assert parts == [
        StagedPart(A, 0, [StagedPiece(7, 10, 41, 6), StagedPiece(5, 0, 9, 3)]),
        StagedPart(B, 0, [StagedPiece(7, 0, 1, 1)]),
    ]
