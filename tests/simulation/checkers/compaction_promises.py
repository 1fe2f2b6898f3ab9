"""What compaction may take of a topic, and what not."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import final

from tests.simulation.checkers.book import Acknowledged, Checker, Fetched, FinalLog, Place
from tests.simulation.keys import Superseded


@final
class OnlySupersededGoes(Checker):
    """Of a compacted topic a reader misses only what has a later record of the same key.

    Definition: for every offset that some reader passed and got no record of, or that the last
    reader did not find between the log start and the high watermark: what anybody ever knew to be
    there has a key, and the last reader has found that key at a later offset. What is damaged is
    not looked at, and may have been a later record of any key.
    """

    def __init__(self, superseded: Superseded) -> None:
        """Know which partitions are compacted."""
        self._superseded = superseded
        self._values: dict[Place, bytes] = {}
        self.gone: defaultdict[int, set[int]] = defaultdict(set)
        """By partition: the offsets at which somebody has missed a record."""

    def acknowledged(self, ack: Acknowledged) -> None:
        """See `Checker`."""
        if ack.offset is not None and ack.record.partition in self._superseded.partitions:
            self._values[ack.record.partition, ack.offset] = ack.record.value

    def fetched(self, fetched: Fetched) -> None:
        """See `Checker`."""
        if fetched.partition in self._superseded.partitions:
            self._values |= {(fetched.partition, at): value for at, value in fetched.records}
            passed = range(max(fetched.fetch_offset, 0), fetched.next_offset)
            self.gone[fetched.partition].update(
                set(passed).difference(offset for offset, _ in fetched.records)
            )

    def forgotten(self, ends: Mapping[int, int]) -> None:
        """See `Checker`."""
        self._values = {
            place: value
            for place, value in self._values.items()
            if place[1] < ends.get(place[0], place[1] + 1)
        }
        for partition, end in ends.items():
            if partition in self._superseded.partitions:
                self.gone[partition] = {at for at in self.gone[partition] if at < end}

    def ended(self, logs: Mapping[int, FinalLog]) -> None:
        """See `Checker`."""
        for partition in sorted(self._superseded.partitions):
            gone, log = self.gone[partition], logs[partition]
            there = range(log.log_start_offset, log.high_watermark)
            gone.update(set(there).difference(log.values))
            for damage in log.damage:
                gone.difference_update(range(damage.offset, damage.next_offset))
            for offset in sorted(gone.intersection(there)):
                place = (partition, offset)
                value = self._values.get(place)
                if value is not None and not self._superseded.covers(place, value):
                    self.fail(f"{value[:32]!r} at {place} is gone, and no later one has its key")


def ranges_of(offsets: Iterable[int]) -> list[range]:
    """Return offsets as ranges, as few as there can be."""
    ranges: list[range] = []
    for offset in sorted(offsets):
        if ranges and ranges[-1].stop == offset:
            ranges[-1] = range(ranges[-1].start, offset + 1)
        else:
            ranges.append(range(offset, offset + 1))
    return ranges
