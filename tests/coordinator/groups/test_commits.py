"""Commits and resets of offsets (I76, I77)."""

from contextlib import nullcontext

import msgspec
import pytest

from tests.coordinator.groups.conversation import (
    GROUP,
    NOW_MS,
    ORDERS,
    PAYMENTS,
    Conversation,
    results,
)
from tidelog.wire.errors import (
    ErrorCode,
    GroupNotEmptyError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    StaleMemberEpochError,
    UnknownMemberError,
    UnknownTopicIdError,
)
from tidelog.wire.messages.groups import (
    NO_MEMBER_EPOCH,
    CommitOffsetsRequest,
    PartitionCommit,
    Subscription,
)


def settled(*member_ids: str) -> Conversation:
    talk = Conversation(4)
    for member_id in member_ids:
        talk.join(member_id)
    talk.settle()
    return talk


def outsider(offset: int, *, member_epoch: int = NO_MEMBER_EPOCH) -> CommitOffsetsRequest:
    return CommitOffsetsRequest(GROUP, "", member_epoch, 0, [PartitionCommit(ORDERS, 0, offset)])


def test_a_member_commits_its_own_partitions() -> None:
    talk = settled("a")

    assert results(talk.commit("a", (0, 50), (1, 60))) == [(None, False, None)] * 2
    assert results(talk.commit("a", (0, 70))) == [(50, False, None)]
    assert (talk.committed(0), talk.committed(1)) == (70, 60)


def test_the_commit_reply_tells_when_an_offset_moves_back() -> None:
    talk = settled("a")
    talk.commit("a", (0, 50))

    assert results(talk.commit("a", (0, 40))) == [(50, True, None)]
    assert talk.committed(0) == 40


def test_leader_epoch_metadata_and_time_are_kept() -> None:
    talk = settled("a")
    request = msgspec.structs.replace(
        talk.commit_request("a"), offsets=[PartitionCommit(ORDERS, 0, 50, 7, "up to noon")]
    )

    talk.send_commit(request)

    found = talk.group.committed((ORDERS, 0))
    assert found is not None
    assert (found.leader_epoch, found.metadata, found.time_ms) == (7, "up to noon", NOW_MS)


def test_a_commit_of_a_partition_of_another_member_is_refused() -> None:
    talk = settled("a", "b")
    (theirs, _), (own, _) = talk.owned["b"], talk.owned["a"]

    found = results(talk.commit("a", (theirs, 50), (own, 50)))

    assert found == [(None, False, ErrorCode.PARTITION_NOT_OWNED), (None, False, None)]
    assert talk.committed(theirs) is None


def test_a_revoking_partition_can_be_committed_until_it_is_released() -> None:
    talk = settled("a")
    talk.join("b")
    talk.target()
    talk.say("a", owned=[0, 1, 2, 3])

    assert results(talk.commit("a", (3, 50))) == [(None, False, None)]

    talk.say("a", owned=[0, 1])

    assert results(talk.commit("a", (3, 51))) == [(None, False, ErrorCode.PARTITION_NOT_OWNED)]


def test_a_commit_from_before_the_last_epoch_counts_while_the_partition_is_held() -> None:
    talk = settled("a", "b")
    epoch = talk.epochs["a"]
    talk.leave("b")
    talk.settle()
    assert talk.epochs["a"] > epoch

    assert results(talk.commit("a", (talk.owned["a"][0], 50), epoch=epoch))[0][2] is None


@pytest.mark.invariant("I76")
def test_a_commit_from_before_a_partition_was_reassigned_and_returned_is_refused() -> None:
    """A delayed commit arrives when the member holds the partition again."""
    talk = settled("a")
    talk.sequence = 1
    old = talk.commit_request("a", (3, 50))
    talk.join("b")
    talk.settle()
    assert 3 in talk.owned["b"]
    talk.commit("b", (3, 90))
    talk.leave("b")
    talk.settle()

    ((_, _, code),) = results(talk.send_commit(old))

    assert code == ErrorCode.STALE_MEMBER_EPOCH
    assert talk.committed(3) == 90


@pytest.mark.invariant("I76")
def test_a_commit_counts_from_the_epoch_of_the_assignment_and_not_from_the_epoch_before() -> None:
    talk = settled("a", "b")
    returned = talk.owned["b"][0]
    epoch_without_it = talk.epochs["a"]
    talk.commit("b", (returned, 90))
    talk.leave("b")
    talk.settle()
    assert talk.member("a").held[ORDERS, returned] == epoch_without_it + 1

    found = [
        results(talk.commit("a", (returned, offset), epoch=epoch))
        for offset, epoch in [(50, epoch_without_it), (95, epoch_without_it + 1)]
    ]

    assert found == [[(None, False, ErrorCode.STALE_MEMBER_EPOCH)], [(90, False, None)]]


