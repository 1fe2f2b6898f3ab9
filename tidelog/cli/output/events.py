"""Events of the cluster, as text and JSON."""

from collections.abc import Sequence

import click
from msgspec.structs import asdict

from tidelog.cli.output.tables import print_table
from tidelog.cli.output.times import moment_text
from tidelog.wire.messages.cluster_admin import EventDescription

_COLUMNS = ["ID", "TIME", "EVENT", "TOPIC", "PARTITION", "NODE", "FIRST", "END", "RECORDS"]
_NUMBERS = ("ID", "PARTITION", "NODE", "FIRST", "END", "RECORDS")
_NEWEST = 5


def event_as_json(event: EventDescription) -> dict[str, object]:
    """Return all fields of an event."""
    return {**asdict(event), "topic_id": event.topic_id.hex()}


def print_events(events: Sequence[EventDescription]) -> None:
    """Print one line for each event."""
    rows = [
        (
            each.event_id,
            moment_text(each.at_ms),
            each.kind,
            each.topic or None,
            each.partition,
            each.node_id,
            each.first_offset,
            each.end_offset,
            each.record_count,
            each.detail,
        )
        for each in events
    ]
    print_table([*_COLUMNS, "DETAIL"], rows, right=_NUMBERS)


def print_newest_events(events: Sequence[EventDescription]) -> None:
    """Print the newest unacknowledged events below other output; nothing without events."""
    if not events:
        return
    newest = events[-_NEWEST:]
    count = f"the newest {len(newest)} of {len(events):,}" if len(newest) < len(events) else "all"
    click.echo(f"\nevents that are not acknowledged, {count}; see tidelog cluster events:")
    print_events(newest)
