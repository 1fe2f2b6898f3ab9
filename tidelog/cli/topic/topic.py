"""The commands `tidelog topic`: create, describe, alter and delete topics."""

from typing import Unpack

import click

from tidelog.cli.client import ask, confirm
from tidelog.cli.cluster.reassign import run_moves
from tidelog.cli.connected import ConnectedGroup
from tidelog.cli.names import Name
from tidelog.cli.options import (
    Changes,
    NameAndValue,
    alter_arguments,
    examples,
    json_option,
    label_change_options,
    label_option,
    list_options,
)
from tidelog.cli.output.tables import counted, print_json, print_labels, print_names
from tidelog.cli.places import Place, offsets_at, place_option, replaced_option
from tidelog.cli.topic.replication import ReplicationChange, replication_options
from tidelog.cli.topic.usage_view import print_usage, print_usages, usage_as_json
from tidelog.cli.topic.view import (
    growth_notes,
    print_topic,
    print_topic_settings,
    print_topics,
    topic_as_json,
)
from tidelog.client.client import Client
from tidelog.wire.messages.hot_keys import HOT_KEYS_MAX
from tidelog.wire.messages.topics import DeleteRecordsReply, TopicDescription


@click.group(cls=ConnectedGroup)
def topic() -> None:
    """Create, describe, alter and delete topics."""


@topic.command(
    epilog=examples(
        "tidelog topic create orders --partitions 6",
        "tidelog topic create metrics --config retention_ms=1d --config durability=replicated",
    )
)
@click.argument("name", cls=Name, kind="topic", is_new=True)
@click.option(
    "--partitions", type=int, default=1, show_default=True, help="Set the number of partitions."
)
@click.option(
    "--replication-factor", type=int, help="Set the replicas per partition.  [set by the cluster]"
)
@click.option(
    "--config",
    "settings",
    type=NameAndValue(),
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a setting, such as retention_ms=1d; repeatable.",
)
@label_option
@json_option
def create(
    name: str,
    partitions: int,
    replication_factor: int | None,
    *,
    settings: tuple[tuple[str, str], ...],
    labels: tuple[tuple[str, str], ...],
    as_json: bool,
) -> None:
    """Create a topic.

    `tidelog topic describe` lists all settings.
    """

    async def call(client: Client) -> TopicDescription:
        await client.admin.create_topic(
            name,
            partitions,
            config=dict(settings),
            replication_factor=replication_factor,
            labels=dict(labels),
        )
        (created,) = await client.admin.describe_topics([name])
        return created

    created = ask(call)
    if as_json:
        print_json(topic_as_json(created))
    else:
        click.echo(f"created topic {name} with {counted(len(created.partitions), 'partition')}")


@topic.command(
    "list", epilog=examples("tidelog topic list", "tidelog topic list --prefix orders- --names")
)
@list_options
@json_option
def list_all(prefix: str, *, only_names: bool, as_json: bool) -> None:
    """List topics."""

    async def call(client: Client) -> list[TopicDescription]:
        names = await client.admin.list_topics(prefix) if prefix else None
        return await client.admin.describe_topics(names)

    if only_names:
        print_names(ask(lambda client: client.admin.list_topics(prefix)), as_json=as_json)
        return
    topics = ask(call)
    if as_json:
        print_json([topic_as_json(described) for described in topics])
    elif prefix and not topics:
        click.echo(f"there are no topics whose names begin with {prefix!r}", err=True)
    elif not topics:
        click.echo("there are no topics yet; `tidelog topic create NAME` creates a topic", err=True)
    else:
        print_topics(topics)


@topic.command(epilog=examples("tidelog topic describe orders"))
@click.argument("name", cls=Name, kind="topic")
@json_option
def describe(name: str, as_json: bool) -> None:
    """Show the settings and the partitions of a topic."""
    (described,) = ask(lambda client: client.admin.describe_topics([name]))
    if as_json:
        print_json(topic_as_json(described))
    else:
        print_topic(described)


@topic.command(
    epilog=examples(
        "tidelog topic alter orders --set retention_ms=30d --set segment_bytes=64MiB",
        "tidelog topic alter orders --reset retention_ms",
        "tidelog topic alter orders --label team=billing --remove-label owner",
        "tidelog topic alter orders --replication-factor 3 --wait",
        "tidelog topic alter --all --replication-factor 3 --dry-run",
    )
)
@click.argument("name", cls=Name, kind="topic", required=False)
@label_change_options
@replication_options
@json_option
def alter(
    name: str | None,
    *,
    replication: ReplicationChange,
    as_json: bool,
    **given: Unpack[Changes],
) -> None:
    """Alter the settings, labels or replicas of a topic.

    A change of settings or labels is in force at once. For more replicas, brokers copy records in
    the background, as for `tidelog cluster reassign`; `tidelog cluster status` shows the progress.
    With fewer replicas, a partition keeps its leader, and loses replicas out of sync first. With
    --all, topics that have fewer replicas get more, and all others keep theirs.
    """
    if replication.is_given:
        topics = replication.topics(name, has_changes=any(given.values()))
        run_moves(
            lambda client: replication.request(client, topics),
            waits=replication.waits,
            as_json=as_json,
        )
        return
    if name is None:
        raise click.UsageError("Missing argument 'NAME'.")
    arguments, topic_name = alter_arguments(given), name

    async def call(client: Client) -> TopicDescription:
        await client.admin.alter_topic(topic_name, **arguments)
        (altered,) = await client.admin.describe_topics([topic_name])
        return altered

    altered = ask(call)
    if as_json:
        print_json(topic_as_json(altered))
    else:
        print_topic_settings(altered)
        print_labels(altered.labels)


