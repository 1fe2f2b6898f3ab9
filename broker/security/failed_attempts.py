"""Failed authentications by address: how long the next attempt of each has to wait.

Pure: no clock, no I/O.
"""

from typing import Final, NamedTuple, final

from tidelog.wire.env.sites import site_of

DELAY_S: Final = 0.1
"""Seconds that the answer to a failed attempt is delayed at least."""
_DELAY_MAX_S: Final = 3.0
"""Less than clients wait for a connection: a client behind the address of another one connects."""
_FORGIVEN_S: Final = 10.0
"""Seconds after which one failure of an address is forgotten."""
_ADDRESSES_MAX: Final = 4_096


class _Failures(NamedTuple):
    number: int
    at: float


@final
class FailedAttempts:
    """The failures of the last time, by address; the least recent of many are forgotten."""

    def __init__(self) -> None:
        """Start without failures."""
        self._known: dict[str, _Failures] = {}

    def delay_s(self, address: str, now: float) -> float:
        """Return the seconds that an attempt waits: 0.1, doubling with each failure, up to 3.

        It is 0 without failures. `now` is in monotonic seconds.
        """
        count = self._count(site_of(address), now)
        return min(DELAY_S * 2.0 ** (count - 1), _DELAY_MAX_S) if count else 0.0

    def add(self, address: str, now: float) -> None:
        """Count a failure of an address, such as `192.0.2.7`, or of the /64 network of IPv6."""
        site = site_of(address)
        count = self._count(site, now)
        self._known.pop(site, None)
        self._known[site] = _Failures(min(count + 1, 8), now)
        if len(self._known) > _ADDRESSES_MAX:
            del self._known[next(iter(self._known))]

    def _count(self, site: str, now: float) -> int:
        found = self._known.get(site)
        if found is None:
            return 0
        return max(0, found.number - int((now - found.at) / _FORGIVEN_S))
