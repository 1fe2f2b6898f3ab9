"""Checker of the loss of records that are in memory only."""

from collections.abc import Mapping
from math import inf
from typing import final

from tests.simulation.checkers.run_history import Acknowledged, Checker

SYNC_S = 1.0
"""Maximum seconds of a sync on a healthy disk, whatever else is synced with it."""


@final
class LossIsBounded(Checker):
    """With a healthy disk, a crash loses only records acknowledged within a flush interval.

    Definition: when a crash may take the records at or above an offset, every record there was
    acknowledged less than the flush interval and a second before; or the broker was down, paused,
    or had a failed or slow disk in that time.
    """

    def __init__(self, flush_interval_s: float) -> None:
        """Start without records; the broker begins a flush at least that often."""
        self._bound_s = flush_interval_s + SYNC_S
        self._held_up_until = inf
        self._acknowledged: dict[int, list[tuple[float, int]]] = {}
        """By partition: time of acknowledgement and offset of each record."""

    def acknowledged(self, ack: Acknowledged) -> None:
        """See `Checker`."""
        if ack.offset is not None:
            acknowledged = self._acknowledged.setdefault(ack.record.partition, [])
            acknowledged.append((self.now(), ack.offset))

    def held_up(self, until: float) -> None:
        """See `Checker`."""
        self._held_up_until = max(until, self._held_up_until)

    def disk_failed(self, partition: int | None) -> None:
        """See `Checker`."""
        del partition
        self.held_up(inf)

    def probed(self, event: str, fields: Mapping[str, object]) -> None:
        """See `Checker`."""
        del fields
        if event == "broker_started" and self._held_up_until == inf:
            self._held_up_until = self.now()

    def forgotten(self, ends: Mapping[int, int]) -> None:
        """See `Checker`."""
        is_late = self.now() - self._held_up_until > self._bound_s
        for partition, end in ends.items():
            for at, offset in self._acknowledged.get(partition, ()):
                if offset >= end and is_late and self.now() - at > self._bound_s:
                    self.fail(
                        f"{(partition, offset)} was acknowledged {self.now() - at:.3f} s ago, and"
                        f" only what is below {end} is on the disk"
                    )
            self._acknowledged.pop(partition, None)
