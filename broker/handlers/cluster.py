"""Handlers of cluster administration: description, elections, dynamic config, draining."""

from collections.abc import Mapping, Sequence
from typing import Final, final

import trio

from tidelog.broker.config.dynamic_config import check_dynamic
from tidelog.broker.handlers.events import describe_event
from tidelog.coordinator.metadata.broker_sessions import SESSION_MS
from tidelog.coordinator.metadata.cluster_config import shown_settings
from tidelog.coordinator.metadata.commands import (
    AlterClusterConfig,
    DrainBroker,
    ElectLeaders,
    PartitionAnswer,
    PartitionAnswers,
)
from tidelog.coordinator.metadata.health import NotablePartition, health_of
from tidelog.coordinator.metadata.leaderless import LeaderlessReason, why_leaderless
from tidelog.coordinator.metadata.preferred_leaders import could_be_preferred
from tidelog.coordinator.metadata.records import (
    BrokerRegistration,
    DataLossAccepted,
    PartitionRegistration,
)
from tidelog.coordinator.node import ClusterNode
from tidelog.wire.messages.cluster_admin import (
    AcceptedLoss,
    AlterClusterConfigReply,
    AlterClusterConfigRequest,
    DamagedReplica,
    DescribeClusterReply,
    DescribeClusterRequest,
    ElectLeadersReply,
    ElectLeadersRequest,
    LeaderElected,
    LeaderlessPartitions,
    NodeDescription,
    PartitionState,
    TopicToElect,
    UnregisterBrokerReply,
    UnregisterBrokerRequest,
)
from tidelog.wire.messages.features import UpdateFeaturesReply, UpdateFeaturesRequest
from tidelog.wire.messages.reassignment import DrainBrokerReply, DrainBrokerRequest

_DECIDE_TIMEOUT_S: Final = 10.0
_ELECTIONS_MAX: Final = 250
"""Maximum number of elections in one command: more of them would delay all other commands."""
_UNKNOWN: Final = "unknown"
"""Status of a node about which the metadata say nothing, or are stale."""

_Place = tuple[bytes, int]
"""Topic id and number of a partition."""


