"""The target offsets of a reset, computed from the request.

Pure functions: no clock, no I/O.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tidelog.coordinator.groups.commits import OffsetRange, check_range
from tidelog.coordinator.groups.group import Group
from tidelog.coordinator.groups.partitions import Partition
from tidelog.wire.errors import BrokerError, InvalidRequestError
from tidelog.wire.messages.groups import PartitionReset, PartitionWasReset, ResetTo

_RESETS_MAX: Final = 10_000
"""Maximum of partitions: one reset is one entry of the log."""


def reset_offset(
    reset: PartitionReset, *, committed: int | None, log: OffsetRange, found: int | None
) -> int:
    """Return the target offset of the reset of one partition.

    Args:
        reset: The requested target.
        committed: The group's committed offset; `None` without one.
        log: The log start and the high watermark of the partition.
        found: For `ResetTo.TIMESTAMP`: the first record that young; `None` without one.

    Raises:
        InvalidRequestError: The target is unknown, or there is no offset to shift.
    """
    match reset.to:
        case ResetTo.OFFSET:
            return reset.value
        case ResetTo.EARLIEST:
            return log.log_start_offset
        case ResetTo.LATEST:
            return log.log_end_offset
        case ResetTo.TIMESTAMP:
            # All records are older, so the first record that is not is the next one.
            return log.log_end_offset if found is None else found
        case ResetTo.SHIFT:
            if committed is None:
                raise InvalidRequestError(
                    f"partition {reset.partition} has no committed offset to shift; reset it to"
                    " an offset, a time, earliest or latest"
                )
            shifted = committed + reset.value
            return min(max(shifted, log.log_start_offset), log.log_end_offset)
        case _:
            raise InvalidRequestError(
                f"{reset.to} is no place to reset to; 0 to {int(max(ResetTo))} are"
            )


class ResetLog(NamedTuple):
    """The bounds of a partition that is to be reset."""

    offset_range: OffsetRange
    """Log start and high watermark."""
    found_offset: int | None = None
    """For `ResetTo.TIMESTAMP`: the first record that young; `None` without one."""


def plan_resets(
    group: Group | None,
    resets: Sequence[PartitionReset],
    logs: Mapping[Partition, ResetLog | BrokerError],
) -> list[PartitionWasReset]:
    """Return the target offset of each reset, or its error; nothing changes yet.

    Args:
        group: The group, `None` if it does not exist yet.
        resets: The requested targets.
        logs: Bounds of each partition in them, or the error of their lookup.

    Raises:
        InvalidRequestError: A partition is named twice, or there are too many of them.
    """
    if len(resets) > _RESETS_MAX:
        raise InvalidRequestError(
            f"{len(resets)} partitions are too many for one reset, it may have {_RESETS_MAX}"
        )
    planned: dict[Partition, PartitionWasReset] = {}
    for reset in resets:
        partition = (reset.topic_id, reset.partition)
        if partition in planned:
            raise InvalidRequestError(f"partition {reset.partition} is to be reset twice")
        at = None if group is None else group.committed(partition)
        committed = None if at is None else at.offset
        try:
            offset = _planned_offset(reset, committed, logs[partition])
        except BrokerError as error:
            planned[partition] = PartitionWasReset(None, None, error.to_wire())
        else:
            planned[partition] = PartitionWasReset(committed, offset)
    return list(planned.values())


def _planned_offset(
    reset: PartitionReset, committed: int | None, log: ResetLog | BrokerError
) -> int:
    if isinstance(log, BrokerError):
        raise log
    offset = reset_offset(reset, committed=committed, log=log.offset_range, found=log.found_offset)
    partition = (reset.topic_id, reset.partition)
    check_range(partition, offset, {partition: log.offset_range})
    return offset
