"""Joining, leaving, being fenced, taking over."""

import msgspec
import pytest

from tests.coordinator.groups.conversation import BOTH, GROUP, NOW_MS, Conversation
from tidelog.coordinator.groups.config import GroupConfig
from tidelog.coordinator.groups.state_machine import ConsumerGroups
from tidelog.wire.errors import (
    FencedInstanceError,
    InvalidRequestError,
    OverloadedError,
    UnknownMemberError,
)
from tidelog.wire.messages.groups import GroupHeartbeatRequest, Subscription


def test_who_joins_begins_with_nothing_at_the_epoch_of_its_joining() -> None:
    talk = Conversation()

    first, second = talk.join("a"), talk.join("b")

    assert (first.member_epoch, second.member_epoch) == (1, 2)
    assert first.assignment == []
    assert talk.group.state == "assigning"


def test_joining_twice_is_joining_once() -> None:
    talk = Conversation(2)
    talk.join("a")
    talk.settle()
    before = len(talk.records)

    reply = talk.join("a")

    assert len(talk.records) == before
    assert talk.owned["a"] == [0, 1]
    assert reply.member_epoch == talk.group.target_epoch


def test_who_leaves_takes_nothing_along() -> None:
    talk = Conversation(2)
    talk.join("a")
    talk.join("b")
    talk.settle()

    reply = talk.leave("a")
    talk.settle()

    assert reply.member_epoch == -1
    assert talk.owned["b"] == [0, 1]


def test_leaving_again_succeeds() -> None:
    talk = Conversation()
    talk.join("a")
    talk.leave("a")

    assert talk.leave("a").member_epoch == -1


def test_a_group_is_empty_since_its_last_member_left() -> None:
    talk = Conversation()
    talk.join("a")

    talk.leave("a")

    assert talk.group.state == "empty"
    assert talk.group.empty_since_ms == NOW_MS


def test_who_was_fenced_must_join_again_under_another_name() -> None:
    talk = Conversation()
    talk.join("a")
    talk.settle()
    talk.carry_out(talk.state.fence(GROUP, "a", NOW_MS).records)

    with pytest.raises(UnknownMemberError, match="join again under a new member id"):
        talk.say("a")


def test_fencing_somebody_who_is_gone_does_nothing() -> None:
    talk = Conversation()

    assert talk.state.fence(GROUP, "a", NOW_MS).records == []


def test_a_fenced_member_is_not_let_in_by_a_copy_of_its_own_first_heartbeat() -> None:
    """Otherwise it would go on reading what others were given."""
    talk = Conversation(2)
    talk.join("a")
    talk.settle()
    knows = (talk.epochs["a"], talk.revisions["a"])
    talk.carry_out(talk.state.fence(GROUP, "a", NOW_MS).records)
    talk.join("b")
    talk.settle()
    talk.join("a")
    talk.epochs["a"], talk.revisions["a"] = knows

    with pytest.raises(UnknownMemberError, match="was fenced after epoch"):
        talk.say("a")


def test_an_epoch_that_was_never_given_is_refused() -> None:
    talk = Conversation()
    talk.join("a")

    with pytest.raises(InvalidRequestError, match="it cannot know of 9"):
        talk.say("a", epoch=9)


@pytest.mark.invariant("I77")
def test_a_newer_incarnation_takes_over_at_once_and_nothing_moves() -> None:
    """The restart of a static member within its session moves nothing."""
    talk = Conversation(4)
    talk.join("a", instance_id="one", incarnation=1)
    talk.join("b", instance_id="two", incarnation=1)
    talk.settle()
    had, epoch = talk.owned["a"], talk.group.group_epoch

    talk.join("a-again", instance_id="one", incarnation=2)

    assert talk.owned["a-again"] == had
    assert talk.group.group_epoch == talk.group.target_epoch == epoch
    assert list(talk.group.members) == ["a-again", "b"]


def test_the_older_incarnation_is_fenced_and_told_to_stop() -> None:
    talk = Conversation()
    talk.join("a", instance_id="one", incarnation=1)
    talk.settle()
    talk.join("a-again", instance_id="one", incarnation=2)
    request = msgspec.structs.replace(talk.request("a"), instance_id="one", incarnation=1)

    with pytest.raises(FencedInstanceError, match="stop it") as caught:
        talk.heartbeat(request)

    assert caught.value.incarnation == 2


@pytest.mark.parametrize("incarnation", [4, 5])
def test_an_incarnation_that_is_not_newer_does_not_take_over(incarnation: int) -> None:
    talk = Conversation()
    talk.join("a", instance_id="one", incarnation=5)

    with pytest.raises(FencedInstanceError):
        talk.join("b", instance_id="one", incarnation=incarnation)


def test_what_the_older_incarnation_had_to_let_go_of_is_free_when_it_is_replaced() -> None:
    talk = Conversation(4)
    talk.join("a", instance_id="one", incarnation=1)
    talk.settle()
    talk.join("b")
    talk.target()
    talk.say("a", owned=[0, 1, 2, 3])

    talk.join("a-again", instance_id="one", incarnation=2)
    talk.say("b")

    assert talk.owned["a-again"] == [0, 1]
    assert talk.owned["b"] == [2, 3]


def test_a_newer_incarnation_may_want_something_else() -> None:
    talk = Conversation()
    talk.join("a", instance_id="one", incarnation=1)
    talk.settle()

    talk.join("a-again", BOTH, instance_id="one", incarnation=2)

    assert talk.member("a-again").subscription == BOTH
    assert talk.group.state == "assigning"