@final
class ClusterHandler:
    """Describes and administers the cluster, by the metadata that this broker has."""

    def __init__(self, cluster: ClusterNode) -> None:
        """Serve requests at one node."""
        self._cluster = cluster

    def describe(
        self, request: DescribeClusterRequest, attachment: memoryview
    ) -> DescribeClusterReply:
        """Describe the state of nodes and partitions."""
        del attachment
        state, raft = self._cluster.metadata.state, self._cluster.raft
        damaged = self._damaged_replicas()
        health = health_of(state, damaged=damaged)
        node_ids = {member.node_id for member in raft.membership.members} | state.brokers.keys()
        reasons = [why_leaderless(state, each.topic, each.number) for each in health.notable]
        notable = list(zip(health.notable, reasons, strict=True))
        age_ms = self._cluster.metadata_age_ms()
        is_stale = age_ms is None or age_ms > SESSION_MS
        return DescribeClusterReply(
            raft.cluster_id,
            self._cluster.node_id,
            raft.leader_id,
            raft.term,
            [self._describe_node(node_id, is_stale=is_stale) for node_id in sorted(node_ids)],
            health.partition_count,
            health.leaderless_count,
            health.unavailable_count,
            health.under_replicated_count,
            health.not_preferred_count,
            health.reassigning_count,
            [self._describe_loss(loss) for loss in state.data_losses],
            [_describe_partition(*each, damaged) for each in notable]
            if request.with_partitions
            else [],
            shown_settings(state.overrides),
            self._cluster.clock.skew_max_ms,
            [describe_event(each) for each in state.events.unacknowledged],
            state.events.total,
            state.events.dropped,
            _leaderless(notable),
            health.default_replication_factor,
            health.below_default_count,
            sum(each.count for each in self._cluster.command_client.damaged.values()),
            [
                DamagedReplica(self._name(topic_id), number, node_id)
                for (topic_id, number), node_ids in damaged.items()
                for node_id in node_ids
            ],
            age_ms,
            SESSION_MS,
        )

    def _damaged_replicas(self) -> dict[_Place, list[int]]:
        """Return the nodes of damaged replicas that brokers have named, by topic name and number.

        A replica may have been removed since.
        """
        state = self._cluster.metadata.state
        found: dict[_Place, list[int]] = {}
        for node_id, report in sorted(self._cluster.command_client.damaged.items()):
            for each in report.partitions:
                known = state.partition(each.topic_id, each.partition)
                if known is not None and node_id in known.replicas:
                    found.setdefault((each.topic_id, each.partition), []).append(node_id)
        return dict(sorted(found.items(), key=lambda each: (self._name(each[0][0]), each[0][1])))

    async def elect(self, request: ElectLeadersRequest) -> ElectLeadersReply:
        """Elect the preferred replicas, or any eligible replica if a partition has no leader.

        On cancellation, some of the leaders may be elected.

        Raises:
            UnknownTopicError: The topic does not exist; nothing is changed.
            RequestTimedOutError: The voters have no majority; some leaders may be elected.
        """
        if request.topics is None:
            places = self._due(is_unclean=request.accept_data_loss)
        else:
            places = await self._named(request.topics)
        results: list[LeaderElected] = []
        for some in _in_pieces(places):
            before = [self._cluster.metadata.state.partition(*place) for place in some]
            # With the epochs, a command that is retried accepts the loss only once.
            epochs = [0 if each is None else each.leader_epoch for each in before]
            command = ElectLeaders(some, request.accept_data_loss, epochs)
            reply = await self._cluster.command_client.submit(command, timeout_s=_DECIDE_TIMEOUT_S)
            assert isinstance(reply, PartitionAnswers)
            results += map(self._result, before, reply.answers)
        return ElectLeadersReply(results)

    async def alter(self, request: AlterClusterConfigRequest) -> AlterClusterConfigReply:
        """Change settings of the cluster. On cancellation, they may be changed or not.

        Raises:
            InvalidConfigError: A setting is unknown or not legal, or needs a restart of a broker.
            InvalidRequestError: A setting is for a broker that does not exist.
            RequestTimedOutError: The voters have no majority; the settings may be changed.
        """
        check_dynamic([*request.set_config, *request.reset_config])
        command = AlterClusterConfig(request.set_config, request.reset_config)
        await self._cluster.command_client.submit(command, timeout_s=_DECIDE_TIMEOUT_S)
        return AlterClusterConfigReply(shown_settings(self._cluster.metadata.state.overrides))

    async def drain(self, request: DrainBrokerRequest) -> DrainBrokerReply:
        """Exclude a broker from new replicas, or end that. On cancellation, either may hold.

        Raises:
            InvalidRequestError: The broker does not exist, or no other broker takes replicas.
            RequestTimedOutError: The voters have no majority; the broker may be drained.
        """
        command = DrainBroker(request.node_id, request.is_drained)
        await self._cluster.command_client.submit(command, timeout_s=_DECIDE_TIMEOUT_S)
        load = self._cluster.metadata.state.index.load(request.node_id)
        return DrainBrokerReply(load.replica_count)

    async def unregister(self, request: UnregisterBrokerRequest) -> UnregisterBrokerReply:
        """Remove a node that is gone for good from the cluster; see `Controller.unregister`."""
        return UnregisterBrokerReply(await self._cluster.controller.unregister(request.node_id))

    async def update_features(self, request: UpdateFeaturesRequest) -> UpdateFeaturesReply:
        """Set or describe the feature level of the cluster; see `Controller.update_features`."""
        return await self._cluster.controller.update_features(request.level)

    def _due(self, *, is_unclean: bool) -> list[_Place]:
        """Return the leaderless partitions, or those that the preferred replica could lead."""
        state = self._cluster.metadata.state
        due: list[_Place] = []
        for each in health_of(state).notable:
            place = (each.topic.topic_id, each.number)
            leader = each.partition.leader
            if is_unclean:
                is_due = leader is None
            else:
                is_due = leader != each.partition.replicas[0] and could_be_preferred(state, *place)
            if is_due:
                due.append(place)
        return due

    async def _named(self, topics: Sequence[TopicToElect]) -> list[_Place]:
        """Return the partitions of a request, each once."""
        places: dict[_Place, None] = {}
        whole: set[str] = set()
        for topic in topics:
            if topic.topic not in whole:
                if topic.partitions is None:
                    whole.add(topic.topic)
                places.update(dict.fromkeys(self._places(topic)))
                await trio.lowlevel.checkpoint()
        return list(places)

    def _places(self, wanted: TopicToElect) -> list[_Place]:
        """Return partitions of a topic, and those of its internal topics."""
        catalog = self._cluster.metadata.state.catalog
        topic = catalog.topic(wanted.topic)
        numbers = range(topic.partition_count) if wanted.partitions is None else wanted.partitions
        topics = [topic, *catalog.internal_topics_of(topic.topic_id)]
        return [(each.topic_id, number) for each in topics for number in numbers]

    def _result(
        self, before: PartitionRegistration | None, answer: PartitionAnswer
    ) -> LeaderElected:
        after = answer.partition
        lost_before = None if before is None else before.data_loss_epoch
        return LeaderElected(
            self._name(answer.topic_id),
            answer.number,
            None if before is None else before.leader,
            None if after is None else after.leader,
            after is not None
            and after.data_loss_epoch == after.leader_epoch
            and after.data_loss_epoch != lost_before,
            answer.error,
        )

    def _name(self, topic_id: bytes) -> str:
        topic = self._cluster.metadata.state.catalog.topic_by_id(topic_id)
        return "" if topic is None else topic.name

    def _describe_node(self, node_id: int, *, is_stale: bool) -> NodeDescription:
        state = self._cluster.metadata.state
        broker = state.brokers.get(node_id)
        damaged = self._cluster.command_client.damaged.get(node_id)
        load = state.index.load(node_id)
        host, port = self._cluster.addresses.address_of(node_id) or ("", 0)
        status = _status(broker)
        is_past = is_stale and broker is not None and node_id != self._cluster.node_id
        return NodeDescription(
            node_id,
            host,
            port,
            "" if broker is None else broker.rack,
            self._role(node_id),
            _UNKNOWN if is_past else status,
            load.leader_count,
            load.replica_count,
            node_id in state.drained_node_ids,
            self._cluster.clock.skews_ms.get(node_id),
            None if damaged is None else damaged.count,
            status if is_past else "",
        )

    def _role(self, node_id: int) -> str:
        membership = self._cluster.raft.membership
        if any(voter.node_id == node_id for voter in membership.voters):
            return "voter"
        if any(learner.node_id == node_id for learner in membership.learners):
            return "learner"
        return "none"

    def _describe_loss(self, loss: DataLossAccepted) -> AcceptedLoss:
        return AcceptedLoss(
            self._name(loss.topic_id),
            loss.topic_id,
            loss.partition,
            loss.leader,
            loss.leader_epoch,
            loss.last_known_leader,
            list(loss.eligible_leader_replicas),
            loss.accepted_at_ms,
        )


