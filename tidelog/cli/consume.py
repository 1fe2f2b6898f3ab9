"""The command `tidelog consume`, which prints the records of a topic."""

import sys
from collections.abc import Mapping
from typing import BinaryIO, Literal, TypedDict, Unpack

import click
import trio

from tidelog.cli.client import open_client
from tidelog.cli.connected import ConnectedCommand, broker_address
from tidelog.cli.names import Name
from tidelog.cli.options import examples, read_moment
from tidelog.cli.output.record_format import FormatBatch, json_format, raw_format
from tidelog.client.client import Client
from tidelog.client.config import OffsetReset, ReadFrom
from tidelog.client.consumer.consumer import Consumer
from tidelog.client.consumer.fetch.record import RecordBatch
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.errors import OffsetOutOfRangeError


class _Options(TypedDict):
    """The options besides `--broker`."""

    from_beginning: bool
    offset: int | None
    since_ms: int | None
    partition: int | None
    group_id: str | None
    count_max: int | None
    until_end: bool
    line_format: Literal["raw", "json"]
    key_separator: str | None
    read_from: ReadFrom
    client_rack: str | None


@click.command(
    cls=ConnectedCommand,
    epilog=examples(
        "tidelog consume orders --from-beginning --until-end",
        "tidelog consume orders --since 1h --format json | jq .value",
        "tidelog consume orders --partition 0 --offset 1000 --max 10",
        "tidelog consume orders --group billing --from-beginning",
        "tidelog consume orders --read-from nearest --client-rack rack-a",
    ),
)
@click.argument("topic", cls=Name, kind="topic")
@click.option("--from-beginning", is_flag=True, help="Start at the log start offset.")
@click.option("--offset", type=click.IntRange(min=0), help="Start at this offset.")
@click.option(
    "--since",
    "since_ms",
    metavar="TIME",
    callback=read_moment,
    help="Start at this time: ISO 8601, or an age such as 30min.",
)
@click.option("--partition", type=click.IntRange(min=0), help="Read only this partition.")
@click.option(
    "--group",
    "group_id",
    metavar="G",
    help="Join this consumer group; start at its offsets.",
)
@click.option("--max", "count_max", type=click.IntRange(min=1), help="Stop after N records.")
@click.option("--until-end", is_flag=True, help="Stop at the current end of the topic.")
@click.option(
    "--format",
    "line_format",
    type=click.Choice(("raw", "json")),
    default="raw",
    show_default=True,
    help="Print each value, or each record as a JSON object.",
)
@click.option("--key-separator", metavar="SEP", help="Print the key and SEP before each value.")
@click.option(
    "--read-from",
    type=click.Choice(("leader", "followers", "nearest")),
    default="leader",
    show_default=True,
    help="Choose the replica to read; followers lag a little.",
)
@click.option(
    "--client-rack", metavar="NAME", help="Name the rack of this client, for --read-from nearest."
)
def consume(topic: str, **options: Unpack[_Options]) -> None:
    """Print the records of a topic, one per line.

    Starts at the end of the topic by default. Records of a partition are in offset order. With
    --group, starts at the committed offsets of the group and commits printed records.
    """
    _check(options)
    is_for_ever = options["group_id"] is None and not options["until_end"]
    if sys.stderr.isatty() and _starts_at_end(options) and is_for_ever:
        click.echo(
            f"waiting for new records of {topic}; --from-beginning prints all records", err=True
        )
    trio.run(_consume, topic, options)


def _starts_at_end(options: _Options) -> bool:
    return not options["from_beginning"] and options["offset"] is options["since_ms"] is None


def _check(options: _Options) -> None:
    """Raise if options contradict each other.

    Raises:
        click.UsageError: Two options contradict each other.
    """
    starts = [
        options["from_beginning"],
        options["offset"] is not None,
        options["since_ms"] is not None,
    ]
    if sum(starts) > 1:
        raise click.UsageError("choose one of --from-beginning, --offset and --since")
    if options["offset"] is not None and options["partition"] is None:
        raise click.UsageError("--offset needs a partition: add --partition N")
    if options["key_separator"] is not None and options["line_format"] == "json":
        raise click.UsageError("--key-separator needs --format raw: JSON contains the key anyway")
    if (options["read_from"] == "nearest") != bool(options["client_rack"]):
        raise click.UsageError(
            "--read-from nearest and --client-rack NAME go together: give both or none"
        )
    places = (options["offset"], options["since_ms"], options["partition"])
    if options["group_id"] is not None and any(place is not None for place in places):
        raise click.UsageError(
            "--group excludes --offset, --since and --partition: the group assigns partitions and"
            " keeps offsets; reset them with `tidelog group reset-offsets`"
        )


