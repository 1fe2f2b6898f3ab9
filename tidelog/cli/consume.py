"""The command `tidelog consume`, which prints the records of a topic (Kafka: console consumer)."""

import os
import sys
from collections.abc import Mapping
from typing import TypedDict, Unpack, final

import click
import trio

from tidelog.cli.client import ask
from tidelog.cli.connected import ConnectedCommand
from tidelog.cli.names import Name
from tidelog.cli.options import examples, read_moment
from tidelog.cli.output.record_format import (
    ENCODINGS,
    Encoding,
    FieldText,
    FormatBatch,
    json_format,
    raw_format,
    token_format,
)
from tidelog.cli.output_pipe import OutputPipe
from tidelog.cli.places import Place, PlaceType, offsets_at, place_option
from tidelog.client.client import Client
from tidelog.client.config import OffsetReset, ReadFrom
from tidelog.client.consumer.consumer import Consumer
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.errors import OffsetOutOfRangeError

_GRACE_S = 5.0
"""Seconds after a signal in which a member may commit and leave its group."""


class _Start(TypedDict):
    """The options for the place to start at; at most one is given."""

    place: Place | None
    from_beginning: bool
    offset: Place | None
    since_ms: int | None
    tail: int | None


class _Format(TypedDict):
    """The options for the form of the output."""

    line_format: str
    as_json: bool
    key_separator: str | None
    null_value: str | None
    key_encoding: Encoding
    value_encoding: Encoding


class _Options(_Start, _Format):
    """The options besides `--broker`."""

    partition: int | None
    group_id: str | None
    count_max: int | None
    until_end: bool
    read_from: ReadFrom
    client_rack: str | None


@click.command(
    cls=ConnectedCommand,
    epilog=examples(
        "tidelog consume orders --from beginning --until-end",
        "tidelog consume orders --from 1h --json | jq .value",
        "tidelog consume orders --partition 0 --from 1000 --max 10",
        "tidelog consume orders --tail 5 -f '%T %k %s\\n'",
        "tidelog consume orders --group billing --from beginning",
        "tidelog consume orders --read-from nearest --client-rack rack-a",
    ),
)
@click.argument("topic", cls=Name, kind="topic")
@place_option("-o", "--from")
@click.option("--from-beginning", is_flag=True, help="Same as --from beginning.")
@click.option("--offset", type=PlaceType(), metavar="OFFSET", help="Same as --from.")
@click.option(
    "--since", "since_ms", metavar="TIME", callback=read_moment, help="Same as --from TIME."
)
@click.option("--tail", type=click.IntRange(min=1), metavar="N", help="Same as --from -N.")
@click.option("-p", "--partition", type=click.IntRange(min=0), help="Read only this partition.")
@click.option(
    "--group",
    "group_id",
    metavar="G",
    help="Join this consumer group; start at its offsets.",
)
@click.option(
    "-c",
    "-n",
    "--max",
    "--max-messages",
    "count_max",
    type=click.IntRange(min=1),
    help="Stop after N records.",
)
@click.option("-e", "--until-end", is_flag=True, help="Stop at the current end of the topic.")
@click.option(
    "-f",
    "--format",
    "line_format",
    default="raw",
    show_default=True,
    metavar="raw|json|FORMAT",
    help="Print values, JSON objects, or a format as '%k %s\\n'.",
)
@click.option("-J", "--json", "as_json", is_flag=True, help="Same as --format json.")
@click.option(
    "-K", "--key-separator", metavar="SEP", help="Print the key and SEP before each value."
)
@click.option(
    "--null-value", metavar="TEXT", help="Print TEXT for an absent key or value.  [empty]"
)
@click.option(
    "--key-encoding", type=click.Choice(ENCODINGS), default="text", help="Print keys as base64."
)
@click.option(
    "--value-encoding", type=click.Choice(ENCODINGS), default="text", help="Print values as base64."
)
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
    r"""Print the records of a topic, one per line.

    Starts at the end of the topic by default, and waits for new records: there is no option for
    that, and -f is the format, as in kcat. Records of a partition are in offset order. With
    --group, starts at the committed offsets of the group and commits printed records, also when
    SIGTERM or Ctrl-C ends the command.

    A bare number after --from is an offset. The tokens of a format are %t topic, %p partition, %o
    offset, %T timestamp in Unix milliseconds, %k key, %s (or %v) value, %K and %S their lengths in
    bytes, -1 if absent, %R the length of the value in 4 bytes, %h headers, and %%. Line ends are
    part of a format: \n. --json shows absent and empty values, and bytes that are no text.
    """
    place = _place(options)
    _check(options, place)
    format_batch = _format(options)
    is_for_ever = options["group_id"] is None and not options["until_end"]
    if sys.stderr.isatty() and place is None and is_for_ever:
        click.echo(
            f"waiting for new records of {topic}; --from beginning prints all records", err=True
        )
    printing = _Printing(format_batch, options["count_max"])
    if options["group_id"] is None:
        ask(
            lambda client: _read(
                client, topic, place or "latest", options=options, printing=printing
            ),
        )
    else:
        ask(
            lambda client: _read_in_group(
                client, topic, place or "latest", options=options, printing=printing
            ),
            grace_s=_GRACE_S,
        )


