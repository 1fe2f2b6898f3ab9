"""What a command asks: brokers, and people."""

import click
import pytest

from tidelog.cli.asking import ask, confirm


def test_a_broker_is_asked_and_its_answer_returned(broker_address: str) -> None:
    assert isinstance(ask(broker_address, lambda client: client.admin.list_topics()), list)


def test_where_nobody_can_be_asked_the_answer_must_be_given_beforehand() -> None:
    with pytest.raises(click.UsageError, match="say --yes"):
        confirm("delete everything?")
