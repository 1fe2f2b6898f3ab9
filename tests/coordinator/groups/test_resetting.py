"""Where resets lead."""

import pytest

from coordinator.groups.commits import Extent
from coordinator.groups.resetting import reset_offset
from wire.errors import InvalidRequestError
from wire.groups import PartitionReset, ResetTo

LOG = Extent(10, 100)


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
def test_a_reset_leads_to_an_offset(
    to: ResetTo, value: int, found: int | None, offset: int
) -> None:
    reset = PartitionReset(b"t" * 16, 0, int(to), value)

    assert reset_offset(reset, committed=50, log=LOG, found=found) == offset


def test_without_an_offset_there_is_nothing_to_shift() -> None:
    reset = PartitionReset(b"t" * 16, 3, int(ResetTo.SHIFT), -5)

    with pytest.raises(InvalidRequestError, match="partition 3 has no committed offset to shift"):
        reset_offset(reset, committed=None, log=LOG, found=None)


def test_a_place_of_a_newer_version_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="9 is no place to reset to; 0 to 4 are"):
        reset_offset(PartitionReset(b"t" * 16, 0, 9), committed=50, log=LOG, found=None)
