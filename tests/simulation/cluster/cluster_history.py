"""The history of a cluster: what its nodes agreed on, and what clients were told of it.

It stands beside the run history, which is about records in partitions. Every entry goes to every
checker at the moment at which it happens.
"""

from collections.abc import Callable, Mapping, Sequence
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
"""So many entries apart the states of nodes are compared; each costs as much as all metadata."""


class Elected(msgspec.Struct, frozen=True):
    """A node begins to lead the nodes."""

    node_id: int
    term: int
    has_entry: Callable[[int, int], bool]
    """Whether its log has the entry of this index and term."""


class Applied(msgspec.Struct, frozen=True):
    """A node has applied an entry."""

    node_id: int
    index: int
    term: int
    content: bytes
    """The kind of the entry, in one byte, and its payload."""
    node_term: int
    """In which term the node is: it was committed in that one, or before."""


class Voted(msgspec.Struct, frozen=True):
    """A node says that it votes, for another one or for itself."""

    voter: str
    """The node and its disk."""
    term: int
    candidate: str


class Served(msgspec.Struct, frozen=True):
    """A client was answered by a broker that acts as the leader of a partition."""

    node_id: int
    partition: Partition
    asked_at: float
    """When the request left the client, in simulated seconds; the answer is there now."""


class GroupCommit(msgspec.Struct, frozen=True):
    """How far a consumer group is in a partition."""

    group_id: str
    partition: Partition
    offset: int
    """Of the next record to be processed."""


class Work(msgspec.Struct, frozen=True):
    """A member of a group was handed records of a partition just now."""

    group_id: str
    client_id: str
    """Of its process."""
    partition: Partition


class NodeChecker:
    """One promise of nodes that form a cluster. What it does not care for it ignores."""

    now: Callable[[], float]
    """Simulated time; set by the history."""

    def fail(self, what: str) -> None:
        """Say that the promise is broken.

        Raises:
            ViolationError: Always.
        """
        raise ViolationError(type(self).__name__, what)

    def began(self, node_id: int, applied_index: int) -> None:
        """A process takes part, with the state up to an index that its disk has."""

    def elected(self, elected: Elected) -> None:
        """A node begins to lead."""

    def spoke(self, node: str, term: int) -> None:
        """A node, with its disk, is about to say something in a term."""

    def voted(self, voted: Voted) -> None:
        """A node is about to say that it votes."""

    def applied(self, applied: Applied) -> None:
        """A node has applied an entry."""

    def restored(self, node_id: int, index: int, term: int) -> None:
        """A node has got the state up to this entry as a snapshot."""

    def state_seen(self, node_id: int, index: int, state: bytes, *, expected: bytes | None) -> None:
        """A node has this state, with all entries up to `index`.

        `expected` is what the entries come to; `None` if nobody knows any more.
        """

    def committed(self, index: int, records: Sequence[object]) -> None:
        """An entry with these records was applied for the first time anywhere."""

    def told_created(self, name: str, topic_id: bytes) -> None:
        """A client was told that a topic is created, or is there."""

    def told_deleted(self, name: str, asked_at: float) -> None:
        """A client that asked for it then was told that the topic of a name is deleted."""

    def told_altered(self, name: str, settings: Mapping[str, str], asked_at: float) -> None:
        """A client that asked for it then was told that the topic has these settings now."""

    def told_partitions(self, name: str, count: int) -> None:
        """A client was told that the topic of a name has so many partitions."""

    def served(self, served: Served) -> None:
        """A client was answered by whoever acts as the leader of a partition."""

    def worked(self, work: Work) -> None:
        """A member was handed records."""

    def told_committed(self, commit: GroupCommit) -> None:
        """A member was told that its commit is done."""

    def found_committed(self, found: GroupCommit, least: int) -> None:
        """Somebody was told how far a group is, who knew before asking that it was at `least`."""

    def opened(self, opened: Opened) -> None:
        """A process has opened the log of a replica."""

    def shown(self, shown: Shown) -> None:
        """A leader shows another high watermark, or the metadata of a partition have changed."""

    def cut(self, cut: Cut) -> None:
        """A follower is about to remove the end of its log."""

    def lost(self, lost: Lost) -> None:
        """Committed records are lost, and somebody has accepted that."""

    def waits(self, waits: Waits) -> None:
        """A leader has appended what all in sync must have before it is acknowledged."""

    def joined(self, joined: Joined) -> None:
        """A node is in sync from now on."""

    def asked(self, asked: Asked) -> None:
        """A leader is about to ask for others in sync."""

    def told_end(self, told: ToldEnd) -> None:
        """A client was told where a partition ends."""

    def appended(self, appended: Appended) -> None:
        """A client was told that what it has sent was appended."""

    def known_end(self, partition: Partition, end_offset: int) -> None:
        """A client was told that all below an offset is committed."""

    def ended(self, states: Mapping[int, tuple[int, bytes]]) -> None:
        """At the end every node, by its id, has applied so many entries and has this state."""


