"""Where the logs of partitions begin and end, wherever in the cluster they are led.

Shell: looks into own logs, and asks other brokers about theirs. The coordinator of consumer groups
judges commits and tells lags by it.
"""

from collections.abc import Iterable, Sequence
from typing import Final, final

import trio

from tidelog.broker.handlers.offsets import LedPartitions, OffsetsHandler
from tidelog.broker.partitions.partition import Partition as OpenPartition
from tidelog.coordinator.controller.replicated_state import ReplicatedState
from tidelog.coordinator.group_coordinator.coordinator import Found
from tidelog.coordinator.groups.commits import Extent
from tidelog.coordinator.groups.partitions import Partition
from tidelog.coordinator.raft.membership import check_cluster
from tidelog.coordinator.raft_node.node import RaftNode
from tidelog.coordinator.raft_node.peer_client import PeerClient
from tidelog.wire.errors import (
    BrokerError,
    ConnectionLostError,
    CorruptRecordError,
    LeaderNotAvailableError,
)
from tidelog.wire.messages.cluster import ExtentQuestion, ExtentsReply, ExtentsRequest, LogExtent
from tidelog.wire.protocol import api

_TIMEOUT_S: Final = 1.0
_SEARCH_TIMEOUT_S: Final = 10.0
"""When records have to be looked for, which may have to come from the disk."""


