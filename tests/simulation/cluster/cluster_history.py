"""The history of a cluster: the committed metadata, and the replies to clients about it.

The run history, beside it, is about records in partitions. Every entry goes to every checker at the
moment at which it happens.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import final

import msgspec

from tests.simulation.checkers.run_history import ViolationError
from tests.simulation.cluster import replica_log
from tests.simulation.cluster.replica_log import (
    Appended,
    Asked,
    Cut,
    Joined,
    Lost,
    Opened,
    Shown,
    ToldEnd,
    Waits,
)
from tests.simulation.cluster.witness import has_entry, snapshot_index, state_of
from tidelog.coordinator.controller.log_entries import decode_entry, encode_snapshot
from tidelog.coordinator.groups.state_machine import ConsumerGroups
from tidelog.coordinator.metadata.state_machine import MetadataStateMachine
from tidelog.coordinator.raft.messages import (
    Entry,
    EntryKind,
    Message,
    SnapshotMeta,
    VoteReply,
    VoteRequest,
)
from tidelog.coordinator.raft_node.node import RaftNode

Partition = replica_log.Partition

_STATE_EVERY = 8
"""Entries between two comparisons of the nodes' states; each costs as much as all metadata."""


class Elected(msgspec.Struct, frozen=True):
    """A node became leader of the Raft group."""

    node_id: int
    term: int
    has_entry: Callable[[int, int], bool]
    """Returns whether its log has the entry of this index and term."""


class Applied(msgspec.Struct, frozen=True):
    """A node has applied an entry."""

    node_id: int
    index: int
    term: int
    content: bytes
    """The kind of the entry, in one byte, and its payload."""
    node_term: int
    """Term of the node: the entry was committed in that term or before."""


class Voted(msgspec.Struct, frozen=True):
    """A vote of a node, for another node or for itself."""

    voter: str
    """The node and its disk."""
    term: int
    candidate: str


class Served(msgspec.Struct, frozen=True):
    """A reply of a broker that acts as the leader of a partition."""

    node_id: int
    partition: Partition
    asked_at: float
    """Time at which the client sent the request, in simulated seconds; the reply arrives now."""


class GroupCommit(msgspec.Struct, frozen=True):
    """Committed offset of a consumer group in a partition."""

    group_id: str
    partition: Partition
    offset: int
    """Offset of the next record to process."""


class Work(msgspec.Struct, frozen=True):
    """Records of a partition that a member of a group has just received."""

    group_id: str
    client_id: str
    """Client id of its process."""
    partition: Partition


class NodeChecker:
    """One promise of a cluster's nodes. A subclass ignores events that it does not need."""

    now: Callable[[], float]
    """Simulated time; set by the history."""

    def fail(self, what: str) -> None:
        """Report that the promise is broken.

        Raises:
            ViolationError: Always.
        """
        raise ViolationError(type(self).__name__, what)

    def began(self, node_id: int, applied_index: int) -> None:
        """Handle the start of a node's process, with the state of its disk up to an index."""

    def elected(self, elected: Elected) -> None:
        """Handle a node that becomes leader."""

    def spoke(self, node: str, term: int) -> None:
        """Handle a message that a node, with its disk, is about to send in a term."""

    def voted(self, voted: Voted) -> None:
        """Handle a vote that a node is about to send."""

    def applied(self, applied: Applied) -> None:
        """Handle an entry that a node has applied."""

    def restored(self, node_id: int, index: int, term: int) -> None:
        """Handle a snapshot, up to this entry, that a node has installed."""

    def state_seen(self, node_id: int, index: int, state: bytes, *, expected: bytes | None) -> None:
        """Handle the state of a node with all entries up to `index`.

        `expected` is the state that the entries produce; `None` if it is unknown.
        """

    def committed(self, index: int, records: Sequence[object]) -> None:
        """Handle the records of an entry that was applied for the first time on any node."""

    def told_created(self, name: str, topic_id: bytes) -> None:
        """Handle a reply that a topic is created, or exists."""

    def told_deleted(self, name: str, asked_at: float) -> None:
        """Handle a reply that the topic is deleted, to a request sent at `asked_at`."""

    def told_altered(self, name: str, settings: Mapping[str, str], asked_at: float) -> None:
        """Handle a reply that the topic has these settings, to a request sent at `asked_at`."""

    def told_partitions(self, name: str, count: int) -> None:
        """Handle a reply with the partition count of a topic."""

    def served(self, served: Served) -> None:
        """Handle a reply of a broker that acts as the leader of a partition."""

    def worked(self, work: Work) -> None:
        """Handle records that a member received."""

    def told_committed(self, commit: GroupCommit) -> None:
        """Handle a member's acknowledged commit."""

    def found_committed(self, found: GroupCommit, least: int) -> None:
        """Handle a committed offset in a reply; the client knew that it was at least `least`."""

    def opened(self, opened: Opened) -> None:
        """Handle a replica's log that a process has opened."""

    def shown(self, shown: Shown) -> None:
        """Handle a new high watermark of a leader, or new metadata of a partition."""

    def cut(self, cut: Cut) -> None:
        """Handle a follower that is about to truncate its log."""

    def lost(self, lost: Lost) -> None:
        """Handle an accepted loss of committed records."""

    def waits(self, waits: Waits) -> None:
        """Handle an append that waits for all in-sync replicas before it is acknowledged."""

    def joined(self, joined: Joined) -> None:
        """Handle a node that joins the ISR."""

    def asked(self, asked: Asked) -> None:
        """Handle an ISR change that a leader is about to request."""

    def told_end(self, told: ToldEnd) -> None:
        """Handle a reply with the end offset of a partition."""

    def appended(self, appended: Appended) -> None:
        """Handle a reply that a client's records were appended."""

    def known_end(self, partition: Partition, end_offset: int) -> None:
        """Handle a reply that all records below an offset are committed."""

    def answered_stranger(self, node_id: int, name: str) -> None:
        """Handle a good reply to a stranger that sent a request of nodes, or a replayed proof."""

    def ended(self, states: Mapping[int, tuple[int, bytes]]) -> None:
        """Handle the final states: each node's id, its applied index and its state."""


