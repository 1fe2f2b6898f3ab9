"""The controller state of consumer groups on the node that leads, and its commit.

Shell around `coordinator.groups.group_manager`: proposes its records, waits until they are
committed, and checks that this node still leads before a reply goes out.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, final

import trio

from tidelog.coordinator.controller.log_entries import EntryRecords, encode_entry
from tidelog.coordinator.controller.replicated_state import (
    COMMIT_TIMEOUT_S,
    ReplicatedState,
    not_committed,
)
from tidelog.coordinator.groups.config import GroupConfig
from tidelog.coordinator.groups.group import Group
from tidelog.coordinator.groups.group_manager import GroupManager
from tidelog.coordinator.groups.records import GroupRecord, group_records_level
from tidelog.coordinator.groups.state_machine import ConsumerGroups
from tidelog.coordinator.groups.targets import TopicShape
from tidelog.coordinator.metadata.catalog import Topic
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.coordinator.raft.errors import ProposalRefusedError
from tidelog.coordinator.raft_node.node import RaftNode
from tidelog.coordinator.raft_node.pending_proposals import PendingProposal
from tidelog.wire.env.loop_clock import loop_clock
from tidelog.wire.errors import (
    BrokerError,
    LogOfflineError,
    NotControllerError,
    NotLeaderError,
    RequestTimedOutError,
)

ENTRY_BYTES_MAX: Final = 512 * 1024
"""Bytes of records in one entry; more records become several entries."""
_CONFIRMED_FOR_S: Final = 2.0
"""How long a leader may assume that it still leads. Less than the time between the end of a
member's lease and the end of its session, 5 s: the next leader fences no member earlier."""


