"""The client connection of a command, and confirmations."""

import os
import signal
from pathlib import Path

import click
import pytest
import trio

from tidelog.cli import main
from tidelog.cli.client import ask, broker_option, confirm, open_client
from tidelog.client.client import Client
from tidelog.embedded import open_broker


class BrokerRun:
    """One run of a broker, in a task of its own."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.stop = trio.Event()
        self.ended = trio.Event()

    async def run(self, listen: str, task_status: trio.TaskStatus[str]) -> None:
        async with open_broker(self.data_dir, listen=listen) as broker:
            task_status.started(broker.address)
            await self.stop.wait()
        self.ended.set()


async def test_a_lost_connection_and_its_reconnect_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = BrokerRun(tmp_path), BrokerRun(tmp_path)
    async with trio.open_nursery() as nursery:
        address: str = await nursery.start(first.run, "127.0.0.1:0")
        async with open_client(address) as client:
            first.stop.set()
            await first.ended.wait()
            await nursery.start(second.run, address)
            topics = await client.admin.list_topics()
        second.stop.set()

    assert topics == []
    assert capsys.readouterr().err == (
        f"lost the connection to {address}; reconnecting\nreconnected to {address}\n"
    )


@click.command()
@broker_option
def command(broker: str) -> None:
    click.echo(broker)


@pytest.mark.parametrize("address", ["localhost", "a:1", "a:1,[::1]:2"])
def test_addresses_are_taken_as_they_are(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--broker", address], command) == 0
    assert capsys.readouterr().out == f"{address}\n"


def test_the_environment_may_name_the_broker(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDELOG_BROKER", "somewhere:1")

    main.run([], command)

    assert capsys.readouterr().out == "somewhere:1\n"


@pytest.mark.parametrize("address", ["a:b", "a:1:2", "", "a:70000"])
def test_what_is_not_an_address_is_wrong_use(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["--broker", address], command) == 2
    assert "Invalid value for '--broker'" in capsys.readouterr().err


def test_a_broker_is_asked_and_its_answer_returned(broker_address: str) -> None:
    assert isinstance(ask(broker_address, lambda client: client.admin.list_topics()), list)


def test_a_confirmation_without_a_terminal_needs_yes() -> None:
    with pytest.raises(click.UsageError, match="add --yes"):
        confirm("delete everything?")


def test_ctrl_c_cancels_a_call_in_order(
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
