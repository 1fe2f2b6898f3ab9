"""The group coordinator on the node that leads the cluster.

Shell: drives the clock of `coordinator.groups`, and commits its decisions. Other nodes name the
leader. A reply waits until every record that it may rest on is committed. So do refusals, for
members act on them.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol, final

import trio

from tidelog.coordinator.controller.replicated_state import ReplicatedState
from tidelog.coordinator.group_coordinator.admin import GroupAdministration, LogQuestions
from tidelog.coordinator.group_coordinator.commit_queue import CommitQueue, Done
from tidelog.coordinator.group_coordinator.leadership import (
    GroupLeadership,
    now_ms,
    shape_of,
    shapes_of,
)
from tidelog.coordinator.groups.commits import CommitResult, OffsetRange
from tidelog.coordinator.groups.config import GroupConfig
from tidelog.coordinator.groups.description import (
    fetch_offsets,
)
from tidelog.coordinator.groups.group_manager import GroupManager
from tidelog.coordinator.groups.partitions import Partition, require_moderate
from tidelog.coordinator.groups.targets import TopicShape
from tidelog.coordinator.metadata.broker_delta import BrokerDelta
from tidelog.coordinator.raft_node.node import RaftNode
from tidelog.wire.env.env import Env
from tidelog.wire.errors import BrokerError, NotControllerError
from tidelog.wire.messages.groups import (
    CommitOffsetsReply,
    CommitOffsetsRequest,
    FetchOffsetsReply,
    FetchOffsetsRequest,
    GroupHeartbeatReply,
    GroupHeartbeatRequest,
    PartitionCommittedOffset,
)

_LOOK_S: Final = 0.1
"""Interval between checks whether its term has begun, and whether it can decide again."""
_EXPIRY_LOOK_S: Final = 600.0
_OFFSETS_AT_ONCE: Final = 200
"""Committed offsets that are looked up before other tasks run."""
_ANYWHERE: Final = OffsetRange(0, 2**63 - 1)

Found = Callable[[Mapping[Partition, OffsetRange]], None]
"""Gets the bounds of logs; synchronous, must not raise."""


class OffsetFinder(LogQuestions, Protocol):
    """Queries for the logs of partitions, including a lookup for commits."""

    def look_up(self, partitions: Iterable[Partition], found: Found) -> None:
        """Call `found` with the bounds of logs, now or later.

        Partitions with an unreachable leader are missing then.
        """
        ...


@final
class GroupCoordinator:
    """Serves members and administrators of groups while this node leads."""

    def __init__(
        self,
        env: Env,
        node: RaftNode,
        metadata: ReplicatedState,
        *,
        offsets: OffsetFinder,
        config: GroupConfig | None = None,
        may_delete: Callable[[], bool] = lambda: True,
    ) -> None:
        """Decide while `node` leads.

        Args:
            env: The clock.
            node: This node.
            metadata: The topics, and the committed groups.
            offsets: Returns the bounds of partitions.
            config: Settings of groups.
            may_delete: Returns whether groups may be deleted by time now.
        """
        self._env = env
        self._node = node
        self._metadata = metadata
        self._offsets = offsets
        self._config = config or GroupConfig()
        self._leadership = GroupLeadership(node, metadata, self._config)
        self._commits = CommitQueue(env, self._leadership, self._exists)
        self.administration = GroupAdministration(
            env,
            metadata,
            self._leadership,
            logs=offsets,
            config=self._config,
            may_delete=may_delete,
        )
        """The requests of administrators."""
        self._reshaped: dict[bytes, str] = {}
        """Topics that were created, deleted or grew, and that groups were not told of yet."""
        self._topics: dict[str, TopicShape] | None = None
        """All topics by name; `None` after a change."""
        self._next_tick_ms = 0
        self._wake = trio.Event()
        metadata.subscribe(self._note_topics, hears_transactions=False)
        node.on_role_changed(self._role_changed)

    async def run(self) -> None:
        """Run due work whenever this node leads; until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._leadership.run)
            nursery.start_soon(self._commits.run)
            nursery.start_soon(self.administration.run)
            while True:
                self._wake = trio.Event()
                with trio.move_on_after(self._do_due()):
                    await self._wake.wait()

    # Requests of members.

    async def heartbeat(self, request: GroupHeartbeatRequest) -> GroupHeartbeatReply:
        """Record a member's heartbeat and return its assignment.

        If cancelled, the heartbeat may count, or not.

        Raises:
            NotControllerError: Another node leads.
            UnknownMemberError: The member was fenced or has left.
            FencedInstanceError: A newer process of this static member has taken over.
            RequestTimedOutError: No majority of the voters answers.
            InvalidRequestError: The request names too many partitions.
        """
        require_moderate(request.owned or ())
        leading = self._leadership.leading()
        refusal: BrokerError | None = None
        reply: GroupHeartbeatReply | None = None
        try:
            outcome = leading.heartbeat(request, wall_ms=self._wall_ms(), now_ms=now_ms())
        except BrokerError as error:
            refusal = error
        else:
            reply = outcome.reply
            self._leadership.propose(outcome.records)
            self._look_earlier(leading)
        await self._leadership.settled()
        if refusal is not None:
            raise refusal
        assert reply is not None
        return reply

    def commit_soon(self, request: CommitOffsetsRequest, done: Done) -> None:
        """Store a group's offsets; call `done` when they are durable on a majority, or refused.

        Args:
            request: The commit.
            done: Gets the reply, or the error of the whole commit; synchronous, must not raise.

        Raises:
            NotControllerError: Another node leads.
        """
        self._metadata.check_active_controller()
        partitions = dict.fromkeys((one.topic_id, one.partition) for one in request.offsets)
        known = list(filter(self._exists, partitions))

        def found(ranges: Mapping[Partition, OffsetRange]) -> None:
            # A failed check of the offsets must not cost a group its progress.
            judged = {partition: ranges.get(partition, _ANYWHERE) for partition in known}
            try:
                self._commits.put(request, judged, done)
            except BrokerError as error:
                done(error)

        self._offsets.look_up(known, found)

    async def commit_offsets(self, request: CommitOffsetsRequest) -> CommitOffsetsReply:
        """Store a group's offsets; they are durable on a majority on return.

        If cancelled, they may be stored, or not.

        Raises:
            NotControllerError: Another node leads.
            RequestTimedOutError: They may be stored, or not.
            BrokerError: The commit is refused as a whole.
        """
        result: list[CommitResult] = []
        is_done = trio.Event()

        def done(outcome: CommitResult) -> None:
            result.append(outcome)
            is_done.set()

        self.commit_soon(request, done)
        await is_done.wait()
        (outcome,) = result
        if isinstance(outcome, BrokerError):
            raise outcome
        return outcome

    async def fetch_offsets(self, request: FetchOffsetsRequest) -> FetchOffsetsReply:
        """Return a group's offsets, at least as new as any commit that was answered before.

        Raises:
            NotControllerError: Another node leads.
            RequestTimedOutError: No majority of the voters answers.
            InvalidRequestError: The request names too many partitions.
        """
        require_moderate(request.partitions or ())
        groups = await self._leadership.current_groups()
        offsets: list[PartitionCommittedOffset] = []
        for found in fetch_offsets(groups.get(request.group_id), request.partitions):
            offsets.append(found)
            if len(offsets) % _OFFSETS_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        return FetchOffsetsReply(offsets)

    def _exists(self, partition: Partition) -> bool:
        return self._metadata.state.partition(*partition) is not None

    # Timers.

    def _do_due(self) -> float:
        """Run due work; return the seconds until the next call."""
        try:
            leading = self._leadership.leading()
            self._follow_topics(leading)
            self._tick(leading)
        except NotControllerError:
            # The next leader does the same; so does this node, in a while.
            self._next_tick_ms = 0
            return _LOOK_S if self._node.is_leader else float("inf")
        deadline_ms = leading.next_deadline_ms
        if deadline_ms is None:
            self._next_tick_ms = 0
            return float("inf")
        self._next_tick_ms = deadline_ms
        return max(0, deadline_ms - now_ms()) / 1000

    def _follow_topics(self, leading: GroupManager) -> None:
        reshaped, self._reshaped = self._reshaped, {}
        catalog = self._metadata.state.catalog
        for topic_id in reshaped:
            if catalog.topic_by_id(topic_id) is None:
                self._leadership.carry_out(leading.state.forget_topic(topic_id).records)
        if reshaped:
            touched = leading.state.topics_changed(sorted(set(reshaped.values())))
            self._leadership.carry_out(touched.records)

    def _tick(self, leading: GroupManager) -> None:
        if leading.next_deadline_ms is None:
            return  # Without members a created topic needs no check of all topics.
        if self._topics is None:
            self._topics = shapes_of(self._metadata.state)
        outcome = leading.tick(self._topics, wall_ms=self._wall_ms(), now_ms=now_ms())
        self._leadership.propose(outcome.records)
        for expired in outcome.reply:
            self._env.probe(
                "group_member_fenced",
                severity="warning",
                group=expired.group_id,
                member=expired.member_id,
                reason=expired.reason,
            )

    def _note_topics(self, delta: BrokerDelta) -> None:
        if not delta.reshaped_topics:
            return
        if self._topics is not None:
            for name in delta.reshaped_topics.values():
                topic = self._metadata.state.catalog.record_topic(name)
                if topic is None:
                    self._topics.pop(name, None)
                else:
                    self._topics[name] = shape_of(topic)
        self._reshaped |= delta.reshaped_topics
        self._wake.set()

    def _role_changed(self) -> None:
        self._leadership.role_changed()
        self._reshaped.clear()
        self._wake.set()

    def _look_earlier(self, leading: GroupManager) -> None:
        deadline_ms = leading.next_deadline_ms
        is_asleep = self._next_tick_ms == 0
        if deadline_ms is not None and (is_asleep or deadline_ms < self._next_tick_ms):
            self._wake.set()

    def _wall_ms(self) -> int:
        return self._env.clock.now_ms()
