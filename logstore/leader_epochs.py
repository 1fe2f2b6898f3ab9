"""Leader epochs of a log with their start offsets (Kafka: LeaderEpochFileCache).

Pure: no clock, no I/O. KIP-101 and KIP-279: a replica finds where its log diverges from its
leader's by comparing epochs, never by comparing high watermarks.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple, final


class EpochEndOffset(NamedTuple):
    """A leader epoch, and the offset after its last record (Kafka: EpochEndOffset)."""

    epoch: int
    end_offset: int


@final
class LeaderEpochs:
    """Pairs (leader epoch, offset of its first record), in order.

    Invariant: both columns grow strictly.
    """

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        """Start with stored entries."""
        self._entries = [(epoch, start) for epoch, start in entries]

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        """The pairs, oldest first."""
        return tuple(self._entries)

    @property
    def latest(self) -> int | None:
        """The epoch of the last record, `None` when there is none."""
        return self._entries[-1][0] if self._entries else None

    def epoch_before(self, offset: int) -> int:
        """Return the epoch of the last record below `offset`, 0 when none is known."""
        found = bisect_left(self._entries, offset, key=lambda entry: entry[1]) - 1
        return self._entries[found][0] if found >= 0 else 0

    def known_before(self, offset: int) -> int | None:
        """Return the epoch of the last record below `offset`, `None` when none is known."""
        entries = self._entries
        if not entries or entries[0][1] >= offset:
            return None
        latest, start = entries[-1]
        return latest if start < offset else self.epoch_before(offset)

    def wrote(self, epoch: int, offset: int) -> bool:
        """Return whether `epoch` wrote the record at `offset`; true if its epoch is unknown."""
        found = bisect_right(self._entries, offset, key=lambda entry: entry[1]) - 1
        return found < 0 or self._entries[found][0] == epoch

    def may_assign(self, epoch: int) -> bool:
        """Return whether the log has no record of a later epoch."""
        return not self._entries or epoch >= self._entries[-1][0]

    def assign(self, epoch: int, offset: int) -> None:
        """Assign `epoch` to the record at `offset`, the log's end."""
        if self._entries:
            latest, start = self._entries[-1]
            if epoch == latest:
                return
            assert epoch > latest, f"epoch {epoch} writes after epoch {latest}"
            if start == offset:  # The latest epoch wrote nothing.
                self._entries.pop()
        self._entries.append((epoch, offset))

    def fits(self, epoch: int, offset: int) -> bool:
        """Return whether a record at `offset` may be of `epoch`, as far as other epochs are known.

        The entries are incomplete if the first records of an epoch were lost, and no checkpoint
        had the epoch.
        """
        behind = bisect_right(self._entries, offset, key=lambda entry: entry[1])
        return (behind == 0 or self._entries[behind - 1][0] <= epoch) and (
            behind == len(self._entries) or epoch <= self._entries[behind][0]
        )

    def learn(self, epoch: int, offset: int) -> None:
        """Assign `epoch` to the repaired record at `offset`; it must satisfy `fits`."""
        assert self.fits(epoch, offset), f"epoch {epoch} does not fit at offset {offset}"
        found = bisect_left(self._entries, epoch, key=lambda entry: entry[0])
        if found == len(self._entries) or self._entries[found][0] > epoch:
            self._entries.insert(found, (epoch, offset))
        elif offset < self._entries[found][1]:
            self._entries[found] = (epoch, offset)

    def end_offset_for(self, epoch: int, *, log_end_offset: int) -> EpochEndOffset | None:
        """Return the largest known epoch up to `epoch` with its end offset.

        `None` if every known epoch is larger.
        """
        found = bisect_right(self._entries, epoch, key=lambda entry: entry[0]) - 1
        if found < 0:
            return None
        is_last = found == len(self._entries) - 1
        end = log_end_offset if is_last else self._entries[found + 1][1]
        return EpochEndOffset(self._entries[found][0], end)

    def truncate_end(self, log_end_offset: int) -> None:
        """Remove epochs that begin at or above the new end of the log."""
        while self._entries and self._entries[-1][1] >= log_end_offset:
            self._entries.pop()

    def truncate_start(self, log_start_offset: int) -> None:
        """Remove epochs that end at or below the new start of the log."""
        while len(self._entries) > 1 and self._entries[1][1] <= log_start_offset:
            self._entries.pop(0)
        if self._entries and self._entries[0][1] < log_start_offset:
            self._entries[0] = (self._entries[0][0], log_start_offset)
