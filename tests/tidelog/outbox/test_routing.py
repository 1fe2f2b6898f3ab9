"""Routing of rows to topics, and their dead letters."""

from typing import Any

import pytest

from tidelog.outbox.routing import Destination, Router, by_topic
from tidelog.outbox.rows import OutboxRow
from tidelog.wire.batch.record_batch import Columns, encode_batch

KNOWN = {"orders": Destination(2, 4096), "refused": Destination(1, 1 << 20)}


def row(row_id: int, **changes: Any) -> OutboxRow:  # noqa: ANN401
    return OutboxRow(row_id, "orders", None, b"k", b"v", None, 0)._replace(**changes)


REFUSED = [
    (row(2, topic="gone"), "row 2 cannot be sent: there is no topic 'gone'; create it, or set a"),
    (row(2, partition=2), "row 2 cannot be sent: topic 'orders' has 2 partitions, and no 2"),
    (row(2, partition=-1), "row 2 cannot be sent: topic 'orders' has 2 partitions, and no -1"),
    (row(2, value=bytes(5000)), r"it has 5,\d\d\d bytes, and topic 'orders' takes 4,096"),
    (row(2, headers="{}"), "row 2 cannot be sent: its headers are no JSON list"),
]


def test_rows_that_topics_take_are_records() -> None:
    rows = [row(1), row(2, partition=1)]

    routed = Router("outbox:1", None).route(rows, KNOWN)

    assert [record.partition for record in routed.records] == [None, 1]
    assert (routed.dead_letters, routed.refusal) == ([], None)


@pytest.mark.parametrize(("refused", "why"), REFUSED)
def test_the_relay_stops_at_a_row_that_no_topic_takes(refused: OutboxRow, why: str) -> None:
    routed = Router("outbox:1", None).route([row(1), refused, row(3)], KNOWN)

    assert len(routed.records) == 1
    assert routed.refusal is not None
    assert routed.refusal.row_id == 2
    with pytest.raises(type(routed.refusal), match=why):
        raise routed.refusal


@pytest.mark.parametrize(("refused", "why"), REFUSED)
def test_a_refused_row_becomes_a_dead_letter(refused: OutboxRow, why: str) -> None:
    routed = Router("outbox:1", "refused").route([row(1), refused, row(3)], KNOWN)

    assert [record.topic for record in routed.records] == ["orders", "refused", "orders"]
    (error,) = routed.dead_letters
    with pytest.raises(type(error), match=why):
        raise error
    headers = dict(routed.records[1].headers)
    assert headers["tidelog-message-id"] == b"outbox:1:2"
    assert headers["tidelog-outbox-topic"] == refused.topic.encode()
    assert headers["tidelog-outbox-reason"] == str(error).encode()
    assert routed.records[1].value == refused.value
    assert list(by_topic(routed.records)) == ["orders", "refused"]


def test_the_relay_stops_if_the_dead_letter_topic_takes_it_neither() -> None:
    router = Router("outbox:1", "missing")
    routed = router.route([row(1), row(2, topic="gone")], KNOWN)

    assert routed.refusal is not None
    assert len(routed.records) == 1
    assert router.topics_of([row(1)]) == {"orders", "missing"}


def test_the_largest_record_that_the_broker_takes_is_taken() -> None:
    router = Router("outbox:1", None)

    def fits(size: int) -> bool:
        return router.route([row(1, value=bytes(size))], KNOWN).refusal is None

    largest = max(filter(fits, range(3500, 4096)))
    (record,) = router.route([row(1, value=bytes(largest))], KNOWN).records
    encoded = encode_batch(
        Columns(1, keys=[record.key], values=[record.value], headers=[record.headers]),
        first_timestamp_ms=0,
    )
    assert len(encoded) == 4096
