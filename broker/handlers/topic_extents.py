"""How far the partitions of topics go: each leader says it of its own, in one answer for all."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final, final

import trio

from tidelog.broker.partitions.partition import Partition
from tidelog.broker.partitions.replica_manager import Partitions
from tidelog.coordinator.metadata.catalog import Topic
from tidelog.coordinator.node import ClusterNode
from tidelog.wire.errors import BrokerError, ConnectionLostError, UnknownTopicError, WireFormatError
from tidelog.wire.messages.offset_ranges import TopicExtents, TopicExtentsReply, TopicExtentsRequest
from tidelog.wire.protocol import api

_PEER_TIMEOUT_S: Final = 2.0


@final
class TopicExtentsHandler:
    """Answers for what is led here, and asks the leaders of the rest."""

    def __init__(self, cluster: ClusterNode, partitions: Partitions) -> None:
        """Know by `cluster` who leads what, and by `partitions` how far it goes."""
        self._cluster = cluster
        self._partitions = partitions

    async def answer(self, request: TopicExtentsRequest) -> TopicExtentsReply:
        """Say how far partitions go; a topic that is not there is left out."""
        measured = [
            _Measured(topic, self._leaders(topic), with_sizes=request.with_sizes)
            for topic in self._topics(request.topics)
        ]
        if self._partitions.may_lead:
            for each in measured:
                self._measure(each)
        if not request.is_local:
            await self._ask_leaders(measured, with_sizes=request.with_sizes)
        return TopicExtentsReply([each.reply() for each in measured])

    def _topics(self, names: Iterable[str] | None) -> list[Topic]:
        catalog = self._cluster.metadata.state.catalog
        if names is None:
            return catalog.record_topics
        found: list[Topic] = []
        for name in names:
            with suppress(UnknownTopicError):
                found.append(catalog.topic(name))
        return found

    def _leaders(self, topic: Topic) -> list[int | None]:
        return [each.leader for each in self._cluster.metadata.state.partitions(topic.topic_id)]

    def _measure(self, measured: "_Measured") -> None:
        """Put in what is led here."""
        topic_id, replica = measured.topic_id, self._partitions.replica
        for number in measured.led_by(self._cluster.node_id):
            partition = replica(topic_id, number)
            if partition is not None:
                extent = extent_of(partition, with_size=measured.with_sizes)
                if extent is not None:
                    start, end, size_bytes = extent
                    measured.put(number, start, end, size_bytes=size_bytes)

    async def _ask_leaders(self, measured: "list[_Measured]", *, with_sizes: bool) -> None:
        wanted: dict[int, list[_Measured]] = {}
        for each in measured:
            for node_id in each.leader_ids:
                if node_id != self._cluster.node_id:
                    wanted.setdefault(node_id, []).append(each)
        async with trio.open_nursery() as nursery:
            for node_id, topics in wanted.items():
                nursery.start_soon(self._ask_leader, node_id, topics, with_sizes)

    async def _ask_leader(
        self, node_id: int, measured: "list[_Measured]", with_sizes: bool
    ) -> None:
        # Who does not answer is no reason to say nothing of the others.
        with suppress(BrokerError, ConnectionLostError, WireFormatError):
            reply = await self._cluster.peers.ask(
                node_id,
                api.TOPIC_EXTENTS,
                TopicExtentsRequest([each.name for each in measured], with_sizes, is_local=True),
                timeout_s=_PEER_TIMEOUT_S,
            )
            answers = {topic.topic_id: topic for topic in reply.topics}
            for each in measured:
                if each.topic_id in answers:
                    each.take(node_id, answers[each.topic_id])


def extent_of(partition: Partition, *, with_size: bool) -> tuple[int, int, int] | None:
    """Return where what can be read begins and ends, and its bytes on disk if they are wanted.

    `None` if it is not led here, or by a new leader that does not know yet how much is committed:
    consumers may have read further already.
    """
    leader = partition.leader
    if leader is None or not leader.has_caught_up:
        return None
    log = partition.log
    return log.log_start_offset, leader.high_watermark, log.size_bytes if with_size else 0


@final
class _Measured:
    """What is known so far of one topic."""

    def __init__(self, topic: Topic, leaders: list[int | None], *, with_sizes: bool) -> None:
        """Know nothing yet of partitions that are led by `leaders`, in order."""
        self.name, self.topic_id, self.with_sizes = topic.name, topic.topic_id, with_sizes
        count = len(leaders)
        self._starts, self._ends, self._sizes = [0] * count, [0] * count, [0] * count
        self._is_known = bytearray(count)
        self._by_leader: dict[int, Sequence[int]] = {}
        for node_id in {leader for leader in leaders if leader is not None}:
            self._by_leader[node_id] = [
                number for number, leader in enumerate(leaders) if leader == node_id
            ]

    @property
    def leader_ids(self) -> list[int]:
        """Who leads some partition."""
        return list(self._by_leader)

    def led_by(self, node_id: int) -> Sequence[int]:
        """Return the partitions that a node leads."""
        return self._by_leader.get(node_id, ())

    def put(self, number: int, start: int, end: int, *, size_bytes: int) -> None:
        """Say how far a partition goes."""
        self._starts[number], self._ends[number] = start, end
        self._sizes[number] = size_bytes
        self._is_known[number] = True

    def take(self, node_id: int, said: TopicExtents) -> None:
        """Put in what a leader says of its partitions."""
        starts, ends = said.log_start_offsets, said.high_watermarks
        sizes = said.sizes_bytes or [0] * len(ends)
        unknown = frozenset(said.unknown_partitions)
        count = min(map(len, (starts, ends, sizes)))
        for number in self.led_by(node_id):
            if number < count and number not in unknown:
                self.put(number, starts[number], ends[number], size_bytes=sizes[number])

    def reply(self) -> TopicExtents:
        """Return all of it."""
        sizes = self._sizes if self.with_sizes else []
        unknown = [number for number, is_known in enumerate(self._is_known) if not is_known]
        return TopicExtents(self.name, self.topic_id, self._starts, self._ends, sizes, unknown)
