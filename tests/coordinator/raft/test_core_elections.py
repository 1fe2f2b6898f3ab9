"""Elections and identities of one node."""

import msgspec
import pytest

from tests.coordinator.raft.samples import (
    B_WITH_NEW_DISK,
    NOTHING,
    A,
    B,
    C,
    D,
    at,
    entries,
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
from tidelog.coordinator.raft.core import TERM_RISE_MAX
from tidelog.coordinator.raft.errors import DamagedLogError, ImpossibleMessageError
from tidelog.coordinator.raft.membership import Identity, Membership, encode_membership
from tidelog.coordinator.raft.messages import (
    AppendRefusal,
    AppendReply,
    Entry,
    EntryId,
    EntryKind,
    PreVoteReply,
    PreVoteRequest,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from tidelog.coordinator.raft.ready import HardState, StoredState
from tidelog.coordinator.raft.role import Role
from tidelog.wire.messages.field_types import EPOCH_MAX


class TestElection:
    """Campaigns and votes."""

    def test_the_only_voter_leads_when_its_vote_is_durable(self) -> None:
        core = node(ALONE)

        committed: list[Entry] = []
        while not (ready := core.ready()).is_empty:
            committed += ready.committed
            if ready.write is not None:
                core.synced(ready.write)

        assert core.role is Role.LEADER
        assert committed == [Entry(1, 1, EntryKind.TERM_START, b"")]

    def test_the_only_voter_commits_when_its_own_disk_has_it(self) -> None:
        core = node(ALONE)
        sync(core)
        core.propose(b"x")
        write = core.ready().write

        assert core.commit_index == 1
        assert write is not None
        core.synced(write)

        assert core.commit_index == 2
        assert [applied.payload for applied in core.ready().committed] == [b"x"]

    def test_no_node_campaigns_before_the_election_timeout(self) -> None:
        core = node()

        roles: list[Role] = []
        for ticks in (CONFIG.election_ticks - 1, CONFIG.election_ticks):
            pass_time(core, ticks)
            roles.append(core.role)

        assert roles == [Role.FOLLOWER, Role.PRE_CANDIDATE]

    def test_learners_and_non_members_do_not_campaign(self) -> None:
        learner = StoredState(HardState(), snapshot(0, 0, Membership((B, C), (A,))))
        stranger = StoredState(HardState(), snapshot(0, 0, Membership()))

        for core in (node(learner), node(stranger), node(identity=B_WITH_NEW_DISK)):
            pass_time(core, 50)
            core.step(TimeoutNow(B, A, 0))
            assert core.role is Role.FOLLOWER
            assert core.ready().is_empty

    def test_a_learner_votes_because_it_may_have_missed_its_promotion(self) -> None:
        core = node(StoredState(HardState(), snapshot(0, 0, Membership((B, C), (A,)))))

        core.step(VoteRequest(B, A, 1, at(0, 0), is_transfer=False))

        assert sync(core) == [VoteReply(A, B, 1, is_granted=True)]

    @pytest.mark.parametrize(
        ("last", "is_granted"),
        [
            (at(2, 2), True),
            (at(3, 2), True),
            (at(1, 3), True),
            (at(1, 2), False),
            (at(9, 1), False),
        ],
    )
    def test_a_vote_needs_a_log_that_is_up_to_date(self, last: EntryId, is_granted: bool) -> None:
        core = node(stored(2, 1, 2))

        core.step(VoteRequest(B, A, 3, last, is_transfer=False))
        core.step(PreVoteRequest(C, A, 3, last))

        assert sync(core) == [
            VoteReply(A, B, 3, is_granted=is_granted),
            PreVoteReply(A, C, 3, 3, is_granted=is_granted),
        ]

    def test_a_pre_vote_changes_nothing(self) -> None:
        core = node(stored(2))

        core.step(PreVoteRequest(B, A, 7, at(0, 0)))

        ready = core.ready()
        assert ready.write is None
        assert ready.messages == (PreVoteReply(A, B, 2, 7, is_granted=True),)
        assert core.term == 2

    def test_a_refused_pre_vote_is_requested_again_soon(self) -> None:
        """The other voters have heard the leader a moment later."""
        core = node(stored(2))
        while core.role is not Role.PRE_CANDIDATE:
            core.tick()
        sync(core)
        for voter in (B, C):
            core.step(PreVoteReply(voter, A, 2, 2, is_granted=False))

        pass_time(core, CONFIG.election_ticks // 2)

        assert {type(message) for message in sync(core)} == {PreVoteRequest}

    def test_two_candidates_at_once_campaign_again_before_an_election_timeout(self) -> None:
        core = node(stored(2))
        while core.role is not Role.PRE_CANDIDATE:
            core.tick()
        core.step(PreVoteReply(B, A, 2, 2, is_granted=True))
        assert VoteRequest in {type(message) for message in sync(core)}
        core.step(VoteReply(B, A, 3, is_granted=False))

        pass_time(core, CONFIG.election_ticks)

        assert {type(message) for message in sync(core)} == {PreVoteRequest}

    def test_a_second_leader_of_a_term_is_refused(self) -> None:
        core, led = leader(), node(stored(2))
        led.step(append(2, (0, 0)))
        sync(led)
        from_another = msgspec.structs.replace(append(2, (0, 0)), sender=C)

        for each, message in (
            (core, append(1, (0, 0))),
            (core, TimeoutNow(B, A, 1)),
            (led, from_another),
            (led, TimeoutNow(C, A, 2)),
        ):
            before = (each.role, each.term, each.last)
            with pytest.raises(ImpossibleMessageError, match="sends as the leader of term"):
                each.step(message)
            assert (each.role, each.term, each.last) == before
            assert each.ready().is_empty

    def test_committed_entries_are_not_replaced(self) -> None:
        core = node(stored(2))
        core.step(append(2, (0, 0), 1, 2, commit=2))
        sync(core)

        with pytest.raises(ImpossibleMessageError, match="conflicts with a committed entry of"):
            core.step(append(3, (0, 0), 1, 3))

        assert core.last == at(2, 2)
        assert core.commit_index == 2

    @pytest.mark.parametrize("rise", [TERM_RISE_MAX, TERM_RISE_MAX + 1])
    def test_no_message_raises_the_term_by_more_than_elections_can(self, rise: int) -> None:
        core = node(stored(3))
        term = 3 + rise

        core.step(VoteRequest(B, A, term, at(9, 3), is_transfer=False))
        core.step(append(term, (0, 0)))

        assert core.term == (3 if rise > TERM_RISE_MAX else term)

    def test_a_node_without_a_term_takes_any_term_of_its_cluster(self) -> None:
        core = node()

        core.step(append(EPOCH_MAX, (0, 0)))

        assert core.term == EPOCH_MAX

    def test_a_node_does_not_campaign_behind_the_last_term(self) -> None:
        core = node(stored(EPOCH_MAX))

        pass_time(core, 3 * CONFIG.election_ticks)
        core.step(TimeoutNow(B, A, EPOCH_MAX))

        assert (core.role, core.term) == (Role.FOLLOWER, EPOCH_MAX)

    @pytest.mark.invariant("I74")
    def test_a_voter_with_a_live_leader_refuses_its_vote(self) -> None:
        """Pre-vote and check-quorum: a healthy leader is not deposed."""
        core = node(stored(2))
        core.step(append(2, (0, 0)))
        sync(core)
        pass_time(core, CONFIG.election_ticks - 1)

        core.step(PreVoteRequest(C, A, 5, at(9, 9)))
        core.step(VoteRequest(C, A, 6, at(9, 9), is_transfer=False))

        assert sync(core) == [PreVoteReply(A, C, 2, 5, is_granted=False)]
        assert core.term == 2
        core.tick()
        core.step(PreVoteRequest(C, A, 5, at(9, 9)))
        assert sync(core) == [PreVoteReply(A, C, 2, 5, is_granted=True)]

    def test_a_transfer_vote_ignores_the_leader_lease(self) -> None:
        core = node(stored(2))
        core.step(append(2, (0, 0)))
        sync(core)

        core.step(VoteRequest(C, A, 3, at(0, 0), is_transfer=True))

        assert sync(core) == [VoteReply(A, C, 3, is_granted=True)]

    def test_a_pre_vote_counts_also_from_a_voter_of_an_earlier_term(self) -> None:
        core = node(stored(5))
        pass_time(core, 2 * CONFIG.election_ticks)

        core.step(PreVoteReply(B, A, 2, 5, is_granted=True))

        assert core.role is Role.CANDIDATE
        assert core.term == 6

    def test_a_pre_vote_for_another_term_does_not_count(self) -> None:
        core = node(stored(5))
        pass_time(core, 2 * CONFIG.election_ticks)

        core.step(PreVoteReply(B, A, 5, 4, is_granted=True))

        assert core.role is Role.PRE_CANDIDATE

    def test_a_candidate_of_an_earlier_term_learns_of_the_later_one(self) -> None:
        core = node(stored(5))

        core.step(VoteRequest(B, A, 3, at(9, 3), is_transfer=False))
        core.step(PreVoteRequest(C, A, 4, at(9, 3)))

        assert sync(core) == [
            VoteReply(A, B, 5, is_granted=False),
            PreVoteReply(A, C, 5, 4, is_granted=False),
        ]

    def test_a_candidate_follows_a_leader_of_its_term(self) -> None:
        core = node()
        core.step(TimeoutNow(B, A, 1))
        sync(core)

        core.step(append(2, (0, 0)))

        assert core.role is Role.FOLLOWER
        assert core.leader == B

    def test_a_voter_campaigns_until_its_removal_is_committed(self) -> None:
        """Found by the simulator: two nodes, the leader removes itself and restarts.

        It has the entry, so the other node cannot be elected; without its campaign there is no
        leader.
        """
        payload = encode_membership(Membership.of_voters([B]))
        removal = Entry(1, 1, EntryKind.MEMBERSHIP, payload)
        first = snapshot(0, 0, Membership.of_voters([A, B]))
        core = node(StoredState(HardState(1), first, (removal,)))
        pass_time(core, 2 * CONFIG.election_ticks)

        core.step(PreVoteReply(B, A, 1, 1, is_granted=True))
        sync(core)
        core.step(VoteReply(B, A, 2, is_granted=True))
        before = core.role
        core.step(AppendReply(B, A, 2, 2, 2, 1, 0))

        assert (before, core.role) == (Role.LEADER, Role.FOLLOWER)
        assert core.commit_index == 2
        assert TimeoutNow(A, B, 2) in sync(core)


@pytest.mark.invariant("I71", "I75")
class TestIdentity:
    """A node is its id and its disk."""

    def test_a_node_does_not_answer_for_another_disk(self) -> None:
        core = node(identity=Identity(1, b"new"))

        core.step(VoteRequest(B, A, 1, at(0, 0), is_transfer=False))
        core.step(append(1, (0, 0), 1))

        assert core.ready().is_empty
        assert core.term == 0

    def test_a_report_of_an_id_with_another_disk_is_not_counted(self) -> None:
        core = leader()
        core.propose(b"x")
        sync(core)

        core.step(AppendReply(B_WITH_NEW_DISK, A, 1, 2, 2, 1, 0))
        assert core.commit_index == 1

        core.step(AppendReply(B, A, 1, 2, 2, 1, 0))
        assert core.commit_index == 2

    def test_the_vote_of_an_id_with_another_disk_is_not_counted(self) -> None:
        core = node()
        core.step(TimeoutNow(B, A, 1))
        sync(core)

        core.step(VoteReply(B_WITH_NEW_DISK, A, 2, is_granted=True))

        assert core.role is Role.CANDIDATE

    def test_a_report_of_a_later_term_from_a_non_member_changes_nothing(self) -> None:
        core = leader()

        core.step(AppendRefusal(D, A, 9, 1, at(0, 0), 1, 0))

        assert core.role is Role.LEADER

    def test_a_message_that_claims_to_come_from_the_node_itself_is_refused(self) -> None:
        core = leader()

        core.step(AppendReply(A, A, 1, 1, 1, 1, 0))

        assert core.role is Role.LEADER

    @pytest.mark.invariant("I71")
    def test_a_node_with_damaged_state_sends_nothing(self) -> None:
        """It must not vote or campaign with the remains of its log."""
        core = node(stored(1, 1, 2), is_damaged=True)
        pass_time(core, 50)

        core.step(VoteRequest(B, A, 1, at(0, 0), is_transfer=False))
        core.step(PreVoteRequest(B, A, 1, at(0, 0)))
        core.step(append(1, (0, 0), 1))
        core.step(TimeoutNow(B, A, 1))

        assert core.ready().is_empty
        assert core.role is Role.FOLLOWER

    def test_the_only_voter_does_not_campaign_when_it_is_damaged(self) -> None:
        core = node(ALONE, is_damaged=True)

        pass_time(core, 50)

        assert core.ready().is_empty

    def test_a_log_with_a_gap_is_damaged(self) -> None:
        with pytest.raises(DamagedLogError, match="the entries between them are missing"):
            node(StoredState(HardState(1), NOTHING, tuple(entries(1, first=3))))