def _place(options: _Start) -> Place | None:
    """Return the place to start at, `None` without an option for it.

    Raises:
        click.UsageError: Several options are given.
    """
    places: list[Place] = []
    if options["place"] is not None:
        places.append(options["place"])
    if options["from_beginning"]:
        places.append("earliest")
    if options["offset"] is not None:
        places.append(options["offset"])
    if options["since_ms"] is not None:
        places.append(("time", options["since_ms"]))
    if options["tail"] is not None:
        places.append(("last", options["tail"]))
    if len(places) > 1:
        raise click.UsageError(
            "choose one of --from, --from-beginning, --offset, --since and --tail"
        )
    return places[0] if places else None


def _check(options: _Options, place: Place | None) -> None:
    """Raise if options contradict each other.

    Raises:
        click.UsageError: Two options contradict each other.
    """
    if (options["read_from"] == "nearest") != bool(options["client_rack"]):
        raise click.UsageError(
            "--read-from nearest and --client-rack NAME go together: give both or none"
        )
    if options["until_end"] and place is None and options["group_id"] is None:
        raise click.UsageError(
            "--until-end prints nothing without a start, which is the end by default: add --from"
            " beginning, or --from 1h"
        )
    is_elsewhere = place not in (None, "earliest", "latest") or options["partition"] is not None
    if options["group_id"] is not None and is_elsewhere:
        raise click.UsageError(
            "--group excludes --partition, and starts other than beginning and end: the group"
            " assigns partitions and keeps offsets; reset them with `tidelog group reset-offsets`"
        )


def _format(options: _Format) -> FormatBatch:
    """Return the formatter of records.

    Raises:
        click.UsageError: Options contradict each other, or the format has an error.
    """
    null, separator, text = options["null_value"], options["key_separator"], options["line_format"]
    fields = FieldText(
        null=os.fsencode(null or ""),
        key_encoding=options["key_encoding"],
        value_encoding=options["value_encoding"],
    )
    if options["as_json"] and text not in ("raw", "json"):
        raise click.UsageError("--json and --format exclude each other: give one of them")
    is_json = options["as_json"] or text == "json"
    if separator is not None and (is_json or text != "raw"):
        raise click.UsageError(
            "--key-separator needs --format raw: JSON contains the key, and formats have %k"
        )
    if is_json:
        if null is not None:
            raise click.UsageError("--null-value needs another format: JSON has null")
        return json_format(fields)
    if text == "raw":
        return raw_format(None if separator is None else os.fsencode(separator), fields)
    if "%" not in text:
        raise click.UsageError(
            f"{text!r} is no format: write raw, json, or tokens such as '%k %s\\n'; -f is the"
            " format, and the command waits for new records without an option"
        )
    try:
        return token_format(os.fsencode(text), fields)
    except ValueError as error:
        raise click.UsageError(f"--format '{text}': {error}") from error


