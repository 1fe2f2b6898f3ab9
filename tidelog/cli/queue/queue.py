"""The commands `tidelog queue`: create, describe, alter and delete queues."""

from typing import Any, BinaryIO, Unpack

import click

from tidelog.cli.client import ask, confirm
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
from tidelog.cli.output.tables import counted, print_json, print_labels, print_names, print_settings
from tidelog.cli.places import Place, place_option, replaced_option, time_or_end
from tidelog.cli.queue import admin
from tidelog.cli.queue import messages as queue_messages
from tidelog.cli.queue.create_of_lines import create_of_lines
from tidelog.cli.queue.history import history
from tidelog.cli.queue.hot import hot
from tidelog.cli.queue.send import send
from tidelog.cli.queue.view import print_queue, print_queues, queue_as_json
from tidelog.client.admin.queue_batches import NewQueue
from tidelog.client.admin.queue_counts import DescribedQueue
from tidelog.client.client import Client


@click.group(cls=ConnectedGroup)
def queue() -> None:
    """Create, describe, alter and delete queues."""


@queue.command(
    epilog=examples(
        "tidelog queue create payments-dead",
        "tidelog queue create payments --partitions 4 --config max_receive_count=5 --config"
        " dead_letter_queue=payments-dead",
        "tidelog queue create billing --topic orders --from end",
        "tidelog queue create --from-file queues.txt --config visibility_timeout=1min",
    )
)
@click.argument("name", cls=Name, kind="queue", is_new=True, required=False)
@click.option(
    "--from-file",
    "file",
    type=click.File("rb"),
    help="Create a queue for each line: a name, or JSON such as"
    """ '{"name": "a", "config": {"max_receive_count": 5}}'. Other options are for all; - is"""
    " standard input.",
)
@click.option("--topic", help="Set the topic of the messages.  [the name of the queue]")
@click.option("--partitions", type=int, help="Set the partitions of a new topic.  [1]")
@place_option("--from", default="beginning", show_default=True)
@replaced_option("--start", "--from")
@click.option("--fifo", is_flag=True, help="Deliver messages with the same key in order.")
@click.option(
    "--config",
    "settings",
    type=NameAndValue(),
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a setting of the queue; repeatable.",
)
@click.option(
    "--topic-config",
    type=NameAndValue(),
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a setting of a new topic; repeatable.",
)
@label_option
@json_option
def create(
    name: str | None,
    settings: tuple[tuple[str, str], ...],
    topic_config: tuple[tuple[str, str], ...],
    *,
    file: BinaryIO | None,
    labels: tuple[tuple[str, str], ...],
    place: Place,
    as_json: bool,
    **wanted: Any,  # noqa: ANN401  (arguments of `create_queue`)
) -> None:
    """Create a queue, and its topic if there is none.

    Existing records of the topic become messages, too, unless --from excludes them. A repeated
    creation of the same queue is no error. `tidelog queue describe` lists all settings.
    """
    wanted["start"] = time_or_end(place)
    for setting, _ in settings:
        if setting in {"name", "topic_config", "labels", *wanted}:
            raise click.UsageError(f"{setting} is not a setting of a queue: use the option for it")
    if name is None and file is None:
        raise click.UsageError("Missing argument 'NAME'. A file of names is given by --from-file.")
    if file is not None:
        if name is not None:
            raise click.UsageError("give a name or --from-file, and not both")
        wanted |= {"topic_config": dict(topic_config), "labels": dict(labels)}
        common = NewQueue("", settings=dict(settings), **wanted)
        create_of_lines(file, common, as_json=as_json)
        return
    wanted |= dict(settings)

    async def call(client: Client) -> DescribedQueue:
        assert name is not None
        await client.admin.create_queue(
            name, topic_config=dict(topic_config), labels=dict(labels), **wanted
        )
        (created,) = await client.admin.describe_queues([name], with_counts=True)
        return created

    created = ask(call)
    if as_json:
        print_json(queue_as_json(created))
    else:
        partitions = counted(len(created.partitions), "partition")
        click.echo(f"created queue {name} on topic {created.topic} with {partitions}")


