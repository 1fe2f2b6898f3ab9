"""Tells a torn tail from damage: walks through the bytes of a segment behind its checkpoint.

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
    """What other files say about a segment."""

    durable_position: int
    """Bytes of this file below it were on disk once."""
    next_base_offsets: Sequence[int]
    """Where later segments begin, in their order; empty when this is the last one. A swap that was
    broken off may have left some that lie within this one."""
    was_followed: Callable[[], bool]
    """Whether later segments prove that all of this one was on disk once. Costly, so it is asked
    only when something is bad."""
    is_as_known: Callable[[BatchHeader], bool] = lambda _: True
    """Whether a batch is of the leader epoch that is known to have written there."""


@final
class TornTailScan:
    """The walk through one segment behind what is known to be good.

    Invariant: everything below `end_position` holds batches or is in `damage`.
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
        """Begin at `position`, behind `predecessor`, and go on to `end`."""
        self._window = window
        self._end = end
        self._last = predecessor
        self._evidence = evidence
        self.end_position = position
        """Position after the last batch; the end when damage reaches it."""
        self.damage: list[DamagedRange] = []
        """Damage between batches. What is missing behind the last one is for others to find."""
        self.is_torn = False
        """Whether a torn tail follows `end_position`."""

    def batches(self) -> Iterator[tuple[int, BatchHeader]]:
        """Yield (position, header) of all good batches; the rest is known when it has ended."""
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
        """Judge the bad bytes at `position`; return the next batch that the walk goes on with."""
        behind = self._window.find_behind(position, accepts=self._may_follow)
        if behind is None and self._last.next_offset in self._evidence.next_base_offsets:
            # No offset is missing, so no batch is: these bytes were a footer.
            return None
        if not self._was_durable(position, behind):
            self.is_torn = True
            return None
        if behind is None:
            # What is there stays there, for whoever wants to look at it.
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
        """Return whether the bytes at `position` were on disk once.

        A valid batch behind them proves nothing by itself, for sectors that were not synced
        reach the disk in any order; the durable position that it carries does.
        """
        if position < self._evidence.durable_position:
            return True
        while behind is not None:
            at, header = behind
            if header.durable_position > position:
                return True
            behind = self._window.find_valid(at + header.size, accepts=self._may_follow)
        return self._evidence.was_followed()
