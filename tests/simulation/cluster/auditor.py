"""Audit of every broker's metadata against the committed metadata."""

import trio

from tests.simulation.broker.readers import BACKOFF_S
from tests.simulation.checkers.run_history import ViolationError
from tests.simulation.cluster.machines import PORT, host_of
from tests.simulation.cluster.plans import ClusterPlan
from tests.simulation.machine.process import Process
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.wire.errors import TidelogError
from tidelog.wire.messages.metadata import MetadataReply, MetadataRequest
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import open_rpc

_LATE_S = 5.0
"""Maximum seconds that a broker may lag without faults."""


async def audit(process: Process, plan: ClusterPlan, state: ClusterState) -> None:
    """Request all topics from all brokers, until they return the committed metadata.

    No client may change the metadata meanwhile.

    Raises:
        ViolationError: A broker returns other metadata for too long.
    """
    for node_id in plan.node_ids:
        late_at = trio.current_time() + _LATE_S
        problem = _difference(await _ask(process, node_id), plan, state)
        while problem and trio.current_time() < late_at:
            await trio.sleep(BACKOFF_S)
            problem = _difference(await _ask(process, node_id), plan, state)
        if problem:
            raise ViolationError("StatesAgree", f"node {node_id} {problem}")


def _difference(reply: MetadataReply, plan: ClusterPlan, state: ClusterState) -> str:
    """Return the error of a reply, empty if it has none."""
    expected = {
        topic.name: (
            topic.topic_id,
            [
                (partition.leader, partition.leader_epoch)
                for partition in state.partitions(topic.topic_id)
            ],
        )
        for topic in state.catalog.topics
        if not topic.is_internal  # A reply omits journals and staging logs.
    }
    found = {
        topic.name: (
            topic.topic_id,
            [(each.leader_id, each.leader_epoch) for each in topic.partitions],
        )
        for topic in reply.topics
    }
    if found != expected:
        return f"knows {found}; committed is {expected}"
    if {broker.node_id for broker in reply.brokers} != set(plan.node_ids):
        return f"knows {reply.brokers}"
    return ""


async def _ask(process: Process, node_id: int) -> MetadataReply:
    while True:
        try:
            async with open_rpc(
                process.env.network,
                host_of(node_id),
                PORT,
                client_id=process.name,
                client_version="1",
            ) as connection:
                return await connection.ask(api.METADATA, MetadataRequest(None))
        except TidelogError:
            await trio.sleep(BACKOFF_S)
