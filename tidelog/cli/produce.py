"""The command `tidelog produce`, which produces lines to a topic."""

import os
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Literal, TypedDict, Unpack, final

import click
import trio
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from tidelog.cli.client import open_client
from tidelog.cli.connected import ConnectedCommand, broker_address
from tidelog.cli.errors import CommandError
from tidelog.cli.line_reader import LineReader
from tidelog.cli.names import Name
from tidelog.cli.options import Seconds, examples, json_option, read_headers
from tidelog.cli.output.tables import counted, print_json
from tidelog.cli.signals import Interruption, on_signal
from tidelog.client.config import Compression
from tidelog.client.producer.producer import Producer
from tidelog.wire.errors import TidelogError

_ACKS: dict[str, Literal["all", 1, 0]] = {"0": 0, "1": 1, "all": "all"}
_STANDARD_INPUT = (None, "-")
_GRACE_S = 5.0
"""Seconds after a signal in which records may still be acknowledged."""


class _Options(TypedDict):
    """The options besides `--broker`."""

    file: str | None
    key_separator: str | None
    partition: int | None
    headers: list[tuple[str, bytes]]
    acks: str
    compression: Compression
    delivery_timeout: float
    as_json: bool


@click.command(
    cls=ConnectedCommand,
    epilog=examples(
        "tidelog produce orders < orders.txt",
        "printf 'user-1:paid\\n' | tidelog produce orders --key-separator :",
        "tail -F app.log | tidelog produce logs --headers host=web-1 --compression zstd",
    ),
)
@click.argument("topic", cls=Name, kind="topic")
@click.option(
    "--file",
    metavar="FILE",
    help="Read lines from this file.  [standard input]",
)
@click.option(
    "--key-separator",
    metavar="SEP",
    help="Split each line into key and value at SEP.",
)
@click.option("--partition", type=click.IntRange(min=0), help="Send all records to this partition.")
@click.option(
    "--headers", callback=read_headers, metavar="K=V,...", help="Add these headers to each record."
)
@click.option(
    "--acks",
    type=click.Choice(list(_ACKS)),
    default="all",
    show_default=True,
    help="Wait for no replica, the leader, or all in-sync replicas.",
)
@click.option(
    "--compression",
    type=click.Choice(("none", "lz4", "zstd")),
    default="none",
    show_default=True,
    help="Compress batches.",
)
@click.option(
    "--delivery-timeout",
    type=Seconds(0.1),
    default=120.0,
    show_default=True,
    metavar="DURATION",
    help="Limit the time from send to acknowledgement.",
)
@json_option
def produce(topic: str, **options: Unpack[_Options]) -> None:
    """Produce lines of text to a topic as records.

    With --key-separator, a line that begins with SEP has no key. The last line of output counts the
    acknowledged records, also after an error: these records are in the log. Ctrl-C stops reading;
    records in flight are still sent.
    """
    if options["key_separator"] == "":
        raise click.UsageError("--key-separator is empty: give at least one character")
    with _open_input(options["file"]) as descriptor:
        trio.run(partial(_produce, topic, options, descriptor=descriptor))


@contextmanager
def _open_input(file: str | None) -> Generator[int]:
    """Open the input: the file, or standard input.

    Raises:
        OSError: The file cannot be opened.
    """
    if file is not None and file not in _STANDARD_INPUT:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            yield descriptor
        finally:
            os.close(descriptor)
    elif sys.stdin is None:
        raise click.UsageError("standard input is closed: add --file")
    else:
        if sys.stdin.isatty():
            click.echo("each line becomes a record; Ctrl-D ends the input", err=True)
        yield sys.stdin.fileno()


async def _produce(topic: str, options: _Options, *, descriptor: int) -> None:
    reading, delivering = trio.CancelScope(), trio.CancelScope()

    def end() -> None:
        reading.cancel()
        delivering.deadline = trio.current_time() + _GRACE_S

    sending = _Sending(topic, options, LineReader(descriptor))
    failure: Exception | None = None
    async with on_signal(end) as interruption, open_client(broker_address()) as client:
        producer = client.producer(
            acks=_ACKS[options["acks"]],
            compression_type=options["compression"],
            delivery_timeout=options["delivery_timeout"],
        )

        def acknowledged() -> int:
            return producer.statistics().acknowledged_record_count

        began_at = trio.current_time()
        is_typed = options["file"] in _STANDARD_INPUT and sys.stdin.isatty()
        console = Console(stderr=True, force_terminal=False if is_typed else None)
        async with show_progress(acknowledged, console):
            try:
                with delivering:
                    async with producer:
                        with reading:
                            await sending.send_all(producer)
            except (TidelogError, OSError) as error:
                failure = error
        outcome = _Outcome(
            read=sending.count,
            acknowledged=acknowledged(),
            seconds=trio.current_time() - began_at,
            error=None if failure is None else _why(failure),
        )
    _report(outcome, interruption, options, failure=failure)


