"""Heartbeats: joins, leaves, fencing, takeover of static members."""

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


def test_a_joining_member_starts_without_partitions_at_its_join_epoch() -> None:
    talk = Conversation()

    first, second = talk.join("a"), talk.join("b")

    assert (first.member_epoch, second.member_epoch) == (1, 2)
    assert first.assignment == []
    assert talk.group.state == "assigning"


def test_a_repeated_join_is_one_join() -> None:
    talk = Conversation(2)
    talk.join("a")
    talk.settle()
    before = len(talk.records)

    reply = talk.join("a")

    assert len(talk.records) == before
    assert talk.owned["a"] == [0, 1]
    assert reply.member_epoch == talk.group.target_epoch


def test_a_leaving_member_releases_all_partitions() -> None:
    talk = Conversation(2)
    talk.join("a")
    talk.join("b")
    talk.settle()

    reply = talk.leave("a")
    talk.settle()

    assert reply.member_epoch == -1
    assert talk.owned["b"] == [0, 1]


def test_a_repeated_leave_succeeds() -> None:
    talk = Conversation()
    talk.join("a")
    talk.leave("a")

    assert talk.leave("a").member_epoch == -1


def test_a_member_that_left_has_no_lease_and_no_next_heartbeat() -> None:
    talk = Conversation()
    talk.join("a")

    reply = talk.leave("a")

    assert (reply.heartbeat_interval_ms, reply.lease_ms, reply.assignment) == (0, 0, None)


def test_ids_and_client_names_may_be_as_long_as_their_limits() -> None:
    talk = Conversation()
    longest = GroupHeartbeatRequest(
        "g" * 249,
        "m" * 64,
        0,
        owned=[],
        subscription=Subscription(["orders"]),
        subscription_version=1,
        instance_id="i" * 249,
        incarnation=1,
        client_id="c" * 249,
    )
    shortest = msgspec.structs.replace(longest, group_id="g", member_id="m", instance_id="i")

    talk.heartbeat(longest)
    talk.heartbeat(shortest)

    assert talk.state.group("g").members["m"].instance_id == "i"
    assert talk.state.group("g" * 249).members["m" * 64].client_id == "c" * 249


def test_a_group_is_empty_since_its_last_member_left() -> None:
    talk = Conversation()
    talk.join("a")

    talk.leave("a")

    assert talk.group.state == "empty"
    assert talk.group.empty_since_ms == NOW_MS


def test_a_fenced_member_must_join_under_a_new_member_id() -> None:
    talk = Conversation()
    talk.join("a")
    talk.settle()
    talk.carry_out(talk.state.fence(GROUP, "a", NOW_MS).records)

    with pytest.raises(UnknownMemberError, match="join again under a new member id"):
        talk.say("a")


def test_fencing_a_removed_member_does_nothing() -> None:
    talk = Conversation()

    assert talk.state.fence(GROUP, "a", NOW_MS).records == []


def test_a_delayed_copy_of_the_first_heartbeat_does_not_restore_a_fenced_member() -> None:
    """Otherwise it would go on reading partitions that others got."""
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


def test_a_heartbeat_with_a_future_member_epoch_is_refused() -> None:
    talk = Conversation()
    talk.join("a")

    with pytest.raises(InvalidRequestError, match="it cannot know of 9"):
        talk.say("a", epoch=9)


@pytest.mark.invariant("I77")
def test_a_newer_incarnation_of_a_static_member_takes_over_without_moves() -> None:
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


def test_revoking_partitions_of_a_replaced_incarnation_are_released() -> None:
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


def test_a_newer_incarnation_may_change_its_subscription() -> None:
    talk = Conversation()
    talk.join("a", instance_id="one", incarnation=1)
    talk.settle()

    talk.join("a-again", BOTH, instance_id="one", incarnation=2)

    assert talk.member("a-again").subscription == BOTH
    assert talk.group.state == "assigning"


def test_the_partitions_of_a_static_member_wait_for_its_restart() -> None:
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


def test_a_repeated_static_leave_is_one_leave() -> None:
    talk = Conversation()
    talk.join("a", instance_id="one", incarnation=1)
    talk.leave("a", is_restart=True)
    before = len(talk.records)

    talk.leave("a", is_restart=True)

    assert len(talk.records) == before


def test_a_changed_subscription_raises_the_group_epoch() -> None:
    talk = Conversation()
    talk.join("a")
    talk.settle()
    epoch = talk.group.group_epoch

    changed = msgspec.structs.replace(talk.request("a"), subscription=BOTH, subscription_version=2)
    talk.heartbeat(changed)

    assert talk.group.group_epoch == epoch + 1
    assert talk.member("a").subscription == BOTH


def test_a_revocation_counts_in_a_heartbeat_with_a_new_subscription() -> None:
    """Otherwise the member would not report it again, and be fenced for the revocation timeout."""
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


def test_a_member_without_partitions_gets_the_waiting_interval() -> None:
    talk = Conversation()
    talk.join("a")
    waiting = talk.say("a").heartbeat_interval_ms
    talk.settle()

    assert (waiting, talk.say("a").heartbeat_interval_ms) == (1_000, 5_000)


def test_a_delayed_subscription_is_ignored() -> None:
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


def test_a_repeated_subscription_changes_nothing() -> None:
    talk = Conversation()
    talk.join("a", BOTH)
    epoch = talk.group.group_epoch

    talk.heartbeat(
        msgspec.structs.replace(talk.request("a"), subscription=BOTH, subscription_version=2)
    )

    assert talk.group.group_epoch == epoch


def test_the_number_of_members_is_limited() -> None:
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
def test_an_invalid_heartbeat_is_refused_with_the_reason(
    request_: GroupHeartbeatRequest, reason: str
) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        ConsumerGroups().heartbeat(request_, NOW_MS)
