"""One node: durability, messages of a leader, and leadership.

Elections and identities are in `test_core_elections.py`, scenarios of several nodes in
`test_scenarios.py`; the table of `docs/raft.md` has the tests of each numbered statement.
"""

from collections.abc import Callable
from contextlib import nullcontext
from random import Random

import pytest

from tests.coordinator.raft.samples import (
    THREE,
    A,
    B,
    C,
    D,
    at,
    entries,
    entry,
    snapshot,
)
from tests.coordinator.raft.single_node import (
    ALONE,
    CONFIG,
    append,
    leader,
    node,
    pass_time,
    stored,
    sync,
)
from tidelog.coordinator.raft.config import RaftConfig
from tidelog.coordinator.raft.core import RaftCore
from tidelog.coordinator.raft.errors import (
    LeadershipMovingError,
    MembershipRefusedError,
    NotRaftLeaderError,
    PayloadTooLargeError,
    UncommittedLimitError,
)
from tidelog.coordinator.raft.membership import encode_membership
from tidelog.coordinator.raft.messages import (
    ENTRY_OVERHEAD_BYTES,
    AppendRefusal,
    AppendReply,
    AppendRequest,
    Entry,
    EntryKind,
    Message,
    PreVoteRequest,
    SnapshotRequest,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from tidelog.coordinator.raft.ready import (
    EMPTY_READY,
    AddLearner,
    HardState,
    Ready,
    Remove,
    StoredState,
)
from tidelog.coordinator.raft.role import Role


@pytest.mark.invariant("I66")
class TestDurability:
    """State that must be on disk before a message is sent."""

    def test_a_vote_is_sent_when_it_is_durable(self) -> None:
        core = node()
        core.step(VoteRequest(B, A, 1, at(0, 0), is_transfer=False))

        ready = core.ready()

        assert ready.messages == ()
        assert ready.write is not None
        assert ready.write.hard_state == HardState(1, B)
        core.synced(ready.write)
        assert core.ready().messages == (VoteReply(A, B, 1, is_granted=True),)

    def test_a_candidate_asks_for_votes_when_its_own_is_durable(self) -> None:
        core = node()
        core.step(TimeoutNow(B, A, 1))

        ready = core.ready()
        assert ready.messages == ()
        assert ready.write is not None
        core.synced(ready.write)

        assert [type(message) for message in core.ready().messages] == [VoteRequest, VoteRequest]

    def test_a_candidate_counts_its_own_vote_when_it_is_durable(self) -> None:
        core = node()
        core.step(TimeoutNow(B, A, 1))
        write = core.ready().write
        core.step(VoteReply(B, A, 2, is_granted=True))
        before = core.role

        assert write is not None
        core.synced(write)

        assert (before, core.role) == (Role.CANDIDATE, Role.LEADER)

    def test_entries_are_acknowledged_when_they_are_durable(self) -> None:
        core = node(stored(1, 1))
        core.step(append(1, (1, 1), 1, 1))

        ready = core.ready()
        assert ready.messages == (AppendReply(A, B, 1, 3, 1, 1, 0),)
        assert ready.write is not None
        core.synced(ready.write)

        assert core.ready().messages == (AppendReply(A, B, 1, 3, 3, 0, 0),)

    def test_there_is_one_write_at_a_time_and_the_next_has_all_later_inputs(self) -> None:
        core = node(stored(1, 1))
        core.step(append(1, (1, 1), 1))
        first = core.ready().write
        core.step(append(1, (2, 1), 1))
        core.step(append(1, (3, 1), 1))

        assert first is not None
        assert core.ready().write is None
        core.synced(first)
        second = core.ready().write

        assert second is not None
        assert [written.index for written in second.entries] == [3, 4]
        assert second.last == at(4, 1)

    def test_a_leader_sends_entries_before_its_own_disk_has_them(self) -> None:
        core = leader()

        core.propose(b"x")
        ready = core.ready()

        assert any(isinstance(message, AppendRequest) for message in ready.messages)
        assert ready.write is not None

    def test_a_vote_survives_a_restart(self) -> None:
        core = node(stored(3, voted_for=C))

        core.step(VoteRequest(B, A, 3, at(9, 3), is_transfer=False))

        assert sync(core) == [VoteReply(A, B, 3, is_granted=False)]

    def test_a_term_found_only_in_the_log_counts_after_a_crash(self) -> None:
        """The crash came between the writes of entries and of the hard state."""
        core = node(stored(1, 1, 4))

        assert core.term == 4
        write = core.ready().write
        assert write is not None
        assert write.hard_state == HardState(4)

    @pytest.mark.invariant("I72")
    def test_a_log_behind_the_snapshot_is_dropped_from_the_disk(self) -> None:
        """A log that is shorter than the snapshot starts cleanly."""
        core = node(StoredState(HardState(2), snapshot(5, 2), tuple(entries(1, 1))))

        write = core.ready().write

        assert write is not None
        assert write.snapshot == snapshot(5, 2)
        core.synced(write)
        assert core.ready().is_empty


class TestFollowing:
    """Messages from the leader."""

    def test_a_stale_leader_learns_of_the_later_term(self) -> None:
        core = node(stored(5))

        core.step(append(3, (4, 3)))
        core.step(SnapshotRequest(B, A, 3, snapshot(9, 3)))

        assert [message.term for message in sync(core)] == [5, 5]
        assert core.leader is None
        assert core.last == at(0, 0)

    def test_an_append_refusal_carries_a_conflict_hint(self) -> None:
        core = node(stored(2, 1, 1, 2, 2))

        core.step(append(3, (4, 1)))

        assert sync(core) == [AppendRefusal(A, B, 3, 4, at(2, 1), 1, 0)]

    @pytest.mark.invariant("I69")
    def test_an_installed_snapshot_is_delivered_when_it_is_durable(self) -> None:
        """A snapshot replaces a conflicting log as a whole."""
        core = node(stored(2, 1, 1, 1))
        core.step(SnapshotRequest(B, A, 2, snapshot(2, 2)))

        ready = core.ready()
        assert ready.snapshot is None
        assert ready.write is not None
        assert ready.write.snapshot == snapshot(2, 2)
        assert ready.write.entries == ()
        core.synced(ready.write)

        ready = core.ready()
        assert ready.snapshot == snapshot(2, 2)
        assert AppendReply(A, B, 2, 2, 2, 0, 0) in ready.messages
        assert core.last == at(2, 2)

    def test_a_node_does_not_campaign_before_its_snapshot_is_durable(self) -> None:
        core = node(stored(2))
        core.step(SnapshotRequest(B, A, 2, snapshot(2, 2)))

        core.step(TimeoutNow(B, A, 2))

        assert core.role is Role.FOLLOWER

    def test_a_removed_follower_learns_of_its_removal(self) -> None:
        core = node(stored(1, 1))
        removal = Entry(2, 1, EntryKind.MEMBERSHIP, encode_membership(THREE.without(1)))

        core.step(AppendRequest(B, A, 1, at(1, 1), 2, 1, 0, (removal,)))
        sync(core)
        pass_time(core, 50)

        assert core.role is Role.FOLLOWER
        assert A not in core.membership.members


class TestLeading:
    """Inputs that a leader accepts and refuses."""

    @pytest.mark.invariant("I67")
    def test_a_new_leader_appends_an_entry_of_its_own_term(self) -> None:
        """Its commit commits the entries of earlier leaders."""
        core = leader(term=4)

        assert core.last == at(1, 4)

    def test_a_proposal_returns_the_name_of_its_entry(self) -> None:
        assert leader(term=4).propose(b"x") == at(2, 4)

    def test_a_follower_refuses_proposals_and_names_the_leader(self) -> None:
        core = node(stored(2))
        with pytest.raises(NotRaftLeaderError, match="knows no leader"):
            core.propose(b"x")

        core.step(append(2, (0, 0)))

        with pytest.raises(NotRaftLeaderError, match="ask node 2"):
            core.propose(b"x")
        with pytest.raises(NotRaftLeaderError, match="ask node 2"):
            core.read(1)

    def test_a_command_that_is_too_large_is_refused(self) -> None:
        with pytest.raises(PayloadTooLargeError, match="of 101 bytes is too large, the limit is 1"):
            leader().propose(b"x" * 101)

    def test_a_command_may_be_as_large_as_the_limit(self) -> None:
        assert leader().propose(b"x" * CONFIG.max_payload_bytes) == at(2, 1)

    @pytest.mark.parametrize(("waiting_bytes", "is_refused"), [(100, False), (101, True)])
    def test_uncommitted_bytes_may_reach_their_limit_and_not_pass_it(
        self, waiting_bytes: int, *, is_refused: bool
    ) -> None:
        core = leader()
        core.propose(b"x" * (waiting_bytes - ENTRY_OVERHEAD_BYTES))
        payload = b"x" * (CONFIG.max_uncommitted_bytes - 100)

        with pytest.raises(UncommittedLimitError) if is_refused else nullcontext():
            core.propose(payload)

        assert core.last.index == (2 if is_refused else 3)

    def test_a_leader_whose_disk_does_not_keep_up_refuses_commands_until_it_does(self) -> None:
        config = RaftConfig(max_unsynced_bytes=2 * entry(2, 1, b"x").size_bytes)
        core = RaftCore(A, ALONE, config, random=Random(1))
        sync(core)
        for index in (2, 3, 4):  # The limit may be reached, and passed by one command.
            assert core.propose(b"x") == at(index, 1)

        with pytest.raises(UncommittedLimitError, match="the disk does not keep up"):
            core.propose(b"x")
        sync(core)

        assert core.propose(b"x") == at(5, 1)

    def test_uncommitted_bytes_are_bounded(self) -> None:
        core = leader()
        core.propose(b"x" * 90)
        with pytest.raises(UncommittedLimitError, match="wait to be committed"):
            core.propose(b"x" * 90)
        sync(core)

        core.step(AppendReply(B, A, 1, 2, 2, 1, 0))

        assert core.propose(b"x" * 90) == at(3, 1)

    def test_one_command_may_always_wait_however_large(self) -> None:
        config = RaftConfig(max_uncommitted_bytes=1)
        core = RaftCore(A, ALONE, config, random=Random(1))
        sync(core)

        assert core.propose(b"x" * 90) == at(2, 1)

    @pytest.mark.invariant("I74")
    def test_a_leader_without_a_majority_steps_down(self) -> None:
        """An isolated leader steps down within one election timeout."""
        core = leader()

        pass_time(core, CONFIG.election_ticks)

        assert core.role is Role.FOLLOWER
        assert core.term == 1
        with pytest.raises(NotRaftLeaderError):
            core.propose(b"x")

    def test_a_leader_steps_down_for_a_later_term(self) -> None:
        core = leader()

        core.step(AppendRefusal(B, A, 3, 1, at(0, 0), 1, 0))

        assert core.role is Role.FOLLOWER
        assert core.term == 3

    @pytest.mark.invariant("I75")
    def test_a_leader_ignores_messages_of_a_removed_node(self) -> None:
        """A removed node cannot disrupt."""
        core = leader()
        core.change_membership(Remove(3))
        sync(core)
        core.step(AppendReply(B, A, 1, 2, 2, 1, 0))

        core.step(PreVoteRequest(C, A, 8, at(9, 9)))
        core.step(VoteRequest(C, A, 9, at(9, 9), is_transfer=False))
        core.step(AppendRefusal(C, A, 9, 1, at(0, 0), 1, 0))

        assert core.role is Role.LEADER
        assert core.term == 1

    def test_a_leader_whose_disk_is_stuck_lets_another_voter_lead(self) -> None:
        """The others could commit without its disk, but it applies and answers nothing."""
        core = leader()
        core.propose(b"x")
        core.ready()
        for _ in range(CONFIG.max_write_ticks):
            core.step(AppendReply(B, A, 1, 2, 2, 1, 0))
            core.tick()

        assert core.role is Role.FOLLOWER
        assert TimeoutNow(A, B, 1) in core.ready().messages

    def test_a_node_does_not_campaign_while_its_disk_is_stuck(self) -> None:
        core = node(stored(1, 1))
        core.step(append(1, (1, 1), 1))
        write = core.ready().write
        roles: list[Role] = []

        pass_time(core, CONFIG.max_write_ticks + 50)
        core.step(TimeoutNow(B, A, 1))
        roles.append(core.role)
        assert write is not None
        core.synced(write)
        pass_time(core, 2 * CONFIG.election_ticks)
        roles.append(core.role)

        assert roles == [Role.FOLLOWER, Role.PRE_CANDIDATE]

    def test_the_only_voter_leads_on_while_its_disk_is_stuck(self) -> None:
        core = node(ALONE)
        sync(core)
        core.propose(b"x")
        core.ready()

        pass_time(core, 2 * CONFIG.max_write_ticks)

        assert core.role is Role.LEADER

    def test_a_membership_change_is_in_force_when_it_is_appended(self) -> None:
        core = leader()

        core.change_membership(AddLearner(D))

        assert core.membership.learners == (D,)
        with pytest.raises(MembershipRefusedError, match="is not committed"):
            core.change_membership(Remove(3))

    def test_leadership_is_transferred_to_voters_only(self) -> None:
        core = leader()

        core.transfer_leadership(1)
        assert core.propose(b"x") == at(2, 1)
        with pytest.raises(MembershipRefusedError, match="node 9 is no voter"):
            core.transfer_leadership(9)

    def test_proposals_are_refused_during_a_leadership_transfer(self) -> None:
        core = leader()
        core.transfer_leadership(2)

        with pytest.raises(LeadershipMovingError, match="moving to node 2"):
            core.propose(b"x")

        pass_time(core, CONFIG.election_ticks - 1)
        core.step(AppendReply(B, A, 1, 1, 1, 1, 0))
        core.tick()
        assert core.propose(b"x") == at(2, 1)

    def test_a_snapshot_covers_any_delivered_entry_and_no_other(self) -> None:
        core = node(ALONE)
        sync(core)
        core.propose(b"x")
        sync(core)

        assert [core.snapshot_meta(index).index for index in (0, 1, 2)] == [0, 1, 2]
        core.propose(b"y")
        with pytest.raises(AssertionError):
            core.snapshot_meta(3)

    def test_compacted_entries_are_replaced_by_the_snapshot(self) -> None:
        core = leader()

        core.compact(core.snapshot_meta(1), keep_entries=0)
        core.step(AppendRefusal(C, A, 1, 1, at(0, 0), 1, 0))
        core.report_failure(3)

        requests = [message for message in sync(core) if isinstance(message, SnapshotRequest)]
        assert requests == [SnapshotRequest(A, C, 1, snapshot(1, 1))]
        assert core.progress[3].snapshot_index == 1


def test_ready_returns_everything_once() -> None:
    core = leader()
    core.propose(b"x")

    first, second = core.ready(), core.ready()

    assert first.write is not None
    assert second == Ready(None, (), None, (), ())
    core.synced(first.write)


_INPUTS: tuple[Callable[[RaftCore], object], ...] = (
    RaftCore.tick,
    lambda core: core.step(AppendReply(B, A, 1, 1, 1, 1, 0)),
    lambda core: core.propose(b"x"),
    lambda core: core.read(1),
    lambda core: core.change_membership(AddLearner(D)),
    lambda core: core.transfer_leadership(2),
    lambda core: core.report_failure(2),
    lambda core: core.compact(core.snapshot_meta(1), keep_entries=0),
)


@pytest.mark.parametrize("take_input", _INPUTS)
def test_ready_is_computed_again_only_after_an_input(
    take_input: Callable[[RaftCore], object],
) -> None:
    core = leader()
    assert core.ready() is EMPTY_READY

    take_input(core)

    assert core.ready() is not EMPTY_READY
    assert core.ready() is EMPTY_READY


def test_ready_is_computed_again_when_a_write_is_durable() -> None:
    core = leader()
    core.propose(b"x")
    write = core.ready().write
    assert write is not None
    assert core.ready() is EMPTY_READY

    core.synced(write)

    assert core.ready() is not EMPTY_READY


def test_committed_entries_beyond_the_limit_come_with_the_next_ready() -> None:
    config = RaftConfig(election_ticks=5, max_committed_bytes=1)
    core = RaftCore(A, ALONE, config, random=Random(1))
    sync(core)
    for payload in (b"x", b"y", b"z"):
        core.propose(payload)

    write = core.ready().write
    assert write is not None
    core.synced(write)

    assert [len(core.ready().committed) for _ in range(4)] == [1, 1, 1, 0]


def test_equal_random_numbers_give_equal_runs() -> None:
    def life() -> list[Message]:
        core = node()
        sent: list[Message] = []
        for _ in range(100):
            core.tick()
            sent += sync(core)
        return sent

    assert life() == life()


def test_entries_of_a_command_are_opaque() -> None:
    assert entry(1, 1, b"\x00\xff").kind is EntryKind.COMMAND
