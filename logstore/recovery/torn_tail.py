"""Torn-tail detection: a scan of a segment after its checkpoint that tells torn tails from damage.

Decides; reads through a `FileWindow`. `docs/formats/segment.md` has the rules and their reasons.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import final

from tidelog.logstore.damage import DamagedRange
from tidelog.logstore.segments.batch_scanner import FileWindow, Predecessor
from tidelog.wire.batch.record_batch import BatchHeader


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence of other files about a segment."""

    durable_position: int
    """Position below which the bytes of this file were once on disk."""
    next_base_offsets: Sequence[int]
    """Base offsets of later segments, in order; empty for the last segment. An interrupted swap may
    have left segments that lie within this one."""
    was_followed: Callable[[], bool]
    """Whether later segments prove that all of this segment was once on disk. Costly, so it is
    called only for bad bytes."""
    is_as_known: Callable[[BatchHeader], bool] = lambda _: True
    """Whether a batch has the leader epoch that is known for its offset."""


@final
class TornTailScan:
    """The scan of one segment after the part that is known to be good.

    Invariant: all bytes below `end_position` are batches or in `damage`.
    """

    def __init__(
        self,
        window: FileWindow,
        *,
        position: int,
        end: int,
        predecessor: Predecessor,
        evidence: Evidence,
    ) -> None:
        """Scan from `position`, after `predecessor`, to `end`."""
        self._window = window
        self._end = end
        self._last = predecessor
        self._evidence = evidence
        self.end_position = position
        """Position after the last batch; the end when damage reaches it."""
        self.damage: list[DamagedRange] = []
        """Damage between batches; recovery finds records that are missing after the last batch."""
        self.is_torn = False
        """Whether a torn tail follows `end_position`."""

    def batches(self) -> Iterator[tuple[int, BatchHeader]]:
        """Yield (position, header) of all good batches; the end completes the other results."""
        position = self.end_position
        while position < self._end:
            header = self._window.valid_header(position)
            if header is None or not self._may_come(header):
                behind = self._tell_torn_tail_from_damage(position)
                if behind is None:
                    return
                position, header = behind
            yield position, header
            self._last = Predecessor(
                header.next_offset, header.leader_epoch, header.durable_position
            )
            position = self.end_position = position + header.size

    def _tell_torn_tail_from_damage(self, position: int) -> tuple[int, BatchHeader] | None:
        """Judge the bad bytes at `position`; return the next batch of the scan."""
        behind = self._window.find_behind(position, accepts=self._may_follow)
        if behind is None and self._last.next_offset in self._evidence.next_base_offsets:
            # No offset is missing, so no batch is missing: these bytes were a footer.
            return None
        if not self._was_durable(position, behind):
            self.is_torn = True
            return None
        if behind is None:
            # The bytes stay for inspection.
            self.end_position = self._end
            return None
        self.damage.append(DamagedRange(self._last.next_offset, behind[1].base_offset))
        return behind

    def _may_follow(self, header: BatchHeader) -> bool:
        bases = self._evidence.next_base_offsets
        return self._may_come(header) and (not bases or header.next_offset <= bases[0])

    def _may_come(self, header: BatchHeader) -> bool:
        return self._last.may_precede(header) and self._evidence.is_as_known(header)

    def _was_durable(self, position: int, behind: tuple[int, BatchHeader] | None) -> bool:
        """Return whether the bytes at `position` were once on disk.

        A valid batch after them proves nothing by itself, because unsynced sectors reach the disk
        in any order; the durable position in the batch is the proof.
        """
        if position < self._evidence.durable_position:
            return True
        while behind is not None:
            at, header = behind
            if header.durable_position > position:
                return True
            behind = self._window.find_valid(at + header.size, accepts=self._may_follow)
        return self._evidence.was_followed()
