"""The options of `tidelog topic alter` that change the replication factor."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps

import click

from tidelog.cli.cluster.reassign import wait_option
from tidelog.client.client import Client
from tidelog.wire.messages.reassignment import PartitionMoved


@dataclass(frozen=True, slots=True)
class ReplicationChange:
    """The given options."""

    factor: int | None
    is_for_all: bool
    is_dry_run: bool
    waits: bool

    @property
    def is_given(self) -> bool:
        """Whether one of the options is given."""
        return self.factor is not None or self.is_for_all or self.is_dry_run or self.waits

    def topics(self, name: str | None, *, has_changes: bool) -> list[str] | None:
        """Return the topics to be changed, `None` for all.

        Args:
            name: The named topic.
            has_changes: Whether other changes of the topic are given.

        Raises:
            click.UsageError: The options contradict each other.
        """
        if self.factor is None:
            raise click.UsageError(
                "--all, --dry-run and --wait are for replicas: add --replication-factor N"
            )
        if has_changes:
            raise click.UsageError(
                "--replication-factor moves replicas: give other changes in a command of their own"
            )
        if (name is None) != self.is_for_all:
            raise click.UsageError("no single choice of topics is given: add either NAME or --all")
        return None if name is None else [name]

    async def request(self, client: Client, topics: Sequence[str] | None) -> list[PartitionMoved]:
        """Request the change, or only its plan."""
        assert self.factor is not None, "`topics` checks it"
        return await client.admin.alter_replication_factor(
            topics, self.factor, plan_only=self.is_dry_run
        )


def replication_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command, which gets them as `replication`."""

    @click.option(
        "--replication-factor",
        "factor",
        type=click.IntRange(min=1),
        metavar="N",
        help="Set the replicas per partition.",
    )
    @click.option("--all", "is_for_all", is_flag=True, help="Raise it for all topics with fewer.")
    @click.option("--dry-run", is_flag=True, help="Print the plan and change nothing.")
    @wait_option
    @wraps(command)
    def with_options(
        *args: object,
        factor: int | None,
        is_for_all: bool,
        dry_run: bool,
        waits: bool,
        **others: object,
    ) -> None:
        change = ReplicationChange(factor, is_for_all, dry_run, waits)
        command(*args, replication=change, **others)

    return with_options
