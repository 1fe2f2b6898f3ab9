"""The Raft state machine of one node: its role, and the transitions between roles.

Pure: no clock, no I/O; time comes as ticks, and randomness from the caller.

                 election timeout            a majority would vote
    FOLLOWER ─────────────────────▶ PRE_CANDIDATE ─────────────▶ CANDIDATE
       ▲  ▲                           │                           │   │
       │  └── a leader, a later term ─┴───────────────────────────┘   │ a majority has voted
       │                                                              ▼
       └──── a later term, no majority heard of, removed ────────── LEADER

A leadership transfer (`TimeoutNow`) lets a follower skip PRE_CANDIDATE. Candidates without an
answer campaign again with the next timeout.
"""

from collections.abc import Callable
from typing import Any, Final, final

from tidelog.coordinator.raft.candidate import Candidate, ElectionTimer, Random
from tidelog.coordinator.raft.config import RaftConfig
from tidelog.coordinator.raft.errors import (
    ImpossibleMessageError,
    LeadershipMovingError,
    MembershipRefusedError,
    NotRaftLeaderError,
    PayloadTooLargeError,
    UncommittedLimitError,
)
from tidelog.coordinator.raft.follower import Follower
from tidelog.coordinator.raft.hard_state import HardStateGate
from tidelog.coordinator.raft.leader import Leader
from tidelog.coordinator.raft.log import RaftLog
from tidelog.coordinator.raft.membership import Identity, Membership, encode_membership
from tidelog.coordinator.raft.messages import (
    AppendRefusal,
    AppendReply,
    AppendRequest,
    Entry,
    EntryId,
    EntryKind,
    Message,
    OfOneTerm,
    PreVoteReply,
    PreVoteRequest,
    Report,
    SnapshotMeta,
    SnapshotRequest,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from tidelog.coordinator.raft.pending_write import PendingWrite
from tidelog.coordinator.raft.progress import Progress
from tidelog.coordinator.raft.ready import (
    EMPTY_READY,
    MembershipChange,
    ReadState,
    Ready,
    StoredState,
    Write,
)
from tidelog.coordinator.raft.role import Role
from tidelog.wire.messages.field_types import EPOCH_MAX

TERM_RISE_MAX: Final = 1 << 20
"""Terms by which one message may raise the term. With an election each second, a node would miss so
many in twelve days."""


@final
class RaftCore:
    """A node: messages, ticks and proposals in; `Ready` out.

    Invariant: there is a `Leader` exactly while the role is LEADER, and a `Candidate` exactly while
    it is PRE_CANDIDATE or CANDIDATE. Every input sets `is_dirty`.
    """

    def __init__(
        self,
        identity: Identity,
        stored: StoredState,
        config: RaftConfig,
        *,
        random: Random,
        is_damaged: bool = False,
    ) -> None:
        """Start, or restart, from the state on disk.

        The only voter of a cluster campaigns at once; there is no other node to wait for.

        Args:
            identity: This node and its disk.
            stored: The state on disk.
            config: The same on all nodes.
            random: A `random.Random` of this node's own, for election timeouts.
            is_damaged: The disk has lost something that this identity may have promised. The node
                then sends nothing, for ever: it could vote twice in a term, or acknowledge entries
                that it has lost (I71). The shell starts it under a new disk id with nothing stored,
                and it becomes useful again as a learner.

        Raises:
            DamagedLogError: The stored state cannot be a log; start with `is_damaged`.
        """
        self.identity = identity
        self.is_damaged = is_damaged
        self._config = config
        self._log = RaftLog(stored.snapshot, stored.entries)
        self._hard_state = HardStateGate(stored.hard_state)
        if self._log.last.term > self._hard_state.term and not is_damaged:
            # A crash came between the two writes.
            self._hard_state.advance_term(self._log.last.term)
        self.term = self._hard_state.term
        """The highest term that this node has met."""
        self._timer = ElectionTimer(config.election_ticks, random)
        self.is_dirty = True
        """Whether an input arrived since `ready` last returned everything: call it again."""
        self.role = Role.FOLLOWER
        """The node's role."""
        self.leader: Identity | None = None
        """The leader of this term, if this node has heard from it recently."""
        self._leader_state: Leader | None = None
        self._candidate: Candidate | None = None
        self._follower = Follower(identity, self._log, max_unsynced_bytes=config.max_unsynced_bytes)
        self._pending_write = PendingWrite(self._hard_state, self._log, config.max_write_ticks)
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            PreVoteRequest: self._on_pre_vote_request,
            PreVoteReply: self._on_pre_vote_reply,
            VoteRequest: self._on_vote_request,
            VoteReply: self._on_vote_reply,
            AppendRequest: self._on_append_request,
            AppendReply: self._on_append_reply,
            AppendRefusal: self._on_append_refusal,
            SnapshotRequest: self._on_snapshot_request,
            TimeoutNow: self._on_timeout_now,
        }
        if self.membership.voters == (identity,) and self._is_promotable():
            self._campaign()

    # Read access.

    @property
    def membership(self) -> Membership:
        """The membership in force on this node; it may not be committed yet."""
        return self._log.membership

    @property
    def commit_index(self) -> int:
        """The last index that this node knows to be committed."""
        return self._log.commit_index

    @property
    def last(self) -> EntryId:
        """The end of this node's log."""
        return self._log.last

    @property
    def progress(self) -> dict[int, Progress]:
        """On the leader, the progress of the others by node id; otherwise empty. Read-only."""
        return {} if self._leader_state is None else self._leader_state.progress

    # Inputs.

    def tick(self) -> None:
        """Count a tick."""
        self.is_dirty = True
        self._pending_write.tick()
        leader_state = self._leader_state
        if leader_state is not None:
            leader_state.tick()
            if not leader_state.is_quorum_active():
                self._step_down()
            elif self._pending_write.is_stuck and self.membership.others(self.identity):
                self._resign(leader_state)
        elif self._timer.tick():
            self._step_down()
            if self._is_promotable():
                self._pre_campaign()

    def step(self, message: Message) -> None:
        """Process a message; late, duplicate and foreign messages do no harm.

        Raises:
            ImpossibleMessageError: No correct node sends the message now; nothing has changed.
        """
        if self.is_damaged or message.target != self.identity or message.sender == self.identity:
            return
        if isinstance(message, Report) and message.sender not in self.membership.members:
            # A removed node, or its id with another disk. If its reports counted, a majority could
            # consist of nodes that do not have the log (I75).
            return
        self._check_sender(message)
        self.is_dirty = True
        if message.term > self.term and not isinstance(message, PreVoteRequest):
            if not self._is_plausible(message.term):
                return
            if isinstance(message, VoteRequest) and not self._may_advance_term(message):
                return
            self._advance_term(message.term)
        if message.term == self.term or not isinstance(message, OfOneTerm):
            self._handlers[type(message)](message)

    def _check_sender(self, message: Message) -> None:
        """Check that what only a leader sends comes from the leader of its term, if it is known.

        Raises:
            ImpossibleMessageError: There is another leader in that term.
        """
        if self.leader in {None, message.sender} or message.term != self.term:
            return
        if isinstance(message, (AppendRequest, SnapshotRequest, TimeoutNow)):
            raise ImpossibleMessageError(
                f"{message.sender} sends as the leader of term {message.term}, which is"
                f" {self.leader}"
            )

    def propose(self, payload: bytes) -> EntryId:
        """Append a command; the leader only.

        Returns:
            The name of the entry. If an entry of this name is committed, it is this one. If one of
            the same index and another term is, the command is lost, and may be proposed again. It
            is applied twice if it is proposed twice: commands have identities of their own.

        Raises:
            ProposalRefusedError: Nothing was appended; see `coordinator.raft.errors`.
        """
        self._require_leader()
        if len(payload) > self._config.max_payload_bytes:
            raise PayloadTooLargeError(
                f"a command of {len(payload)} bytes is too large, the limit is"
                f" {self._config.max_payload_bytes}"
            )
        if self._log.unsynced_bytes > self._config.max_unsynced_bytes:
            raise UncommittedLimitError("the disk does not keep up; try again when it does")
        limit = self._config.max_uncommitted_bytes
        pending = self._log.uncommitted_bytes
        if pending and pending + len(payload) > limit:
            raise UncommittedLimitError(
                f"{pending} bytes wait to be committed and {len(payload)} more would pass the"
                f" limit of {limit}; try again when some of them are"
            )
        return self._append(EntryKind.COMMAND, payload)

    def read(self, context: int) -> None:
        """Request a linearizable read; the leader only.

        `Ready.reads` returns `context` when it may be served. If the node stops leading before
        that, it never does: fail waiting reads when role or term changes.

        Raises:
            NotRaftLeaderError: Ask the leader.
        """
        if self._leader_state is None:
            raise self._not_leader()
        self.is_dirty = True
        self._leader_state.ask_read(context)

    def change_membership(self, change: MembershipChange) -> EntryId:
        """Append a change of the membership; it is in force at once. The leader only.

        Raises:
            MembershipRefusedError: The change is not possible, or not yet.
            ProposalRefusedError: As for `propose`.
        """
        leader_state = self._require_leader()
        membership = leader_state.changed_membership(change)
        entry_id = self._append(EntryKind.MEMBERSHIP, encode_membership(membership))
        leader_state.follow_membership()
        self._advance_commit()
        return entry_id

    def transfer_leadership(self, node_id: int) -> None:
        """Transfer the leadership to another voter as soon as it has all entries; the leader only.

        Proposals are refused meanwhile. If the transfer takes longer than an election timeout, this
        node goes on leading.

        Raises:
            MembershipRefusedError: The node cannot lead.
            ProposalRefusedError: As for `propose`.
        """
        leader_state = self._require_leader()
        target = self.membership.identity_of(node_id)
        if target is None or target not in self.membership.voters:
            raise MembershipRefusedError(f"node {node_id} is no voter and cannot lead")
        if target != self.identity:
            self.is_dirty = True
            leader_state.begin_transfer(target)

    def report_failure(self, node_id: int) -> None:
        """Record that messages or a snapshot for a node were lost; speeds up recovery."""
        if self._leader_state is not None:
            self.is_dirty = True
            self._leader_state.take_failure(node_id)

    def snapshot_meta(self, index: int) -> SnapshotMeta:
        """Return the metadata with which to store a snapshot of the state machine.

        Args:
            index: The last entry that the state machine has applied; one that was delivered.
        """
        term = self._log.term_at(index)
        assert index <= self._log.delivered_index
        assert term is not None
        return SnapshotMeta(index, term, self._log.membership_at(index))

    def compact(self, snapshot: SnapshotMeta, *, keep_entries: int) -> None:
        """Drop entries that an own, durable snapshot covers, except the last `keep_entries`."""
        self.is_dirty = True
        self._log.compact(snapshot, keep_entries=keep_entries)

    # Outputs.

    def ready(self) -> Ready:
        """Return all pending work; each item is returned once.

        A shell calls this until it is empty, so most calls find that nothing has changed.
        """
        if not self.is_dirty:
            return EMPTY_READY
        reads: tuple[ReadState, ...] = ()
        leader_state, log = self._leader_state, self._log
        if leader_state is not None and leader_state.has_outputs():
            for message in leader_state.take_messages():
                self._hard_state.post(message)
            reads = tuple(leader_state.take_reads())
        write = self._pending_write.begin()
        messages = self._hard_state.take_messages()
        installed = log.take_installed()
        committed = log.take_committed(max_bytes=self._config.max_committed_bytes)
        self.is_dirty = bool(committed) and log.has_undelivered
        return Ready(write, messages, installed, committed, reads)

    def synced(self, write: Write) -> None:
        """Record that a write is durable."""
        self.is_dirty = True
        has_more = self._pending_write.end(write)
        if self.role is Role.CANDIDATE and self._hard_state.is_durable:
            self._count_vote(self.identity, is_granted=True)
        elif self._leader_state is not None:
            self._advance_commit()
        elif self.leader is not None and has_more:
            self._hard_state.post(self._follower.report(self.leader, self.term))

    # Elections.

    def _is_promotable(self) -> bool:
        is_able = not (
            self.is_damaged or self._pending_write.is_stuck or self._log.is_snapshot_unsynced
        )
        is_able = is_able and self.term < EPOCH_MAX
        return is_able and self.identity in self._log.promotable_voters

    def _pre_campaign(self) -> None:
        self.role = Role.PRE_CANDIDATE
        self._candidate = Candidate()
        self._timer.begin_pre_campaign()
        for voter in self.membership.others(self.identity):
            self._hard_state.post(PreVoteRequest(self.identity, voter, self.term, self.last))
        self._count_vote(self.identity, is_granted=True)

    def _campaign(self, *, is_transfer: bool = False) -> None:
        self._advance_term(self.term + 1)
        self._hard_state.vote_for(self.identity)
        self.role = Role.CANDIDATE
        self._candidate = Candidate()
        self._timer.begin_campaign()
        for voter in self.membership.others(self.identity):
            request = VoteRequest(self.identity, voter, self.term, self.last, is_transfer)
            self._hard_state.post(request)
        # The own vote counts when it is durable, like any other: `synced` counts it.

    def _count_vote(self, voter: Identity, *, is_granted: bool) -> None:
        assert self._candidate is not None
        self._candidate.record(voter, is_granted=is_granted)
        if not self._candidate.is_won(self.membership):
            return
        if self.role is Role.PRE_CANDIDATE:
            self._campaign()
        else:
            self._become_leader()

    def _become_leader(self) -> None:
        self.role = Role.LEADER
        self.leader = self.identity
        self._timer.heard_leader()
        self._candidate = None
        self._leader_state = Leader(self.identity, self.term, self._log, config=self._config)
        self._append(EntryKind.TERM_START, b"")

    def _on_pre_vote_request(self, request: PreVoteRequest) -> None:
        is_granted = (
            request.term >= self.term
            and not self._has_live_leader()
            and self._is_up_to_date(request.last)
        )
        reply = PreVoteReply(self.identity, request.sender, self.term, request.term, is_granted)
        self._hard_state.post(reply)

    def _on_pre_vote_reply(self, reply: PreVoteReply) -> None:
        if self.role is Role.PRE_CANDIDATE and reply.asked_term == self.term:
            self._count_vote(reply.sender, is_granted=reply.is_granted)

    def _on_vote_request(self, request: VoteRequest) -> None:
        is_granted = (
            request.term == self.term
            and self._hard_state.voted_for in {None, request.sender}
            and self._is_up_to_date(request.last)
        )
        if is_granted:
            self._hard_state.vote_for(request.sender)
            self._timer.reset()
        self._hard_state.post(VoteReply(self.identity, request.sender, self.term, is_granted))

    def _on_vote_reply(self, reply: VoteReply) -> None:
        if self.role is Role.CANDIDATE:
            self._count_vote(reply.sender, is_granted=reply.is_granted)

    def _on_timeout_now(self, _: TimeoutNow) -> None:
        if self._leader_state is None and self._is_promotable():
            self._campaign(is_transfer=True)

    def _may_advance_term(self, request: VoteRequest) -> bool:
        """Return whether a later term may begin here.

        Not while there is a live leader. A node that returns from a partition, or was removed
        without knowing it, would depose it again and again (I74). The leader itself requests a
        transfer, which only a member can be the target of.
        """
        is_transfer = request.is_transfer and request.sender in self.membership.members
        return is_transfer or not self._has_live_leader()

    def _is_plausible(self, term: int) -> bool:
        """Return whether so many elections can have passed this node by.

        A term is durable at once and never falls, so that a single wrong message could use up all
        terms. A node without a term joins a cluster that may be old.
        """
        return self.term == 0 or term - self.term <= TERM_RISE_MAX

    def _has_live_leader(self) -> bool:
        """Return whether there is no reason for an election (the leader lease of etcd).

        A leader still hears from a majority, or it would have stepped down.
        """
        return self.leader is not None and (
            self._leader_state is not None or self._timer.is_within_minimum
        )

    def _is_up_to_date(self, last: EntryId) -> bool:
        own = self._log.last
        return (last.term, last.index) >= (own.term, own.index)

    # As a follower.

    def _advance_term(self, term: int) -> None:
        if self._leader_state is not None:
            self._timer.reset()
        self._hard_state.advance_term(term)
        self.term = term
        self._become_follower()
        self._follower = Follower(
            self.identity, self._log, max_unsynced_bytes=self._config.max_unsynced_bytes
        )

    def _step_down(self) -> None:
        self._timer.reset()
        self._become_follower()

    def _become_follower(self) -> None:
        self.role = Role.FOLLOWER
        self.leader = None
        self._leader_state = None
        self._candidate = None

    def _follow(self, leader: Identity) -> None:
        assert self._leader_state is None, "there is one leader in a term"
        if self.leader is None:
            self._become_follower()
            self.leader = leader
        self._timer.heard_leader()

    def _on_append_request(self, request: AppendRequest) -> None:
        if request.term < self.term:
            self._hard_state.post(self._follower.refusal(request, self.term))
            return
        self._follow(request.sender)
        self._hard_state.post(self._follower.take_entries(request))

    def _on_snapshot_request(self, request: SnapshotRequest) -> None:
        if request.term < self.term:
            self._hard_state.post(self._follower.report(request.sender, self.term))
            return
        self._follow(request.sender)
        self._hard_state.post(self._follower.take_snapshot(request))

    # As the leader.

    def _on_append_reply(self, reply: AppendReply) -> None:
        if self._leader_state is not None:
            self._leader_state.take_reply(reply)
            self._advance_commit()

    def _on_append_refusal(self, refusal: AppendRefusal) -> None:
        if self._leader_state is not None:
            self._leader_state.take_refusal(refusal)

    def _advance_commit(self) -> None:
        leader_state = self._leader_state
        if leader_state is None:
            return
        index = leader_state.committable_index()
        if index <= self._log.commit_index:
            return
        self._log.commit_to(index)
        is_removed = self.identity not in self.membership.voters
        if is_removed and self._log.membership_index <= index:
            self._resign(leader_state)

    def _resign(self, leader_state: Leader) -> None:
        """Let the voter with the longest log campaign at once, and step down."""
        for message in leader_state.resignation():
            self._hard_state.post(message)
        self._step_down()

    def _append(self, kind: EntryKind, payload: bytes) -> EntryId:
        entry = Entry(self._log.last_index + 1, self.term, kind, payload)
        self._log.append(entry)
        self.is_dirty = True
        return EntryId(entry.index, entry.term)

    def _require_leader(self) -> Leader:
        if self._leader_state is None:
            raise self._not_leader()
        target = self._leader_state.transfer_target
        if target is not None:
            raise LeadershipMovingError(
                f"leadership is moving to node {target.node_id}; try again in a moment"
            )
        return self._leader_state

    def _not_leader(self) -> NotRaftLeaderError:
        if self.leader is None:
            return NotRaftLeaderError(
                f"node {self.identity.node_id} does not lead and knows no leader; an election may"
                " be under way, try again"
            )
        return NotRaftLeaderError(
            f"node {self.identity.node_id} does not lead; ask node {self.leader.node_id}"
        )
