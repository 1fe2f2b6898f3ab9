"""Handlers of REASSIGN and LIST_REASSIGNMENTS: replicas move from broker to broker."""

from collections.abc import Iterable
from typing import Final, final

from tidelog.broker.partitions.partition import Partition
from tidelog.broker.partitions.replica_manager import ReplicaManager
from tidelog.coordinator.controller.replicated_state import ReplicatedState
from tidelog.coordinator.metadata.broker_commands import check_known
from tidelog.coordinator.metadata.catalog import Topic
from tidelog.coordinator.metadata.commands import (
    PartitionAnswer,
    PartitionAnswers,
    Reassignment,
    ReassignReplicas,
)
from tidelog.coordinator.metadata.rebalance_plan import plan_moves, plan_replacement
from tidelog.coordinator.metadata.records import PartitionRegistration
from tidelog.coordinator.metadata.replication_plan import plan_replication_factor
from tidelog.coordinator.node import ClusterNode
from tidelog.wire.errors import ErrorDetail, InvalidRequestError
from tidelog.wire.messages.reassignment import (
    ListReassignmentsReply,
    ListReassignmentsRequest,
    PartitionMoved,
    ReassignReply,
    ReassignRequest,
    ReplicaProgress,
)

_DECIDE_TIMEOUT_S: Final = 10.0
_REPLICAS_MAX: Final = 10_000
_MOVES_MAX: Final = 1000
"""Maximum number of moves in one command: more of them would delay all other commands."""


@final
class ReassignmentHandler:
    """Submits moves of replicas to the cluster: named ones, or those that balance the load."""

    def __init__(self, cluster: ClusterNode) -> None:
        """Plan moves by the metadata of one node."""
        self._cluster = cluster

    async def reassign(self, request: ReassignRequest) -> ReassignReply:
        """Start the moves of replicas; the copies go on when this returns.

        On cancellation, replicas may be moved or not.

        Raises:
            UnknownTopicError: The topic does not exist; nothing is changed.
            InvalidRequestError: The request contradicts itself.
            InvalidTopicError: A topic cannot have that many replicas; nothing is changed.
            RequestTimedOutError: The voters have no majority.
        """
        if request.replication_factor is not None:
            # This broker may lack the newest topics and replicas.
            await self._cluster.command_client.catch_up(timeout_s=_DECIDE_TIMEOUT_S)
        moves = self._moves(request)
        state = self._cluster.metadata.state
        before = [state.partition(move.topic_id, move.partition) for move in moves]
        replicas_before = [[] if known is None else list(known.replicas) for known in before]
        if request.plan_only or not moves:
            return ReassignReply(
                [
                    self._result(move, were, list(move.replicas or were), is_under_way=False)
                    for move, were in zip(moves, replicas_before, strict=True)
                ]
            )
        answers: list[PartitionAnswer] = []
        for start in range(0, len(moves), _MOVES_MAX):
            reply = await self._cluster.command_client.submit(
                ReassignReplicas(moves[start : start + _MOVES_MAX]), timeout_s=_DECIDE_TIMEOUT_S
            )
            assert isinstance(reply, PartitionAnswers)
            answers += reply.answers
        return ReassignReply(
            [
                self._answer(move, were, answer)
                for move, were, answer in zip(moves, replicas_before, answers, strict=True)
            ]
        )

    def _moves(self, request: ReassignRequest) -> list[Reassignment]:
        state = self._cluster.metadata.state
        if request.replication_factor is not None:
            return self._replication(request, request.replication_factor)
        if request.topics is not None:
            raise InvalidRequestError("topics are named without their new replication factor")
        if request.moves:
            if request.leaving:
                raise InvalidRequestError("moves can be named or planned, not both")
            return [
                Reassignment(
                    state.catalog.topic(move.topic).topic_id, move.partition, move.replicas
                )
                for move in request.moves
            ]
        if not 1 <= request.max_replicas <= _REPLICAS_MAX:
            raise InvalidRequestError(
                f"max_replicas is {request.max_replicas}; it must be 1 to {_REPLICAS_MAX}"
            )
        check_known(state, request.leaving)
        if request.replacement is not None:
            return self._replacement(request.leaving, request.replacement)
        return plan_moves(state, moves_max=request.max_replicas, leaving=request.leaving)

    def _replication(self, request: ReassignRequest, factor: int) -> list[Reassignment]:
        """Return moves after which topics have so many replicas.

        Raises:
            InvalidRequestError: The request asks for other moves as well.
            InvalidTopicError: A topic cannot have that many replicas.
        """
        if request.moves or request.leaving or request.replacement is not None:
            raise InvalidRequestError(
                "a replication factor can be changed, or replicas moved, not both in one request"
            )
        state, topics = self._cluster.metadata.state, None
        if request.topics is not None:
            topics = [state.catalog.topic(name) for name in dict.fromkeys(request.topics)]
        return plan_replication_factor(state, factor, topics)

    def _replacement(self, leaving: list[int], replacement: int) -> list[Reassignment]:
        """Return moves that give the replicas of a lost broker to another one.

        Raises:
            InvalidRequestError: The broker is not fenced, or the replacement cannot take replicas.
        """
        state = self._cluster.metadata.state
        check_known(state, [replacement])
        if len(leaving) != 1 or replacement in leaving:
            raise InvalidRequestError(
                "a replacement names one lost broker and another broker that replaces it"
            )
        (lost,) = leaving
        if not state.brokers[lost].is_fenced:
            raise InvalidRequestError(
                f"broker {lost} is alive and can move its replicas itself: use tidelog broker"
                f" drain {lost}"
            )
        if not state.brokers[replacement].can_lead or replacement in state.drained_node_ids:
            raise InvalidRequestError(
                f"broker {replacement} is not alive or is drained, and cannot take replicas"
            )
        return plan_replacement(state, lost, replacement)

    def _answer(
        self, move: Reassignment, replicas_before: list[int], answer: PartitionAnswer
    ) -> PartitionMoved:
        known = answer.partition
        if known is None:
            return self._result(move, replicas_before, [], is_under_way=False, error=answer.error)
        staying = list(known.target_replicas)
        return self._result(
            move, replicas_before, staying, is_under_way=known.is_reassigning, error=answer.error
        )

    def _result(
        self,
        move: Reassignment,
        replicas_before: list[int],
        replicas: list[int],
        *,
        is_under_way: bool,
        error: ErrorDetail | None = None,
    ) -> PartitionMoved:
        topic = self._cluster.metadata.state.catalog.topic_by_id(move.topic_id)
        name = "" if topic is None else topic.name
        return PartitionMoved(name, move.partition, replicas_before, replicas, is_under_way, error)