async def _read(
    client: Client, topic: str, place: Place, *, options: _Options, printing: "_Printing"
) -> None:
    """Print records of all partitions, or one."""
    partition = options["partition"]
    async with client.consumer(
        topic,
        partitions=None if partition is None else [partition],
        read_from=options["read_from"],
        client_rack=options["client_rack"],
    ) as consumer:
        numbers = [at.partition for at in consumer.assignment]
        offsets = await offsets_at(client, topic, place, partitions=numbers)
        for number, offset in offsets.items():
            consumer.seek(topic, number, offset)
        until = await consumer.end_offsets() if options["until_end"] else None
        _check_offsets(offsets, until)
        await printing.print_all(consumer, until)


async def _read_in_group(
    client: Client, topic: str, place: Place, *, options: _Options, printing: "_Printing"
) -> None:
    """Print records of the partitions that the group assigns, and commit those."""
    await client.admin.describe_topics([topic])  # A group would wait for the topic to be created.
    is_assigned = trio.Event()

    async def note(partitions: list[TopicPartition]) -> None:
        del partitions
        await trio.lowlevel.checkpoint()
        is_assigned.set()

    reset: OffsetReset = "earliest" if place == "earliest" else "latest"
    async with client.consumer(
        topic,
        group_id=options["group_id"],
        auto_offset_reset=reset,
        on_assigned=note,
        read_from=options["read_from"],
        client_rack=options["client_rack"],
    ) as consumer:
        until = None
        if options["until_end"]:
            await is_assigned.wait()
            until = await consumer.end_offsets()
        try:
            await printing.print_all(consumer, until)
        except trio.Cancelled:
            with trio.move_on_after(_GRACE_S, shield=True):
                await consumer.commit()  # Otherwise the next member prints the last batch again.
            raise
        await consumer.commit()


@final
class _Printing:
    """Prints records to standard output."""

    def __init__(self, format_batch: FormatBatch, count_max: int | None) -> None:
        self._format_batch = format_batch
        self._unread_count = count_max
        self._output = OutputPipe(sys.stdout.buffer)

    async def print_all(
        self, consumer: Consumer, until: Mapping[TopicPartition, int] | None
    ) -> None:
        """Print records up to `until` or the maximum, else without end.

        Afterwards the consumer has handed out what was printed, and no more: also after an error,
        and if cancelled.
        """
        async with trio.open_nursery() as nursery:
            # `head -1` ends a command that waits for further records.
            nursery.start_soon(self._output.raise_when_closed)
            await self._print_batches(consumer, until)
            nursery.cancel_scope.cancel()

    async def _print_batches(
        self, consumer: Consumer, until: Mapping[TopicPartition, int] | None
    ) -> None:
        async for batch in consumer.batches(until):
            part = batch if self._unread_count is None else batch.first(self._unread_count)
            try:
                await self._output.write(self._format_batch(part))
            except BaseException:
                consumer.give_back(batch)
                raise
            if self._unread_count is not None:
                self._unread_count -= len(part)
                if self._unread_count == 0:
                    if part is not batch:
                        consumer.give_back(batch.between(part.next_offset, None))
                    return


def _check_offsets(offsets: Mapping[int, int], until: Mapping[TopicPartition, int] | None) -> None:
    """Raise if `--until-end` would print nothing because an offset is beyond the end.

    Raises:
        OffsetOutOfRangeError: The offset is beyond the end.
    """
    for at, end_offset in (until or {}).items():
        offset = offsets[at.partition]
        if offset > end_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} is beyond the end of {at.topic}/{at.partition}: the next record"
                f" will have offset {end_offset}",
                log_end_offset=end_offset,
            )