@pytest.mark.invariant("I77")
def test_a_delayed_commit_does_not_move_a_group_back() -> None:
    """Delays never move a group back."""
    talk = settled("a")
    talk.sequence = 1
    old = talk.commit_request("a", (0, 50))
    talk.commit("a", (0, 60))

    assert isinstance(talk.send_commit(old), StaleMemberEpochError)
    assert talk.committed(0) == 60


def test_a_repeated_offset_commit_succeeds() -> None:
    talk = settled("a")
    request = talk.commit_request("a", (0, 50))

    talk.send_commit(request)

    assert results(talk.send_commit(request)) == [(50, False, None)]


def test_a_fenced_member_commits_nothing() -> None:
    talk = settled("a")
    talk.carry_out(talk.state.fence(GROUP, "a", NOW_MS).records)

    assert isinstance(talk.commit("a", (0, 50)), UnknownMemberError)


def test_a_static_member_that_is_away_commits_nothing() -> None:
    talk = Conversation()
    talk.join("a", instance_id="one", incarnation=1)
    talk.settle()
    talk.leave("a", is_restart=True)

    assert isinstance(talk.commit("a", (0, 50)), UnknownMemberError)


def test_a_commit_with_a_future_member_epoch_is_refused() -> None:
    talk = settled("a")

    assert isinstance(talk.commit("a", (0, 50), epoch=99), InvalidRequestError)


@pytest.mark.parametrize("offset", [9, 1001, -1])
def test_an_offset_outside_of_the_log_is_refused_with_both_bounds(offset: int) -> None:
    talk = settled("a")

    talk_back = talk.commit("a", (0, offset))

    assert results(talk_back) == [(None, False, ErrorCode.OFFSET_OUT_OF_RANGE)]
    assert talk.committed(0) is None


@pytest.mark.parametrize("offset", [10, 1000])
def test_both_ends_of_the_log_can_be_committed(offset: int) -> None:
    talk = settled("a")

    assert results(talk.commit("a", (0, offset))) == [(None, False, None)]


def test_a_commit_of_an_unknown_partition_is_refused() -> None:
    talk = settled("a")
    outcome = talk.state.commit_offsets([talk.commit_request("a", (0, 50))], {}, NOW_MS)

    assert results(outcome.reply[0]) == [(None, False, ErrorCode.UNKNOWN_TOPIC_ID)]
    assert outcome.records == []


@pytest.mark.parametrize(("text", "is_fine"), [("é" * 2048, True), ("é" * 2048 + "x", False)])
def test_metadata_has_a_limit_in_bytes(text: str, *, is_fine: bool) -> None:
    talk = settled("a")
    request = msgspec.structs.replace(
        talk.commit_request("a"), offsets=[PartitionCommit(ORDERS, 0, 50, None, text)]
    )

    ((_, _, code),) = results(talk.send_commit(request))

    assert (code is None) is is_fine


def test_a_non_member_commits_to_an_empty_group() -> None:
    talk = Conversation()

    assert results(talk.send_commit(outsider(50))) == [(None, False, None)]
    assert talk.committed(0) == 50
    assert talk.group.state == "empty"


def test_a_group_without_members_is_empty_since_its_last_commit_or_reset() -> None:
    talk = Conversation()
    talk.send_commit(outsider(50))

    later = talk.state.commit_offsets([outsider(60)], talk.ranges(), NOW_MS + 5)
    talk.carry_out(later.records)
    assert talk.group.empty_since_ms == NOW_MS + 5

    offsets = [("orders", PartitionCommit(ORDERS, 0, 20))]
    reset = talk.state.reset_offsets(GROUP, offsets, talk.ranges(), now_ms=NOW_MS + 7)
    talk.carry_out(reset.records)
    assert talk.group.empty_since_ms == NOW_MS + 7


def test_a_non_member_does_not_commit_to_a_group_with_members() -> None:
    talk = settled("a")

    assert isinstance(talk.send_commit(outsider(50)), GroupNotEmptyError)


def test_a_commit_of_a_non_member_has_no_member_epoch() -> None:
    talk = Conversation()

    assert isinstance(talk.send_commit(outsider(50, member_epoch=3)), InvalidRequestError)