@final
class ListReassignmentsHandler:
    """Reports the progress of reassignments, by the positions that followers have reported."""

    def __init__(self, metadata: ReplicatedState, partitions: ReplicaManager) -> None:
        """Take reassignments from `metadata`, and their progress from `partitions`."""
        self._metadata = metadata
        self._partitions = partitions

    def handle(
        self, request: ListReassignmentsRequest, attachment: memoryview
    ) -> ListReassignmentsReply:
        """Return the progress of the replicas that partitions led here add."""
        del attachment
        state = self._metadata.state
        replicas: list[ReplicaProgress] = []
        for partition in self._partitions.all():
            known = state.partition(*partition.key)
            topic = state.catalog.topic_by_id(partition.topic_id)
            if known is None or topic is None or partition.leader is None:
                continue
            if request.topics is None or topic.name in request.topics:
                replicas += _progress(topic, known, partition)
        return ListReassignmentsReply(
            sorted(replicas, key=lambda each: (each.topic, each.partition, each.node_id))
        )


def _progress(
    topic: Topic, known: PartitionRegistration, partition: Partition
) -> Iterable[ReplicaProgress]:
    leader, log = partition.leader, partition.log
    assert leader is not None, "only partitions led here are passed"
    start, end, size = log.log_start_offset, log.log_end_offset, log.size_bytes
    for node_id in known.adding_replicas:
        position = leader.follower_end_offset(node_id)
        left = end - min(max(start if position is None else position, start), end)
        yield ReplicaProgress(
            topic.name,
            partition.number,
            node_id,
            end - start,
            left,
            size,
            # An estimate by equally long records: the exact position would need a read from the
            # disk.
            size * left // max(end - start, 1),
            node_id in known.in_sync_replicas,
        )
