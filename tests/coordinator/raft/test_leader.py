"""The state of a leader in one term."""

import pytest

from tests.coordinator.raft.samples import NOTHING, THREE, A, B, C, D, at, entries, snapshot
from tidelog.coordinator.raft.config import RaftConfig
from tidelog.coordinator.raft.errors import MembershipRefusedError
from tidelog.coordinator.raft.leader import Leader
from tidelog.coordinator.raft.log import RaftLog
from tidelog.coordinator.raft.membership import encode_membership
from tidelog.coordinator.raft.messages import (
    AppendRefusal,
    AppendReply,
    AppendRequest,
    Entry,
    EntryKind,
    Message,
    SnapshotRequest,
    TimeoutNow,
)
from tidelog.coordinator.raft.progress import ProgressState
from tidelog.coordinator.raft.reads import ReadQueue
from tidelog.coordinator.raft.ready import AddLearner, Promote, ReadState, Remove

TERM = 3
CONFIG = RaftConfig(
    election_ticks=5, max_append_entries=2, max_inflight_messages=2, snapshot_ticks=8
)


def leading(log: RaftLog) -> Leader:
    """Return A as the leader, without answers and with its first probes sent."""
    leader = Leader(A, TERM, log, config=CONFIG)
    leader.take_messages()
    return leader


def log_of(*terms: int) -> RaftLog:
    return RaftLog(NOTHING, entries(*terms))


def agree(leader: Leader, received_index: int, durable_index: int | None = None) -> None:
    durable_index = received_index if durable_index is None else durable_index
    for sender in (B, C):
        reply = AppendReply(sender, A, TERM, received_index, durable_index, 1, 0)
        leader.take_reply(reply)


def to_b(messages: list[Message]) -> list[Message]:
    return [message for message in messages if message.target == B]


def sent_to_b(leader: Leader) -> list[list[int]]:
    return [
        [entry.index for entry in message.entries]
        for message in to_b(leader.take_messages())
        if isinstance(message, AppendRequest)
    ]


