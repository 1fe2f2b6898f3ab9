"""The state of a leader in one term.

Pure: no clock, no I/O. Created when an election is won, and dropped when the term is over for this
node: there is nothing to undo. One place, `take_messages`, decides which messages to send, from the
state at that time. So inputs that arrive together are answered together.
"""

from typing import final

from tidelog.coordinator.raft.config import RaftConfig
from tidelog.coordinator.raft.errors import MembershipRefusedError
from tidelog.coordinator.raft.log import RaftLog
from tidelog.coordinator.raft.membership import Identity, Membership, index_of_majority
from tidelog.coordinator.raft.messages import (
    AppendRefusal,
    AppendReply,
    AppendRequest,
    Entry,
    EntryId,
    Message,
    SnapshotRequest,
    TimeoutNow,
)
from tidelog.coordinator.raft.progress import Progress, ProgressState, Window
from tidelog.coordinator.raft.reads import ReadQueue
from tidelog.coordinator.raft.ready import AddLearner, MembershipChange, Promote, ReadState


@final
class Leader:
    """One node as the leader of one term."""

    def __init__(self, identity: Identity, term: int, log: RaftLog, *, config: RaftConfig) -> None:
        """Start to lead; every other member counts as active just now."""
        self.term = term
        self._identity = identity
        self._log = log
        self._config = config
        self._now_ticks = 0
        self._is_heartbeat_due = True
        self._reads = ReadQueue()
        self._progress: dict[Identity, Progress] = {}
        self._transfer_target: Identity | None = None
        self._transfer_since_ticks = 0
        self._is_transfer_sent = False
        self.follow_membership()

    # State.

    @property
    def transfer_target(self) -> Identity | None:
        """The next leader; proposals are refused meanwhile."""
        return self._transfer_target

    @property
    def has_term_committed(self) -> bool:
        """Whether an entry of the own term is committed, and so the commit index is up to date.

        Before that, an earlier leader may have committed entries that this one does not know to be
        committed (I67).
        """
        return self._log.term_at(self._log.commit_index) == self.term

    @property
    def progress(self) -> dict[int, Progress]:
        """The other members by their node id."""
        return {identity.node_id: progress for identity, progress in self._progress.items()}

    def is_quorum_active(self) -> bool:
        """Return whether a majority of the voters has answered within the last election timeout.

        A leader without one steps down (CheckQuorum of etcd): it can commit nothing, and clients
        would keep sending requests to it (I74).
        """
        alive = [
            identity
            for identity, progress in self._progress.items()
            if self._now_ticks - progress.heard_at_ticks < self._config.election_ticks
        ]
        return self._log.membership.is_majority([self._identity, *alive])

    def committable_index(self) -> int:
        """Return the index up to which a majority of the voters has the log on disk.

        Only entries of the own term count: one of an earlier term may be on a majority and
        still be overwritten (figure 8 of the paper, I67). It is committed by a later entry.
        """
        index = index_of_majority(
            self._log.durable_index
            if voter == self._identity
            else self._progress[voter].match_index
            for voter in self._log.membership.voters
        )
        return index if self._log.term_at(index) == self.term else self._log.commit_index

    # Inputs.

    def tick(self) -> None:
        """Count a tick."""
        self._now_ticks += 1
        if self._now_ticks % self._config.heartbeat_ticks == 0:
            self._is_heartbeat_due = True
        waited_ticks = self._now_ticks - self._transfer_since_ticks
        if self._transfer_target is not None and waited_ticks >= self._config.election_ticks:
            self._transfer_target = None
        for progress in self._progress.values():
            if progress.state is ProgressState.SNAPSHOT:
                waited_ticks = self._now_ticks - progress.snapshot_since_ticks
                if waited_ticks >= self._config.snapshot_ticks:
                    progress.become_probe(progress.match_index + 1)

    def take_reply(self, reply: AppendReply) -> None:
        """Process a follower's acknowledgement."""
        progress = self._hear(reply.sender, reply.read_round)
        if reply.durable_index <= reply.received_index <= self._log.last_index:
            progress.received(reply.received_index, reply.durable_index, reply.attempt)

    def take_refusal(self, refusal: AppendRefusal) -> None:
        """Process the refusal of a follower that lacks the previous entry."""
        progress = self._hear(refusal.sender, refusal.read_round)
        agreed = self._log.find_conflict_by_term(refusal.hint)
        next_index = min(agreed.index, refusal.hint.index) + 1
        progress.refused(refusal.previous_index, next_index, refusal.attempt)

    def take_failure(self, node_id: int) -> None:
        """Record that messages to this node, or the snapshot for it, were lost."""
        progress = self.progress.get(node_id)
        if progress is not None and progress.state is not ProgressState.PROBE:
            progress.become_probe(progress.match_index + 1)

    def ask_read(self, context: int) -> None:
        """Queue a linearizable read."""
        self._reads.ask(context)

    def take_reads(self) -> list[ReadState]:
        """Return the reads that a majority has confirmed."""
        if self._reads.is_idle:
            return []
        confirmed_round = index_of_majority(
            self._reads.latest_round
            if voter == self._identity
            else self._progress[voter].read_round
            for voter in self._log.membership.voters
        )
        return self._reads.take_confirmed(confirmed_round)

    # The membership, and leadership transfers.

    def changed_membership(self, change: MembershipChange) -> Membership:
        """Return the membership after a change.

        One change at a time, and none before an entry of the own term is committed: two
        memberships in a row share a majority only then (I75).

        Raises:
            MembershipRefusedError: The change is not possible, or not yet.
        """
        log = self._log
        if log.membership_index > log.commit_index:
            raise MembershipRefusedError(
                f"the change of the membership at entry {log.membership_index} is not committed;"
                " try again when it is"
            )
        if not self.has_term_committed:
            raise MembershipRefusedError(
                f"nothing of term {self.term} is committed yet; try again in a moment"
            )
        match change:
            case AddLearner():
                return log.membership.with_learner(change.identity)
            case Promote():
                promoted = log.membership.with_promoted(change.node_id)
                self._check_caught_up(change.node_id)
                return promoted
            case _:
                return log.membership.without(change.node_id)

    def follow_membership(self) -> None:
        """Start replication to the members that the membership in force has added.

        Replication to a removed member goes on until its removal is committed, so that it learns of
        it.
        """
        for member in self._log.membership.members:
            if member != self._identity and member not in self._progress:
                self._progress[member] = Progress(
                    next_index=self._log.last_index + 1,
                    window=Window(
                        self._config.max_inflight_messages, self._config.max_inflight_bytes
                    ),
                    now_ticks=self._now_ticks,
                )

    def begin_transfer(self, target: Identity) -> None:
        """Let `target` campaign as soon as it has all entries."""
        self._transfer_target = target
        self._transfer_since_ticks = self._now_ticks
        self._is_transfer_sent = False

    def resignation(self) -> list[Message]:
        """Return the message by which a leader that must step down lets another voter campaign."""
        voters = self._log.membership.others(self._identity)
        best = max(voters, key=lambda voter: self._progress[voter].match_index)
        return [TimeoutNow(self._identity, best, self.term)]

    # Outputs.

    def has_outputs(self) -> bool:
        """Return whether there may be messages or reads to take: a sole voter rarely has any."""
        return bool(self._progress) or not self._reads.is_idle

    def take_messages(self) -> list[Message]:
        """Return the messages to send now."""
        is_due = self._is_heartbeat_due
        self._is_heartbeat_due = False
        if (
            not self._reads.is_idle
            and self.has_term_committed
            and self._reads.begin_round(self._log.commit_index)
        ):
            is_due = True
        messages: list[Message] = []
        for identity, progress in self._progress.items():
            self._replicate_to(identity, progress, messages, is_due=is_due)
        if self._progress and self._log.membership_index <= self._log.commit_index:
            self._forget_removed()
        target = self._transfer_target
        if target is not None and not self._is_transfer_sent and self._has_all(target):
            self._is_transfer_sent = True
            messages.append(TimeoutNow(self._identity, target, self.term))
        return messages

    def _replicate_to(
        self, identity: Identity, progress: Progress, messages: list[Message], *, is_due: bool
    ) -> None:
        log = self._log
        if progress.state is ProgressState.SNAPSHOT:
            # It agrees to this as soon as it has the snapshot, also if its first reply was lost.
            if is_due:
                messages.append(self._append_request(identity, log.base, (), attempt=0))
        elif progress.next_index <= log.base.index:
            progress.become_snapshot(log.snapshot.index, self._now_ticks)
            messages.append(SnapshotRequest(self._identity, identity, self.term, log.snapshot))
        elif progress.state is ProgressState.PROBE:
            if is_due or not progress.is_probe_sent:
                # Only the first attempt carries entries: an unreachable node gets no flood of them.
                entries = () if progress.is_probe_sent else self._entries_for(progress)
                messages.append(self._next_request(identity, progress, entries))
                progress.is_probe_sent = True
        else:
            self._stream(identity, progress, messages, is_due=is_due)

    def _stream(
        self, identity: Identity, progress: Progress, messages: list[Message], *, is_due: bool
    ) -> None:
        is_told = not is_due and progress.commit_index_sent >= self._log.commit_index
        while progress.next_index <= self._log.last_index and not progress.window.is_full:
            entries = self._entries_for(progress)
            messages.append(self._next_request(identity, progress, entries))
            progress.window.add(entries[-1].index, sum(entry.size_bytes for entry in entries))
            progress.next_index = entries[-1].index + 1
            is_told = True
        if not is_told:
            messages.append(self._next_request(identity, progress, ()))

    def _entries_for(self, progress: Progress) -> tuple[Entry, ...]:
        return self._log.entries_from(
            progress.next_index,
            max_bytes=self._config.max_append_bytes,
            max_count=self._config.max_append_entries,
        )

    def _next_request(
        self, identity: Identity, progress: Progress, entries: tuple[Entry, ...]
    ) -> AppendRequest:
        index = progress.next_index - 1
        term = self._log.term_at(index)
        assert term is not None
        progress.commit_index_sent = self._log.commit_index
        return self._append_request(
            identity, EntryId(index, term), entries, attempt=progress.attempt
        )

    def _append_request(
        self, identity: Identity, previous: EntryId, entries: tuple[Entry, ...], *, attempt: int
    ) -> AppendRequest:
        return AppendRequest(
            self._identity,
            identity,
            self.term,
            previous,
            self._log.commit_index,
            attempt,
            self._reads.latest_round,
            entries,
        )

    def _hear(self, sender: Identity, read_round: int) -> Progress:
        progress = self._progress[sender]
        progress.heard_at_ticks = self._now_ticks
        if read_round <= self._reads.latest_round:
            progress.read_round = max(progress.read_round, read_round)
        return progress

    def _has_all(self, voter: Identity) -> bool:
        progress = self._progress.get(voter)
        return progress is not None and progress.match_index == self._log.last_index

    def _check_caught_up(self, node_id: int) -> None:
        progress = self.progress[node_id]
        lag = self._log.last_index - progress.match_index
        is_following = progress.state is ProgressState.REPLICATE
        if not is_following or lag > self._config.max_promotion_lag_entries:
            raise MembershipRefusedError(
                f"node {node_id} is {lag} entries behind and cannot vote yet; try again when it"
                f" has caught up to {self._config.max_promotion_lag_entries}"
            )

    def _forget_removed(self) -> None:
        members = self._log.membership.members
        if len(self._progress) >= len(members):
            for identity in [known for known in self._progress if known not in members]:
                del self._progress[identity]
