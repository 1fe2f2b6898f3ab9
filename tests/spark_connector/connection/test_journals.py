"""Tests of the names of journals."""

from tidelog.spark_connector.connection.journals import (
    is_journal,
    journal_of,
    not_there,
    queue_of,
)
from tidelog.wire.errors import UnknownQueueError, UnknownTopicError


def test_a_journal_is_told_from_a_topic_by_its_name() -> None:
    assert queue_of(journal_of("orders")) == "orders"
    assert is_journal(journal_of("orders"))
    assert not is_journal("orders")


def test_what_is_not_there_is_named_as_people_name_it() -> None:
    topic, queue = not_there("orders"), not_there(journal_of("orders"))

    assert isinstance(topic, UnknownTopicError)
    assert str(topic) == "there is no topic 'orders'"
    assert isinstance(queue, UnknownQueueError)
    assert str(queue) == "there is no queue 'orders'"