@final
class ClusterHistory:
    """Passes on to checkers what nodes do, and keeps what they agreed on.

    Invariant: `image` and `groups` are what the entries up to `end_index` come to.
    """

    def __init__(
        self,
        checkers: Sequence[NodeChecker],
        now: Callable[[], float],
        fail: Callable[[BaseException], None],
        *,
        goes_on: bool = False,
    ) -> None:
        """Begin with nothing agreed on.

        Args:
            checkers: All that are to be told.
            now: Says the simulated time.
            fail: Is given an objection before it is raised, for it may be raised in the midst of a
                broker, which gets over a lot.
            goes_on: Whether the run goes on when a checker objects, so that others may, too.
        """
        self.checkers = checkers
        self.objections: dict[str, ViolationError] = {}
        """The first objection of each checker, if the run goes on."""
        self._goes_on = goes_on
        self._fail = fail
        self.image = MetadataStateMachine()
        """What is committed, as soon as the first node has applied it."""
        self.groups = ConsumerGroups()
        """The same of consumer groups."""
        self.end_index = 0
        self.nodes: dict[int, RaftNode] = {}
        """By node id: the process that was started last."""
        self.on_began: list[Callable[[int], None]] = []
        """Called besides with the node when a process begins."""
        self.on_elected: list[Callable[[RaftNode], None]] = []
        """Called besides when a node begins to lead; may end it."""
        self.on_applied: list[Callable[[RaftNode, Entry], None]] = []
        """Called besides when a node has applied an entry; may end it."""
        self.on_committed: list[Callable[[Sequence[object]], None]] = []
        """Called besides with the records of each entry when it is applied for the first time."""
        self.on_restored: list[Callable[[RaftNode], None]] = []
        """Called besides when the state of a node was replaced by that of a snapshot."""
        self.on_asked: list[Callable[[Asked], None]] = []
        """Called besides when a leader is about to ask for others in sync."""
        self.on_cut: list[Callable[[Cut], None]] = []
        """Called besides when a follower is about to remove the end of its log."""
        self.on_disk_damaged: list[Callable[[int], None]] = []
        """Called with a node that may be counted on, when its files were lost while it is down."""
        self.on_disk_changed: list[Callable[[int], None]] = []
        """Called with a node that nobody counts on, when what is on its disk is another thing."""
        self.on_lost: list[Callable[[Lost], None]] = []
        """Called besides when committed records are lost."""
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

    # What else happens.

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
        """See `NodeChecker`; what was asked for before a loss may be what is lost."""
        if told.asked_at > self._lost_at.get(told.partition, -1.0):
            self.tell(lambda checker: checker.told_end(told))

    def appended(self, appended: Appended) -> None:
        """See `NodeChecker`."""
        self.tell(lambda checker: checker.appended(appended))

    def known_end(self, partition: Partition, end_offset: int, asked_at: float) -> None:
        """See `NodeChecker`; somebody asked for it, as with `told_end`."""
        if asked_at > self._lost_at.get(partition, -1.0):
            self.tell(lambda checker: checker.known_end(partition, end_offset))

    def told_committed(self, commit: GroupCommit) -> None:
        """See `NodeChecker`."""
        self.tell(lambda checker: checker.told_committed(commit))

    def found_committed(self, found: GroupCommit, least: int) -> None:
        """See `NodeChecker`."""
        self.tell(lambda checker: checker.found_committed(found, least))

    def are_level(self) -> bool:
        """Return whether all nodes, which must be at work, have applied as many entries."""
        return len({node.applied_index for node in self.nodes.values()}) == 1

    def ended(self) -> None:
        """See `NodeChecker`; all nodes must be at work."""
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
        """Tell all checkers something."""
        for checker in self.checkers:
            try:
                tell(checker)
            except ViolationError as objection:
                if not self._goes_on:
                    self._fail(objection)
                    raise
                self.objections.setdefault(objection.checker, objection)
