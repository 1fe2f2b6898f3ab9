"""Descriptions of groups, and their lag."""

import pytest

from tests.coordinator.groups.conversation import GROUP, NOW_MS, ORDERS, Conversation
from tidelog.coordinator.groups.description import (
    describe_group,
    fetch_offsets,
    list_groups,
    partitions_of,
)
from tidelog.coordinator.groups.lag import Lag, LogBounds, group_lag, partition_lag
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.groups import GroupListing, TopicPartitions


def working_group() -> Conversation:
    talk = Conversation(3)
    talk.join("a", instance_id="one", incarnation=7)
    talk.settle()
    talk.commit("a", (0, 40), (1, 100))
    return talk


def test_groups_are_listed_by_id_with_their_state() -> None:
    talk = working_group()

    assert list_groups(talk.state.groups, None).groups == [
        GroupListing(GROUP, "stable", 1, "uniform")
    ]
    assert list_groups(talk.state.groups, ["empty"]).groups == []

    talk.leave("a")

    assert list_groups(talk.state.groups, ["empty"]).groups == [GroupListing(GROUP, "empty", 0, "")]


def test_a_group_description_has_assignments_and_lag() -> None:
    talk = working_group()
    logs = {
        (ORDERS, 0): LogBounds(10, 100, NOW_MS - 5_000),
        (ORDERS, 1): LogBounds(10, 100),
    }

    group = describe_group(talk.state.groups, GROUP, logs, now_ms=NOW_MS)

    (member,) = group.members
    assert (member.member_id, member.instance_id, member.state) == ("a", "one", "stable")
    assert member.assigned == member.target == [TopicPartitions(ORDERS, [0, 1, 2])]
    assert [
        (one.partition, one.member_id, one.offset, one.lag_records, one.lag_ms)
        for one in group.partitions
    ] == [(0, "a", 40, 60, 5_000), (1, "a", 100, 0, 0), (2, "a", None, None, None)]


def test_a_revoking_member_is_described_with_its_held_partitions() -> None:
    talk = working_group()
    talk.join("b")
    talk.target()
    talk.say("a")

    first, second = describe_group(talk.state.groups, GROUP, {}, now_ms=NOW_MS).members

    assert (first.state, first.assigned) == ("unrevoked", [TopicPartitions(ORDERS, [0, 1])])
    assert first.revoking == second.target == [TopicPartitions(ORDERS, [2])]


def test_an_unknown_group_is_described_by_an_error() -> None:
    group = describe_group({}, GROUP, {}, now_ms=NOW_MS)

    assert group.error is not None
    assert group.error.code == ErrorCode.UNKNOWN_GROUP
    assert (group.group_id, group.state, group.group_epoch) == (GROUP, "", 0)
    assert (group.target_epoch, group.members, group.partitions) == (0, [], [])


def test_committed_offsets_are_found_for_all_or_for_some() -> None:
    talk = working_group()

    everything = list(fetch_offsets(talk.group, None))
    some = list(fetch_offsets(talk.group, [TopicPartitions(ORDERS, [2, 1])]))

    assert [(one.partition, one.offset) for one in everything] == [(0, 40), (1, 100)]
    assert [(one.partition, one.offset) for one in some] == [(2, None), (1, 100)]


def test_an_unknown_group_has_no_committed_offsets() -> None:
    asked = [TopicPartitions(ORDERS, [0])]

    assert list(fetch_offsets(None, None)) == []
    assert [one.offset for one in fetch_offsets(None, asked)] == [None]


def test_partitions_are_those_that_are_read_or_were_committed() -> None:
    talk = working_group()

    assert partitions_of(talk.group) == [(ORDERS, 0), (ORDERS, 1), (ORDERS, 2)]

    talk.leave("a")

    assert partitions_of(talk.group) == [(ORDERS, 0), (ORDERS, 1)]


READ_MS = 100_000


@pytest.mark.parametrize(
    ("offset", "log", "lag"),
    [
        (40, LogBounds(10, 100, 70_000), Lag(60, 30_000)),
        (100, LogBounds(10, 100), Lag(0, 0)),
        (0, LogBounds(0, 0), Lag(0, 0)),
        (40, LogBounds(10, 100), Lag(60, None)),
        (40, LogBounds(10, 100, READ_MS + 5_000), Lag(60, 0)),
        (None, LogBounds(10, 100), Lag(None, None)),
        # Retention was faster than the group.
        (4, LogBounds(10, 100, 70_000), Lag(90, 30_000, 6)),
        (4, LogBounds(10, 10), Lag(0, 0, 6)),
        # Committed by a leader with a higher high watermark than the current one.
        (101, LogBounds(10, 100), Lag(0, 0)),
    ],
)
def test_the_lag_of_a_partition(offset: int | None, log: LogBounds, lag: Lag) -> None:
    assert partition_lag(offset, log, READ_MS) == lag


def test_the_lag_of_a_group_is_all_records_and_the_longest_time() -> None:
    lags = [Lag(10, 5_000), Lag(5, None, 2), Lag(None, None), Lag(0, 0, 1)]

    assert group_lag(lags) == Lag(15, 5_000, 3)


def test_a_group_lag_unknown_in_all_partitions_is_unknown() -> None:
    assert group_lag([Lag(None, None)]) == Lag(None, None)
    assert group_lag([]) == Lag(None, None)
