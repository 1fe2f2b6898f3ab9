"""Handler of LIST_OFFSETS: each leader returns its offsets, by partition or for whole topics."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol, final

import trio

from tidelog.broker.partitions.offset_search import OffsetSearch
from tidelog.broker.partitions.partition import Partition
from tidelog.coordinator.controller.replicated_state import ReplicatedState
from tidelog.coordinator.metadata.catalog import Topic
from tidelog.coordinator.raft.membership import check_cluster
from tidelog.coordinator.raft_node.node import RaftNode
from tidelog.coordinator.raft_node.peer_client import PeerClient
from tidelog.wire.errors import (
    BrokerError,
    UnknownQueueError,
    UnknownTopicError,
)
from tidelog.wire.messages.offset_ranges import (
    ListOffsetsReply,
    ListOffsetsRequest,
    OffsetQuery,
    PartitionOffsets,
    TopicOffsets,
)
from tidelog.wire.protocol import api

_PEER_TIMEOUT_S: Final = 2.0
_AT_ONCE: Final = 250
"""Partitions or topics that are looked up before other tasks run."""


class LedPartitions(Protocol):
    """The partitions that this broker leads."""

    def find(self, topic_id: bytes, number: int) -> Partition:
        """Return the partition of a topic.

        Raises:
            BrokerError: This broker does not lead it.
        """
        ...

    def find_journal(self, queue_id: bytes, number: int) -> Partition:
        """Return the journal of a partition of a queue.

        Raises:
            BrokerError: This broker does not lead it.
        """
        ...

    def replica(self, topic_id: bytes, number: int) -> Partition | None:
        """Return an open partition, whether or not this broker leads it."""
        ...

    @property
    def may_lead(self) -> bool:
        """Whether this broker may act as a leader."""
        ...


@final
class ListOffsetsHandler:
    """Answers for the partitions led here, and asks the leaders of other partitions."""

    def __init__(
        self,
        node: RaftNode,
        metadata: ReplicatedState,
        partitions: LedPartitions,
        *,
        search: OffsetSearch,
        peers: PeerClient,
    ) -> None:
        """Take the leader of each partition from `metadata`; ask `peers` for theirs."""
        self._node = node
        self._metadata = metadata
        self._partitions = partitions
        self._search = search
        self._peers = peers

    async def answer(self, request: ListOffsetsRequest) -> ListOffsetsReply:
        """Return the offsets of partitions and topics; a topic that does not exist is left out.

        Raises:
            InvalidRequestError: The request comes from a node of another cluster.
        """
        if request.cluster_id is not None:
            check_cluster(request.cluster_id, self._node.identity, self._node.cluster_id)
        partitions = self._partitions
        find = partitions.find_journal if request.from_journals else partitions.find
        asked: list[PartitionOffsets] = []
        for query in request.partitions:
            asked.append(await self.offsets_of(query, find))
            if len(asked) % _AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        topics = [] if request.topics == [] else await self._topic_offsets(request)
        return ListOffsetsReply(asked, topics)

    async def offsets_of(
        self, query: OffsetQuery, find: Callable[[bytes, int], Partition] | None = None
    ) -> PartitionOffsets:
        """Return the offsets of a partition that is led here, or an error."""
        try:
            partition = (find or self._partitions.find)(query.topic_id, query.partition)
            return await self._search.offsets_of(partition, query)
        except BrokerError as error:
            return PartitionOffsets(0, 0, 0, has_caught_up=False, error=error.to_wire())

    async def _topic_offsets(self, request: ListOffsetsRequest) -> list[TopicOffsets]:
        with_sizes = request.with_sizes
        topics: list[_TopicColumns] = []
        for topic in self._topics(request.topics, from_journals=request.from_journals):
            columns = _TopicColumns(
                topic,
                self._leaders(topic),
                with_sizes=with_sizes,
                with_epochs=request.with_leader_epochs,
            )
            topics.append(columns)
            if len(topics) % _AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        if self._partitions.may_lead:
            for each in topics:
                self._measure(each)
                await trio.lowlevel.checkpoint()
        if request.cluster_id is None:
            await self._ask_leaders(topics, request)
        return [each.reply() for each in topics]

    def _topics(self, names: Iterable[str] | None, *, from_journals: bool) -> list[Topic]:
        catalog = self._metadata.state.catalog
        if names is None:
            return catalog.journals if from_journals else catalog.record_topics
        found: list[Topic] = []
        for name in dict.fromkeys(names):
            with suppress(UnknownTopicError, UnknownQueueError):
                found.append(catalog.journal(name) if from_journals else catalog.topic(name))
        return found

    def _leaders(self, topic: Topic) -> list[int | None]:
        return [each.leader for each in self._metadata.state.partitions(topic.topic_id)]

    def _measure(self, topic: "_TopicColumns") -> None:
        """Fill in the partitions that are led here."""
        topic_id, replica = topic.topic_id, self._partitions.replica
        for number in topic.led_by(self._node.identity.node_id):
            partition = replica(topic_id, number)
            if partition is not None:
                offsets = readable_offsets(partition, with_size=topic.with_sizes)
                if offsets is not None:
                    epoch = _last_epoch(partition, offsets) if topic.with_epochs else None
                    topic.put(number, offsets, epoch)

    async def _ask_leaders(
        self, topics: "Iterable[_TopicColumns]", request: ListOffsetsRequest
    ) -> None:
        by_leader: dict[int, list[_TopicColumns]] = {}
        for each in topics:
            for node_id in each.leader_ids:
                if node_id != self._node.identity.node_id:
                    by_leader.setdefault(node_id, []).append(each)
        by_id = {each.topic_id: each for each in topics}

        def request_of(part: "list[_TopicColumns]") -> ListOffsetsRequest:
            return ListOffsetsRequest(
                [],
                topics=[each.name for each in part],
                with_sizes=request.with_sizes,
                from_journals=request.from_journals,
                cluster_id=self._node.cluster_id,
                with_leader_epochs=request.with_leader_epochs,
            )

        def take(node_id: int, reply: ListOffsetsReply) -> None:
            for answer in reply.topics:
                if answer.topic_id in by_id:
                    by_id[answer.topic_id].take(node_id, answer)

        await self._peers.ask_each(
            by_leader, api.LIST_OFFSETS, request_of, take=take, timeout_s=_PEER_TIMEOUT_S
        )


class ReadableOffsets(NamedTuple):
    """The offsets of one partition that consumers can read."""

    log_start_offset: int
    high_watermark: int
    size_bytes: int
    """Of the log on disk; 0 if it is not wanted."""


def readable_offsets(partition: Partition, *, with_size: bool) -> ReadableOffsets | None:
    """Return which offsets can be read, and the bytes on disk if they are wanted.

    Return `None` if this broker does not lead the partition, or is a new leader that does not know
    its high watermark yet: consumers may have read further already.
    """
    leader = partition.leader
    if leader is None or not leader.has_caught_up:
        return None
    log = partition.log
    return ReadableOffsets(
        log.log_start_offset, leader.high_watermark, log.size_bytes if with_size else 0
    )


def _last_epoch(partition: Partition, offsets: ReadableOffsets) -> int | None:
    """Return the leader epoch of the last readable record, `None` without one."""
    log_start_offset, end, _ = offsets
    return partition.log.leader_epochs.known_before(end) if end > log_start_offset else None


@final
class _TopicColumns:
    """Offsets of one topic, as far as they are known."""

    def __init__(
        self, topic: Topic, leaders: list[int | None], *, with_sizes: bool, with_epochs: bool
    ) -> None:
        """Start without offsets for the partitions that `leaders` lead, in order."""
        self.name = topic.queue_name or topic.name
        self.topic_id, self.with_sizes = topic.topic_id, with_sizes
        self.with_epochs = with_epochs
        count = len(leaders)
        self._starts, self._ends, self._sizes = [0] * count, [0] * count, [0] * count
        self._epochs: list[int | None] = [None] * count
        self._is_known = bytearray(count)
        self._by_leader: dict[int, Sequence[int]] = {}
        for node_id in {leader for leader in leaders if leader is not None}:
            self._by_leader[node_id] = [
                number for number, leader in enumerate(leaders) if leader == node_id
            ]

    @property
    def leader_ids(self) -> list[int]:
        """The brokers that lead some partition."""
        return list(self._by_leader)

    def led_by(self, node_id: int) -> Sequence[int]:
        """Return the partitions that a node leads."""
        return self._by_leader.get(node_id, ())

    def put(self, number: int, offsets: ReadableOffsets, leader_epoch: int | None) -> None:
        """Enter how far a partition goes, and the leader epoch of its last committed record."""
        self._starts[number], self._ends[number], self._sizes[number] = offsets
        self._epochs[number] = leader_epoch
        self._is_known[number] = True

    def take(self, node_id: int, said: TopicOffsets) -> None:
        """Take over the offsets of the partitions that a node leads from its reply."""
        starts, ends = said.log_start_offsets, said.high_watermarks
        sizes = said.sizes_bytes or [0] * len(ends)
        epochs = said.leader_epochs or [None] * len(ends)
        unknown = frozenset(said.unknown_partitions)
        count = min(len(starts), len(ends), len(sizes), len(epochs))
        for number in self.led_by(node_id):
            if number < count and number not in unknown:
                offsets = ReadableOffsets(starts[number], ends[number], sizes[number])
                self.put(number, offsets, epochs[number])

    def reply(self) -> TopicOffsets:
        """Return the offsets of all partitions, and the numbers of the unknown ones."""
        sizes = self._sizes if self.with_sizes else []
        unknown = [number for number, is_known in enumerate(self._is_known) if not is_known]
        epochs = self._epochs if self.with_epochs else []
        return TopicOffsets(
            self.name, self.topic_id, self._starts, self._ends, sizes, unknown, epochs
        )
