"""The command `tidelog produce`, which produces lines to a topic (Kafka: console producer)."""

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
from tidelog.cli.line_reader import GivenLines, LineReader, LineSource, WholeReader
from tidelog.cli.line_records import LineRecord, ParseLines, TextLines, parse_json
from tidelog.cli.names import Name
from tidelog.cli.options import Seconds, examples, json_option, read_headers
from tidelog.cli.output.record_format import ENCODINGS, Encoding
from tidelog.cli.output.tables import counted, print_json
from tidelog.cli.signals import Interruption, on_signal
from tidelog.client.config import Compression
from tidelog.client.producer.producer import Producer
from tidelog.wire.errors import TidelogError

_ACKS: dict[str, Literal["all", 1, 0]] = {"0": 0, "1": 1, "all": "all"}
_Reading = tuple[LineSource, ParseLines]
_STANDARD_INPUT = (None, "-")
_GRACE_S = 5.0
"""Seconds after a signal in which records may still be acknowledged."""


class _Input(TypedDict):
    """The options for the input, and what it becomes."""

    file: str | None
    whole_value: str | None
    is_tombstone: bool
    line_format: Literal["raw", "json"]
    key: str | None
    key_separator: str | None
    null_value: str | None
    key_encoding: Encoding
    value_encoding: Encoding


