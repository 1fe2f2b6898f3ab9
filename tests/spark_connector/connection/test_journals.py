"""Journals are read by APIs of their own."""

from tidelog.spark_connector.connection.journals import (
    fetch_api,
    journal_of,
    not_there,
    offsets_api,
    queue_of,
)
from tidelog.wire.errors import UnknownQueueError, UnknownTopicError
from tidelog.wire.protocol import api


def test_a_journal_is_read_as_a_history_and_a_topic_as_records() -> None:
    assert queue_of(journal_of("orders")) == "orders"
    assert (fetch_api(journal_of("orders")), fetch_api("orders")) == (api.FETCH_HISTORY, api.FETCH)
    assert offsets_api(journal_of("orders")) is api.LIST_HISTORY_OFFSETS
    assert offsets_api("orders") is api.LIST_OFFSETS


def test_what_is_not_there_is_named_as_people_name_it() -> None:
    topic, queue = not_there("orders"), not_there(journal_of("orders"))

    assert isinstance(topic, UnknownTopicError)
    assert str(topic) == "there is no topic 'orders'"
    assert isinstance(queue, UnknownQueueError)
    assert str(queue) == "there is no queue 'orders'"
