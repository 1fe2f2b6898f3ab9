"""The command `tidelog queue history`, which prints the events of messages."""

from collections.abc import Mapping, Sequence

import click

from tidelog.cli.client import ask
from tidelog.cli.connected import ConnectedCommand
from tidelog.cli.names import Name
from tidelog.cli.options import examples, json_option, read_moment
from tidelog.cli.output.tables import counted, print_json, print_table
from tidelog.cli.output.times import moment_text
from tidelog.client.client import Client
from tidelog.client.queue.inspect.history import HistoryEvent

_Names = Mapping[bytes, str]
"""Names of topics, by id."""


@click.command(
    cls=ConnectedCommand,
    epilog=examples(
        "tidelog queue history payments --since 1h",
        "tidelog queue history payments --message 0-17",
        "tidelog queue history payments --trace 4bf92f3577b34da6a3ce929d0e0e4736",
        "tidelog queue history payments --max 100000 --json",
    ),
)
@click.argument("name", cls=Name, kind="queue", metavar="QUEUE")
@click.option(
    "--since",
    "since_ms",
    metavar="TIME",
    callback=read_moment,
    help="Show events since: ISO 8601, or an age such as 30min.",
)
@click.option("--message", "message_id", metavar="MESSAGE_ID", help="Show only this message.")
@click.option("--trace", "trace_id", metavar="TRACE_ID", help="Show the messages of a trace.")
@click.option(
    "--max",
    "max_events",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Show this many events at most, the newest.",
)
@json_option
def history(
    name: str,
    since_ms: int | None,
    message_id: str | None,
    *,
    trace_id: str | None,
    max_events: int,
    as_json: bool,
) -> None:
    """Show the deliveries and outcomes of messages.

    The queue keeps its history for history_retention_ms, a day by default. The expiry of a
    visibility timeout is not an event: see the column UNTIL. With --message, a purge and other
    events of many messages are included if they changed this message.

    With --trace, it shows the messages whose header `traceparent` has this trace id, deleted ones
    included. For that it reads all records that the topic keeps, or those since --since. It does
    not find messages that were sent without a trace context, or whose records the topic deleted.
    """
    if message_id is not None and trace_id is not None:
        raise click.UsageError("--message and --trace exclude each other; give one of them")

    async def call(client: Client) -> tuple[list[HistoryEvent], _Names]:
        queue = client.queue(name)
        try:
            found = await queue.history(
                max_events, since_ms=since_ms or 0, message_id=message_id, trace_id=trace_id
            )
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        if not any(each.target for each in found):
            return found, {}
        topics = await client.admin.describe_topics()
        return found, {topic.topic_id: topic.name for topic in topics}

    found, names = ask(call)
    if as_json:
        print_json([event_as_json(each, names) for each in found])
    elif found:
        print_events(found, names)
    elif trace_id is None:
        click.echo("the history of the queue has no such event", err=True)
    else:
        click.echo(
            "no message with this trace has an event: the topic has no record with the trace id,"
            " or nothing has happened to it yet; see --help",
            err=True,
        )


def event_as_json(event: HistoryEvent, names: _Names) -> dict[str, object]:
    """Return all fields of an event."""
    return {
        "time_ms": event.time_ms,
        "event": str(event.kind),
        "partition": event.partition,
        "offset": event.offset,
        "message_id": _message(event),
        "holder": event.holder or None,
        "receive_count": None if event.offset is None else event.receive_count,
        "lease_id": event.lease_id,
        "visible_at_ms": event.visible_at_ms,
        "reason": event.reason or None,
        "below_offset": event.below_offset,
        "message_count": event.message_count,
        "target": _target(event, names),
        "journal_offset": event.journal_offset,
    }


def print_events(events: Sequence[HistoryEvent], names: _Names) -> None:
    """Print a line for each event."""
    rows = [
        (
            moment_text(event.time_ms),
            str(event.kind),
            _message(event) or f"{event.partition}-*",
            None if event.offset is None else event.receive_count,
            event.holder or None,
            None if event.visible_at_ms is None else moment_text(event.visible_at_ms),
            _details(event, names),
        )
        for event in events
    ]
    columns = ["TIME", "EVENT", "MESSAGE", "RECEIVES", "HOLDER", "UNTIL", "DETAILS"]
    print_table(columns, rows, right=["RECEIVES"])


def _message(event: HistoryEvent) -> str | None:
    return None if event.offset is None else f"{event.partition}-{event.offset}"


def _target(event: HistoryEvent, names: _Names) -> str | None:
    if not event.target or not event.target[0]:
        return None
    topic_id, partition = event.target
    return f"{names.get(topic_id, topic_id.hex())}/{partition}"


def _details(event: HistoryEvent, names: _Names) -> str:
    """Return the text of the column DETAILS."""
    target = _target(event, names)
    is_about_many = event.offset is None and event.message_count > 0
    parts = [
        f"at offset {event.below_offset}" if event.below_offset is not None else "",
        counted(event.message_count, "message") if is_about_many else "",
        f"to {target}" if target else "",
        event.reason,
    ]
    return ", ".join(part for part in parts if part)