def test_the_partitions_of_a_static_member_that_goes_away_wait_for_it() -> None:
    talk = Conversation(4)
    talk.join("a", instance_id="one", incarnation=1)
    talk.join("b")
    talk.settle()
    had, epoch = talk.owned["a"], talk.group.group_epoch

    talk.leave("a", is_restart=True)

    assert talk.group.member_state(talk.member("a")) == "away"
    with pytest.raises(UnknownMemberError, match="went away"):
        talk.say("a")
    talk.join("a-again", instance_id="one", incarnation=2)
    assert talk.owned["a-again"] == had
    assert talk.group.group_epoch == epoch


def test_going_away_twice_is_going_away_once() -> None:
    talk = Conversation()
    talk.join("a", instance_id="one", incarnation=1)
    talk.leave("a", is_restart=True)
    before = len(talk.records)

    talk.leave("a", is_restart=True)

    assert len(talk.records) == before


def test_a_change_of_subscription_gives_the_group_a_new_epoch() -> None:
    talk = Conversation()
    talk.join("a")
    talk.settle()
    epoch = talk.group.group_epoch

    changed = msgspec.structs.replace(talk.request("a"), subscription=BOTH, subscription_version=2)
    talk.heartbeat(changed)

    assert talk.group.group_epoch == epoch + 1
    assert talk.member("a").subscription == BOTH


def test_letting_go_counts_also_in_a_heartbeat_with_a_new_subscription() -> None:
    """Otherwise the member would not say it again, and be fenced for holding on."""
    talk = Conversation(4)
    talk.join("a")
    talk.settle()
    talk.join("b")
    talk.target()
    talk.say("a")

    talk.heartbeat(
        msgspec.structs.replace(
            talk.request("a", owned=[0, 1]), subscription=BOTH, subscription_version=2
        )
    )
    talk.say("b")

    assert talk.member("a").subscription == BOTH
    assert talk.owned["b"] == [2, 3]


def test_who_waits_for_its_first_partitions_asks_more_often() -> None:
    talk = Conversation()
    talk.join("a")
    waiting = talk.say("a").heartbeat_interval_ms
    talk.settle()

    assert (waiting, talk.say("a").heartbeat_interval_ms) == (1_000, 5_000)


def test_a_subscription_that_was_delayed_does_not_come_back() -> None:
    talk = Conversation()
    old = GroupHeartbeatRequest(
        GROUP, "a", 0, subscription=Subscription(["orders"]), subscription_version=1
    )
    talk.hear("a", talk.heartbeat(old))
    talk.heartbeat(
        msgspec.structs.replace(talk.request("a"), subscription=BOTH, subscription_version=2)
    )

    talk.heartbeat(old)

    assert talk.member("a").subscription == BOTH


def test_saying_the_same_subscription_again_changes_nothing() -> None:
    talk = Conversation()
    talk.join("a", BOTH)
    epoch = talk.group.group_epoch

    talk.heartbeat(
        msgspec.structs.replace(talk.request("a"), subscription=BOTH, subscription_version=2)
    )

    assert talk.group.group_epoch == epoch


def test_a_group_takes_so_many_members_and_no_more() -> None:
    talk = Conversation()
    talk.state = ConsumerGroups(GroupConfig(group_max_size=1))
    talk.join("a")

    with pytest.raises(OverloadedError, match="has 1 members"):
        talk.join("b")


WANTED = Subscription(["orders"])


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (GroupHeartbeatRequest("", "a", 0, subscription=WANTED), "cannot be the id of a group"),
        (GroupHeartbeatRequest("g\n", "a", 0, subscription=WANTED), "cannot be the id of a group"),
        (
            GroupHeartbeatRequest("g" * 250, "a", 0, subscription=WANTED),
            "cannot be the id of a group",
        ),
        (GroupHeartbeatRequest(GROUP, "", 0, subscription=WANTED), "a member id has 1 to 64"),
        (GroupHeartbeatRequest(GROUP, "a" * 65, 0, subscription=WANTED), "a member id has 1 to 64"),
        (GroupHeartbeatRequest(GROUP, "a", 0), "to join, send a subscription"),
        (GroupHeartbeatRequest(GROUP, "a", -3), "a member epoch is positive"),
        (GroupHeartbeatRequest(GROUP, "a", -2), "only a static member goes away"),
        (GroupHeartbeatRequest(GROUP, "a", 0, instance_id=""), "an instance id has"),
        (
            GroupHeartbeatRequest(GROUP, "a", 0, client_id="a" * 250),
            "a client name has at most 249",
        ),
        (GroupHeartbeatRequest(GROUP, "a", 0, subscription=Subscription()), "to 1 to 10000 topics"),
        (
            GroupHeartbeatRequest(GROUP, "a", 0, subscription=Subscription(["a"], "b")),
            "not to both",
        ),
        (
            GroupHeartbeatRequest(GROUP, "a", 0, subscription=Subscription([], "(")),
            "the topic pattern",
        ),
        (
            GroupHeartbeatRequest(GROUP, "a", 0, subscription=Subscription(["a" * 100_001])),
            "names of topics have at most 100000 characters together",
        ),
        (
            GroupHeartbeatRequest(GROUP, "a", 0, subscription=WANTED, assignor="fair"),
            "there are range, uniform",
        ),
        (
            GroupHeartbeatRequest(GROUP, "a", 0, subscription=WANTED, rebalance_timeout_ms=0),
            "rebalance_timeout_ms is 0",
        ),
    ],
)
def test_what_is_wrong_with_a_heartbeat_is_said(
    request_: GroupHeartbeatRequest, reason: str
) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        ConsumerGroups().heartbeat(request_, NOW_MS)
