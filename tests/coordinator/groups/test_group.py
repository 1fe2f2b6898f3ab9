"""A group, its records, partitions and settings."""

from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.coordinator.groups.conversation import GROUP, ORDERS, Conversation
from tests.golden.group_records import FILE, RECORDS, line
from tidelog.coordinator.groups.config import GroupConfig
from tidelog.coordinator.groups.group import Group
from tidelog.coordinator.groups.partitions import NAMED_MAX, pack, require_moderate, unpack
from tidelog.coordinator.groups.records import GroupRecord
from tidelog.wire.errors import ConfigError, InvalidRequestError
from tidelog.wire.messages.groups import TopicPartitions


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


LINES = FILE.read_text(encoding="utf-8").splitlines()


def test_group_records_are_encoded_as_in_the_golden_file() -> None:
    assert [line(record) for record in RECORDS] == LINES


def test_group_records_of_the_golden_file_are_decoded() -> None:
    stored = [bytes.fromhex(line.split(" ")[0]) for line in LINES]

    read = [msgspec.msgpack.decode(data, type=GroupRecord) for data in stored]

    assert read == RECORDS


def test_every_record_is_in_the_golden_file() -> None:
    assert {type(record) for record in RECORDS} == set(get_args(GroupRecord))


partitions = st.tuples(st.sampled_from([b"a" * 16, b"b" * 16]), st.integers(0, 9))


@given(st.sets(partitions))
def test_packed_partitions_are_unpacked_in_order(found: set[tuple[bytes, int]]) -> None:
    assert unpack(pack(found)) == sorted(found)


@given(st.sets(partitions))
def test_each_topic_is_packed_once(found: set[tuple[bytes, int]]) -> None:
    topic_ids = [topic.topic_id for topic in pack(found)]

    assert topic_ids == sorted({topic_id for topic_id, _ in found})


def test_a_request_with_too_many_partitions_is_refused() -> None:
    half = TopicPartitions(b"t", list(range(NAMED_MAX // 2)))

    require_moderate([half, half])
    with pytest.raises(InvalidRequestError, match="at most 20,000 partitions in all, not 30,000"):
        require_moderate([half] * 3)


def test_the_default_group_config_is_valid() -> None:
    assert GroupConfig().session_timeout_ms == 45_000


def test_every_problem_is_listed() -> None:
    with pytest.raises(ConfigError) as caught:
        GroupConfig(waiting_interval_ms=0, session_timeout_ms=14_999, max_assignment_delay_ms=1)

    assert str(caught.value) == (
        "consumer groups: waiting_interval_ms must be above 0; session_timeout_ms must leave time"
        " for two heartbeats, 15000 or more; max_assignment_delay_ms must not be below"
        " replacement_delay_ms"
    )


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"waiting_interval_ms": 5_001}, "must not be above heartbeat_interval_ms"),
        ({"max_poll_interval_ms": 44_999}, "must not be below session_timeout_ms"),
    ],
)
def test_a_problem_is_named(config: dict[str, int], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        GroupConfig(**config)