class TestReplication:
    """Messages to a follower."""

    def test_a_silent_follower_gets_one_probe_for_each_heartbeat(self) -> None:
        leader = leading(log_of(1, 3))

        assert sent_to_b(leader) == []
        leader.tick()
        assert sent_to_b(leader) == [[]]

    def test_heartbeats_keep_their_interval(self) -> None:
        log = log_of(3)
        log.commit_to(1)
        leader = Leader(A, TERM, log, config=RaftConfig(heartbeat_ticks=3))
        leader.take_messages()
        agree(leader, 1)
        leader.take_messages()

        beats: list[int] = []
        for tick in range(1, 10):
            leader.tick()
            if leader.take_messages():
                beats.append(tick)

        assert beats == [3, 6, 9]

    def test_entries_are_streamed_as_far_as_the_window_allows(self) -> None:
        log = log_of(1, 3)
        leader = leading(log)
        for entry in entries(3, 3, 3, 3, 3, first=3):
            log.append(entry)

        agree(leader, 2)
        assert sent_to_b(leader) == [[3, 4]]

        agree(leader, 4)
        assert sent_to_b(leader) == [[5, 6], [7]]

    def test_a_message_is_answered_when_its_last_entry_was_received(self) -> None:
        log = log_of(1, 3)
        leader = leading(log)
        for entry in entries(3, 3, 3, 3, first=3):
            log.append(entry)
        agree(leader, 2)
        assert sent_to_b(leader) == [[3, 4]]

        agree(leader, 3)
        assert sent_to_b(leader) == []

        agree(leader, 4)
        assert sent_to_b(leader) == [[5, 6]]

    def test_a_new_commit_index_is_sent_at_once_without_entries(self) -> None:
        log = log_of(1, 3)
        leader = leading(log)
        agree(leader, 2)
        log.commit_to(leader.committable_index())

        assert sent_to_b(leader) == [[]]
        assert sent_to_b(leader) == []

    def test_a_refusal_skips_whole_terms(self) -> None:
        """Conflict hints: one message for each conflicting term, not one for each entry."""
        log = log_of(1, 1, 2, 2, 2, 2, 3)
        leader = leading(log)

        leader.take_refusal(AppendRefusal(B, A, TERM, 7, at(6, 1), 1, 0))

        assert leader.progress[2].next_index == 3

    def test_a_follower_whose_entries_are_compacted_gets_the_snapshot_once(self) -> None:
        log = RaftLog(snapshot(5, 2), entries(3, first=6))
        leader = leading(log)

        leader.take_refusal(AppendRefusal(B, A, TERM, 6, at(2, 1), 1, 0))

        request = SnapshotRequest(A, B, TERM, snapshot(5, 2))
        assert to_b(leader.take_messages()) == [request]
        assert to_b(leader.take_messages()) == []

    @pytest.mark.parametrize("how", ["report", "time"])
    def test_a_lost_snapshot_is_sent_again(self, how: str) -> None:
        log = RaftLog(snapshot(5, 2), entries(3, first=6))
        leader = leading(log)
        leader.take_refusal(AppendRefusal(B, A, TERM, 6, at(2, 1), 1, 0))
        leader.take_messages()

        if how == "report":
            leader.take_failure(2)
        else:
            for _ in range(CONFIG.snapshot_ticks):
                assert leader.progress[2].state is ProgressState.SNAPSHOT
                leader.tick()

        assert SnapshotRequest(A, B, TERM, snapshot(5, 2)) in to_b(leader.take_messages())

    @pytest.mark.parametrize(("agreed", "needs_snapshot"), [(4, True), (5, False)])
    def test_a_follower_needs_the_snapshot_if_its_next_entry_is_compacted(
        self, agreed: int, *, needs_snapshot: bool
    ) -> None:
        log = RaftLog(snapshot(5, 2), entries(3, first=6))
        leader = leading(log)

        leader.take_refusal(AppendRefusal(B, A, TERM, 6, at(agreed, 2), 1, 0))

        (message,) = to_b(leader.take_messages())
        assert isinstance(message, SnapshotRequest) == needs_snapshot

    def test_a_heartbeat_reply_confirms_an_installed_snapshot(self) -> None:
        log = RaftLog(snapshot(5, 2), entries(3, first=6))
        leader = leading(log)
        leader.take_refusal(AppendRefusal(B, A, TERM, 6, at(2, 1), 1, 0))
        leader.take_messages()

        leader.tick()
        assert sent_to_b(leader) == [[]]
        leader.take_reply(AppendReply(B, A, TERM, 5, 5, 0, 0))

        assert sent_to_b(leader) == [[6]]

    def test_a_follower_that_is_unreachable_is_probed(self) -> None:
        leader = leading(log_of(1, 3))
        agree(leader, 2)

        leader.take_failure(2)

        assert leader.progress[2].state is ProgressState.PROBE

    def test_a_lost_probe_is_repeated_by_the_next_heartbeat_and_not_at_once(self) -> None:
        leader = leading(log_of(1, 3))

        leader.take_failure(2)
        leader.take_failure(9)  # A node that is no member (any more).

        assert sent_to_b(leader) == []
        leader.tick()
        assert sent_to_b(leader) == [[]]

    def test_a_reply_beyond_the_log_is_ignored(self) -> None:
        leader = leading(log_of(1, 3))

        agree(leader, 9)
        agree(leader, 1, 2)

        assert leader.progress[2].match_index == 0


class TestCommit:
    """Entries on a majority."""

    def test_an_entry_on_a_majority_of_disks_can_be_committed(self) -> None:
        leader = leading(log_of(3, 3, 3))

        agree(leader, 3, 2)

        assert leader.committable_index() == 2

    @pytest.mark.invariant("I67")
    def test_entries_of_earlier_terms_are_not_counted(self) -> None:
        """The leader commits by counting only entries of its own term."""
        log = log_of(1, 1, 3)
        leader = leading(log)

        agree(leader, 2)
        assert leader.committable_index() == 0

        agree(leader, 3)
        assert leader.committable_index() == 3

    def test_a_leader_with_the_highest_identity_counts_no_other_voter_as_itself(self) -> None:
        log = log_of(3, 3)
        log.commit_to(1)
        leader = Leader(C, TERM, log, config=CONFIG)
        leader.ask_read(7)
        leader.take_messages()

        assert leader.committable_index() == 1
        assert leader.take_reads() == []
        leader.take_reply(AppendReply(B, C, TERM, 2, 2, 1, 1))

        assert leader.committable_index() == 2
        assert leader.take_reads() == [ReadState(7, 1)]

    def test_the_leader_counts_its_own_durable_index(self) -> None:
        log = log_of(1)
        log.append(entries(3, first=2)[0])
        leader = leading(log)

        leader.take_reply(AppendReply(B, A, TERM, 2, 2, 1, 0))
        assert leader.committable_index() == 0

        leader.take_reply(AppendReply(C, A, TERM, 2, 2, 1, 0))
        assert leader.committable_index() == 2

    def test_a_learner_does_not_count(self) -> None:
        log = RaftLog(snapshot(0, 0, THREE.with_learner(D)), entries(3))
        log.append(entries(3, first=2)[0])
        leader = leading(log)

        for sender in (B, D):
            leader.take_reply(AppendReply(sender, A, TERM, 2, 2, 1, 0))

        assert leader.committable_index() == 1


