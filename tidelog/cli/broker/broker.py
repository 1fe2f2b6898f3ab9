"""The commands `tidelog broker`: settings, drain, replacement and removal of brokers."""

from typing import Final

import click
import trio

from tidelog.cli.client import ask
from tidelog.cli.cluster.reassign import run_moves, wait_option
from tidelog.cli.connected import ConnectedGroup
from tidelog.cli.errors import CommandError
from tidelog.cli.options import examples, json_option
from tidelog.cli.output.tables import counted, print_json, print_table
from tidelog.client.client import Client
from tidelog.wire.messages.cluster_admin import DescribeClusterReply, NodeDescription

_LOOKS: Final = 5
_INTERVAL_S: Final = 0.2

_dry_run_option = click.option("--dry-run", is_flag=True, help="Print the plan and change nothing.")


@click.group(cls=ConnectedGroup)
def broker() -> None:
    """Describe, drain, replace and unregister brokers."""


@broker.command(
    epilog=examples("tidelog broker config", "tidelog broker config 3 --json"),
)
@click.argument("node", type=click.IntRange(min=1), required=False)
@json_option
def config(node: int | None, as_json: bool) -> None:
    """Describe the settings of a running broker, with sources.

    Without NODE, the contacted broker. The sources `cluster` and `broker` are `tidelog cluster
    alter`, for all brokers and for this broker. It can change the settings marked DYNAMIC. All
    others need a restart: see `tidelog serve --print-config`.
    """
    found = ask(lambda client: client.admin.broker_config(node))
    if as_json:
        settings = {
            each.name: {
                "value": each.value,
                "source": each.source,
                "is_dynamic": each.is_dynamic,
            }
            for each in found.settings
        }
        print_json({"node_id": found.node_id, "settings": settings})
        return
    print_table(
        ["SETTING", "VALUE", "SOURCE", "DYNAMIC"],
        [
            (each.name, each.value, each.source, "yes" if each.is_dynamic else "")
            for each in found.settings
        ],
    )


@broker.command(
    epilog=examples(
        "tidelog broker drain 3 --wait",
        "tidelog broker drain 3 --dry-run",
        "tidelog broker drain 3 --cancel",
    )
)
@click.argument("node", type=click.IntRange(min=1))
@click.option("--cancel", is_flag=True, help="Allow new replicas again; running moves go on.")
@_dry_run_option
@wait_option
@json_option
def drain(node: int, cancel: bool, dry_run: bool, *, waits: bool, as_json: bool) -> None:
    """Move all replicas of a broker to the other brokers.

    The replicas are spread over the other nodes and their racks. The drained node gets no new
    replicas. It serves its replicas until they are moved; then it can be stopped and unregistered.
    """
    if cancel:
        if dry_run or waits:
            raise click.UsageError("--cancel excludes --dry-run and --wait: give it alone")
        ask(lambda client: client.admin.end_drain(node))
        if as_json:
            print_json({"node_id": node, "is_drained": False})
        else:
            click.echo(
                f"node {node} can get replicas again; some are moved by:"
                " tidelog cluster reassign --balance"
            )
        return
    run_moves(
        lambda client: client.admin.drain(node, plan_only=dry_run),
        waits=waits,
        as_json=as_json,
    )
    if not dry_run:
        _check_rest(node)


@broker.command(
    epilog=examples("tidelog broker replace 3 4 --wait", "tidelog broker replace 3 4 --dry-run")
)
@click.argument("lost", type=click.IntRange(min=1))
@click.argument("replacement", type=click.IntRange(min=1))
@_dry_run_option
@wait_option
@json_option
def replace(lost: int, replacement: int, dry_run: bool, *, waits: bool, as_json: bool) -> None:
    """Move the replicas of a lost broker to another broker.

    REPLACEMENT is alive, and may be new. If REPLACEMENT already has a replica of a partition, the
    replica of LOST goes to another node. A node that returns with an empty disk needs no
    replacement: see docs/operations.md.
    """
    run_moves(
        lambda client: client.admin.replace_broker(lost, replacement, plan_only=dry_run),
        waits=waits,
        as_json=as_json,
    )
    if not dry_run:
        _check_rest(lost)


@broker.command(epilog=examples("tidelog broker unregister 3"))
@click.argument("node", type=click.IntRange(min=1))
@json_option
def unregister(node: int, as_json: bool) -> None:
    """Remove a lost broker from the cluster.

    The broker must be fenced and have no replicas. It is no longer a voter, so that another node
    can become a voter in its place.
    """
    was_member = ask(lambda client: client.admin.unregister_broker(node))
    if as_json:
        print_json({"node_id": node, "was_member": was_member})
    elif was_member:
        click.echo(f"unregistered node {node}")
    else:
        click.echo(f"node {node} is not registered")


def _check_rest(node_id: int) -> None:
    """Raise if a node keeps replicas that are not being moved.

    Raises:
        CommandError: The node keeps replicas.
    """

    async def call(client: Client) -> int:
        stuck = 0
        for _ in range(_LOOKS):
            described = await client.admin.describe_cluster(with_partitions=True)
            stuck = replicas_that_stay(described, node_id)
            if not stuck:
                break
            await trio.sleep(
                _INTERVAL_S
            )  # The contacted broker may not have applied the moves yet.
        return stuck

    stuck = ask(call)
    if stuck:
        raise CommandError(
            f"{counted(stuck, 'replica')} of node {node_id} cannot move to another node: each node"
            " that is alive and not drained already has a replica of the partition, or the"
            " partition is being moved; add a node, or wait for the move or cancel it (`tidelog"
            " cluster reassign --topic T --partition P --cancel`), and run the command again"
        )


def replicas_that_stay(described: DescribeClusterReply, node_id: int) -> int:
    """Return the count of replicas of a node that are not being moved away."""
    nodes: list[NodeDescription] = [each for each in described.nodes if each.node_id == node_id]
    leaving = sum(node_id in each.removing_replicas for each in described.partitions)
    return sum(each.replica_count for each in nodes) - leaving
