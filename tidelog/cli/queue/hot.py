"""The command `tidelog queue hot`: the largest message groups of a queue."""

import click

from tidelog.cli.client import ask
from tidelog.cli.connected import ConnectedCommand
from tidelog.cli.names import Name
from tidelog.cli.options import examples, json_option
from tidelog.cli.output.keys import key_text
from tidelog.cli.output.record_format import text_of
from tidelog.cli.output.tables import counted, print_fields, print_json, print_table
from tidelog.client.admin.hot_keys import HotMessageGroups
from tidelog.wire.messages.hot_keys import HOT_KEYS_MAX


@click.command(
    cls=ConnectedCommand,
    epilog=examples("tidelog queue hot payments", "tidelog queue hot payments --limit 3"),
)
@click.argument("name", cls=Name, kind="queue")
@click.option(
    "--limit",
    type=click.IntRange(1, HOT_KEYS_MAX),
    default=10,
    show_default=True,
    help="Show so many groups.",
)
@json_option
def hot(name: str, limit: int, *, as_json: bool) -> None:
    """Show the message groups with the most messages.

    Their leaders count the messages exactly. A FIFO queue and one with fair_delivery have groups;
    `tidelog topic hot` shows the most frequent keys of any topic.
    """
    found = ask(lambda client: client.admin.hot_message_groups(name, limit))
    if as_json:
        print_json(hot_groups_as_json(found))
    elif not found.groups:
        click.echo("there are no message groups with messages now", err=True)
    else:
        print_hot_groups(found)


def hot_groups_as_json(found: HotMessageGroups) -> dict[str, object]:
    """Return the groups of a queue; keys that are no UTF-8 as base64."""
    return {
        "queue": found.queue,
        "partition_count": found.partition_count,
        "answered_count": found.answered_count,
        "groups": [
            {
                "partition": each.partition,
                "key": text_of(each.key),
                "key_bytes": each.key_bytes,
                "message_count": each.message_count,
                "not_visible_count": each.not_visible_count,
            }
            for each in found.groups
        ],
    }


def print_hot_groups(found: HotMessageGroups) -> None:
    """Print one line for each group."""
    missing = found.partition_count - found.answered_count
    if missing:
        print_fields({"no answer": f"from the leaders of {counted(missing, 'partition')}"})
    print_table(
        ["PARTITION", "MESSAGES", "NOT VISIBLE", "GROUP"],
        [
            (
                each.partition,
                each.message_count,
                each.not_visible_count,
                key_text(each.key, each.key_bytes),
            )
            for each in found.groups
        ],
        right=("PARTITION", "MESSAGES", "NOT VISIBLE"),
    )
