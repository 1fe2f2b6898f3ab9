"""Refusals of connections and requests in the log: one line for each peer, kind and minute.

Shell: reads trio's clock, and reports to a probe.
"""

from typing import Final, final

import trio

from tidelog.wire.env.env import Probe

_INTERVAL_S: Final = 60.0
_PEERS_MAX: Final = 256
"""Peers and kinds that are told apart at a time; the line of the others has no peer."""
_REASON_CHARS_MAX: Final = 300


@final
class Refusals:
    """The counts of refusals, and the lines about them.

    The first refusal of a kind is reported at once. Those that follow within a minute are counted,
    and reported in one line at its end.
    """

    def __init__(self, probe: Probe) -> None:
        """Report to `probe`."""
        self._probe = probe
        self._since: dict[tuple[str, str], float] = {}
        """Start of the minute of each event and host."""
        self._counts: dict[tuple[str, str], int] = {}
        """Refusals since the last line."""
        self.total = 0
        """Refusals since the start of the broker."""

    def add(self, event: str, *, peer: str, reason: str) -> None:
        """Count a refusal of `peer`, an address with a port; report it if it is the first."""
        self.total += 1
        host = peer.rpartition(":")[0]
        key = (event, host)
        if key not in self._since and len(self._since) >= _PEERS_MAX:
            key, peer = (event, ""), ""
        if key in self._since:
            self._counts[key] += 1
            return
        self._since[key] = trio.current_time()
        self._counts[key] = 0
        self._probe(event, severity="warning", peer=peer, reason=reason[:_REASON_CHARS_MAX])

    def tidy(self, *, now: float) -> None:
        """Report the counts of minutes that are over; `now` is in seconds of trio's clock."""
        for key, since in list(self._since.items()):
            if now - since < _INTERVAL_S:
                continue
            event, host = key
            count = self._counts.pop(key)
            del self._since[key]
            if count:
                self._since[key], self._counts[key] = now, 0
                self._probe(f"{event}_again", severity="warning", peer=host, count=count)
