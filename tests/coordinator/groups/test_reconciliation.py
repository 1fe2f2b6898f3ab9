"""The reconciliation of members, step by step (I76)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.coordinator.groups.conversation import Conversation
from tidelog.coordinator.groups.records import AssignmentChanged


def two_members_of_which_one_must_let_go() -> Conversation:
    """Return a group in which `a` had all partitions, and must revoke 2 and 3 for `b`."""
    talk = Conversation(4)
    talk.join("a")
    talk.settle()
    talk.join("b")
    talk.target()
    talk.say("a", owned=[0, 1, 2, 3])
    assert talk.owned["a"] == [0, 1]
    return talk


def test_a_partition_is_assigned_only_when_the_last_owner_released_it() -> None:
    talk = two_members_of_which_one_must_let_go()

    assert talk.say("b").assignment is None
    assert talk.group.member_state(talk.member("a")) == "unrevoked"
    assert talk.group.member_state(talk.member("b")) == "unreleased"

    talk.say("a", owned=[0, 1])
    talk.say("b")

    assert talk.owned["b"] == [2, 3]
    assert talk.group.state == "stable"


@pytest.mark.parametrize("owned", [None, [0, 1, 2, 3], [2, 3]])
def test_a_partition_is_held_until_its_owner_reports_the_revocation(
    owned: list[int] | None,
) -> None:
    talk = two_members_of_which_one_must_let_go()

    talk.say("a", owned=owned)
    talk.say("b")

    assert talk.owned["b"] == []


def test_an_early_release_is_assigned_early() -> None:
    talk = two_members_of_which_one_must_let_go()

    talk.say("a", owned=[0, 1, 3])
    talk.say("b")

    assert talk.owned["b"] == [2]
    assert talk.group.member_state(talk.member("a")) == "unrevoked"


def test_a_heartbeat_with_an_old_revision_releases_nothing() -> None:
    talk = Conversation(4)
    talk.join("a")
    talk.settle()
    blind = talk.request("a", owned=[0, 1])
    talk.join("b")
    talk.target()

    talk.heartbeat(blind)
    talk.say("b")

    assert talk.owned["b"] == []


@pytest.mark.invariant("I76")
def test_a_delayed_heartbeat_does_not_release_a_returned_partition() -> None:
    """A delayed heartbeat with a revocation arrives when the partitions are held again."""
    talk = two_members_of_which_one_must_let_go()
    old = talk.request("a", owned=[0, 1])
    talk.settle()
    talk.leave("b")
    talk.settle()
    assert talk.owned["a"] == [0, 1, 2, 3]
    talk.join("c")
    talk.target()
    talk.say("a")

    talk.heartbeat(old)
    talk.say("c")

    assert talk.owned["c"] == []
    assert sorted(talk.member("a").held) == [(b"orders..........", n) for n in range(4)]


def test_a_member_reaches_the_target_epoch_after_its_revocations() -> None:
    talk = two_members_of_which_one_must_let_go()
    before = talk.epochs["a"]

    assert talk.say("a", owned=[0, 1, 2, 3]).member_epoch == before
    assert talk.say("a", owned=[0, 1]).member_epoch == talk.group.target_epoch > before


def test_an_unchanged_member_reaches_the_target_epoch_without_a_record() -> None:
    talk = Conversation(2)
    talk.join("a")
    talk.join("b")
    talk.settle()
    talk.join("c")
    talk.target()
    before = len(talk.records)

    replies = [talk.say(member_id) for member_id in ("a", "b", "c")]

    assert {reply.member_epoch for reply in replies} == {talk.group.group_epoch}
    assert len(talk.records) == before


def test_a_target_changed_during_a_reconciliation_is_followed() -> None:
    talk = two_members_of_which_one_must_let_go()
    talk.leave("b")
    talk.target()

    talk.say("a", owned=[0, 1])
    talk.say("a")

    assert talk.owned["a"] == [0, 1, 2, 3]
    assert talk.group.state == "stable"


def test_a_heartbeat_of_a_stable_member_makes_no_record() -> None:
    talk = Conversation()
    talk.join("a")
    talk.settle()
    before = len(talk.records)

    talk.say("a")
    reply = talk.say("a")

    assert len(talk.records) == before
    assert reply.assignment is None
    assert reply.heartbeat_interval_ms == 5_000


def test_an_unreleased_member_gets_the_waiting_interval() -> None:
    talk = two_members_of_which_one_must_let_go()

    assert talk.say("b").heartbeat_interval_ms == 1_000
    assert talk.say("a").heartbeat_interval_ms == 1_000

    talk.say("a", owned=[0, 1])

    assert talk.say("b").heartbeat_interval_ms == 5_000


def test_an_unacknowledged_assignment_is_sent_again() -> None:
    talk = Conversation(2)
    talk.join("a")
    talk.target()
    lost = talk.heartbeat(talk.request("a"))

    reply = talk.say("a")

    assert reply.assignment == lost.assignment is not None
    assert reply.assignment_revision == lost.assignment_revision
    assert sum(isinstance(record, AssignmentChanged) for record in talk.records) == 1


moments = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c", "d", "e"]),
        st.sampled_from(["join", "leave", "hear", "revoke", "target"]),
    ),
    max_size=40,
)


def do_one_thing(talk: Conversation, member_id: str, what: str) -> bool:
    """Let a member take one possible step; return whether it has left."""
    if member_id not in talk.group.members:
        if what == "join":
            talk.join(member_id)
    elif what == "leave":
        talk.leave(member_id)
        return True
    elif what == "hear":
        talk.say(member_id)
    elif what == "revoke":
        talk.say(member_id, owned=talk.owned[member_id])
    return False


@pytest.mark.invariant("I77")
@given(before=moments, order=st.permutations(["a", "b", "c", "d", "e"]))
def test_a_group_is_stable_after_three_heartbeats_of_each_member(
    before: list[tuple[str, str]], order: list[str]
) -> None:
    """Convergence in bounded heartbeats, when members revoke at once and nothing is lost.

    One heartbeat to finish the current step, one to learn of revocations and report them, one to
    get the released partitions.
    """
    talk = Conversation(7)
    talk.join("first")
    runs = dict.fromkeys(order, 0)
    for name, what in before:
        if what == "target":
            talk.target()
        elif do_one_thing(talk, f"{name}{runs[name]}", what):
            runs[name] += 1
    talk.target()

    rounds = 0
    while talk.group.state != "stable":
        rounds += 1
        for member_id in ["first", *(f"{name}{runs[name]}" for name in order)]:
            if member_id in talk.group.members:
                talk.say(member_id, owned=talk.owned[member_id])

    assert rounds <= 3
