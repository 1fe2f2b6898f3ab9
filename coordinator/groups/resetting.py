"""Where a reset leads: from what people ask for to an offset.

Pure functions: no clock, no I/O.
"""

from coordinator.groups.commits import Extent
from wire.errors import InvalidRequestError
from wire.groups import PartitionReset, ResetTo


def reset_offset(
    reset: PartitionReset, *, committed: int | None, log: Extent, found: int | None
) -> int:
    """Return the offset that a reset of one partition means.

    Args:
        reset: What is asked for.
        committed: The group's offset now; `None` if it has none.
        log: Where the log begins and where reading ends (the high watermark).
        found: For `ResetTo.TIMESTAMP`: the first record that young; `None` if there is none.

    Raises:
        InvalidRequestError: There is no such place, or nothing to shift from.
    """
    match reset.to:
        case ResetTo.OFFSET:
            return reset.value
        case ResetTo.EARLIEST:
            return log.log_start_offset
        case ResetTo.LATEST:
            return log.log_end_offset
        case ResetTo.TIMESTAMP:
            # Everything is older: what comes next is the first that is not.
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