def test_commits_of_one_batch_are_applied_in_order() -> None:
    talk = settled("a", "b")
    own, theirs = talk.owned["a"][0], talk.owned["b"][0]
    requests: list[CommitOffsetsRequest] = []
    for member_id, partition, offset in [("a", own, 50), ("b", theirs, 60), ("a", own, 55)]:
        talk.sequence += 1
        requests.append(talk.commit_request(member_id, (partition, offset)))
    requests.append(requests[0])

    outcome = talk.state.commit_offsets(requests, talk.ranges(), NOW_MS)

    first, second, third, overtaken = outcome.reply
    assert [results(one) for one in (first, second, third)] == [
        [(None, False, None)],
        [(None, False, None)],
        [(50, False, None)],
    ]
    assert isinstance(overtaken, StaleMemberEpochError)
    assert len(outcome.records) == 3


def test_ten_thousand_commits_fit_in_few_entries() -> None:
    talk = Conversation(100)
    for number in range(100):
        talk.join(f"{number:032x}")
    talk.settle()
    requests = [
        talk.commit_request(member_id, (talk.owned[member_id][0], 50)) for member_id in talk.owned
    ]

    outcome = talk.state.commit_offsets(requests, talk.ranges(), NOW_MS)

    assert len(outcome.records) == 100
    # A hundred such entries each second are 10,000 commits.
    assert len(msgspec.msgpack.encode(outcome.records)) < 12_000


def test_a_reset_sets_the_offsets_of_an_empty_group() -> None:
    talk = settled("a")
    talk.commit("a", (0, 50))
    talk.leave("a")

    outcome = talk.state.reset_offsets(
        GROUP,
        [
            ("orders", PartitionCommit(ORDERS, 0, 20)),
            ("orders", PartitionCommit(ORDERS, 1, 30)),
        ],
        talk.ranges(),
        now_ms=NOW_MS,
    )
    talk.carry_out(outcome.records)

    assert [(one.previous_offset, one.offset) for one in outcome.reply] == [(50, 20), (None, 30)]
    assert (talk.committed(0), talk.committed(1)) == (20, 30)


@pytest.mark.parametrize("subscription", [Subscription(["orders"]), Subscription(pattern="ord*")])
def test_a_topic_with_subscribed_members_is_not_reset(subscription: Subscription) -> None:
    talk = Conversation()
    talk.join("a", subscription)

    with pytest.raises(GroupNotEmptyError, match="among them a; stop them first"):
        talk.state.reset_offsets(
            GROUP, [("orders", PartitionCommit(ORDERS, 0, 20))], talk.ranges(), now_ms=NOW_MS
        )


def test_a_topic_with_unreleased_partitions_is_not_reset() -> None:
    talk = settled("a")
    talk.heartbeat(
        msgspec.structs.replace(
            talk.request("a"), subscription=Subscription(["payments"]), subscription_version=2
        )
    )

    with pytest.raises(GroupNotEmptyError):
        talk.state.reset_offsets(
            GROUP, [("orders", PartitionCommit(ORDERS, 0, 20))], talk.ranges(), now_ms=NOW_MS
        )


def test_another_topic_is_reset_while_members_read() -> None:
    talk = settled("a")
    ranges = {(PAYMENTS, 0): talk.ranges()[ORDERS, 0]}

    outcome = talk.state.reset_offsets(
        GROUP, [("payments", PartitionCommit(PAYMENTS, 0, 20))], ranges, now_ms=NOW_MS
    )
    talk.carry_out(outcome.records)

    assert talk.group.committed((PAYMENTS, 0)) is not None


@pytest.mark.parametrize(
    ("offset", "is_legal"), [(9, False), (10, True), (1000, True), (1001, False)]
)
def test_a_group_is_reset_to_an_offset_of_the_log_or_its_end(
    offset: int, *, is_legal: bool
) -> None:
    talk = Conversation()
    offsets = [("orders", PartitionCommit(ORDERS, 0, offset))]

    with nullcontext() if is_legal else pytest.raises(OffsetOutOfRangeError):
        assert talk.state.reset_offsets(GROUP, offsets, talk.ranges(), now_ms=NOW_MS).records


def test_a_reset_is_applied_as_a_whole_or_not_at_all() -> None:
    talk = Conversation()
    offsets = [
        ("orders", PartitionCommit(ORDERS, 0, 20)),
        ("orders", PartitionCommit(ORDERS, 1, 2000)),
    ]

    with pytest.raises(
        OffsetOutOfRangeError, match="offset 2000 is not in partition 1, which has 10 to 1000"
    ) as out_of_range:
        talk.state.reset_offsets(GROUP, offsets, talk.ranges(), now_ms=NOW_MS)
    assert (out_of_range.value.log_start_offset, out_of_range.value.log_end_offset) == (10, 1000)
    with pytest.raises(UnknownTopicIdError, match="partition 0 of this topic id is not known"):
        talk.state.reset_offsets(GROUP, offsets, {}, now_ms=NOW_MS)

    assert GROUP not in talk.state.groups