@final
class ClusterHistory:
    """Passes events of nodes on to checkers, and keeps the committed state.

    Invariant: `image` and `groups` are the state after the entries up to `end_index`.
    """

    def __init__(
        self,
        checkers: Sequence[NodeChecker],
        now: Callable[[], float],
        fail: Callable[[BaseException], None],
        *,
        goes_on: bool = False,
    ) -> None:
        """Start without committed entries.

        Args:
            checkers: All checkers of the cluster.
            now: Returns the simulated time.
            fail: Receives an objection before it is raised, because it may be raised inside of a
                broker, which catches many exceptions.
            goes_on: Whether the run continues after an objection, so that other checkers can
                object.
        """
        self.checkers = checkers
        self.objections: dict[str, ViolationError] = {}
        """The first objection of each checker, if the run continues."""
        self._goes_on = goes_on
        self._fail = fail
        self.image = MetadataStateMachine()
        """The committed metadata, as soon as the first node has applied them."""
        self.groups = ConsumerGroups()
        """The committed consumer groups."""
        self.end_index = 0
        self.nodes: dict[int, RaftNode] = {}
        """By node id: the latest process."""
        self.on_began: list[Callable[[int], None]] = []
        """Callbacks with the node id when a process begins."""
        self.on_elected: list[Callable[[RaftNode], None]] = []
        """Callbacks when a node becomes leader; they may end it."""
        self.on_applied: list[Callable[[RaftNode, Entry], None]] = []
        """Callbacks when a node has applied an entry; they may end it."""
        self.on_committed: list[Callable[[Sequence[object]], None]] = []
        """Callbacks with the records of each entry when it is applied for the first time."""
        self.on_restored: list[Callable[[RaftNode], None]] = []
        """Callbacks when a snapshot has replaced the state of a node."""
        self.on_asked: list[Callable[[Asked], None]] = []
        """Callbacks when a leader is about to request an ISR change."""
        self.on_cut: list[Callable[[Cut], None]] = []
        """Callbacks when a follower is about to truncate its log."""
        self.on_disk_damaged: list[Callable[[int], None]] = []
        """Callbacks with a node that may be in an ISR, when its files were lost while it is
        down."""
        self.on_tail_damaged: list[Callable[[int, Collection[Partition]], None]] = []
        """Callbacks with a node that is down and has lost records at the end of logs, and the
        partitions whose checkpoints prove these records."""
        self.on_disk_changed: list[Callable[[int], None]] = []
        """Callbacks with a node that is in no ISR, when the contents of its disk were replaced."""
        self.on_lost: list[Callable[[Lost], None]] = []
        """Callbacks when committed records are lost."""
        self._lost_at: dict[Partition, float] = {}
        self._now = now
        self._states: dict[int, bytes] = {}
        for checker in checkers:
            checker.now = now

    # See `Listener`.

    def began(self, node: RaftNode) -> None:
        """See `Listener`."""
        node_id = node.identity.node_id
        self.nodes[node_id] = node
        self.tell(lambda checker: checker.began(node_id, snapshot_index(node)))
        for listener in self.on_began:
            listener(node_id)

    def elected(self, node: RaftNode) -> None:
        """See `Listener`."""

        def has(index: int, term: int) -> bool:
            return has_entry(node, index, term)

        elected = Elected(node.identity.node_id, node.term, has)
        self.tell(lambda checker: checker.elected(elected))
        for listener in self.on_elected:
            listener(node)

    def sends(self, node: RaftNode, message: Message) -> None:
        """See `Listener`."""
        speaker = str(node.identity)
        self.tell(lambda checker: checker.spoke(speaker, message.term))
        if isinstance(message, VoteRequest):
            self._voted(Voted(speaker, message.term, speaker))
        elif isinstance(message, VoteReply) and message.is_granted:
            self._voted(Voted(speaker, message.term, str(message.target)))

    def applying(self, node: RaftNode, entry: Entry) -> None:
        """See `Listener`."""
        del node
        if entry.index == self.end_index + 1:
            self._commit(entry)

    def applied(self, node: RaftNode, entry: Entry) -> None:
        """See `Listener`."""
        node_id = node.identity.node_id
        content = bytes((entry.kind,)) + entry.payload
        applied = Applied(node_id, entry.index, entry.term, content, node.term)
        self.tell(lambda checker: checker.applied(applied))
        if entry.index % _STATE_EVERY == 0:
            self._look_at(node, entry.index)
        for listener in self.on_applied:
            listener(node, entry)

    def restored(self, node: RaftNode, meta: SnapshotMeta) -> None:
        """See `Listener`."""
        self.tell(lambda checker: checker.restored(node.identity.node_id, meta.index, meta.term))
        self._look_at(node, meta.index)
        for listener in self.on_restored:
            listener(node)

    # Other events.

    def told_created(self, name: str, topic_id: bytes) -> None:
        """See `NodeChecker`."""
        self.tell(lambda checker: checker.told_created(name, topic_id))

    def told_deleted(self, name: str, asked_at: float) -> None:
        """See `NodeChecker`."""
        self.tell(lambda checker: checker.told_deleted(name, asked_at))

    def told_altered(self, name: str, settings: Mapping[str, str], asked_at: float) -> None:
        """See `NodeChecker`."""
        self.tell(lambda checker: checker.told_altered(name, settings, asked_at))

    def told_partitions(self, name: str, count: int) -> None:
        """See `NodeChecker`."""
        self.tell(lambda checker: checker.told_partitions(name, count))

    def served(self, served: Served) -> None:
        """See `NodeChecker`."""
        self.tell(lambda checker: checker.served(served))

    def worked(self, work: Work) -> None:
        """See `NodeChecker`."""
        self.tell(lambda checker: checker.worked(work))

    def lost(self, lost: Lost) -> None:
        """See `NodeChecker`."""
        self._lost_at[lost.partition] = self._now()
        self.tell(lambda checker: checker.lost(lost))
        for listener in self.on_lost:
            listener(lost)

    def told_end(self, told: ToldEnd) -> None:
        """See `NodeChecker`; a reply to a request from before a loss may be about lost records."""
        if told.asked_at > self._lost_at.get(told.partition, -1.0):
            self.tell(lambda checker: checker.told_end(told))

    def appended(self, appended: Appended) -> None:
        """See `NodeChecker`."""
        self.tell(lambda checker: checker.appended(appended))

    def known_end(self, partition: Partition, end_offset: int, asked_at: float) -> None:
        """See `NodeChecker`; the reply is to a request of a client, as with `told_end`."""
        if asked_at > self._lost_at.get(partition, -1.0):
            self.tell(lambda checker: checker.known_end(partition, end_offset))

    def answered_stranger(self, node_id: int, name: str) -> None:
        """See `NodeChecker`."""
        self.tell(lambda checker: checker.answered_stranger(node_id, name))

    def told_committed(self, commit: GroupCommit) -> None:
        """See `NodeChecker`."""
        self.tell(lambda checker: checker.told_committed(commit))

    def found_committed(self, found: GroupCommit, least: int) -> None:
        """See `NodeChecker`."""
        self.tell(lambda checker: checker.found_committed(found, least))

    def are_level(self) -> bool:
        """Return whether all nodes, which must run, have applied the same number of entries."""
        return len({node.applied_index for node in self.nodes.values()}) == 1

    def ended(self) -> None:
        """See `NodeChecker`; all nodes must run."""
        states = {
            node_id: (node.applied_index, state_of(node)) for node_id, node in self.nodes.items()
        }
        self.tell(lambda checker: checker.ended(states))

    def _voted(self, voted: Voted) -> None:
        self.tell(lambda checker: checker.voted(voted))

    def _commit(self, entry: Entry) -> None:
        self.end_index = entry.index
        if entry.kind is EntryKind.COMMAND:
            records = decode_entry(entry.payload)
            for group_record in records.groups:
                self.groups.apply(group_record)
            for record in records.cluster:
                self.image.apply(record)
            committed = [*records.cluster, *records.groups]
            self.tell(lambda checker: checker.committed(entry.index, committed))
            for listener in self.on_committed:
                listener(committed)
        if entry.index % _STATE_EVERY == 0:
            self._states[entry.index] = self._expected()

    def _look_at(self, node: RaftNode, index: int) -> None:
        expected = self._expected() if index == self.end_index else self._states.get(index)
        state = state_of(node)
        self.tell(
            lambda checker: checker.state_seen(
                node.identity.node_id, index, state, expected=expected
            )
        )

    def _expected(self) -> bytes:
        return encode_snapshot(self.image.state, self.groups)

    def tell(self, tell: Callable[[NodeChecker], None]) -> None:
        """Call all checkers."""
        for checker in self.checkers:
            try:
                tell(checker)
            except ViolationError as objection:
                if not self._goes_on:
                    self._fail(objection)
                    raise
                self.objections.setdefault(objection.checker, objection)
