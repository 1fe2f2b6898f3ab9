"""Offset lookup for the coordinator of consumer groups, independent of which brokers lead.

Shell: reads own logs, and asks other brokers about theirs. The coordinator validates commits
against these offsets and computes lags from them.
"""

from collections.abc import Iterable, Sequence
from typing import Final, final

import trio

from tidelog.broker.handlers.list_offsets import LedPartitions, ListOffsetsHandler
from tidelog.coordinator.controller.replicated_state import ReplicatedState
from tidelog.coordinator.group_coordinator.coordinator import Found
from tidelog.coordinator.groups.commits import OffsetRange
from tidelog.coordinator.groups.partitions import Partition
from tidelog.coordinator.raft_node.node import RaftNode
from tidelog.coordinator.raft_node.peer_client import PeerClient
from tidelog.wire.errors import (
    BrokerError,
    ConnectionLostError,
    LeaderNotAvailableError,
)
from tidelog.wire.messages.division import divided
from tidelog.wire.messages.offset_ranges import (
    ListOffsetsRequest,
    OffsetQuery,
    PartitionOffsets,
)
from tidelog.wire.protocol import api

_TIMEOUT_S: Final = 1.0
_SEARCH_TIMEOUT_S: Final = 10.0
_QUESTIONS_AT_ONCE: Final = 100
"""Questions that are looked at before other tasks run."""
"""Timeout in seconds of a search for records, which may have to read from the disk."""


@final
class OffsetLookup:
    """Finds the offsets of partitions, led here or by other brokers."""

    def __init__(
        self,
        node: RaftNode,
        metadata: ReplicatedState,
        partitions: LedPartitions,
        *,
        local: ListOffsetsHandler,
        peers: PeerClient,
        nursery: trio.Nursery,
    ) -> None:
        """Look up `partitions`, search with `local`; ask `peers` for theirs, in `nursery`."""
        self._node = node
        self._metadata = metadata
        self._partitions = partitions
        self._local = local
        self._peers = peers
        self._nursery = nursery
        self._batches: dict[int, _BatchedLookup] = {}

    def look_up(self, partitions: Iterable[Partition], found: Found) -> None:
        """Call `found` with start and end of each log, now or when other brokers have answered.

        Partitions whose leader cannot be asked are missing then. While a request to a broker is
        under way, further partitions collect for the next request, each once.
        """
        lookup = _Lookup(found)
        for partition in partitions:
            leader_id = self._leader_of(partition)
            if leader_id == self._node.identity.node_id:
                try:
                    log = self._partitions.find(*partition).log
                except BrokerError:
                    continue
                lookup.ranges[partition] = OffsetRange(log.log_start_offset, log.log_end_offset)
            elif leader_id is not None:
                self._batch_of(leader_id).add(partition, lookup)
        lookup.settle()

    async def ask(self, questions: Sequence[OffsetQuery]) -> list[PartitionOffsets]:
        """Return the answers in the order of the questions, errors among them."""
        answers: dict[int, PartitionOffsets] = {}
        elsewhere: dict[int, list[int]] = {}
        for place, question in enumerate(questions):
            if place and place % _QUESTIONS_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            leader_id = self._leader_of((question.topic_id, question.partition))
            if leader_id is None:
                answers[place] = _failed(
                    LeaderNotAvailableError(f"partition {question.partition} has no leader")
                )
            elif leader_id == self._node.identity.node_id:
                answers[place] = await self._local.offsets_of(question)
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

    def _leader_of(self, partition: Partition) -> int | None:
        known = self._metadata.state.partition(*partition)
        return None if known is None else known.leader

    def _batch_of(self, node_id: int) -> "_BatchedLookup":
        batch = self._batches.setdefault(node_id, _BatchedLookup())
        if not batch.is_running:
            batch.is_running = True
            self._nursery.start_soon(self._run_batches, node_id, batch)
        return batch

    async def _run_batches(self, node_id: int, batch: "_BatchedLookup") -> None:
        while batch.waiting:
            asked, batch.waiting = batch.waiting, {}
            questions = [OffsetQuery(*partition) for partition in asked]
            logs = await self._ask_node(node_id, questions)
            for (partition, lookups), log in zip(asked.items(), logs, strict=True):
                if log.error is None:
                    offsets = OffsetRange(log.log_start_offset, log.log_end_offset)
                    for lookup in lookups:
                        lookup.ranges[partition] = offsets
                for lookup in lookups:
                    lookup.settle()
        batch.is_running = False

    async def _ask_node(
        self, node_id: int, questions: Sequence[OffsetQuery]
    ) -> Sequence[PartitionOffsets]:
        is_search = any(
            one.at_offset is not None or one.at_timestamp_ms is not None for one in questions
        )
        timeout_s = _SEARCH_TIMEOUT_S if is_search else _TIMEOUT_S
        found: list[PartitionOffsets] = []
        try:
            for part in divided(questions):
                request = ListOffsetsRequest(part, cluster_id=self._node.cluster_id)
                reply = await self._peers.ask(
                    node_id, api.LIST_OFFSETS, request, timeout_s=timeout_s
                )
                found += reply.partitions
        except (BrokerError, ConnectionLostError) as error:
            reason = str(error)
        else:
            if len(found) == len(questions):
                return found
            reason = f"it has {len(found)} answers to {len(questions)} questions"
        failure = LeaderNotAvailableError(f"node {node_id} cannot be asked: {reason}")
        return [_failed(failure)] * len(questions)


@final
class _Lookup:
    """One call of `look_up`, until each of its partitions is known or has failed."""

    __slots__ = ("_found", "open_count", "ranges")

    def __init__(self, found: Found) -> None:
        self._found = found
        self.ranges: dict[Partition, OffsetRange] = {}
        self.open_count = 1
        """Number of results that are outstanding: each requested partition, and the call itself."""

    def settle(self) -> None:
        self.open_count -= 1
        if self.open_count == 0:
            self._found(self.ranges)


@final
class _BatchedLookup:
    """Lookups at one broker, which gets one request at a time."""

    def __init__(self) -> None:
        self.waiting: dict[Partition, list[_Lookup]] = {}
        """Partitions of the next request, and the lookups that need them."""
        self.is_running = False

    def add(self, partition: Partition, lookup: _Lookup) -> None:
        lookup.open_count += 1
        self.waiting.setdefault(partition, []).append(lookup)


def _failed(error: BrokerError) -> PartitionOffsets:
    return PartitionOffsets(0, 0, 0, has_caught_up=False, error=error.to_wire())
