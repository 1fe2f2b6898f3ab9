"""The commands `tidelog cluster`: status, events, settings, elections and reassignments."""

from typing import Any, Final

import click
from msgspec.structs import asdict

from tidelog.cli.client import ask, confirm
from tidelog.cli.cluster.certificates import certificates, init_tls, issue_cert
from tidelog.cli.cluster.reassign import reassignment, run_moves, wait_option
from tidelog.cli.cluster.view import (
    cluster_as_json,
    elections_as_json,
    features_as_json,
    health_line,
    print_cluster,
    print_elections,
    print_features,
    print_stop_check,
)
from tidelog.cli.connected import ConnectedGroup
from tidelog.cli.errors import CommandError
from tidelog.cli.options import change_options, examples, json_option
from tidelog.cli.output.events import event_as_json, print_events
from tidelog.cli.output.tables import counted, print_fields, print_json
from tidelog.client.admin.cluster import MovingReplica, PartitionsToElect
from tidelog.client.admin.cluster_health import ClusterSeverity, cluster_health
from tidelog.client.client import Client
from tidelog.wire.errors import TidelogError
from tidelog.wire.messages.cluster_admin import DescribeClusterReply, EventDescription
from tidelog.wire.messages.keys import BrokerKeys


@click.group(cls=ConnectedGroup)
def cluster() -> None:
    """Describe and alter the cluster; elect leaders, reassign."""


_STATUS_OF_SEVERITY: Final = {
    ClusterSeverity.HEALTHY: 0,
    ClusterSeverity.DEGRADED: 3,
    ClusterSeverity.UNAVAILABLE: 4,
}
"""Exit status of `--check`; 1 and 2 are those of errors and of wrong usage."""
_NOT_SAFE: Final = 3
"""Exit status of `safe-to-stop` for a node that must not stop."""


@cluster.command(
    epilog=examples(
        "tidelog cluster status",
        "tidelog cluster status --partitions",
        "tidelog cluster status --check",
    )
)
@click.option(
    "--partitions",
    "with_partitions",
    is_flag=True,
    help="List unhealthy partitions and running reassignments.",
)
@click.option(
    "--check",
    "is_check",
    is_flag=True,
    help="Print the health in one line; exit by severity.",
)
@json_option
def status(with_partitions: bool, is_check: bool, *, as_json: bool) -> None:
    """Show the nodes and the health of the partitions.

    The contacted broker answers from its metadata. Without a majority they are stale after 3
    seconds: the status of other nodes and of partitions is unknown then. With --check the exit
    status is 0 for a healthy cluster, 3 for a degraded one (all partitions can be written and
    read), and 4 for one that is unavailable, in part or without a majority; 1 if no broker answers.
    """
    if is_check and with_partitions:
        raise click.UsageError("--check prints one line: give either --check or --partitions")

    async def call(
        client: Client,
    ) -> tuple[DescribeClusterReply, list[MovingReplica], list[BrokerKeys]]:
        found = await client.admin.describe_cluster(with_partitions=with_partitions)
        # The progress comes from leaders, which may not answer.
        asks_leaders = found.reassigning_count and not (is_check or cluster_health(found).is_stale)
        moves = await client.admin.list_reassignments() if asks_leaders else []
        asks_brokers = not (is_check or cluster_health(found).is_stale)
        return found, moves, await _locked_brokers(client) if asks_brokers else []

    found, moves, locked = ask(call)
    if as_json:
        print_json(cluster_as_json(found, moves, locked, with_partitions=with_partitions))
    elif is_check:
        click.echo(health_line(found))
    else:
        print_cluster(found, moves, locked, with_partitions=with_partitions)
    if is_check:
        raise click.exceptions.Exit(_STATUS_OF_SEVERITY[cluster_health(found).severity])


async def _locked_brokers(client: Client) -> list[BrokerKeys]:
    """Return the brokers that cannot use the data keys of topics, as far as can be known."""
    try:
        keys = await client.security.list_keys()
    except TidelogError:  # An older broker, or a user that may see the status alone.
        return []
    return [each for each in keys.brokers if each.locked_topics]


