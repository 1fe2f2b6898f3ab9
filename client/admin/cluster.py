"""Administration of the cluster as a whole.

Shell: sends requests to any broker, and repeats them while that may help.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import trio

from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.wire.errors import (
    BrokerError,
    ConnectionLostError,
    InvalidRequestError,
    WireFormatError,
)
from tidelog.wire.messages.cluster_admin import (
    AcknowledgeEventsRequest,
    AlterClusterConfigRequest,
    DescribeClusterReply,
    DescribeClusterRequest,
    DescribeConfigReply,
    DescribeConfigRequest,
    ElectLeadersRequest,
    EventDescription,
    LeaderElected,
    SafeToStopReply,
    SafeToStopRequest,
    TopicToElect,
    UnregisterBrokerRequest,
)
from tidelog.wire.messages.division import divided, divided_names
from tidelog.wire.messages.features import UpdateFeaturesReply, UpdateFeaturesRequest
from tidelog.wire.messages.reassignment import (
    DrainBrokerRequest,
    ListReassignmentsRequest,
    PartitionMoved,
    ReassignRequest,
    ReplicaProgress,
)
from tidelog.wire.protocol import api

PartitionsToElect = str | Iterable[tuple[str, int]] | None
"""A topic, for all of its partitions, topics and numbers, or `None` for the whole cluster."""


_DRAIN_REPLICAS_MAX = 10_000
_PATIENCE_S = 2.0
"""Seconds that a leader may take to report the progress of replicas."""


@dataclass(frozen=True, slots=True)
class MovingReplica:
    """A replica that is being added to a partition by a reassignment."""

    topic: str
    partition: int
    node_id: int
    """Node that the replica is copied to."""
    leader_id: int | None
    """Node that the replica fetches from; `None` while the partition has no leader."""
    progress: ReplicaProgress | None
    """Progress of the copy; `None` when the leader did not answer."""


async def list_reassignments(cluster: ClusterClient) -> list[MovingReplica]:
    """See `Admin.list_reassignments`."""
    described = await describe_cluster(cluster, with_partitions=True)
    moving = [
        MovingReplica(each.topic, each.partition, node_id, each.leader_id, None)
        for each in described.partitions
        for node_id in each.adding_replicas
    ]
    found: dict[tuple[str, int, int], ReplicaProgress] = {}

    async def ask(leader_id: int) -> None:
        with trio.move_on_after(_PATIENCE_S):
            try:
                connection = await cluster.connection_to(leader_id)
                reply = await connection.ask(api.LIST_REASSIGNMENTS, ListReassignmentsRequest(None))
            except (BrokerError, ConnectionLostError, WireFormatError):
                return  # The progress stays `None`.
            found.update(
                {(each.topic, each.partition, each.node_id): each for each in reply.replicas}
            )

    async def ask_all() -> None:
        async with trio.open_nursery() as nursery:
            for leader_id in dict.fromkeys(each.leader_id for each in moving):
                if leader_id is not None:
                    nursery.start_soon(ask, leader_id)

    await cluster.tasks.until_closed(ask_all)
    return [
        replace(each, progress=found.get((each.topic, each.partition, each.node_id)))
        for each in moving
    ]


async def drain(cluster: ClusterClient, node_id: int, *, plan_only: bool) -> list[PartitionMoved]:
    """See `Admin.drain`."""
    if not plan_only:
        await _set_drained(cluster, node_id, is_drained=True)
    request = ReassignRequest([], [node_id], _DRAIN_REPLICAS_MAX, plan_only)
    return await reassign(cluster, request)


async def end_drain(cluster: ClusterClient, node_id: int) -> None:
    """See `Admin.end_drain`."""
    await _set_drained(cluster, node_id, is_drained=False)


async def unregister_broker(cluster: ClusterClient, node_id: int) -> bool:
    """See `Admin.unregister_broker`."""
    request = UnregisterBrokerRequest(node_id)
    reply = await cluster.call_controller(api.UNREGISTER_BROKER, request, is_repeatable=True)
    return reply.was_member


async def alter_cluster(
    cluster: ClusterClient, changes: dict[str, str], resets: list[str]
) -> dict[str, str]:
    """See `Admin.alter_cluster`."""
    request = AlterClusterConfigRequest(changes, resets)
    return (await cluster.call_any(api.ALTER_CLUSTER_CONFIG, request, is_repeatable=True)).config


async def broker_config(cluster: ClusterClient, node_id: int | None) -> DescribeConfigReply:
    """See `Admin.broker_config`."""
    request = DescribeConfigRequest()
    if node_id is None:
        return await cluster.call_any(api.DESCRIBE_CONFIG, request, is_repeatable=True)
    nodes = (await describe_cluster(cluster, with_partitions=False)).nodes
    if all(node.node_id != node_id for node in nodes):
        raise InvalidRequestError(
            f"there is no node {node_id}; there are {', '.join(str(n.node_id) for n in nodes)}"
        )

    async def ask() -> DescribeConfigReply:
        connection = await cluster.connection_to(node_id)
        return await cluster.call_once(connection, api.DESCRIBE_CONFIG, request)

    return await cluster.retry(ask, is_repeatable=True)


async def update_features(cluster: ClusterClient, level: int | None) -> UpdateFeaturesReply:
    """See `Admin.describe_features` and `Admin.update_features`."""
    request = UpdateFeaturesRequest(level)
    return await cluster.call_controller(api.UPDATE_FEATURES, request, is_repeatable=True)


async def _set_drained(cluster: ClusterClient, node_id: int, *, is_drained: bool) -> None:
    request = DrainBrokerRequest(node_id, is_drained)
    await cluster.call_any(api.DRAIN_BROKER, request, is_repeatable=True)


async def describe_cluster(
    cluster: ClusterClient, *, with_partitions: bool
) -> DescribeClusterReply:
    """See `Admin.describe_cluster`."""
    request = DescribeClusterRequest(with_partitions)
    return await cluster.call_any(api.DESCRIBE_CLUSTER, request, is_repeatable=True)


async def safe_to_stop(cluster: ClusterClient, node_id: int) -> SafeToStopReply:
    """See `Admin.safe_to_stop`."""
    return await cluster.call_any(api.SAFE_TO_STOP, SafeToStopRequest(node_id), is_repeatable=True)


async def cluster_events(cluster: ClusterClient) -> list[EventDescription]:
    """See `Admin.cluster_events`."""
    return (await describe_cluster(cluster, with_partitions=False)).events


async def acknowledge_events(
    cluster: ClusterClient, event_ids: Iterable[int], *, up_to_id: int | None
) -> int:
    """See `Admin.acknowledge_events`."""
    for part in divided(list(event_ids)):
        request = AcknowledgeEventsRequest(part, up_to_id)
        reply = await cluster.call_any(api.ACKNOWLEDGE_EVENTS, request, is_repeatable=True)
    return reply.unacknowledged_count


async def elect_leaders(
    cluster: ClusterClient, partitions: PartitionsToElect, *, accept_data_loss: bool
) -> list[LeaderElected]:
    """See `Admin.elect_leaders`."""
    request = ElectLeadersRequest(_topics(partitions), accept_data_loss)
    # A repeated request could elect another replica, whose loss was never accepted.
    is_repeatable = not accept_data_loss
    reply = await cluster.call_any(api.ELECT_LEADERS, request, is_repeatable=is_repeatable)
    return reply.results


async def reassign(cluster: ClusterClient, request: ReassignRequest) -> list[PartitionMoved]:
    """See `Admin.reassign`, `Admin.balance`, `Admin.replace_broker` and `Admin.drain`."""
    # A broker of an earlier version would balance the load instead.
    min_version = 1 if request.replication_factor is None else 3
    reply = await cluster.call_any(
        api.REASSIGN, request, is_repeatable=True, min_version=min_version
    )
    return reply.results


async def alter_replication_factor(
    cluster: ClusterClient,
    topics: Iterable[str] | None,
    replication_factor: int,
    *,
    plan_only: bool,
) -> list[PartitionMoved]:
    """See `Admin.alter_replication_factor`."""
    moved: list[PartitionMoved] = []
    for names in divided_names(topics):
        if names is None or names:
            request = ReassignRequest(
                [],
                [],
                plan_only=plan_only,
                replication_factor=replication_factor,
                topics=names,
            )
            moved += await reassign(cluster, request)
    return moved


def _topics(partitions: PartitionsToElect) -> list[TopicToElect] | None:
    if partitions is None:
        return None
    if isinstance(partitions, str):
        return [TopicToElect(partitions)]
    numbers: dict[str, list[int]] = {}
    for topic, number in partitions:
        numbers.setdefault(topic, []).append(number)
    return [TopicToElect(topic, some) for topic, some in numbers.items()]
