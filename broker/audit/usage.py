"""Usage: traffic of each principal with each topic or queue, folded by minute.

Pure: no clock, no I/O. Memory is bounded: beyond a maximum of pairs of principal and topic, their
traffic is counted for the topic `_other` of the principal, and beyond that for principal `_other`.
"""

from typing import Final, final

from tidelog.wire.security.principal import Principal

PAIRS_MAX: Final = 10_000
"""Maximum pairs of principal and topic with a record of their own in a minute."""
OTHER: Final = "_other"
"""Topic, and principal, of traffic beyond the maximum."""


@final
class Usage:
    """Traffic of one principal with one topic or queue."""

    __slots__ = ("bytes_in", "bytes_out", "records_in", "records_out", "requests")

    def __init__(self) -> None:
        """Begin at 0."""
        self.requests = 0
        """Requests with batches or messages of the topic, either way."""
        self.records_in = 0
        self.records_out = 0
        """Records or messages; those of a plain consumer are not counted, only their bytes."""
        self.bytes_in = 0
        self.bytes_out = 0
        """Bytes of batches as they are stored."""


@final
class UsageFold:
    """Usage since the last `take`, by principal and resource (`topic:NAME`, `queue:NAME`)."""

    def __init__(self, pairs_max: int = PAIRS_MAX) -> None:
        """Start empty."""
        self._pairs_max = pairs_max
        # A name identifies a principal here: only anonymous has an empty one, and nodes have none.
        self._counts: dict[tuple[str, str], Usage] = {}
        self._names: dict[str, Principal] = {}
        self._principals_max = max(pairs_max // 10, 1)

    def of(self, principal: Principal, resource: str) -> Usage:
        """Return the counts to which traffic is added now; keep them for no later."""
        counts = self._counts.get((principal.name, resource))
        return self._admit(principal, resource) if counts is None else counts

    def take(self) -> list[tuple[str, str, Usage]]:
        """Return principal, resource and usage of all pairs, and start again."""
        counts, names = self._counts, self._names
        self._counts, self._names = {}, {}
        return [
            (str(names[name]) if name in names else name, resource, usage)
            for (name, resource), usage in counts.items()
        ]

    def _admit(self, principal: Principal, resource: str) -> Usage:
        name = principal.name
        if name not in self._names:
            if len(self._names) >= self._principals_max:
                return self._counts.setdefault((OTHER, OTHER), Usage())
            self._names[name] = principal
        if len(self._counts) >= self._pairs_max:
            resource = OTHER
        return self._counts.setdefault((name, resource), Usage())