@cluster.command(
    "safe-to-stop",
    epilog=examples(
        "tidelog cluster safe-to-stop 2",
        "tidelog cluster safe-to-stop 2 --json",
    ),
)
@click.argument("node_id", metavar="NODE", type=int)
@json_option
def safe_to_stop(node_id: int, *, as_json: bool) -> None:
    """Check whether a node may stop now.

    The exit status is 0 if all partitions can be written and read without the node, and the other
    voters are a majority. It is 3 if not, or if the contacted broker has no current metadata; the
    command prints the reasons and the first 20 partitions. `/health/safe-to-stop` of a broker is
    the same for that broker.
    """
    found = ask(lambda client: client.admin.safe_to_stop(node_id))
    if as_json:
        print_json(asdict(found) | {"partitions": [asdict(each) for each in found.partitions]})
    else:
        print_stop_check(found)
    if not found.is_safe:
        raise click.exceptions.Exit(_NOT_SAFE)


@cluster.command(
    epilog=examples(
        "tidelog cluster events",
        "tidelog cluster events --acknowledge 3 --acknowledge 4",
        "tidelog cluster events --acknowledge-all --yes",
    )
)
@click.option(
    "--acknowledge",
    "event_ids",
    type=click.IntRange(min=1),
    multiple=True,
    metavar="ID",
    help="Acknowledge this event; repeatable.",
)
@click.option("--acknowledge-all", "is_all", is_flag=True, help="Acknowledge all listed events.")
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask for confirmation.")
@json_option
def events(event_ids: tuple[int, ...], is_all: bool, *, is_sure: bool, as_json: bool) -> None:
    """List events such as losses of committed records.

    The cluster keeps an event, and `tidelog cluster status` and `tidelog topic describe` show it,
    until an administrator acknowledges it. With --acknowledge or --acknowledge-all this command
    lists the events that are left.
    """
    if event_ids and is_all:
        raise click.UsageError("give either --acknowledge ID or --acknowledge-all, not both")
    found = ask(lambda client: client.admin.cluster_events())
    if is_all and found:
        if not is_sure:
            confirm(f"acknowledge {counted(len(found), 'event')}, for good?")
        event_ids = tuple(each.event_id for each in found)
    if event_ids:

        async def call(client: Client) -> list[EventDescription]:
            await client.admin.acknowledge_events(event_ids)
            return await client.admin.cluster_events()

        found = ask(call)
    if as_json:
        print_json([event_as_json(each) for each in found])
    elif found:
        print_events(found)
    else:
        click.echo("there are no events that are not acknowledged")


@cluster.command(
    epilog=examples(
        "tidelog cluster alter --set reassignment_max_bytes_per_second=20MB",
        "tidelog cluster alter --set scrub_max_bytes_per_second=8MiB",
        "tidelog cluster alter --set scrub_max_bytes_per_second@3=1MiB",
        "tidelog cluster alter --reset reassignment_max_bytes_per_second",
    )
)
@change_options
@json_option
def alter(changes: tuple[tuple[str, str], ...], resets: tuple[str, ...], *, as_json: bool) -> None:
    """Alter the settings of the cluster, or show them.

    A change is in force at once on all brokers. It can override settings with which brokers were
    started: NAME for all brokers, NAME@NODE for one broker; the latter has precedence.
    """
    settings = ask(lambda client: client.admin.alter_cluster(set=dict(changes), reset=resets))
    if as_json:
        print_json(settings)
    else:
        print_fields(settings)


@cluster.command(
    epilog=examples(
        "tidelog cluster features",
        "tidelog cluster features --upgrade --yes",
        "tidelog cluster features --downgrade 1",
    )
)
@click.option("--upgrade", is_flag=True, help="Raise the level to the newest one.")
@click.option(
    "--downgrade",
    "lower_level",
    type=click.IntRange(min=0),
    metavar="LEVEL",
    help="Lower the level to this one.",
)
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask for confirmation.")
@json_option
def features(upgrade: bool, lower_level: int | None, *, is_sure: bool, as_json: bool) -> None:
    """Show, raise or lower the feature level of the cluster.

    The cluster writes new kinds of metadata only at the level that they belong to. The level rises
    only when all nodes support it. From then on, no version without that level can be part of the
    cluster. It can fall again until the cluster has written metadata that needs it.
    """
    if upgrade and lower_level is not None:
        raise click.UsageError("give either --upgrade or --downgrade LEVEL, not both")
    found = ask(lambda client: client.admin.describe_features())
    if lower_level is not None and lower_level > found.level:
        raise CommandError(
            f"the feature level is {found.level}, and {lower_level} is higher; use --upgrade"
        )
    level = max(found.level, found.newest_level) if upgrade else lower_level
    if level is not None and level != found.level:
        if upgrade and not found.obstacles and not is_sure:
            confirm(f"raise the feature level to {level}, so that older versions cannot come back?")
        wanted = level
        found = ask(lambda client: client.admin.update_features(wanted))
    if as_json:
        print_json(features_as_json(found))
    else:
        print_features(found)


