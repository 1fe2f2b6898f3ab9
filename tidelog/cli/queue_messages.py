"""`tidelog queue`: messages, from their sending to their end."""

import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import islice
from typing import TypedDict, Unpack

import click
from msgspec.structs import replace

from client.client import Client
from client.queue import Queue
from client.queue_message import Message
from client.queue_sending import OutgoingMessage
from client.receipt import Receipt
from tidelog.cli.asking import ask
from tidelog.cli.connection import broker_option
from tidelog.cli.errors import CommandError
from tidelog.cli.message_view import message_as_json, print_messages
from tidelog.cli.options import examples, json_option, read_headers
from tidelog.cli.tables import counted, print_json
from wire.errors import BatchError
from wire.queues import RECEIVE_COUNT_MAX, VISIBILITY_TIMEOUT_MS_MAX

_BATCH = 1000
_TIMEOUT = click.FloatRange(0, VISIBILITY_TIMEOUT_MS_MAX / 1000)


class _Fields(TypedDict):
    """What all messages of one `send` have in common."""

    key: str | None
    headers: list[tuple[str, bytes]]
    delay: float | None
    priority: int | None


_handles = click.argument("handles", nargs=-1, required=True, metavar="HANDLE...")


@click.command(
    epilog=examples(
        "tidelog queue send payments 'order 17'",
        "tidelog queue send payments --delay 3600 < orders.txt",
    )
)
@click.argument("name", metavar="QUEUE")
@click.argument("values", nargs=-1, metavar="[VALUE]...")
@click.option("--key", help="FIFO queues: the group of the messages.")
@click.option(
    "--headers", callback=read_headers, metavar="K=V,...", help="Headers that every message gets."
)
@click.option(
    "--delay",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Nobody gets them before.  [as the queue says]",
)
@click.option("--priority", type=click.IntRange(min=0), help="Their lane; 0 is the most urgent.")
@broker_option
@json_option
def send(
    name: str, values: tuple[str, ...], broker: str, as_json: bool, **fields: Unpack[_Fields]
) -> None:
    """Send messages to a queue.

    Without VALUE, each line of standard input is one.
    """
    if not values and sys.stdin is None:
        raise click.UsageError("standard input is closed; give a VALUE")
    lines = (value.encode() for value in values) if values else _lines()
    key = fields["key"]
    model = OutgoingMessage(
        value=None,
        key=None if key is None else key.encode(),
        headers=fields["headers"],
        delay=fields["delay"],
        priority=fields["priority"],
    )

    async def call(client: Client) -> list[Receipt]:
        queue = client.queue(name)
        sent: list[Receipt] = []
        while batch := [replace(model, value=line) for line in islice(lines, _BATCH)]:
            try:
                sent += await queue.send_batch(batch)
            except BatchError as error:
                done = len(sent) + len(batch) - len(error.errors)
                raise CommandError(f"{error}; {counted(done, 'message')} sent") from error
        return sent

    sent = ask(broker, call)
    if as_json:
        places = [(each.partition, each.offset) for each in sent]
        print_json([{"message_id": f"{p}-{o}", "partition": p, "offset": o} for p, o in places])
    else:
        click.echo(f"sent {counted(len(sent), 'message')}")


def _lines() -> Iterator[bytes]:
    if sys.stdin.isatty():
        click.echo("each line becomes a message; Ctrl-D ends", err=True)
    return (line.rstrip(b"\n") for line in sys.stdin.buffer)


@click.command(
    epilog=examples(
        "tidelog queue receive payments --max 5 --wait 20",
        "tidelog queue receive payments --delete --json",
    )
)
@click.argument("name", metavar="QUEUE")
@click.option(
    "--max",
    "max_messages",
    type=click.IntRange(1, RECEIVE_COUNT_MAX),
    default=10,
    show_default=True,
    help="How many at most.",
)
@click.option(
    "--visibility-timeout",
    type=_TIMEOUT,
    metavar="SECONDS",
    help="How long nobody else gets them.  [as the queue says]",
)
@click.option(
    "--wait",
    type=click.FloatRange(0, 3600),
    metavar="SECONDS",
    help="How long to wait for the first one.  [as the queue says]",
)
@click.option("--delete", "is_deleting", is_flag=True, help="Delete them when they were printed.")
@broker_option
@json_option
def receive(
    name: str,
    max_messages: int,
    is_deleting: bool,
    broker: str,
    as_json: bool,
    **times: float | None,
) -> None:
    """Take messages, and print them with their receipt handles."""

    async def call(client: Client) -> None:
        queue = client.queue(name)
        messages = await queue.receive(max_messages, **times)
        _show(messages, as_json=as_json)
        if is_deleting:
            await queue.delete_batch(messages)

    ask(broker, call)


def _show(messages: Sequence[Message], *, as_json: bool) -> None:
    if as_json:
        print_json([message_as_json(message) for message in messages])
    elif messages:
        print_messages(messages)
    else:
        click.echo("there was no message", err=True)


@click.command(
    "delete-message",
    epilog=examples("tidelog queue delete-message payments HANDLE"),
)
@click.argument("name", metavar="QUEUE")
@_handles
@broker_option
@json_option
def delete_message(name: str, handles: tuple[str, ...], broker: str, as_json: bool) -> None:
    """Delete messages that were received: they are done."""

    async def call(queue: Queue) -> None:
        await queue.delete_batch(handles)

    _settle(broker, name, call)
    _report("deleted", handles, as_json=as_json)


@click.command(epilog=examples("tidelog queue extend payments HANDLE --seconds 300"))
@click.argument("name", metavar="QUEUE")
@_handles
@click.option("--seconds", type=_TIMEOUT, required=True, help="How long from now on.")
@broker_option
@json_option
def extend(name: str, handles: tuple[str, ...], seconds: float, broker: str, as_json: bool) -> None:
    """Keep messages that were received for longer."""

    async def call(queue: Queue) -> None:
        await queue.extend_batch(handles, seconds)

    _settle(broker, name, call)
    _report("extended", handles, as_json=as_json)


@click.command(epilog=examples("tidelog queue release payments HANDLE --delay 60"))
@click.argument("name", metavar="QUEUE")
@_handles
@click.option(
    "--delay",
    type=_TIMEOUT,
    metavar="SECONDS",
    help="Others get them after so long.  [as the queue's backoff says]",
)
@click.option("--reason", default="", help="Why, for people.")
@broker_option
@json_option
def release(
    name: str,
    handles: tuple[str, ...],
    delay: float | None,
    reason: str,
    broker: str,
    as_json: bool,
) -> None:
    """Let others have messages that were received."""

    async def call(queue: Queue) -> None:
        await queue.release_batch(handles, delay, reason=reason)

    _settle(broker, name, call)
    _report("released", handles, as_json=as_json)


def _settle(broker: str, name: str, call: Callable[[Queue], Awaitable[None]]) -> None:
    """Settle messages.

    Raises:
        CommandError: Some could not be settled; one line says which was the first, and why.
    """

    async def settle(client: Client) -> None:
        try:
            await call(client.queue(name))
        except BatchError as error:
            index, first = next(iter(error.errors.items()))
            raise CommandError(
                f"{len(error.errors)} handles were refused, the others are done; handle"
                f" {index + 1}: {first}"
            ) from error

    ask(broker, settle)


def _report(what: str, handles: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        print_json({what: len(handles)})
    else:
        click.echo(f"{what} {counted(len(handles), 'message')}")


COMMANDS = (send, receive, delete_message, extend, release)