class TestQuorum:
    """CheckQuorum."""

    def test_check_quorum_counts_voters_active_within_an_election_timeout(self) -> None:
        leader = leading(log_of(3))
        heard: list[bool] = []
        for _ in range(CONFIG.election_ticks):
            leader.tick()
            heard.append(leader.is_quorum_active())

        assert heard == [True, True, True, True, False]

        leader.take_refusal(AppendRefusal(B, A, TERM, 1, at(0, 0), 1, 0))
        assert leader.is_quorum_active()

    def test_check_quorum_does_not_count_learners(self) -> None:
        log = RaftLog(snapshot(0, 0, THREE.with_learner(D)), entries(3))
        leader = leading(log)
        for _ in range(CONFIG.election_ticks):
            leader.tick()

        leader.take_reply(AppendReply(D, A, TERM, 1, 1, 1, 0))

        assert not leader.is_quorum_active()


class TestReads:
    """ReadIndex."""

    def test_a_read_index_waits_for_a_majority_asked_after_it(self) -> None:
        log = log_of(3)
        log.commit_to(1)
        leader = leading(log)

        leader.ask_read(7)
        agree(leader, 1)
        leader.take_messages()
        assert leader.take_reads() == []

        leader.take_reply(AppendReply(B, A, TERM, 1, 1, 1, 1))
        assert leader.take_reads() == [ReadState(7, 1)]

    @pytest.mark.invariant("I67")
    def test_a_read_waits_until_an_entry_of_the_term_is_committed(self) -> None:
        """Until then the leader does not know the commit index."""
        log = log_of(1, 3)
        log.commit_to(1)
        leader = leading(log)
        leader.ask_read(7)
        agree(leader, 2)
        assert leader.take_reads() == []

        log.commit_to(2)
        leader.take_messages()
        leader.take_reply(AppendReply(B, A, TERM, 2, 2, 1, 1))

        assert leader.take_reads() == [ReadState(7, 2)]

    def test_a_read_round_of_the_future_is_not_confirmed(self) -> None:
        log = log_of(3)
        log.commit_to(1)
        leader = leading(log)
        leader.take_reply(AppendReply(B, A, TERM, 1, 1, 1, 99))

        leader.ask_read(7)
        leader.take_messages()

        assert leader.take_reads() == []