class _Options(_Input):
    """The options besides `--broker`."""

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
        "tidelog produce scans --key page-1 --whole-value scan.tiff",
        "tidelog produce users --key user-1 --tombstone",
        "tidelog consume orders --from beginning -e --json | tidelog produce copy --format json",
    ),
)
@click.argument("topic", cls=Name, kind="topic")
@click.option(
    "--file",
    metavar="FILE",
    help="Read lines from this file.  [standard input]",
)
@click.option(
    "--whole-value", metavar="FILE", help="Send the bytes of a file as one value (- is stdin)."
)
@click.option("--tombstone", "is_tombstone", is_flag=True, help="Send one record without a value.")
@click.option(
    "-f",
    "--format",
    "line_format",
    type=click.Choice(("raw", "json")),
    default="raw",
    show_default=True,
    help="Read values, or the JSON objects of `consume --json`.",
)
@click.option("-k", "--key", help="Set the key of all records.")
@click.option(
    "-K",
    "--key-separator",
    metavar="SEP",
    help="Split each line into key and value at SEP.",
)
@click.option(
    "--null-value", metavar="TEXT", help="Read TEXT as an absent key or value (tombstone)."
)
@click.option(
    "--key-encoding", type=click.Choice(ENCODINGS), default="text", help="Read keys as base64."
)
@click.option(
    "--value-encoding", type=click.Choice(ENCODINGS), default="text", help="Read values as base64."
)
@click.option(
    "-p", "--partition", type=click.IntRange(min=0), help="Send all records to this partition."
)
@click.option(
    "-H",
    "--headers",
    callback=read_headers,
    metavar="K=V,...",
    help="Add these headers to each record.",
)
@click.option(
    "--acks",
    type=click.Choice(list(_ACKS)),
    default="all",
    show_default=True,
    help="Wait for no replica, the leader, or all in-sync replicas.",
)
@click.option(
    "-z",
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

    With --key-separator, a line that begins with SEP has no key. With --format json, records keep
    key, value, headers and timestamp of the objects, and get partitions like other records. The
    last line of output counts the acknowledged records, also after an error: these records are in
    the log. SIGTERM and Ctrl-C stop reading; records that were read are still sent.
    """
    _check(options)
    if options["is_tombstone"]:
        reading: _Reading = GivenLines([b""]), TextLines(null=b"").parse
        trio.run(partial(_produce, topic, options, reading=reading))
        return
    is_whole = options["whole_value"] is not None
    with _open_input(options["whole_value"] if is_whole else options["file"]) as descriptor:
        if is_whole:
            reading = WholeReader(descriptor), TextLines().parse
        else:
            reading = LineReader(descriptor), _parser(options)
        trio.run(partial(_produce, topic, options, reading=reading))


def _check(options: _Input) -> None:
    """Raise if options contradict each other.

    Raises:
        click.UsageError: Two options contradict each other.
    """
    if options["key_separator"] == "":
        raise click.UsageError("--key-separator is empty: give at least one character")
    sources = [options["file"] is not None, options["whole_value"] is not None]
    if sum(sources) + options["is_tombstone"] > 1:
        raise click.UsageError("give one of --file, --whole-value and --tombstone")
    if options["is_tombstone"] and options["key"] is None:
        raise click.UsageError("--tombstone deletes a key: add --key KEY")
    if options["key"] is not None and options["key_separator"] is not None:
        raise click.UsageError("--key and --key-separator exclude each other: give one of them")
    if options["key"] is not None and options["line_format"] == "json":
        raise click.UsageError("--key is for --format raw: JSON objects contain it")
    for_lines = {
        "--key-separator": options["key_separator"] is not None,
        "--null-value": options["null_value"] is not None,
        "--key-encoding": options["key_encoding"] != "text",
        "--value-encoding": options["value_encoding"] != "text",
    }
    is_one = options["is_tombstone"] or options["whole_value"] is not None
    if options["line_format"] == "json" and is_one:
        raise click.UsageError("--format json is for lines: leave out --whole-value or --tombstone")
    for name, is_given in for_lines.items():
        if is_given and options["line_format"] == "json":
            raise click.UsageError(f"{name} is for --format raw: JSON objects contain it")
        if is_given and is_one:
            raise click.UsageError(f"{name} is for lines: leave it out")


def _parser(options: _Input) -> ParseLines:
    if options["line_format"] == "json":
        return parse_json
    separator, null = options["key_separator"], options["null_value"]
    return TextLines(
        separator=None if separator is None else os.fsencode(separator),
        null=None if null is None else os.fsencode(null),
        key_encoding=options["key_encoding"],
        value_encoding=options["value_encoding"],
    ).parse


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


async def _produce(topic: str, options: _Options, *, reading: _Reading) -> None:
    delivering = trio.CancelScope()
    sending = _Sending(topic, options, reading)

    def end() -> None:
        sending.stop_reading()
        delivering.deadline = trio.current_time() + _GRACE_S

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

    def __init__(self, topic: str, options: _Options, reading: _Reading) -> None:
        self._topic = topic
        self._partition = options["partition"]
        self._headers = options["headers"]
        self._key = None if options["key"] is None else os.fsencode(options["key"])
        self._source, self._parse = reading
        self._reading = trio.CancelScope()
        self._is_ending = False
        self.count = 0
        """Records that the producer accepted."""

    def stop_reading(self) -> None:
        """Let `send_all` end after the lines that were read."""
        self._is_ending = True
        self._reading.cancel()

    async def send_all(self, producer: Producer) -> None:
        """Send all lines of the input.

        Raises:
            TidelogError: An earlier record failed.
            CommandError: A line is too long, or has not the expected form.
            OSError: The input cannot be read.
        """
        while not self._is_ending:
            lines: list[bytes] = []
            with trio.CancelScope() as self._reading:
                lines = await self._source.next_lines()
            if not lines:
                return
            try:
                for record in self._parse(lines):
                    while not self._send(producer, record):
                        await producer.wait_writable()
            except ValueError as error:
                raise CommandError(f"line {self.count + 1:,} {error}") from error

    def _send(self, producer: Producer, record: LineRecord) -> bool:
        """Send a record; return whether the producer had room for it."""
        key, value, headers, timestamp_ms = record
        try:
            producer.send_nowait(
                self._topic,
                value,
                key=key if self._key is None else self._key,
                partition=self._partition,
                headers=[*headers, *self._headers] if headers else self._headers,
                timestamp_ms=timestamp_ms,
            )
        except trio.WouldBlock:
            return False
        self.count += 1
        return True


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
