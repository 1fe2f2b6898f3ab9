"""The progress bar of reassignments."""

import io
from typing import Any, cast

import msgspec
import trio
from rich.console import Console

from tests.wire.cluster_samples import DESCRIBE
from tidelog.cli.cluster.reassignment_progress import (
    ReassignmentTally,
    places_under_way,
    wait_for_moves,
)
from tidelog.client.admin.cluster import MovingReplica
from tidelog.client.client import Client
from tidelog.wire.messages.cluster_admin import DescribeClusterReply
from tidelog.wire.messages.reassignment import ReplicaProgress

CLUSTER = DESCRIBE[1]
PLACE = ("orders", 3)
AT_REST = msgspec.structs.replace(CLUSTER, partitions=[])


def moving(bytes_left: int, *, partition: int = 3, node_id: int = 4) -> MovingReplica:
    progress = ReplicaProgress(
        "orders", partition, node_id, 100, bytes_left // 10, 1000, bytes_left, is_in_sync=False
    )
    return MovingReplica("orders", partition, node_id, 1, progress)


def test_copied_bytes_are_summed_over_all_replicas() -> None:
    tally = ReassignmentTally()

    tally.take([moving(1000), moving(600, partition=4)])
    assert (tally.done_bytes, tally.total_bytes) == (400, 2000)

    tally.take([moving(500)])
    assert (tally.done_bytes, tally.total_bytes) == (1500, 2000)

    tally.take([])
    assert (tally.done_bytes, tally.total_bytes) == (2000, 2000)


def test_a_leader_that_cannot_be_asked_changes_nothing() -> None:
    tally = ReassignmentTally()
    tally.take([moving(700)])

    tally.take([MovingReplica("orders", 3, 4, None, None)])

    assert (tally.done_bytes, tally.total_bytes) == (300, 1000)


def test_only_partitions_that_are_asked_for_and_move_are_under_way() -> None:
    assert places_under_way(CLUSTER, {PLACE, ("orders", 9)}) == [PLACE]
    assert places_under_way(CLUSTER, {("other", 3)}) == []
    (still,) = CLUSTER.partitions
    settled = msgspec.structs.replace(still, adding_replicas=[], removing_replicas=[])
    assert not places_under_way(msgspec.structs.replace(CLUSTER, partitions=[settled]), {PLACE})


class Scripted:
    """A client whose cluster stands as a script says, look by look."""

    def __init__(self, *looks: tuple[DescribeClusterReply, list[MovingReplica]]) -> None:
        self.admin = self
        self._looks = list(looks)
        self._moves: list[MovingReplica] = []
        self.look_count = 0

    async def describe_cluster(self, **_: Any) -> DescribeClusterReply:  # noqa: ANN401
        await trio.lowlevel.checkpoint()
        self.look_count += 1
        described, self._moves = self._looks.pop(0) if self._looks else (AT_REST, [])
        return described

    async def list_reassignments(self) -> list[MovingReplica]:
        await trio.lowlevel.checkpoint()
        return self._moves


async def test_the_wait_for_moves_shows_a_bar_and_the_partitions_left(
    autojump_clock: trio.testing.MockClock,
) -> None:
    del autojump_clock
    screen = io.StringIO()
    client = Scripted((CLUSTER, [moving(1000)]), (CLUSTER, [moving(400)]))
    console = Console(file=screen, force_terminal=True, width=120)

    await wait_for_moves(cast("Client", client), {PLACE}, console)

    assert "1 partition left" in screen.getvalue()
    assert "60%" in screen.getvalue()
    assert "600/1,000 bytes" in screen.getvalue()


async def test_a_broker_that_has_not_heard_of_the_move_yet_does_not_end_the_waiting(
    autojump_clock: trio.testing.MockClock,
) -> None:
    del autojump_clock
    client = Scripted((AT_REST, []), (CLUSTER, []), (CLUSTER, []), (AT_REST, []), (CLUSTER, []))
    output = io.StringIO()

    await wait_for_moves(cast("Client", client), {PLACE}, Console(file=output))

    assert client.look_count == 5 + 3
    assert output.getvalue() == "", "without a terminal nothing is shown"