@cluster.command(
    "elect-leaders",
    epilog=examples(
        "tidelog cluster elect-leaders",
        "tidelog cluster elect-leaders --topic orders",
        "tidelog cluster elect-leaders --topic orders --partition 3 --accept-data-loss",
    ),
)
@click.option("--topic", help="Elect for partitions of this topic.  [all topics]")
@click.option(
    "--partition",
    "numbers",
    type=click.IntRange(min=0),
    multiple=True,
    help="Elect for this partition of --topic; repeatable.",
)
@click.option(
    "--accept-data-loss",
    is_flag=True,
    help="Elect replicas that may lack committed records.",
)
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask for confirmation.")
@json_option
def elect_leaders(
    topic: str | None,
    numbers: tuple[int, ...],
    accept_data_loss: bool,
    *,
    is_sure: bool,
    as_json: bool,
) -> None:
    """Elect the preferred replicas as leaders.

    The cluster does so by itself, a few partitions at a time. This command does it now, and loses
    no records. With --accept-data-loss (an unclean election), a partition without a leader gets a
    leader that may lack committed records; these are then lost for good. A named topic's partition
    goes on under a leader without the records that another replica refuses to truncate. Other
    partitions with a leader do not change.
    """
    if numbers and topic is None:
        raise click.UsageError("--partition needs a topic: add --topic NAME")
    if accept_data_loss and not is_sure:
        where = "of the whole cluster" if topic is None else f"of topic {topic}"
        confirm(f"lose all records {where} that no live replica has, for good?")
    partitions: PartitionsToElect = topic
    if topic is not None and numbers:
        partitions = [(topic, number) for number in numbers]

    results = ask(
        lambda client: client.admin.elect_leaders(partitions, accept_data_loss=accept_data_loss),
    )
    if as_json:
        print_json(elections_as_json(results))
    elif not results:
        click.echo("no partition needs an election")
    else:
        print_elections(results)
    failed = [each for each in results if each.error is not None]
    if failed:
        first = failed[0].error
        assert first is not None
        raise CommandError(
            f"leader election failed for {counted(len(failed), 'partition')}: {first.message}"
        )


@cluster.command(
    epilog=examples(
        "tidelog cluster reassign --topic orders --partition 3 --to 2,3,4",
        "tidelog cluster reassign --drain 5 --dry-run",
        "tidelog cluster reassign --balance",
        "tidelog cluster reassign --topic orders --partition 3 --cancel",
    )
)
@click.option("--topic", help="Reassign a partition of this topic.")
@click.option("--partition", type=click.IntRange(min=0), help="Reassign this partition of --topic.")
@click.option(
    "--to", "nodes", metavar="N,N,...", help="Set its replicas, first the preferred leader."
)
@click.option("--cancel", is_flag=True, help="Cancel the running reassignment of the partition.")
@click.option(
    "--drain",
    type=int,
    multiple=True,
    metavar="NODE",
    help="Move all replicas away from this node.",
)
@click.option("--balance", is_flag=True, help="Balance replicas and leaders over the nodes.")
@click.option(
    "--max",
    "max_replicas",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    help="Limit the replicas that --drain and --balance move.",
)
@click.option("--dry-run", is_flag=True, help="Print the plan and change nothing.")
@wait_option
@json_option
def reassign(
    as_json: bool,
    waits: bool,
    **wanted: Any,  # noqa: ANN401  (see `reassignment`)
) -> None:
    """Move replicas to other nodes.

    Brokers copy records in the background, and remove the old replicas when the new replicas are in
    sync. `tidelog cluster status` shows the progress. A setting of the cluster limits the speed:
    `tidelog cluster alter --set reassignment_max_bytes_per_second=20MB`.
    """
    run_moves(reassignment(**wanted), waits=waits, as_json=as_json)


for _each in (init_tls, issue_cert, certificates):
    cluster.add_command(_each)