@final
class LogExtents:
    """Answers questions about logs, its own and those of others."""

    def __init__(
        self,
        node: RaftNode,
        metadata: ReplicatedState,
        partitions: LedPartitions,
        *,
        offsets: OffsetsHandler,
        peers: PeerClient,
        nursery: trio.Nursery,
    ) -> None:
        """Look into `partitions` with `offsets`; ask `peers` about what they lead, in `nursery`."""
        self._node = node
        self._metadata = metadata
        self._partitions = partitions
        self._offsets = offsets
        self._peers = peers
        self._nursery = nursery
        self._lines: dict[int, _Line] = {}

    def look_up(self, partitions: Iterable[Partition], found: Found) -> None:
        """Call `found` with where logs begin and end, now or when other brokers have said so.

        Partitions whose leader cannot be asked are missing then. Whatever is to be asked of one
        broker while a question to it is under way becomes the next question, each partition once.
        """
        lookup = _Lookup(found)
        for partition in partitions:
            leader_id = self._leader_of(partition)
            if leader_id == self._node.identity.node_id:
                try:
                    log = self._partitions.find(*partition).log
                except BrokerError:
                    continue
                lookup.extents[partition] = Extent(log.log_start_offset, log.log_end_offset)
            elif leader_id is not None:
                self._line_to(leader_id).join(partition, lookup)
        lookup.settle()

    async def ask(self, questions: Sequence[ExtentQuestion]) -> list[LogExtent]:
        """Return the answers in the order of the questions, errors among them."""
        answers: dict[int, LogExtent] = {}
        elsewhere: dict[int, list[int]] = {}
        for place, question in enumerate(questions):
            leader_id = self._leader_of((question.topic_id, question.partition))
            if leader_id is None:
                answers[place] = _failed(
                    LeaderNotAvailableError(f"nobody leads partition {question.partition}")
                )
            elif leader_id == self._node.identity.node_id:
                answers[place] = await self._look(question)
            else:
                elsewhere.setdefault(leader_id, []).append(place)

        async def ask_there(node_id: int, places: list[int]) -> None:
            there = await self._ask_node(node_id, [questions[place] for place in places])
            answers.update(zip(places, there, strict=True))

        if len(elsewhere) == 1:
            for node_id, places in elsewhere.items():
                await ask_there(node_id, places)
        elif elsewhere:
            async with trio.open_nursery() as nursery:
                for node_id, places in elsewhere.items():
                    nursery.start_soon(ask_there, node_id, places)
        return [answers[place] for place in range(len(questions))]

    async def answer(self, request: ExtentsRequest) -> ExtentsReply:
        """Answer another broker, about what this one leads.

        Raises:
            InvalidRequestError: It belongs to another cluster.
        """
        check_cluster(request.cluster_id, self._node.identity, self._node.cluster_id)
        return ExtentsReply([await self._look(question) for question in request.questions])

    async def _look(self, question: ExtentQuestion) -> LogExtent:
        try:
            partition = self._partitions.find(question.topic_id, question.partition)
            timestamp_ms = offset = None
            if question.at_offset is not None:
                timestamp_ms = await self._time_at(partition, question.at_offset)
            if question.at_timestamp_ms is not None:
                found = await self._offsets.find_time(partition, question.at_timestamp_ms)
                offset = found.offset
        except BrokerError as error:
            return _failed(error)
        log = partition.log
        return LogExtent(
            log.log_start_offset,
            partition.high_watermark,
            log.log_end_offset,
            timestamp_ms,
            offset,
        )

    async def _time_at(self, partition: OpenPartition, offset: int) -> int | None:
        try:
            return await self._offsets.time_at(partition, offset)
        except CorruptRecordError:
            # It is shown at the partition. That nobody knows its time is no reason to say less.
            return None

    def _leader_of(self, partition: Partition) -> int | None:
        known = self._metadata.state.partition(*partition)
        return None if known is None else known.leader

    def _line_to(self, node_id: int) -> "_Line":
        line = self._lines.setdefault(node_id, _Line())
        if not line.is_busy:
            line.is_busy = True
            self._nursery.start_soon(self._run_line, node_id, line)
        return line

    async def _run_line(self, node_id: int, line: "_Line") -> None:
        while line.waiting:
            asked, line.waiting = line.waiting, {}
            questions = [ExtentQuestion(*partition) for partition in asked]
            logs = await self._ask_node(node_id, questions)
            for (partition, lookups), log in zip(asked.items(), logs, strict=True):
                if log.error is None:
                    extent = Extent(log.log_start_offset, log.log_end_offset)
                    for lookup in lookups:
                        lookup.extents[partition] = extent
                for lookup in lookups:
                    lookup.settle()
        line.is_busy = False

    async def _ask_node(
        self, node_id: int, questions: Sequence[ExtentQuestion]
    ) -> Sequence[LogExtent]:
        is_search = any(
            one.at_offset is not None or one.at_timestamp_ms is not None for one in questions
        )
        timeout_s = _SEARCH_TIMEOUT_S if is_search else _TIMEOUT_S
        request = ExtentsRequest(self._node.cluster_id, list(questions))
        try:
            reply = await self._peers.ask(node_id, api.EXTENTS, request, timeout_s=timeout_s)
        except (BrokerError, ConnectionLostError) as error:
            reason = str(error)
        else:
            if len(reply.extents) == len(questions):
                return reply.extents
            reason = f"it has {len(reply.extents)} answers to {len(questions)} questions"
        failure = LeaderNotAvailableError(f"node {node_id} cannot be asked: {reason}")
        return [_failed(failure)] * len(questions)


@final
class _Lookup:
    """Partitions that somebody wants to know of."""

    __slots__ = ("_found", "extents", "open_count")

    def __init__(self, found: Found) -> None:
        self._found = found
        self.extents: dict[Partition, Extent] = {}
        self.open_count = 1
        """What has to be settled: each partition that is asked for, and that all of them are."""

    def settle(self) -> None:
        self.open_count -= 1
        if self.open_count == 0:
            self._found(self.extents)


@final
class _Line:
    """The way to one broker, which is asked one question at a time."""

    def __init__(self) -> None:
        self.waiting: dict[Partition, list[_Lookup]] = {}
        """To be asked next, and for whom."""
        self.is_busy = False

    def join(self, partition: Partition, lookup: _Lookup) -> None:
        lookup.open_count += 1
        self.waiting.setdefault(partition, []).append(lookup)


def _failed(error: BrokerError) -> LogExtent:
    return LogExtent(0, 0, 0, error=error.to_wire())
