"""Tests of the view of a queue in the metadata."""

import pytest

from tidelog.broker.queues.queue_view import is_current, view_of
from tidelog.coordinator.metadata.catalog import (
    Catalog,
    QueueSpec,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
)
from tidelog.wire.config.queue_config import ReceiveAcks
from tidelog.wire.config.retry_backoff import ExponentialBackoff, FixedBackoff
from tidelog.wire.errors import UnknownQueueError

QUEUE_ID = b"q" * 16
ORDERS, LETTERS = b"o" * 16, b"l" * 16


def catalog(**settings: str) -> Catalog:
    """Return topics, a dead-letter queue and a queue with these settings."""
    found = Catalog()
    found.apply(TopicCreated("orders", ORDERS, 5, {}))
    found.apply(TopicCreated("letters", LETTERS, 3, {}))
    spec = QueueSpec(ORDERS, False, (0,) * 5, 0, b"k" * 32, {}, settings)
    letters = QueueSpec(LETTERS, False, (0,) * 3, 0, b"k" * 32, {}, {})
    found.apply(TopicCreated("queue@letters", b"j" * 16, 3, {}, letters))
    found.apply(TopicCreated("queue@orders", QUEUE_ID, 5, {}, spec))
    return found


def test_dead_letters_of_a_partition_always_have_the_same_target() -> None:
    view = view_of(catalog(dead_letter_queue="letters"), QUEUE_ID)

    targets = [view.config(number).dead_letter_target for number in range(5)]

    assert targets == [(LETTERS, 0), (LETTERS, 1), (LETTERS, 2), (LETTERS, 0), (LETTERS, 1)]


def test_a_queue_view_has_the_settings_of_the_queue() -> None:
    settings = {"retry_backoff": "1s,10s", "receive_acks": "leader", "priority_weights": "4,1"}
    config = view_of(catalog(**settings), QUEUE_ID).config(0)

    assert config.retry_backoff == FixedBackoff((1000, 10_000))
    assert config.receive_acks is ReceiveAcks.LEADER
    assert config.priority_weights == (4, 1)
    assert config.dead_letter_target is None


@pytest.mark.parametrize(
    ("whole", "shares"),
    [("12", [3, 3, 2, 2, 2]), ("3", [1] * 5), ("120000", [24_000] * 5)],
)
def test_partitions_share_the_limit_of_messages_in_flight(whole: str, shares: list[int]) -> None:
    view = view_of(catalog(max_in_flight=whole, dead_letter_queue="letters"), QUEUE_ID)

    assert [view.config(number).max_in_flight for number in range(5)] == shares
    assert view.max_in_flight == int(whole)


def test_a_retry_backoff_can_be_a_rule() -> None:
    config = view_of(catalog(retry_backoff="exponential(1s,3,1min)"), QUEUE_ID).config(0)

    assert config.retry_backoff == ExponentialBackoff(
        base_ms=1000, factor=3.0, cap_ms=60_000, jitter=0
    )


def test_a_queue_view_is_current_until_the_metadata_changes() -> None:
    known = catalog()
    before = view_of(known, QUEUE_ID)
    assert view_of(known, QUEUE_ID).is_same(before)
    assert is_current(known, before)

    known.apply(TopicAltered(QUEUE_ID, {}, {"dead_letter_queue": "letters"}))

    assert not view_of(known, QUEUE_ID).is_same(before)
    assert not is_current(known, before)
    now = view_of(known, QUEUE_ID)
    known.apply(TopicAltered(LETTERS, {"retention_ms": "1h"}))
    assert not is_current(known, now), "the topic of its dead letters has changed"
    known.apply(TopicDeleted(QUEUE_ID))
    assert not is_current(known, view_of(catalog(), QUEUE_ID))


def test_a_topic_has_no_queue_view() -> None:
    with pytest.raises(UnknownQueueError):
        view_of(catalog(), ORDERS)