@final
class GroupLeadership:
    """The groups of this node while it leads.

    Invariant: while there is a `GroupManager`, its state is the image plus all records proposed
    since. It is dropped when this node stops leading, and when a proposal is refused.
    """

    def __init__(self, node: RaftNode, metadata: ReplicatedState, config: GroupConfig) -> None:
        """Propose to `node`, on top of the image in `metadata`."""
        self._node = node
        self._metadata = metadata
        self._config = config
        self._leading: GroupManager | None = None
        self._term = -1
        self._last: PendingProposal | None = None
        """The last entry proposed in this term."""
        self._last_at = 0.0
        self._now_s = loop_clock()
        self._confirmed_at = float("-inf")
        """Last time at which a majority confirmed that this node led."""
        self._read: _Read | None = None
        """The next confirmation, which has not started."""
        self._is_wanted = trio.Event()

    def leading(self) -> GroupManager:
        """Return the controller state of the groups.

        Raises:
            NotControllerError: Another node leads, or earlier proposals are not committed yet.
        """
        self._metadata.check_active_controller()
        if self._term != self._node.term:
            self._term = self._node.term
            self._leading = None
            self._last = None
        if self._leading is None:
            if self._last is not None and not self._last.is_settled:
                raise NotControllerError("a decision was refused, and others are under way; wait")
            state = ConsumerGroups.restore(self._metadata.groups.snapshot(), self._config)
            self._leading = GroupManager(state, now_ms())
            self.carry_out(state.catch_up(shapes_of(self._metadata.state)).records)
        return self._leading

    def carry_out(self, records: Sequence[GroupRecord]) -> None:
        """Apply records to the controller state, and propose them.

        Raises:
            NotControllerError: The records were refused, and are not in force.
            BrokerNotReadyError: The cluster is new, and has no feature level yet.
            InvalidRequestError: The feature level of the cluster is too low for the records.
        """
        if records:
            leading = self.leading()
            self._metadata.use_level(group_records_level(records))
            leading.apply(records, int(self._now_s() * 1000))
            self.propose(records)

    def propose(self, records: Sequence[GroupRecord]) -> None:
        """Propose records that the controller state has already, in their order.

        Raises:
            NotControllerError: The records were refused, and the controller state is dropped.
        """
        if not records:
            return
        entry = encode_entry(records)
        if len(entry) > ENTRY_BYTES_MAX and len(records) > 1:
            half = len(records) // 2
            self.propose(records[:half])
            self.propose(records[half:])
            return
        try:
            self._last_at = self._now_s()
            self._last = self._node.propose_nowait(entry, EntryRecords((), records))
        except ProposalRefusedError as error:
            self._leading = None
            raise NotControllerError(str(error)) from error

    async def settled(self) -> None:
        """Wait until a reply to a member may go out.

        All earlier proposals of this node must be committed, and a majority must confirm that no
        other node led a moment ago.

        Raises:
            NotControllerError: Another node leads.
            RequestTimedOutError: No majority of the voters answers.
        """
        if self._last is not None and not self._last.is_settled:
            last, proposed_at = self._last, self._last_at
            with trio.move_on_after(COMMIT_TIMEOUT_S):
                await last.wait_settled()
            self._require_committed(last, proposed_at)
        if not self.is_confirmed:
            await self.wait_current()

    def when_settled(self, tell: Callable[[BrokerError | None], None]) -> bool:
        """Call `tell` when all earlier proposals of this node are settled, without a task.

        `tell` gets the error if one of them is not committed; it must not raise. A reply may go out
        if there is none, and the leadership `is_confirmed`. If no proposal is under way, this
        returns `False`, and `tell` is not called.
        """
        last, proposed_at = self._last, self._last_at
        if last is None or last.is_settled:
            return False

        def settled() -> None:
            try:
                self._require_committed(last, proposed_at)
            except BrokerError as error:
                tell(error)
            else:
                tell(None)

        last.tell = settled
        return True

    def _require_committed(self, last: PendingProposal, proposed_at: float) -> None:
        """Check that an entry was committed, which confirms that this node led.

        Raises:
            NotControllerError: Another node leads.
            RequestTimedOutError: It is not settled, or the outcome is unknown.
        """
        if not last.is_settled:
            raise not_committed()
        try:
            self._metadata.require_committed(last)
        except LogOfflineError as error:
            # Another node will lead: members must ask it, not stop.
            raise NotControllerError(f"this node leads no more: {error}") from error
        self._confirmed_at = max(self._confirmed_at, proposed_at)

    @property
    def is_confirmed(self) -> bool:
        """Whether a majority confirmed a moment ago that this node led."""
        return self._now_s() - self._confirmed_at <= _CONFIRMED_FOR_S

    async def wait_current(self) -> None:
        """Wait until the image has all entries that any leader committed before this call.

        Concurrent callers share one request to the other nodes.

        Raises:
            NotControllerError: Another node leads.
            RequestTimedOutError: No majority of the voters answers.
        """
        self._metadata.check_active_controller()
        if self._read is None:
            self._read = _Read()
            self._is_wanted.set()
        read = self._read
        with trio.move_on_after(COMMIT_TIMEOUT_S):
            await read.done.wait()
            if read.error is not None:
                raise NotControllerError(str(read.error)) from read.error
            return
        raise RequestTimedOutError(
            f"not confirmed within {COMMIT_TIMEOUT_S:g} s: a majority of the voters is missing"
        )

    async def current_groups(self) -> Mapping[str, Group]:
        """Return all groups by id, with all commits before this call; read-only.

        Errors as in `wait_current`.
        """
        await self.wait_current()
        return self._metadata.groups.groups

    async def run(self) -> None:
        """Confirm that this node leads, whenever a caller waits for it; until cancelled."""
        while True:
            await self._is_wanted.wait()
            self._is_wanted = trio.Event()
            read, self._read = self._read, None
            assert read is not None
            began_at = self._now_s()
            try:
                await self._node.wait_current()
            except NotLeaderError as error:
                read.error = error
            else:
                self._confirmed_at = max(self._confirmed_at, began_at)
            read.done.set()

    def role_changed(self) -> None:
        """Drop the controller state if this node does not lead any more."""
        if not self._node.is_leader or self._term != self._node.term:
            self._leading = None
            self._last = None
            self._confirmed_at = float("-inf")


@final
class _Read:
    """A pending confirmation that this node leads, and its callers."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.error: NotLeaderError | None = None


def shapes_of(state: ClusterState) -> dict[str, TopicShape]:
    """Return the assignors' view of all topics of records, by name."""
    return {topic.name: shape_of(topic) for topic in state.catalog.record_topics}


def shape_of(topic: Topic) -> TopicShape:
    """Return the assignors' view of a topic."""
    return TopicShape(topic.topic_id, topic.partition_count)


def now_ms() -> int:
    """Return monotonic time."""
    return int(trio.current_time() * 1000)
