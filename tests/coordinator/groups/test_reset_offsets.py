"""Target offsets of resets."""

import pytest

from tests.coordinator.groups.conversation import ORDERS, Conversation
from tidelog.coordinator.groups.commits import OffsetRange
from tidelog.coordinator.groups.reset_offsets import ResetLog, plan_resets, reset_offset
from tidelog.wire.errors import (
    ErrorCode,
    InvalidRequestError,
    LeaderNotAvailableError,
)
from tidelog.wire.messages.groups import PartitionReset, ResetTo

LOG = OffsetRange(10, 100)


@pytest.mark.parametrize(
    ("to", "value", "found", "offset"),
    [
        (ResetTo.OFFSET, 42, None, 42),
        (ResetTo.EARLIEST, 0, None, 10),
        (ResetTo.LATEST, 0, None, 100),
        (ResetTo.TIMESTAMP, 1_700_000_000_000, 55, 55),
        (ResetTo.TIMESTAMP, 1_700_000_000_000, None, 100),
        (ResetTo.SHIFT, -20, None, 30),
        (ResetTo.SHIFT, 20, None, 70),
        (ResetTo.SHIFT, -999, None, 10),
        (ResetTo.SHIFT, 999, None, 100),
    ],
)
def test_a_reset_target_is_an_offset(
    to: ResetTo, value: int, found: int | None, *, offset: int
) -> None:
    reset = PartitionReset(b"t" * 16, 0, int(to), value)

    assert reset_offset(reset, committed=50, log=LOG, found=found) == offset


def test_a_shift_without_a_committed_offset_is_refused() -> None:
    reset = PartitionReset(b"t" * 16, 3, int(ResetTo.SHIFT), -5)

    with pytest.raises(InvalidRequestError, match="partition 3 has no committed offset to shift"):
        reset_offset(reset, committed=None, log=LOG, found=None)


def test_a_reset_target_of_a_newer_version_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="9 is no place to reset to; 0 to 4 are"):
        reset_offset(PartitionReset(b"t" * 16, 0, 9), committed=50, log=LOG, found=None)


def reset(partition: int, to: ResetTo, value: int = 0) -> PartitionReset:
    return PartitionReset(ORDERS, partition, int(to), value)


def test_a_reset_plan_has_an_offset_or_an_error_for_each_partition() -> None:
    talk = Conversation(4)
    talk.join("a")
    talk.settle()
    talk.commit("a", (0, 50))
    asked = [
        reset(0, ResetTo.SHIFT, -20),
        reset(1, ResetTo.SHIFT, -20),
        reset(2, ResetTo.OFFSET, 101),
        reset(3, ResetTo.EARLIEST),
    ]
    unknown = LeaderNotAvailableError("partition 3 has no leader")
    logs = {(ORDERS, number): ResetLog(LOG) for number in range(3)}

    planned = plan_resets(talk.group, asked, {**logs, (ORDERS, 3): unknown})

    assert [(one.previous_offset, one.offset) for one in planned] == [(50, 30), *[(None, None)] * 3]
    assert [one.error.code for one in planned if one.error is not None] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.LEADER_NOT_AVAILABLE,
    ]


def test_an_unknown_group_can_be_reset() -> None:
    (planned,) = plan_resets(None, [reset(0, ResetTo.LATEST)], {(ORDERS, 0): ResetLog(LOG)})

    assert (planned.previous_offset, planned.offset) == (None, 100)


def test_a_reset_refuses_duplicate_and_too_many_partitions() -> None:
    logs = {(ORDERS, number): ResetLog(LOG) for number in range(10_001)}

    with pytest.raises(InvalidRequestError, match="partition 0 is to be reset twice"):
        plan_resets(None, [reset(0, ResetTo.LATEST), reset(0, ResetTo.EARLIEST)], logs)
    with pytest.raises(InvalidRequestError, match="10001 partitions are too many"):
        plan_resets(None, [reset(number, ResetTo.LATEST) for number in range(10_001)], logs)