def _why(failure: Exception) -> str:
    return str((isinstance(failure, OSError) and failure.strerror) or failure)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """The result of the command."""

    read: int
    """Records that the producer accepted."""
    acknowledged: int
    seconds: float
    error: str | None


def _report(
    outcome: _Outcome,
    interruption: Interruption,
    options: _Options,
    *,
    failure: Exception | None,
) -> None:
    """Print the result.

    Raises:
        CommandError: A record or the input failed.
        click.exceptions.Exit: A signal ended the command.
    """
    if options["as_json"]:
        print_json(asdict(outcome))
    counts = f"{outcome.acknowledged:,} of {outcome.read:,} records were acknowledged"
    if outcome.error is not None:
        raise CommandError(f"{outcome.error}; {counts}") from failure
    if interruption.signal is not None:
        click.echo(f"interrupted; {counts}", err=True)
        raise click.exceptions.Exit(interruption.status)
    if not options["as_json"]:
        verb = "sent" if options["acks"] == "0" else "acknowledged"
        rate = f"{outcome.acknowledged / outcome.seconds:,.0f}/s"
        records = counted(outcome.acknowledged, "record")
        click.echo(f"{records} {verb} in {outcome.seconds:.2f} s ({rate})")


@final
class _Sending:
    """Turns lines into records and sends them."""

    def __init__(self, topic: str, options: _Options, reader: LineReader) -> None:
        self._topic = topic
        self._partition = options["partition"]
        self._headers = options["headers"]
        separator = options["key_separator"]
        self._separator = None if separator is None else separator.encode()
        self._reader = reader
        self.count = 0
        """Records that the producer accepted."""

    async def send_all(self, producer: Producer) -> None:
        """Send all lines of the input.

        Raises:
            TidelogError: An earlier record failed.
            CommandError: A line is too long or has no separator.
            OSError: The input cannot be read.
        """
        while lines := await self._reader.next_lines():
            for line in lines:
                key, value = (None, line) if self._separator is None else self._split(line)
                while not self._send(producer, key, value):
                    await producer.wait_writable()

    def _send(self, producer: Producer, key: bytes | None, value: bytes) -> bool:
        """Send a record; return whether the producer had room for it."""
        try:
            producer.send_nowait(
                self._topic, value, key=key, partition=self._partition, headers=self._headers
            )
        except trio.WouldBlock:
            return False
        self.count += 1
        return True

    def _split(self, line: bytes) -> tuple[bytes | None, bytes]:
        assert self._separator is not None
        key, separator, value = line.partition(self._separator)
        if not separator:
            raise CommandError(
                f"line {self.count + 1:,} has no key separator {self._separator.decode()!r}"
            )
        return key or None, value


_INTERVAL_S = 0.1


@asynccontextmanager
async def show_progress(
    acknowledged_count: Callable[[], int], console: Console
) -> AsyncGenerator[None, None]:
    """Show count and rate of acknowledged records while the block runs.

    The line is removed at the end. A console that is not a terminal shows nothing.
    """
    if not console.is_terminal:
        yield
        return
    progress = Progress(
        SpinnerColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.completed:,.0f} records acknowledged"),
        TextColumn("{task.fields[rate]:,.0f}/s"),
        console=console,
        auto_refresh=False,
        transient=True,
    )
    task = progress.add_task("", total=None, rate=0.0)

    async def keep_showing() -> None:
        last_count, last_at = 0, trio.current_time()
        while True:
            await trio.sleep(_INTERVAL_S)
            count, now = acknowledged_count(), trio.current_time()
            progress.update(task, completed=count, rate=(count - last_count) / (now - last_at))
            progress.refresh()
            last_count, last_at = count, now

    with progress:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_showing)
            yield
            nursery.cancel_scope.cancel()