async def _consume(topic: str, options: _Options) -> None:
    separator = options["key_separator"]
    if options["line_format"] == "json":
        format_batch: FormatBatch = json_format
    else:
        format_batch = raw_format(None if separator is None else separator.encode())
    async with open_client(broker_address()) as client:
        if options["group_id"] is not None:
            await _consume_in_group(
                client, topic, options["group_id"], options=options, format_batch=format_batch
            )
            return
        partition = options["partition"]
        partitions = None if partition is None else [partition]
        async with client.consumer(
            topic,
            partitions=partitions,
            read_from=options["read_from"],
            client_rack=options["client_rack"],
        ) as consumer:
            await _seek(consumer, options)
            until = await consumer.end_offsets() if options["until_end"] else None
            _check_offset(options["offset"], until)
            await _print(consumer, until, options["count_max"], format_batch=format_batch)


async def _consume_in_group(
    client: Client, topic: str, group_id: str, *, options: _Options, format_batch: FormatBatch
) -> None:
    await client.admin.describe_topics([topic])  # A group would wait for the topic to be created.
    is_assigned = trio.Event()

    async def note(partitions: list[TopicPartition]) -> None:
        del partitions
        await trio.lowlevel.checkpoint()
        is_assigned.set()

    reset: OffsetReset = "earliest" if options["from_beginning"] else "latest"
    async with client.consumer(
        topic,
        group_id=group_id,
        auto_offset_reset=reset,
        on_assigned=note,
        read_from=options["read_from"],
        client_rack=options["client_rack"],
    ) as consumer:
        until = None
        if options["until_end"]:
            await is_assigned.wait()
            until = await consumer.end_offsets()
        if await _print(consumer, until, options["count_max"], format_batch=format_batch):
            await consumer.commit()


async def _print(
    consumer: Consumer,
    until: Mapping[TopicPartition, int] | None,
    count_max: int | None,
    *,
    format_batch: FormatBatch,
) -> bool:
    """Print records; return whether `count_max` ended it."""
    unread_count = count_max
    async for batch in consumer.batches(until):
        part = batch if unread_count is None else _first(batch, unread_count)
        _write(sys.stdout.buffer, format_batch(part))
        if unread_count is not None:
            unread_count -= len(part)
            if unread_count == 0:
                if part is not batch:
                    consumer.give_back(batch.between(part.next_offset, None))
                return True
    return False


async def _seek(consumer: Consumer, options: _Options) -> None:
    offset = options["offset"]
    since_ms = options["since_ms"]
    if offset is not None:
        for at in consumer.assignment:
            consumer.seek(at.topic, at.partition, offset)
    elif since_ms is not None:
        await consumer.seek_to_time(since_ms)
    elif options["from_beginning"]:
        await consumer.seek_to_beginning()
    else:
        await consumer.seek_to_end()


def _check_offset(offset: int | None, until: Mapping[TopicPartition, int] | None) -> None:
    """Raise if `--until-end` would print nothing because the offset is beyond the end.

    Raises:
        OffsetOutOfRangeError: The offset is beyond the end.
    """
    for at, end_offset in (until or {}).items():
        if offset is not None and offset > end_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} is beyond the end of {at.topic}/{at.partition}: the next record"
                f" will have offset {end_offset}",
                log_end_offset=end_offset,
            )


def _first(batch: RecordBatch, count: int) -> RecordBatch:
    if len(batch) <= count:
        return batch
    return batch.between(batch.base_offset, batch.offsets[count])


def _write(output: BinaryIO, lines: bytes) -> None:
    # Flushed per batch, so that the reader of a pipe does not lag. A slow reader blocks the loop:
    # that is the intended backpressure.
    output.write(lines)
    output.flush()
