"""`tidelog topic`: create, inspect, change and delete topics."""

import click

from tidelog.cli.client import ask, broker_option, confirm
from tidelog.cli.lazy_group import OrderedGroup
from tidelog.cli.options import (
    NameAndValue,
    change_options,
    examples,
    json_option,
    require_changes,
)
from tidelog.cli.output.tables import counted, print_json
from tidelog.cli.topic.usage_view import print_usage, print_usages, usage_as_json
from tidelog.cli.topic.view import (
    growth_notes,
    print_topic,
    print_topic_settings,
    print_topics,
    topic_as_json,
)
from tidelog.client.client import Client
from tidelog.wire.messages.topics import TopicDescription


@click.group(cls=OrderedGroup)
def topic() -> None:
    """Create, inspect, change, delete topics."""


@topic.command(
    epilog=examples(
        "tidelog topic create orders --partitions 6",
        "tidelog topic create metrics --config retention_ms=1d --config durability=replicated",
    )
)
@click.argument("name")
@click.option("--partitions", type=int, default=1, show_default=True, help="How many it has.")
@click.option("--replication-factor", type=int, help="Replicas of each.  [the cluster's default]")
@click.option(
    "--config",
    "settings",
    type=NameAndValue(),
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting, such as retention_ms=1d; may be given several times.",
)
@broker_option
@json_option
def create(
    name: str,
    partitions: int,
    replication_factor: int | None,
    *,
    settings: tuple[tuple[str, str], ...],
    broker: str,
    as_json: bool,
) -> None:
    """Create a topic.

    `tidelog topic describe` lists all settings.
    """

    async def call(client: Client) -> TopicDescription:
        await client.admin.create_topic(
            name, partitions, config=dict(settings), replication_factor=replication_factor
        )
        (created,) = await client.admin.describe_topics([name])
        return created

    created = ask(broker, call)
    if as_json:
        print_json(topic_as_json(created))
    else:
        click.echo(f"created topic {name} with {counted(len(created.partitions), 'partition')}")


@topic.command("list", epilog=examples("tidelog topic list"))
@broker_option
@json_option
def list_all(broker: str, as_json: bool) -> None:
    """List all topics."""
    topics = ask(broker, lambda client: client.admin.describe_topics())
    if as_json:
        print_json([topic_as_json(described) for described in topics])
    elif not topics:
        click.echo("there are no topics yet; `tidelog topic create NAME` makes one", err=True)
    else:
        print_topics(topics)


@topic.command(epilog=examples("tidelog topic describe orders"))
@click.argument("name")
@broker_option
@json_option
def describe(name: str, broker: str, as_json: bool) -> None:
    """Show the settings and the partitions of a topic."""
    (described,) = ask(broker, lambda client: client.admin.describe_topics([name]))
    if as_json:
        print_json(topic_as_json(described))
    else:
        print_topic(described)


@topic.command(
    epilog=examples(
        "tidelog topic alter orders --set retention_ms=30d --set segment_bytes=64MiB",
        "tidelog topic alter orders --reset retention_ms",
    )
)
@click.argument("name")
@change_options
@broker_option
@json_option
def alter(
    name: str,
    changes: tuple[tuple[str, str], ...],
    resets: tuple[str, ...],
    *,
    broker: str,
    as_json: bool,
) -> None:
    """Change settings of a topic.

    They are in force at once.
    """
    require_changes(changes, resets)

    async def call(client: Client) -> TopicDescription:
        await client.admin.alter_topic(name, set=dict(changes), reset=resets)
        (altered,) = await client.admin.describe_topics([name])
        return altered

    altered = ask(broker, call)
    if as_json:
        print_json(topic_as_json(altered))
    else:
        print_topic_settings(altered)


