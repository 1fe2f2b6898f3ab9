"""The commands `tidelog queue` that receive and settle messages."""

import sys
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import BinaryIO, Final, final

import click
import trio

from tidelog.cli.client import ask
from tidelog.cli.connected import ConnectedCommand
from tidelog.cli.errors import CommandError
from tidelog.cli.names import Name
from tidelog.cli.options import Seconds, examples, json_option
from tidelog.cli.output.tables import counted, print_json
from tidelog.cli.queue.view import message_as_json, print_messages
from tidelog.client.client import Client
from tidelog.client.queue.queue import Queue
from tidelog.client.queue.receive.attempt_id import attempt_id_on_wire
from tidelog.client.queue.receive.message import Message, giving_up
from tidelog.wire.errors import BatchError, TidelogError
from tidelog.wire.messages.queues import RECEIVE_COUNT_MAX, VISIBILITY_TIMEOUT_MS_MAX

_SHOWN_BYTES_MAX: Final = 1 << 20
"""Bytes of a value at most that is printed; longer values are not read for that."""
_TIMEOUT = Seconds(longest=VISIBILITY_TIMEOUT_MS_MAX / 1000)


def _checked_attempt_id(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    """Return an attempt id that a receive takes.

    Raises:
        click.BadParameter: It is empty or too long.
    """
    del context, parameter
    try:
        if value is not None:
            attempt_id_on_wire(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return value


_handles = click.argument("handles", nargs=-1, required=True, metavar="HANDLE...")


@click.command(
    cls=ConnectedCommand,
    epilog=examples(
        "tidelog queue receive payments --max 5 --wait 20",
        "tidelog queue receive payments --delete --json",
        "tidelog queue receive scans --output scan.tiff --delete",
    ),
)
@click.argument("name", cls=Name, kind="queue", metavar="QUEUE")
@click.option(
    "--max",
    "max_messages",
    type=click.IntRange(1, RECEIVE_COUNT_MAX),
    default=10,
    show_default=True,
    help="Limit the number of messages.",
)
@click.option(
    "--visibility-timeout",
    type=_TIMEOUT,
    metavar="DURATION",
    help="Set the visibility timeout.  [set by the queue]",
)
@click.option(
    "--wait",
    type=Seconds(longest=3600),
    metavar="DURATION",
    help="Wait for the first message (long polling).  [set by the queue]",
)
@click.option(
    "--attempt-id",
    callback=_checked_attempt_id,
    metavar="ID",
    help="Repeat the receive with this id (FIFO queues).",
)
@click.option(
    "--raise-at-limit",
    is_flag=True,
    help="Fail if max_in_flight keeps messages from being received.",
)
@click.option("--delete", "is_deleting", is_flag=True, help="Delete the messages after printing.")
@click.option(
    "--output",
    metavar="PATH",
    help="Write the value of one message to PATH (- is stdout).",
)
@json_option
def receive(
    name: str,
    max_messages: int,
    is_deleting: bool,
    *,
    output: str | None,
    attempt_id: str | None,
    raise_at_limit: bool,
    as_json: bool,
    **times: float | None,
) -> None:
    """Receive messages and print their receipt handles.

    For values above 1 MiB, only the length is printed; --output writes values of any length.
    """

    async def call(client: Client) -> None:
        queue = client.queue(name)
        count, limit = (max_messages, _SHOWN_BYTES_MAX) if output is None else (1, 0)
        # The file is opened first, so that a failed open leaves no message in flight.
        messages: list[Message] = []
        try:
            with nullcontext() if output is None else _target(output) as target:
                messages = await queue.receive(
                    count,
                    **times,
                    max_value_bytes=limit,
                    raise_at_limit=raise_at_limit,
                    attempt_id=attempt_id,
                )
                if target is not None and messages:
                    await _copy(messages[0], target.file)
                    target.is_whole = True
        except (CommandError, OSError, TidelogError):
            with suppress(TidelogError):  # Otherwise it is visible again after its timeout.
                await queue.release_batch(messages)
            raise
        if output is None or not messages:
            _show(messages, as_json=as_json)
        elif not is_deleting:
            click.echo(messages[0].receipt_handle, err=True)
        if is_deleting:
            sys.stdout.flush()  # A message that cannot be printed is not deleted.
            await queue.delete_batch(messages)

    ask(call)


@final
class _Target:
    """The file for the value of a message."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.is_whole = False


@contextmanager
def _target(path: str) -> Generator[_Target]:
    """Open a file that replaces `path` only if `is_whole` is set.

    Raises:
        CommandError: The file cannot be written.
    """
    if path == "-":
        yield _Target(sys.stdout.buffer)
        return
    part = Path(f"{path}.part")
    try:
        with part.open("wb") as file:
            target = _Target(file)
            yield target
        if target.is_whole:
            part.replace(path)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


async def _copy(message: Message, file: BinaryIO) -> None:
    """Copy the value of a message, and extend its visibility timeout meanwhile."""
    seconds = max(message.lease.expires_at - trio.current_time(), 1)
    extend_at = trio.current_time() + seconds / 2
    async for chunk in message.chunks():
        file.write(chunk)
        if trio.current_time() >= extend_at:
            await message.extend(seconds)
            extend_at = trio.current_time() + seconds / 2


def _show(messages: Sequence[Message], *, as_json: bool) -> None:
    if as_json:
        print_json([message_as_json(message) for message in messages])
    elif messages:
        print_messages(messages)
    else:
        click.echo("no message is visible", err=True)


@click.command(
    "delete-message",
    cls=ConnectedCommand,
    epilog=examples("tidelog queue delete-message payments HANDLE"),
)
@click.argument("name", cls=Name, kind="queue", metavar="QUEUE")
@_handles
@json_option
def delete_message(name: str, handles: tuple[str, ...], *, as_json: bool) -> None:
    """Delete received messages."""

    async def call(queue: Queue) -> None:
        await queue.delete_batch(handles)

    _settle(name, call)
    _report("deleted", handles, as_json=as_json)


@click.command(
    cls=ConnectedCommand, epilog=examples("tidelog queue extend payments HANDLE --seconds 300")
)
@click.argument("name", cls=Name, kind="queue", metavar="QUEUE")
@_handles
@click.option(
    "--seconds", type=_TIMEOUT, required=True, help="Set the visibility timeout, from now on."
)
@json_option
def extend(name: str, handles: tuple[str, ...], seconds: float, *, as_json: bool) -> None:
    """Extend the visibility timeout of received messages."""

    async def call(queue: Queue) -> None:
        await queue.extend_batch(handles, seconds)

    _settle(name, call)
    _report("extended", handles, as_json=as_json)


@click.command(
    "change-visibility",
    cls=ConnectedCommand,
    epilog=examples("tidelog queue change-visibility payments HANDLE --seconds 0"),
)
@click.argument("name", cls=Name, kind="queue", metavar="QUEUE")
@_handles
@click.option(
    "--seconds", type=_TIMEOUT, required=True, help="Make the messages visible so much later."
)
@json_option
def change_visibility(
    name: str, handles: tuple[str, ...], seconds: float, *, as_json: bool
) -> None:
    """Change when received or released messages become visible.

    0 makes them visible at once. Unlike `extend`, the command also accepts messages that were
    released under their handles.
    """

    async def call(queue: Queue) -> None:
        await queue.change_visibility_batch(handles, seconds)

    _settle(name, call)
    _report("changed", handles, as_json=as_json)


@click.command(
    cls=ConnectedCommand, epilog=examples("tidelog queue release payments HANDLE --delay 60")
)
@click.argument("name", cls=Name, kind="queue", metavar="QUEUE")
@_handles
@click.option(
    "--delay",
    type=_TIMEOUT,
    metavar="DURATION",
    help="Delay the next delivery.  [set by the queue's backoff]",
)
@click.option("--reason", default="", help="Record a reason in the history.")
@json_option
def release(
    name: str,
    handles: tuple[str, ...],
    delay: float | None,
    *,
    reason: str,
    as_json: bool,
) -> None:
    """Release received messages to other consumers."""
    try:
        giving_up(delay, reason)
    except ValueError as error:
        raise click.UsageError(str(error)) from error

    async def call(queue: Queue) -> None:
        await queue.release_batch(handles, delay, reason=reason)

    _settle(name, call)
    _report("released", handles, as_json=as_json)


def _settle(name: str, call: Callable[[Queue], Awaitable[None]]) -> None:
    """Settle messages.

    Raises:
        CommandError: Some handles were rejected; one line names the first and the reason.
    """

    async def settle(client: Client) -> None:
        try:
            await call(client.queue(name))
        except BatchError as error:
            index, first = next(iter(error.errors.items()))
            count = len(error.errors)
            raise CommandError(
                f"{counted(count, 'handle')} {'was' if count == 1 else 'were'} rejected, the others"
                f" are settled; handle {index + 1}: {first}"
            ) from error

    ask(settle)


def _report(what: str, handles: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        print_json({what: len(handles)})
    else:
        click.echo(f"{what} {counted(len(handles), 'message')}")


COMMANDS = (receive, delete_message, extend, change_visibility, release)
