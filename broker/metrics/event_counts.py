"""Counts of the events of the log: a probe in front of another one."""

from collections import Counter
from typing import Final, final

from tidelog.wire.env.env import Probe

_DAMAGE: Final = ("log_damaged", "log_status_changed")
_DAMAGED: Final = "damaged"
_ISR_CHANGES: Final = {"isr_shrunk": "shrink", "isr_grown": "expand"}


@final
class CountingProbe:
    """Counts events by name and severity, and passes them on."""

    def __init__(self, probe: Probe) -> None:
        """Pass events on to `probe`."""
        self._probe = probe
        self.events: Counter[tuple[str, str]] = Counter()
        """By name and severity."""
        self.elections: Counter[str] = Counter()
        """Elected leaders by kind, as in `leaders_elected`."""
        self.isr_changes: Counter[str] = Counter()
        """Replicas that left an ISR (`shrink`) or joined one (`expand`)."""
        self.damage = 0
        """Damage that a start found, and logs in which a reader or a scrub did."""

    def __call__(self, event: str, **fields: object) -> None:
        """See `Probe`."""
        self.events[event, str(fields.get("severity", "info"))] += 1
        if event == "leaders_elected":
            self.elections[str(fields["kind"])] += _count(fields)
        elif event in _ISR_CHANGES:
            self.isr_changes[_ISR_CHANGES[event]] += _count(fields)
        elif event in _DAMAGE:
            self.damage += fields.get("status", _DAMAGED) == _DAMAGED
        self._probe(event, **fields)

    def count(self, event: str) -> int:
        """Return the number of events with a name, of any severity."""
        return sum(count for (name, _), count in self.events.items() if name == event)


def _count(fields: dict[str, object]) -> int:
    count = fields["count"]
    assert isinstance(count, int), "an event of partitions has their number"
    return count
