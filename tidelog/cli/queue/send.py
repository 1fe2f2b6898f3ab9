"""The command `tidelog queue send`, which sends messages of arguments, files or lines."""

import os
import sys
from collections.abc import Sequence
from typing import BinaryIO, TypedDict, Unpack, final

import click
import trio
from msgspec.structs import replace

from tidelog.cli.client import open_client
from tidelog.cli.connected import ConnectedCommand, broker_address
from tidelog.cli.errors import CommandError
from tidelog.cli.line_reader import LineReader
from tidelog.cli.names import Name
from tidelog.cli.options import Seconds, examples, json_option, read_headers
from tidelog.cli.output.tables import counted, print_json
from tidelog.cli.signals import on_signal
from tidelog.client.producer.receipt import Receipt
from tidelog.client.queue.queue import Queue
from tidelog.client.queue.send.chunk_writer import Source
from tidelog.client.queue.send.message_fields import OutgoingMessage, record_of
from tidelog.wire.errors import BatchError, TidelogError

_BATCH = 1000
_GRACE_S = 5.0
"""Seconds after a signal in which messages may still be acknowledged."""


class _Fields(TypedDict):
    """The common fields of all messages of one command."""

    key: str | None
    group: str | None
    deduplication_id: str | None
    headers: list[tuple[str, bytes]]
    delay: float | None
    priority: int | None


@click.command(
    cls=ConnectedCommand,
    epilog=examples(
        "tidelog queue send payments 'order 17'",
        "tidelog queue send payments --delay 3600 < orders.txt",
        "tidelog queue send transfers --group account-7 --deduplication-id t-1 'take 5'",
        "tidelog queue send scans --file scan.tiff",
    ),
)
@click.argument("name", cls=Name, kind="queue", metavar="QUEUE")
@click.argument("values", nargs=-1, metavar="[VALUE]...")
@click.option("--key", help="Set the key, which selects the partition.")
@click.option("--group", help="Set the message group (FIFO queues).")
@click.option(
    "--deduplication-id",
    metavar="ID",
    help="Set the deduplication id (FIFO queues).",
)
@click.option(
    "--headers", callback=read_headers, metavar="K=V,...", help="Add these headers to each message."
)
@click.option(
    "--delay",
    type=Seconds(),
    metavar="DURATION",
    help="Set the delivery delay.  [set by the queue]",
)
@click.option(
    "--priority",
    type=click.IntRange(min=0),
    help="Set the priority; 0 is the most urgent.  [set by the queue]",
)
@click.option(
    "--file",
    "files",
    type=click.File("rb"),
    multiple=True,
    metavar="PATH",
    help="Send a file, up to 1 GiB, as one message (- is stdin).",
)
@json_option
def send(
    name: str,
    values: tuple[str, ...],
    files: tuple[BinaryIO, ...],
    *,
    as_json: bool,
    **fields: Unpack[_Fields],
) -> None:
    """Send messages to a queue.

    Without VALUE and --file, each line of standard input is a message, sent at once. Ctrl-C stops
    reading; messages in flight are still sent. Within the deduplication window, a FIFO queue keeps
    one message per deduplication id.
    """
    if values and files:
        raise click.UsageError("VALUE and --file exclude each other: give one of them")
    if not (values or files) and sys.stdin is None:
        raise click.UsageError("standard input is closed: give a VALUE")
    if fields["deduplication_id"] is not None and len(values or files) != 1:
        raise click.UsageError("--deduplication-id is for a single message: give one VALUE")
    sending = _Sending(_model(fields))
    given = files or [os.fsencode(value) for value in values]
    interrupted_by = trio.run(sending.send_all, name, given)
    if as_json:
        print_json([_as_json(receipt) for receipt in sending.sent])
    if sending.failure is not None:
        raise CommandError(f"{sending.failure}; {sending.count_text()} sent") from sending.failure
    if interrupted_by:
        click.echo(f"interrupted; {sending.count_text()} sent", err=True)
        raise click.exceptions.Exit(interrupted_by)
    if not as_json:
        click.echo(f"sent {sending.count_text()}")
        for receipt in sending.sent:
            if receipt.is_duplicate:
                click.echo(
                    f"{receipt.message_id} is a duplicate: the queue keeps the first message"
                )


def _as_json(receipt: Receipt) -> dict[str, object]:
    return {
        "message_id": receipt.message_id,
        "partition": receipt.partition,
        "offset": receipt.offset,
        "is_duplicate": receipt.is_duplicate,
    }


def _model(fields: _Fields) -> OutgoingMessage:
    """Return a message with these fields, without a value.

    Raises:
        click.UsageError: A field is not valid.
    """
    key, group = fields["key"], fields["group"]
    model = OutgoingMessage(
        value=None,
        key=None if key is None else os.fsencode(key),
        group=None if group is None else os.fsencode(group),
        deduplication_id=fields["deduplication_id"],
        headers=fields["headers"],
        delay=fields["delay"],
        priority=fields["priority"],
    )
    try:
        record_of(model, "", now_ms=0)
    except UnicodeEncodeError:
        raise
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    return model


@final
class _Sending:
    """Sends messages that differ only in their values."""

    def __init__(self, model: OutgoingMessage) -> None:
        self._model = model
        self.sent: list[Receipt] = []
        self.failure: TidelogError | OSError | None = None
        self._is_ending = False
        self._reading = trio.CancelScope()

    def count_text(self) -> str:
        """Return the count of acknowledged messages as text."""
        return counted(len(self.sent), "message")

    async def send_all(self, name: str, values: Sequence[Source]) -> int:
        """Send all messages; return the exit status of a signal, else 0."""
        delivering = trio.CancelScope()

        def end() -> None:
            self._is_ending = True
            self._reading.cancel()
            delivering.deadline = trio.current_time() + _GRACE_S

        async with on_signal(end) as interruption:
            with delivering:
                try:
                    async with open_client(broker_address()) as client:
                        queue = client.queue(name)
                        if values:
                            await self._send(queue, values)
                        else:
                            await self._send_input(queue)
                except (TidelogError, OSError) as error:
                    self.failure = error
        return interruption.status

    async def _send_input(self, queue: Queue) -> None:
        if sys.stdin.isatty():
            click.echo("each line becomes a message; Ctrl-D ends the input", err=True)
        reader = LineReader(sys.stdin.fileno())
        while not self._is_ending:
            lines: list[bytes] = []
            with trio.CancelScope() as self._reading:
                lines = await reader.next_lines()
            if not lines:
                return
            await self._send(queue, lines)

    async def _send(self, queue: Queue, values: Sequence[Source]) -> None:
        for first in range(0, len(values), _BATCH):
            batch = [replace(self._model, value=value) for value in values[first : first + _BATCH]]
            try:
                self.sent += await queue.send_batch(batch)
            except BatchError as error:
                if len(batch) == 1:
                    raise error.errors[0] from error
                self.sent += error.receipts.values()
                raise