def _in_pieces(places: list[_Place]) -> list[list[_Place]]:
    starts = range(0, len(places), _ELECTIONS_MAX)
    return [places[start : start + _ELECTIONS_MAX] for start in starts]


def _status(broker: BrokerRegistration | None) -> str:
    if broker is None:
        return _UNKNOWN
    if broker.is_fenced:
        return "fenced"
    return "stopping" if broker.is_shutting_down else "alive"


def _leaderless(
    notable: list[tuple[NotablePartition, LeaderlessReason | None]],
) -> list[LeaderlessPartitions]:
    """Return the partitions without a leader by kind of reason, with the first of each kind."""
    found: dict[str, list[tuple[NotablePartition, LeaderlessReason]]] = {}
    for each, reason in notable:
        if reason is not None:
            found.setdefault(reason.kind, []).append((each, reason))
    return [
        LeaderlessPartitions(kind, len(partitions), first.topic.name, first.number, reason.text)
        for kind, partitions in found.items()
        for first, reason in partitions[:1]
    ]


def _describe_partition(
    notable: NotablePartition,
    reason: LeaderlessReason | None,
    damaged: Mapping[_Place, Sequence[int]],
) -> PartitionState:
    partition = notable.partition
    return PartitionState(
        notable.topic.name,
        notable.number,
        partition.leader,
        partition.leader_epoch,
        list(partition.replicas),
        list(partition.in_sync_replicas),
        list(partition.eligible_leader_replicas),
        list(partition.adding_replicas),
        list(partition.removing_replicas),
        partition.last_known_leader,
        list(partition.offline_replicas),
        list(partition.wiped_replicas),
        "" if reason is None else reason.kind.value,
        "" if reason is None else reason.text,
        list(damaged.get((notable.topic.topic_id, notable.number), ())),
    )
