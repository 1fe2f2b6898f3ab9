"""One group's state; what its records do to it is shown by the tests of the commands as well."""

from tests.coordinator.groups.conversation import GROUP, ORDERS, Conversation
from tidelog.coordinator.groups.group import Group


def test_the_state_of_a_group_follows_its_members() -> None:
    talk = Conversation(2)
    states = [Group("g", 0).state]
    talk.join("a")
    states.append(talk.group.state)
    talk.target()
    states.append(talk.group.state)
    talk.say("a")
    states.append(talk.group.state)
    talk.leave("a")
    states.append(talk.group.state)

    assert states == ["empty", "assigning", "reconciling", "stable", "empty"]


def test_the_state_of_a_member_follows_what_it_has() -> None:
    talk = Conversation(2)
    talk.join("a", instance_id="one", incarnation=1)
    talk.settle()
    states = [talk.group.member_state(talk.member("a"))]
    talk.join("b")
    talk.target()
    states.append(talk.group.member_state(talk.member("a")))
    talk.say("a")
    states.append(talk.group.member_state(talk.member("a")))
    talk.say("b")
    states.append(talk.group.member_state(talk.member("b")))
    talk.leave("a", is_restart=True)
    states.append(talk.group.member_state(talk.member("a")))

    assert states == ["stable", "stable", "unrevoked", "unreleased", "away"]


def test_a_restored_group_is_the_same_group() -> None:
    talk = Conversation(4)
    talk.join("a", instance_id="one", incarnation=1)
    talk.settle()
    talk.join("b")
    talk.target()
    talk.say("a")
    talk.commit("a", (0, 50))

    again = Group.restore(talk.group.snapshot())

    assert again.snapshot() == talk.group.snapshot()
    assert {one: owner.member_id for one, owner in again.owner.items()} == {
        (ORDERS, number): "a" for number in range(4)
    }
    assert again.by_instance["one"] is again.members["a"]
    assert again.group_id == GROUP


def test_an_assignment_names_its_topics() -> None:
    talk = Conversation(3)
    talk.join("a")
    talk.settle()

    (topic,) = talk.group.assignment(talk.member("a").readable())

    assert (topic.topic, topic.topic_id, topic.partitions) == ("orders", ORDERS, [0, 1, 2])
