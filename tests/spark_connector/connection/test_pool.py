"""Connections outlive tasks, but nobody gets one on which an answer is still on its way."""

import pytest

from tests.spark_connector.town import Town
from tidelog.spark_connector.connection.pool import borrowed, close_idle
from tidelog.wire.messages.session import MetadataRequest
from tidelog.wire.protocol import api


def test_the_next_task_gets_the_connection_of_the_last_one(town: Town) -> None:
    close_idle()
    with borrowed(town.connection) as first:
        link = first.any_link()
    with borrowed(town.connection) as second:
        assert second is first
        assert second.any_link() is link


def test_two_at_a_time_get_one_each(town: Town) -> None:
    with borrowed(town.connection) as first, borrowed(town.connection) as second:
        assert first is not second


@pytest.mark.statement("s38")
def test_who_fails_with_an_answer_on_its_way_leaves_nothing_behind(town: Town) -> None:
    close_idle()

    def fail() -> None:
        with borrowed(town.connection) as brokers:
            brokers.any_link().send(api.METADATA, MetadataRequest([]))
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError):
        fail()
    with borrowed(town.connection) as brokers:
        assert brokers.topic_offsets(None, with_sizes=False) is not None
