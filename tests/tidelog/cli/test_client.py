"""The client connection of a command, and confirmations."""

import os
import signal
from pathlib import Path

import click
import pytest
import trio

from tidelog.cli.client import ask, confirm, open_client
from tidelog.client.client import Client
from tidelog.embedded import open_broker
from tidelog.wire.errors import ConnectError


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


async def serve_strangers(
    answer: bytes, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
) -> None:
    """Run a server of another kind: it accepts, sends its greeting and says nothing more."""

    async def greet(stream: trio.SocketStream) -> None:
        if answer:
            await stream.send_all(answer)
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port: int = listener.socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, greet, [listener])
        task_status.started(f"127.0.0.1:{port}")


async def error_at(answer: bytes) -> tuple[str, str]:
    """Return the address of a server with this greeting, and the error of a command there."""
    async with trio.open_nursery() as nursery:
        address: str = await nursery.start(serve_strangers, answer)
        with pytest.raises(ConnectError) as raised:
            async with open_client(address):
                pass
        nursery.cancel_scope.cancel()
    return address, str(raised.value)


@pytest.mark.usefixtures("autojump_clock")
async def test_a_server_that_accepts_and_never_answers_is_diagnosed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    began_at = trio.current_time()

    address, error = await error_at(b"")

    assert trio.current_time() - began_at == pytest.approx(10, abs=0.5)
    assert error == (
        f"connected to {address}, but it does not answer as a tidelog broker does: it has not"
        " answered within 10 s; is it another service? check host and port"
    )
    assert capsys.readouterr().err == f"waiting, up to 8 s more: no answer from {address} yet\n"


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "is that of an SSH server (SSH-2.0-OpenSSH_9.2);"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is that of an HTTP server (HTTP/1.1 400 Bad"),
        (b"+PONG\r\n", "is that of Redis (+PONG);"),
        (b"220 mail.example ESMTP\r\n", "is that of a mail or FTP server (220 mail.example"),
    ],
)
async def test_a_server_of_another_kind_is_named_by_its_first_bytes(
    answer: bytes, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    address, error = await error_at(answer)

    start = f"connected to {address}, but it does not answer as a tidelog broker does: the answer "
    assert error.startswith(start + hint)
    assert capsys.readouterr().err == ""


def test_a_broker_is_asked_and_its_answer_returned(broker_address: str) -> None:
    found = ask(lambda client: client.admin.list_topics(), broker=broker_address)

    assert isinstance(found, list)


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
        ask(call, broker=broker_address)

    assert ended.value.exit_code == 128 + signal.SIGINT
    assert has_ended
    assert capsys.readouterr().err == ""
    signal.signal(signal.SIGINT, before)