@topic.command(
    "add-partitions",
    short_help="Add partitions to a topic.",
    epilog=examples(
        "tidelog topic add-partitions orders --to 12",
        "tidelog topic add-partitions orders --to 12 --yes",
    ),
)
@click.argument("name", cls=Name, kind="topic")
@click.option(
    "--to",
    "count",
    type=click.IntRange(min=1),
    required=True,
    help="Set the new number of partitions.",
)
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask for confirmation.")
@json_option
def add_partitions(name: str, count: int, is_sure: bool, *, as_json: bool) -> None:
    """Add partitions to a topic; their number never falls again.

    Records stay in their partitions, but most keys map to another partition afterwards: records
    with the same key are ordered before and after the change, not across it. A topic with FIFO
    queues cannot get more partitions.
    """
    if not is_sure:
        planned = ask(lambda client: client.admin.add_partitions(name, count, validate_only=True))
        if planned.added:
            for line in growth_notes(planned):
                click.echo(line, err=True)
            confirm(f"grow topic {name} to {counted(count, 'partition')}, for good?")

    grown = ask(lambda client: client.admin.add_partitions(name, count))
    if as_json:
        print_json({"topic": name, "partitions": grown.partition_count, "added": grown.added})
    elif grown.added:
        click.echo(
            f"topic {name} has {counted(grown.partition_count, 'partition')},"
            f" {grown.added:,} of them new"
        )
    else:
        click.echo(f"topic {name} already has {counted(grown.partition_count, 'partition')}")


@topic.command(
    epilog=examples(
        "tidelog topic usage", "tidelog topic usage orders", "tidelog topic usage --json"
    )
)
@click.argument("name", cls=Name, kind="topic", required=False)
@json_option
def usage(name: str | None, as_json: bool) -> None:
    """Show the disk usage, age and growth of topics.

    The numbers are those of each leader; every other replica takes about as much. Growth is the
    data since the first segment that was sealed within the last 7 days, extrapolated to a day.
    """
    topics = ask(lambda client: client.admin.topic_usage(None if name is None else [name]))
    if as_json:
        print_json([usage_as_json(each) for each in topics])
    elif not topics:
        click.echo("there are no topics yet; `tidelog topic create NAME` creates a topic", err=True)
    elif name is None:
        print_usages(topics)
    else:
        print_usage(topics[0])


@topic.command(
    epilog=examples("tidelog topic hot orders", "tidelog topic hot orders --limit 3 --json")
)
@click.argument("name", cls=Name, kind="topic")
@click.option(
    "--limit",
    type=click.IntRange(1, HOT_KEYS_MAX),
    default=10,
    show_default=True,
    help="Show so many keys.",
)
@json_option
def hot(name: str, limit: int, *, as_json: bool) -> None:
    """Show hot partitions and the most frequent keys.

    A partition is hot after a minute with more than three times the traffic of the others, and more
    than a tenth of that of its broker. Keys are those of the last minutes, from a sample: a share
    is off by at most the number beside it.
    """
    from tidelog.cli.topic.hot_view import hot_keys_as_json, print_hot_keys

    found = ask(lambda client: client.admin.hot_keys(name, limit))
    if as_json:
        print_json(hot_keys_as_json(found))
    else:
        print_hot_keys(found)


@topic.command(epilog=examples("tidelog topic delete orders", "tidelog topic delete orders --yes"))
@click.argument("name", cls=Name, kind="topic")
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask for confirmation.")
@json_option
def delete(name: str, is_sure: bool, *, as_json: bool) -> None:
    """Delete a topic and all of its records."""
    if not is_sure:
        confirm(f"delete topic {name} and all of its records?")

    ask(lambda client: client.admin.delete_topic(name))
    if as_json:
        print_json({"deleted": name})
    else:
        click.echo(f"deleted topic {name}")


@topic.command(
    "delete-records",
    short_help="Delete the oldest records of a partition.",
    epilog=examples(
        "tidelog topic delete-records orders --partition 0 --before 1000",
        "tidelog topic delete-records orders --partition 0 --before 7d",
        "tidelog topic delete-records orders --partition 0 --before end",
    ),
)
@click.argument("name", cls=Name, kind="topic")
@click.option(
    "--partition", type=click.IntRange(min=0), required=True, help="Delete in this partition."
)
@place_option("--before", verb="End", required=True)
@replaced_option("--before-offset", "--before")
@replaced_option("--all", "--before end", is_flag=True)
@json_option
def delete_records(
    name: str,
    partition: int,
    place: Place,
    *,
    as_json: bool,
) -> None:
    """Delete the oldest records of a partition.

    The records before a place are deleted, and it becomes the log start offset at once: `--before
    end` deletes all current records, `--before -100` keeps the last 100. The broker frees disk
    space by whole segments.
    """

    async def call(client: Client) -> DeleteRecordsReply:
        found = await offsets_at(client, name, place, partitions=[partition])
        return await client.admin.delete_records(name, partition, found[partition])

    reply = ask(call)
    if as_json:
        print_json(
            {"topic": name, "partition": partition, "log_start_offset": reply.log_start_offset}
        )
    else:
        click.echo(f"the log start offset of {name}/{partition} is {reply.log_start_offset}")
