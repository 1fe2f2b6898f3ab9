"""Target assignments: who wants what, and which assignor decides."""

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


def test_a_group_that_is_not_there_has_no_target() -> None:
    assert Conversation().state.compute_target(GROUP, {}).records == []


def test_a_topic_that_does_not_exist_yet_is_read_when_it_does() -> None:
    talk = Conversation(1)
    talk.join("a", BOTH)
    talk.settle()
    assert talk.group.target("a") == {(ORDERS, 0)}

    talk.topics["payments"] = TopicShape(PAYMENTS, 1)
    talk.carry_out(talk.state.topics_changed(["payments"]).records)
    talk.target()

    assert talk.group.target("a") == {(ORDERS, 0), (PAYMENTS, 0)}


def test_a_pattern_takes_in_topics_as_they_come() -> None:
    talk = Conversation(1)
    talk.join("a", Subscription(pattern="pay*,ord*"))
    talk.settle()

    talk.topics["payments"] = TopicShape(PAYMENTS, 2)
    talk.carry_out(talk.state.topics_changed(["payments"]).records)
    talk.settle()

    assert set(talk.member("a").held) == {(ORDERS, 0), (PAYMENTS, 0), (PAYMENTS, 1)}


def test_a_topic_that_nobody_wants_concerns_nobody() -> None:
    talk = Conversation()
    talk.join("a")
    talk.settle()

    assert talk.state.topics_changed(["logs"]).records == []
    assert not is_concerned(talk.group, ["logs"])


def test_partitions_of_a_deleted_topic_are_let_go_of() -> None:
    talk = Conversation(2)
    talk.join("a", Subscription(["orders"]))
    talk.settle()
    del talk.topics["orders"]

    talk.carry_out(talk.state.topics_changed(["orders"]).records)
    talk.settle()

    assert talk.owned["a"] == []
    assert not talk.group.owner


def test_a_topic_made_anew_under_its_name_is_another_one() -> None:
    talk = Conversation(2)
    talk.join("a")
    talk.settle()
    talk.topics["orders"] = TopicShape(PAYMENTS, 3)

    talk.carry_out(talk.state.topics_changed(["orders"]).records)
    talk.settle()

    assert set(talk.member("a").held) == {(PAYMENTS, number) for number in range(3)}


def test_partitions_that_are_added_are_shared_out() -> None:
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
def test_what_most_members_prefer_is_used(assignors: list[str], used: str) -> None:
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


def test_a_target_is_outdated_when_a_topic_came_went_or_grew_and_nobody_said_so() -> None:
    talk = Conversation(2)
    talk.join("a", BOTH)
    talk.join("b", Subscription(["orders"]))
    talk.settle()
    assert not is_outdated(talk.group, talk.topics)

    came = talk.topics | {"payments": TopicShape(PAYMENTS, 1)}
    grew = {"orders": TopicShape(ORDERS, 3)}
    anew = {"orders": TopicShape(PAYMENTS, 2)}

    assert is_outdated(talk.group, came)
    assert is_outdated(talk.group, grew)
    assert is_outdated(talk.group, anew)
    assert is_outdated(talk.group, {})
    assert not is_outdated(talk.group, talk.topics | {"logs": TopicShape(PAYMENTS, 1)})


def test_a_group_that_waits_for_a_target_or_has_no_members_is_not_outdated() -> None:
    talk = Conversation(2)
    talk.join("a")
    assert not is_outdated(talk.group, {})

    talk.leave("a")

    assert not is_outdated(talk.group, {})
