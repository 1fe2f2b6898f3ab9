"""The command `tidelog admin recover`: a way back in when no administrator can log in."""

from pathlib import Path

import click
import trio

from tidelog.administrator_file import read_administrator
from tidelog.broker.partitions.data_directory import LOCK_NAME, request_recovery
from tidelog.broker.security.administrators import administrator_command
from tidelog.cli.lazy_group import OrderedGroup
from tidelog.cli.options import examples
from tidelog.cli.serve.worker_plan import check_no_workers
from tidelog.logstore.disk.os_disk import OsDisk
from tidelog.wire.env.real.real_env import real_env


@click.group(cls=OrderedGroup)
def admin() -> None:
    """Recover the administration of a cluster.

    The commands run on a machine of one of its nodes.
    """


@admin.command(
    short_help="Give a user all rights, after a lock-out.",
    epilog=examples(
        "tidelog admin recover --data-dir tidelog-data --admin admin.toml",
    ),
)
@click.option(
    "--data-dir",
    required=True,
    type=click.Path(exists=True, file_okay=False),
    metavar="DIR",
    help="Use the data directory of this stopped broker.",
)
@click.option(
    "--admin",
    "file",
    required=True,
    metavar="FILE",
    help="Read the user and its password or token from this file.",
)
def recover(data_dir: str, file: str) -> None:
    """Give a user a password or a token, and all rights, when no administrator can log in.

    The broker of the data directory must be stopped. Its next start has the cluster make the user
    a member of the role admin, for which a majority of the nodes must run. All nodes log it, and it
    is an event of the cluster. Nothing else changes.

    FILE has the lines of `tidelog serve --bootstrap-admin`: user = "NAME" and password = "...".
    """
    check_no_workers(data_dir)
    wanted = read_administrator(file)
    command = trio.run(administrator_command, real_env(), wanted)
    disk = OsDisk(data_dir)
    lock = disk.lock(LOCK_NAME)
    try:
        node_id = request_recovery(disk, command)
    finally:
        lock.release()
    click.echo(f"the next start of node {node_id} makes user {wanted.user} an administrator")
    click.echo(f"then remove {Path(file)}, and see `tidelog cluster events`")
