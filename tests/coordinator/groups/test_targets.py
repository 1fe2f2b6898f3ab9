"""Target assignments: subscriptions, and the choice of the assignor."""

import pytest

from tests.coordinator.groups.conversation import BOTH, GROUP, ORDERS, PAYMENTS, Conversation
from tidelog.coordinator.groups.records import TargetComputed
from tidelog.coordinator.groups.targets import TopicShape, is_concerned, is_outdated, wants_topic
from tidelog.wire.messages.groups import Subscription


def test_a_target_is_computed_once_for_an_epoch() -> None:
    talk = Conversation()
    talk.join("a")

    talk.target()

    assert talk.group.target_epoch == talk.group.group_epoch
    assert talk.state.compute_target(GROUP, talk.topics).records == []


def test_an_unknown_group_has_no_target() -> None:
    assert Conversation().state.compute_target(GROUP, {}).records == []


def test_a_subscribed_topic_is_assigned_when_it_is_created() -> None:
    talk = Conversation(1)
    talk.join("a", BOTH)
    talk.settle()
    assert talk.group.target("a") == {(ORDERS, 0)}

    talk.topics["payments"] = TopicShape(PAYMENTS, 1)
    talk.carry_out(talk.state.topics_changed(["payments"]).records)
    talk.target()

    assert talk.group.target("a") == {(ORDERS, 0), (PAYMENTS, 0)}


def test_a_pattern_subscription_includes_new_topics() -> None:
    talk = Conversation(1)
    talk.join("a", Subscription(pattern="pay*,ord*"))
    talk.settle()

    talk.topics["payments"] = TopicShape(PAYMENTS, 2)
    talk.carry_out(talk.state.topics_changed(["payments"]).records)
    talk.settle()

    assert set(talk.member("a").held) == {(ORDERS, 0), (PAYMENTS, 0), (PAYMENTS, 1)}


def test_an_unsubscribed_topic_concerns_no_group() -> None:
    talk = Conversation()
    talk.join("a")
    talk.settle()

    assert talk.state.topics_changed(["logs"]).records == []
    assert not is_concerned(talk.group, ["logs"])


def test_partitions_of_a_deleted_topic_are_revoked() -> None:
    talk = Conversation(2)
    talk.join("a", Subscription(["orders"]))
    talk.settle()
    del talk.topics["orders"]

    talk.carry_out(talk.state.topics_changed(["orders"]).records)
    talk.settle()

    assert talk.owned["a"] == []
    assert not talk.group.owner


def test_a_recreated_topic_is_reassigned_as_another_topic() -> None:
    talk = Conversation(2)
    talk.join("a")
    talk.settle()
    talk.topics["orders"] = TopicShape(PAYMENTS, 3)

    talk.carry_out(talk.state.topics_changed(["orders"]).records)
    talk.settle()

    assert set(talk.member("a").held) == {(PAYMENTS, number) for number in range(3)}


def test_added_partitions_are_assigned() -> None:
    talk = Conversation(2)
    talk.join("a")
    talk.join("b")
    talk.settle()
    talk.topics["orders"] = TopicShape(ORDERS, 4)

    talk.carry_out(talk.state.topics_changed(["orders"]).records)
    talk.settle()

    assert sorted(len(owned) for owned in talk.owned.values()) == [2, 2]


@pytest.mark.parametrize(
    ("assignors", "used"),
    [
        (["range", "range", "uniform"], "range"),
        (["uniform", "range", "uniform"], "uniform"),
        (["uniform", "range"], "range"),
    ],
)
def test_the_assignor_of_most_members_is_used(assignors: list[str], used: str) -> None:
    talk = Conversation()
    for number, assignor in enumerate(assignors):
        talk.join(f"m{number}", assignor=assignor)

    talk.target()

    assert talk.group.assignor == used


def test_only_members_whose_target_changes_are_in_the_record() -> None:
    talk = Conversation(4)
    talk.join("a")
    talk.join("b")
    talk.settle()
    talk.leave("b")
    talk.join("c")

    (record,) = talk.state.compute_target(GROUP, talk.topics).records

    assert isinstance(record, TargetComputed)
    assert [change.member_id for change in record.changed] == ["c"]


@pytest.mark.parametrize(
    ("subscription", "is_wanted"),
    [
        (Subscription(["orders"]), True),
        (Subscription(["order"]), False),
        (Subscription(pattern="ord*"), True),
        (Subscription(pattern="rd"), False),
    ],
)
def test_a_topic_is_wanted_by_name_or_by_pattern(
    subscription: Subscription, *, is_wanted: bool
) -> None:
    assert wants_topic(subscription, "orders") is is_wanted


def test_a_target_is_outdated_after_an_unnoticed_topic_change() -> None:
    talk = Conversation(2)
    talk.join("a", BOTH)
    talk.join("b", Subscription(["orders"]))
    talk.settle()
    assert not is_outdated(talk.group, talk.topics)

    came = talk.topics | {"payments": TopicShape(PAYMENTS, 1)}
    grew = {"orders": TopicShape(ORDERS, 3)}
    recreated = {"orders": TopicShape(PAYMENTS, 2)}

    assert is_outdated(talk.group, came)
    assert is_outdated(talk.group, grew)
    assert is_outdated(talk.group, recreated)
    assert is_outdated(talk.group, {})
    assert not is_outdated(talk.group, talk.topics | {"logs": TopicShape(PAYMENTS, 1)})


def test_a_group_that_waits_for_a_target_or_has_no_members_is_not_outdated() -> None:
    talk = Conversation(2)
    talk.join("a")
    assert not is_outdated(talk.group, {})

    talk.leave("a")

    assert not is_outdated(talk.group, {})
