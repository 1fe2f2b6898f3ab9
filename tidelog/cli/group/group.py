"""The commands `tidelog group`: list, describe, alter, reset and delete consumer groups."""

from collections.abc import Sequence
from typing import TypedDict, Unpack

import click

from tidelog.cli.client import ask, confirm
from tidelog.cli.connected import ConnectedGroup
from tidelog.cli.errors import CommandError
from tidelog.cli.group.view import (
    group_as_json,
    listing_as_json,
    moves_as_json,
    print_group,
    print_groups,
    print_moves,
)
from tidelog.cli.names import Name
from tidelog.cli.options import (
    change_options,
    examples,
    json_option,
    require_changes,
)
from tidelog.cli.output.tables import print_json, print_settings
from tidelog.cli.places import (
    Place,
    offsets_at,
    place_option,
    replaced_option,
    require_one_partition,
)
from tidelog.client.admin.groups import OffsetMove, ResetPlace
from tidelog.client.client import Client
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.config.group_config import GROUP_SETTINGS

_STATES = ("empty", "assigning", "reconciling", "stable")


class _ResetOptions(TypedDict):
    """The options of `reset-offsets`."""

    topics: tuple[str, ...]
    partitions: tuple[int, ...]
    place: Place | None
    shift: int | None


@click.group(cls=ConnectedGroup)
def group() -> None:
    """Describe, alter, reset and delete consumer groups."""


@group.command("list", epilog=examples("tidelog group list", "tidelog group list --state empty"))
@click.option(
    "--state",
    "states",
    type=click.Choice(_STATES),
    multiple=True,
    help="List only groups in this state; repeatable.",
)
@json_option
def list_all(states: tuple[str, ...], as_json: bool) -> None:
    """List consumer groups."""
    found = ask(lambda client: client.admin.list_groups(states or None))
    if as_json:
        print_json([listing_as_json(each) for each in found])
    elif not found:
        click.echo("there is no such group; the first member of a group creates it", err=True)
    else:
        print_groups(found)


@group.command(epilog=examples("tidelog group describe billing"))
@click.argument("group_id", cls=Name, kind="group", metavar="GROUP")
@json_option
def describe(group_id: str, as_json: bool) -> None:
    """Show the members, assignments and lag of a group."""
    found = ask(lambda client: client.admin.describe_group(group_id))
    if as_json:
        print_json(group_as_json(found))
    else:
        print_group(found)


@group.command(
    "reset-offsets",
    short_help="Reset the committed offsets of a group.",
    epilog=examples(
        "tidelog group reset-offsets billing --topic orders --from beginning --dry-run",
        "tidelog group reset-offsets billing --topic orders --from 2h",
        "tidelog group reset-offsets billing --topic orders --from -100",
        "tidelog group reset-offsets billing --topic orders --partition 3 --shift -100",
    ),
)
@click.argument("group_id", cls=Name, kind="group", metavar="GROUP")
@click.option(
    "--topic", "topics", multiple=True, required=True, help="Reset in this topic; repeatable."
)
@click.option(
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    help="Reset only this partition; repeatable.",
)
@place_option("--from", verb="Read from")
@click.option(
    "--shift", type=int, metavar="N", help="Move each offset by N; a negative N moves it back."
)
@replaced_option("--to-earliest", "--from beginning", is_flag=True)
@replaced_option("--to-latest", "--from end", is_flag=True)
@replaced_option("--to-offset", "--from OFFSET")
@replaced_option("--to-time", "--from TIME")
@click.option("--dry-run", is_flag=True, help="Print the result and change nothing.")
@json_option
def reset_offsets(
    group_id: str, as_json: bool, *, dry_run: bool, **options: Unpack[_ResetOptions]
) -> None:
    """Reset the committed offsets of a group.

    The group must have no member that reads these partitions: stop its members first. The command
    resets all partitions, or none.
    """
    if (options["place"] is None) == (options["shift"] is None):
        raise click.UsageError("choose one target: add either --from PLACE or --shift N")
    topics, partitions = options["topics"], options["partitions"]
    if partitions and len(topics) != 1:
        raise click.UsageError("--partition needs a single topic: give --topic once")

    async def call(client: Client) -> dict[TopicPartition, OffsetMove]:
        wanted = await _wanted(client, topics, partitions)
        to = await _target(client, wanted, options)
        return await client.admin.reset_offsets(group_id, wanted, to, validate_only=dry_run)

    moves = ask(call)
    if as_json:
        print_json(moves_as_json(group_id, moves, dry_run=dry_run))
        return
    print_moves(moves)
    if dry_run:
        click.echo("nothing was changed: --dry-run", err=True)


@group.command(
    epilog=examples(
        "tidelog group alter billing --set alert_lag_ms=5min --set owner=payments@example.org",
        "tidelog group alter billing --reset alert_lag_ms",
    )
)
@click.argument("group_id", cls=Name, kind="group", metavar="GROUP")
@change_options
@json_option
def alter(
    group_id: str,
    changes: tuple[tuple[str, str], ...],
    resets: tuple[str, ...],
    *,
    as_json: bool,
) -> None:
    """Alter the owner and the alert thresholds of a group.

    A group that does not exist is created without members. A group with settings does not expire;
    its deletion deletes them.
    """
    require_changes(changes, resets)

    async def call(client: Client) -> dict[str, str]:
        return await client.admin.alter_group(group_id, set=dict(changes), reset=resets)

    config = ask(call)
    if as_json:
        print_json({"group_id": group_id, "config": config})
    else:
        overrides = [name for name in config if config[name] != GROUP_SETTINGS[name].default]
        print_settings(config, overrides, "group")


@group.command(epilog=examples("tidelog group delete billing --yes"))
@click.argument("group_id", cls=Name, kind="group", metavar="GROUP")
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask for confirmation.")
@json_option
def delete(group_id: str, is_sure: bool, *, as_json: bool) -> None:
    """Delete a group without members, and its committed offsets."""
    if not is_sure:
        confirm(f"delete group {group_id} and its committed offsets?")

    if not ask(lambda client: client.admin.delete_group(group_id)):
        raise CommandError(f"there is no group {group_id!r}; `tidelog group list` lists the groups")
    if as_json:
        print_json({"deleted": group_id})
    else:
        click.echo(f"deleted group {group_id}")


async def _target(
    client: Client, wanted: Sequence[tuple[str, int]], options: _ResetOptions
) -> ResetPlace | dict[TopicPartition, int]:
    """Return the target of the reset: the offset of each partition, if it depends on that.

    Raises:
        click.UsageError: The target is an offset, and there are several partitions.
    """
    place = options["place"]
    if place is None:
        return ("shift", options["shift"] or 0)
    if isinstance(place, str):
        return place
    kind, value = place
    if kind == "time":
        return ("time", value)
    if kind == "offset":
        require_one_partition(value, wanted)
        return ("offset", value)
    offsets: dict[TopicPartition, int] = {}
    for topic in dict.fromkeys(topic for topic, _ in wanted):
        numbers = [number for each, number in wanted if each == topic]
        found = await offsets_at(client, topic, place, partitions=numbers)
        offsets |= {TopicPartition(topic, number): each for number, each in found.items()}
    return offsets


async def _wanted(
    client: Client, topics: Sequence[str], partitions: Sequence[int]
) -> list[tuple[str, int]]:
    if partitions:
        return [(topics[0], number) for number in dict.fromkeys(partitions)]
    described = await client.admin.describe_topics(dict.fromkeys(topics))
    return [(topic.name, number) for topic in described for number in range(len(topic.partitions))]