class TestMembership:
    """Changes, one at a time."""

    @pytest.mark.invariant("I75")
    def test_a_change_is_refused_while_another_is_uncommitted(self) -> None:
        """At most one uncommitted change."""
        log = log_of(3)
        log.commit_to(1)
        leader = leading(log)
        payload = encode_membership(leader.changed_membership(AddLearner(D)))
        log.append(Entry(2, TERM, EntryKind.MEMBERSHIP, payload))

        with pytest.raises(MembershipRefusedError, match="at entry 2 is not committed"):
            leader.changed_membership(Remove(2))

        log.commit_to(2)
        assert leader.changed_membership(Remove(2)).voters == (A, C)

    def test_a_change_is_refused_before_an_entry_of_the_term_is_committed(self) -> None:
        log = log_of(1, 3)
        log.commit_to(1)

        with pytest.raises(MembershipRefusedError, match="nothing of term 3 is committed yet"):
            leading(log).changed_membership(AddLearner(D))

    def test_a_learner_is_promoted_when_it_has_caught_up(self) -> None:
        log = RaftLog(snapshot(0, 0, THREE.with_learner(D)), entries(3))
        log.commit_to(1)
        leader = leading(log)
        with pytest.raises(MembershipRefusedError, match="1 entries behind and cannot vote yet"):
            leader.changed_membership(Promote(4))

        leader.take_reply(AppendReply(D, A, TERM, 1, 1, 1, 0))

        assert leader.changed_membership(Promote(4)).voters == (A, B, C, D)

    def test_a_learner_is_promoted_with_the_largest_lag_and_not_with_more(self) -> None:
        log = RaftLog(snapshot(0, 0, THREE.with_learner(D)), entries(3, 3, 3))
        log.commit_to(3)
        leader = Leader(A, TERM, log, config=RaftConfig(max_promotion_lag_entries=2))
        leader.take_reply(AppendReply(D, A, TERM, 3, 0, 1, 0))
        with pytest.raises(MembershipRefusedError, match="3 entries behind"):
            leader.changed_membership(Promote(4))

        leader.take_reply(AppendReply(D, A, TERM, 3, 1, 1, 0))

        assert D in leader.changed_membership(Promote(4)).voters

    def test_a_removed_member_gets_entries_until_its_removal_is_committed(self) -> None:
        log = log_of(3)
        log.commit_to(1)
        leader = leading(log)
        agree(leader, 1)
        payload = encode_membership(THREE.without(2))
        log.append(Entry(2, TERM, EntryKind.MEMBERSHIP, payload))
        leader.follow_membership()

        assert sent_to_b(leader) == [[2]]

        log.commit_to(2)
        assert sent_to_b(leader) == [[]]
        leader.tick()
        assert sent_to_b(leader) == []
        assert 2 not in leader.progress

    def test_a_removed_leader_lets_the_best_voter_campaign(self) -> None:
        log = log_of(3, 3)
        leader = leading(log)
        leader.take_reply(AppendReply(B, A, TERM, 1, 1, 1, 0))
        leader.take_reply(AppendReply(C, A, TERM, 2, 2, 1, 0))
        log.append(Entry(3, TERM, EntryKind.MEMBERSHIP, encode_membership(THREE.without(1))))

        assert leader.resignation() == [TimeoutNow(A, C, TERM)]


class TestTransfer:
    """Leadership transfers."""

    def test_a_transfer_sends_timeout_now_once_when_the_target_has_all_entries(self) -> None:
        leader = leading(log_of(3, 3))
        leader.begin_transfer(B)
        assert TimeoutNow(A, B, TERM) not in leader.take_messages()

        agree(leader, 2)

        assert TimeoutNow(A, B, TERM) in leader.take_messages()
        assert TimeoutNow(A, B, TERM) not in leader.take_messages()

    def test_a_transfer_is_abandoned_after_an_election_timeout(self) -> None:
        leader = leading(log_of(3, 3))
        leader.tick()
        leader.begin_transfer(B)

        targets: list[object] = []
        for _ in range(CONFIG.election_ticks):
            leader.tick()
            targets.append(leader.transfer_target)

        assert targets == [B, B, B, B, None]


def test_concurrent_reads_share_a_round() -> None:
    reads = ReadQueue()
    reads.ask(1)
    reads.ask(2)

    assert reads.begin_round(10)

    assert reads.take_confirmed(0) == []
    assert reads.take_confirmed(1) == [ReadState(1, 10), ReadState(2, 10)]
    assert reads.take_confirmed(1) == []


def test_a_read_after_the_start_of_a_round_waits_for_the_next() -> None:
    reads = ReadQueue()
    reads.ask(1)
    reads.begin_round(10)
    reads.ask(2)

    assert reads.take_confirmed(1) == [ReadState(1, 10)]

    assert reads.begin_round(12)
    assert reads.take_confirmed(1) == []
    assert reads.take_confirmed(2) == [ReadState(2, 12)]


def test_a_later_round_confirms_the_earlier_ones() -> None:
    reads = ReadQueue()
    for number in (1, 2):
        reads.ask(number)
        reads.begin_round(number * 10)

    assert reads.take_confirmed(2) == [ReadState(1, 10), ReadState(2, 20)]


def test_without_reads_there_is_no_round() -> None:
    assert not ReadQueue().begin_round(10)
