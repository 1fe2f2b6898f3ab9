"""Handler of SAFE_TO_STOP: whether a node may stop, by the metadata that this broker has."""

from collections.abc import Generator, Iterator
from typing import final

import trio

from tidelog.coordinator.metadata.broker_sessions import SESSION_MS
from tidelog.coordinator.metadata.stop_check import StopCheck, check_stop
from tidelog.coordinator.node import ClusterNode
from tidelog.wire.errors import InvalidRequestError
from tidelog.wire.messages.cluster_admin import (
    PartitionAtRisk,
    SafeToStopReply,
    SafeToStopRequest,
)


@final
class SafeToStopHandler:
    """Checks stops of any node of the cluster."""

    def __init__(self, cluster: ClusterNode) -> None:
        """Serve requests at one node."""
        self._cluster = cluster

    async def handle(self, request: SafeToStopRequest) -> SafeToStopReply:
        """Return what becomes unavailable if a node stops now.

        Raises:
            InvalidRequestError: The cluster has no such node.
        """
        return await self.check(request.node_id)

    async def check(self, node_id: int) -> SafeToStopReply:
        """Return the reply for a node.

        Raises:
            InvalidRequestError: The cluster has no such node.
        """
        cluster, state = self._cluster, self._cluster.metadata.state
        voters = [voter.node_id for voter in cluster.raft.membership.voters]
        known = {*voters, *state.brokers}
        age_ms = cluster.metadata_age_ms()
        if node_id not in known:
            raise InvalidRequestError(
                f"there is no node {node_id}; there are {', '.join(map(str, sorted(known)))}"
            )
        found = await _in_steps(check_stop(state, node_id, voters))
        reasons = [*_stale(age_ms), *_reasons(found, len(voters))]
        return SafeToStopReply(
            node_id,
            not reasons,
            reasons,
            found.partition_count,
            [
                PartitionAtRisk(each.topic.name, each.number, list(each.remaining), each.minimum)
                for each in found.partitions
            ],
            voters,
            found.remaining_voters,
            age_ms,
        )


async def _in_steps(steps: Generator[None, None, StopCheck]) -> StopCheck:
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            found: StopCheck = stop.value
            return found
        await trio.lowlevel.checkpoint()


def _stale(age_ms: int | None) -> Iterator[str]:
    if age_ms is None:
        yield "the answering broker has no current metadata: the controller has not answered it yet"
    elif age_ms > SESSION_MS:
        yield (
            f"the metadata of the answering broker are {age_ms / 1000:.0f} s old: the controller"
            " does not answer it"
        )


def _reasons(found: StopCheck, voter_count: int) -> Iterator[str]:
    if not found.has_majority:
        left = f"{len(found.remaining_voters)} of {voter_count} are alive"
        yield f"no majority of voters: without the node, {left}"
    if found.partitions:
        first = found.partitions[0]
        yield (
            f"partitions with too few in-sync replicas: {found.partition_count}, such as partition"
            f" {first.number} of {first.topic.name} with {len(first.remaining)} of {first.minimum}"
        )
