"""Rare branches that runs of transactions take."""

from typing import Final

FORCED: Final = {
    "staged records deleted early": "staged records were deleted soon after their transactions",
}
"""Rare branches in the code of transactions, as in `tests.simulation.broker.sometimes`."""