@queue.command(
    "list",
    epilog=examples(
        "tidelog queue list",
        "tidelog queue list --no-counts",
        "tidelog queue list --prefix payments- --names",
    ),
)
@list_options
@click.option(
    "--counts/--no-counts",
    "with_counts",
    default=True,
    show_default=True,
    help="Count the messages, which is slow for very many.",
)
@json_option
def list_all(prefix: str, with_counts: bool, *, only_names: bool, as_json: bool) -> None:
    """List queues with their message counts."""

    async def call(client: Client) -> list[DescribedQueue]:
        names = await client.admin.list_queues(prefix) if prefix else None
        return await client.admin.describe_queues(names, with_counts=with_counts)

    if only_names:
        print_names(ask(lambda client: client.admin.list_queues(prefix)), as_json=as_json)
        return
    queues = ask(call)
    if as_json:
        print_json([queue_as_json(described) for described in queues])
    elif prefix and not queues:
        click.echo(f"there are no queues whose names begin with {prefix!r}", err=True)
    elif not queues:
        click.echo("there are no queues yet; `tidelog queue create NAME` creates a queue", err=True)
    else:
        print_queues(queues, with_counts=with_counts)


@queue.command(epilog=examples("tidelog queue describe payments"))
@click.argument("name", cls=Name, kind="queue")
@json_option
def describe(name: str, as_json: bool) -> None:
    """Show message counts, settings and partitions of a queue."""

    async def call(client: Client) -> DescribedQueue:
        (described,) = await client.admin.describe_queues([name], with_counts=True)
        return described

    described = ask(call)
    if as_json:
        print_json(queue_as_json(described))
    else:
        print_queue(described)


@queue.command(
    epilog=examples(
        "tidelog queue alter payments --set visibility_timeout_ms=5min",
        "tidelog queue alter payments --set retry_backoff='exponential(1s,2,5min,jitter)'",
        "tidelog queue alter payments --reset dead_letter_queue",
        "tidelog queue alter payments --label team=billing --remove-label owner",
    )
)
@click.argument("name", cls=Name, kind="queue")
@label_change_options
@json_option
def alter(name: str, *, as_json: bool, **given: Unpack[Changes]) -> None:
    """Alter the settings and labels of a queue.

    A change is in force at once. The queue kind (FIFO or standard) and deduplication_scope cannot
    change.
    """
    arguments = alter_arguments(given)

    async def call(client: Client) -> DescribedQueue:
        await client.admin.alter_queue(name, **arguments)
        (altered,) = await client.admin.describe_queues([name], with_counts=True)
        return altered

    altered = ask(call)
    if as_json:
        print_json(queue_as_json(altered))
    else:
        print_settings(altered.config, altered.config_overrides, "queue")
        print_labels(altered.labels)


@queue.command(
    epilog=examples("tidelog queue delete payments", "tidelog queue delete payments --with-topic")
)
@click.argument("name", cls=Name, kind="queue")
@click.option("--with-topic", is_flag=True, help="Delete the topic and all of its records, too.")
@click.option(
    "--detach-sources",
    is_flag=True,
    help="Leave source queues without a dead-letter queue.",
)
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask for confirmation.")
@json_option
def delete(
    name: str, with_topic: bool, detach_sources: bool, *, is_sure: bool, as_json: bool
) -> None:
    """Delete a queue.

    Receipt handles and receive counts of the queue are deleted. The records stay in the topic, for
    other queues and consumers. The command rejects the dead-letter queue of another queue unless
    --detach-sources is given; the source queues then have no dead-letter queue.
    """
    if not is_sure:
        what = "its topic with all records" if with_topic else "not the records of its topic"
        confirm(f"delete queue {name}, and {what}?")

    ask(
        lambda client: client.admin.delete_queue(
            name, with_topic=with_topic, detach_sources=detach_sources
        ),
    )
    if as_json:
        print_json({"deleted": name})
    else:
        click.echo(f"deleted queue {name}")


for _command in (send, hot, history, *queue_messages.COMMANDS, *admin.COMMANDS):
    queue.add_command(_command)
