"""Rates of quotas: codes on the wire, names, and the notice of a throttled client.

Pure: no clock, no I/O. Clients import it for each connection, so it imports nothing else.
"""

from enum import IntEnum
from typing import Final, NamedTuple

RATES: Final = ("produce_bytes_per_s", "fetch_bytes_per_s", "requests_per_s", "busy_ms_per_s")
"""Quotas of rates, by `QuotaRate`."""


class QuotaRate(IntEnum):
    """A limited rate; the number is its code on the wire, and its place in lists plus 1."""

    PRODUCE_BYTES = 1
    FETCH_BYTES = 2
    REQUESTS = 3
    BUSY_MS = 4

    @property
    def quota(self) -> str:
        """Name of the quota."""
        return RATES[self - 1]


class Throttle(NamedTuple):
    """The notice of a reply that the broker reads later."""

    rate: int
    """Code of the rate that is used up, 0 for none."""
    ms: int
    """Milliseconds until the broker reads on, 0 if it does not wait."""


NO_THROTTLE: Final = Throttle(0, 0)


def quota_of(rate: int) -> str:
    """Return the name of the quota with a code of the wire; a newer version may have more."""
    return RATES[rate - 1] if 1 <= rate <= len(RATES) else f"rate {rate}"