@topic.command(
    "add-partitions",
    short_help="Let a topic have more partitions.",
    epilog=examples(
        "tidelog topic add-partitions orders --to 12",
        "tidelog topic add-partitions orders --to 12 --yes",
    ),
)
@click.argument("name")
@click.option(
    "--to", "count", type=click.IntRange(min=1), required=True, help="How many it is to have."
)
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
@broker_option
@json_option
def add_partitions(name: str, count: int, is_sure: bool, *, broker: str, as_json: bool) -> None:
    """Add partitions to a topic; a topic never gets fewer.

    Records stay where they are, but most keys belong to another partition from then on: records
    with one key keep their order before and after, not across. A topic with FIFO queues keeps its
    partitions.
    """
    if not is_sure:
        planned = ask(
            broker, lambda client: client.admin.add_partitions(name, count, validate_only=True)
        )
        if planned.added:
            for line in growth_notes(planned):
                click.echo(line, err=True)
            confirm(f"let topic {name} have {counted(count, 'partition')}, for good?")

    grown = ask(broker, lambda client: client.admin.add_partitions(name, count))
    if as_json:
        print_json({"topic": name, "partitions": grown.partition_count, "added": grown.added})
    elif grown.added:
        click.echo(
            f"topic {name} has {counted(grown.partition_count, 'partition')},"
            f" {grown.added:,} of them new"
        )
    else:
        click.echo(f"topic {name} had {counted(grown.partition_count, 'partition')} already")


@topic.command(
    epilog=examples(
        "tidelog topic usage", "tidelog topic usage orders", "tidelog topic usage --json"
    )
)
@click.argument("name", required=False)
@broker_option
@json_option
def usage(name: str | None, broker: str, as_json: bool) -> None:
    """Show the disk usage, age and growth of topics.

    Of each partition as its leader has it; every other replica takes about as much. Growth is what
    came in since a segment was sealed, the first one within the last 7 days, extended to a day.
    """
    topics = ask(broker, lambda client: client.admin.topic_usage(None if name is None else [name]))
    if as_json:
        print_json([usage_as_json(each) for each in topics])
    elif not topics:
        click.echo("there are no topics yet; `tidelog topic create NAME` makes one", err=True)
    elif name is None:
        print_usages(topics)
    else:
        print_usage(topics[0])


@topic.command(epilog=examples("tidelog topic delete orders", "tidelog topic delete orders --yes"))
@click.argument("name")
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
@broker_option
@json_option
def delete(name: str, is_sure: bool, broker: str, *, as_json: bool) -> None:
    """Delete a topic and all of its records."""
    if not is_sure:
        confirm(f"delete topic {name} and all of its records?")

    ask(broker, lambda client: client.admin.delete_topic(name))
    if as_json:
        print_json({"deleted": name})
    else:
        click.echo(f"deleted topic {name}")


@topic.command(
    "delete-records",
    short_help="Make the oldest records of a partition unreadable.",
    epilog=examples(
        "tidelog topic delete-records orders --partition 0 --before-offset 1000",
        "tidelog topic delete-records orders --partition 0 --all",
    ),
)
@click.argument("name")
@click.option("--partition", type=click.IntRange(min=0), required=True, help="Of which partition.")
@click.option("--before-offset", type=click.IntRange(min=0), help="Records below this offset.")
@click.option("--all", "is_all", is_flag=True, help="All records there are now.")
@broker_option
@json_option
def delete_records(
    name: str,
    partition: int,
    before_offset: int | None,
    *,
    is_all: bool,
    broker: str,
    as_json: bool,
) -> None:
    """Delete the oldest records of a partition.

    They are gone at once; the space is freed as soon as a whole segment is unreadable.
    """
    if (before_offset is not None) == is_all:
        raise click.UsageError("say which records: either --before-offset N or --all")

    reply = ask(broker, lambda client: client.admin.delete_records(name, partition, before_offset))
    if as_json:
        print_json(
            {"topic": name, "partition": partition, "log_start_offset": reply.log_start_offset}
        )
    else:
        click.echo(f"{name}/{partition} begins at offset {reply.log_start_offset} now")
