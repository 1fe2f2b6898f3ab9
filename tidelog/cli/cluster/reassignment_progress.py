"""The progress bar of reassignments, and the wait for their end."""

from collections.abc import Collection, Iterable
from typing import Final, final

import trio
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from tidelog.cli.output.tables import counted
from tidelog.client.admin.cluster import MovingReplica
from tidelog.client.client import Client
from tidelog.wire.messages.cluster_admin import DescribeClusterReply

_INTERVAL_S: Final = 0.5
_LOOKS: Final = 3
"""Answers without a running move that end the wait.

The client asks brokers in turn, and a broker may not have applied the moves yet.
"""

Place = tuple[str, int]
"""Topic and number of a partition."""


@final
class ReassignmentTally:
    """The progress of some moves, in bytes.

    Invariant: neither the total nor the copied bytes fall, except for records that are written
    meanwhile.
    """

    def __init__(self) -> None:
        """Start without replicas."""
        self._sizes: dict[tuple[str, int, int], int] = {}
        self._left: dict[tuple[str, int, int], int] = {}

    def take(self, replicas: Iterable[MovingReplica]) -> None:
        """Set the progress of replicas; a replica that is missing now is complete."""
        gone = dict.fromkeys(self._left)
        for each in replicas:
            key = (each.topic, each.partition, each.node_id)
            gone.pop(key, None)
            if each.progress is not None:
                self._sizes[key] = each.progress.size_bytes
                self._left[key] = each.progress.bytes_left
        for key in gone:
            self._left[key] = 0

    @property
    def total_bytes(self) -> int:
        """Bytes of all replicas so far."""
        return sum(self._sizes.values())

    @property
    def done_bytes(self) -> int:
        """Bytes that are copied."""
        return self.total_bytes - sum(self._left.values())


async def wait_for_moves(client: Client, places: Collection[Place], console: Console) -> None:
    """Wait until no replica of these partitions is being moved.

    A terminal shows a bar, which is removed at the end.
    """
    tally = ReassignmentTally()
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        auto_refresh=False,
        transient=True,
        disable=not console.is_terminal,
    )
    with progress:
        task = progress.add_task("moving", total=None)
        done_count = 0
        while done_count < _LOOKS:
            described = await client.admin.describe_cluster(with_partitions=True)
            left = places_under_way(described, places)
            done_count = 0 if left else done_count + 1
            moves = await client.admin.list_reassignments()
            tally.take(each for each in moves if (each.topic, each.partition) in places)
            progress.update(
                task,
                description=f"{counted(len(left), 'partition')} left",
                total=tally.total_bytes or None,
                completed=tally.done_bytes,
            )
            progress.refresh()
            await trio.sleep(_INTERVAL_S)


def places_under_way(described: DescribeClusterReply, places: Collection[Place]) -> list[Place]:
    """Return the partitions of `places` that are being moved."""
    return [
        (each.topic, each.partition)
        for each in described.partitions
        if (each.adding_replicas or each.removing_replicas)
        and (each.topic, each.partition) in places
    ]
