"""What a command asks: brokers, and people."""

import os
import signal

import click
import pytest
import trio

from tidelog.cli.client import ask, confirm
from tidelog.client.client import Client


def test_a_broker_is_asked_and_its_answer_returned(broker_address: str) -> None:
    assert isinstance(ask(broker_address, lambda client: client.admin.list_topics()), list)


def test_where_nobody_can_be_asked_the_answer_must_be_given_beforehand() -> None:
    with pytest.raises(click.UsageError, match="say --yes"):
        confirm("delete everything?")


def test_ctrl_c_lets_what_is_under_way_end_in_order(
    broker_address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGINT)
    has_ended = False

    async def call(client: Client) -> None:
        nonlocal has_ended
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await client.admin.list_topics()
                has_ended = True

    with pytest.raises(click.exceptions.Exit) as ended:
        ask(broker_address, call)

    assert ended.value.exit_code == 128 + signal.SIGINT
    assert has_ended
    assert capsys.readouterr().err == ""
    signal.signal(signal.SIGINT, before)
