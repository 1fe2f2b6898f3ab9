"""Aimed power cuts, at a moment among the requests to a disk.

Pure. A random moment almost never lies in the microseconds in which a crash is interesting. So
the requests themselves are watched: flushes, the first block of a new segment or checkpoint, and
the commits of the file system's own journal.
"""

from collections.abc import Callable
from enum import Enum
from random import Random
from typing import final

from tests.system.powercut.volatile_disk import BLOCK_BYTES
from tidelog.logstore.segments.segment_format import HEADER_MAGIC

_CHECKPOINT_MAGIC = b"TLCP"
_JOURNAL_COMMIT_MAGIC = bytes.fromhex("c03b3998 00000002")  # JBD2_MAGIC_NUMBER, JBD2_COMMIT_BLOCK


class Moment(Enum):
    """Event at the moment of the cut."""

    WRITE = "a write"
    FLUSH = "a flush, before it has done anything"
    FLUSHED = "a flush, when it is done and not yet acknowledged"
    SEGMENT = "the first block of a segment is written"
    CHECKPOINT = "the first block of a checkpoint is written"
    JOURNAL_COMMIT = "a commit of the file system's journal is written"


_MAGICS = {
    Moment.SEGMENT: HEADER_MAGIC,
    Moment.CHECKPOINT: _CHECKPOINT_MAGIC,
    Moment.JOURNAL_COMMIT: _JOURNAL_COMMIT_MAGIC,
}
_NUMBERS_MAX = {
    Moment.WRITE: 300,
    Moment.FLUSH: 150,
    Moment.FLUSHED: 150,
    Moment.SEGMENT: 12,
    Moment.CHECKPOINT: 12,
    Moment.JOURNAL_COMMIT: 40,
}
_LATER_MAX = 4


@final
class PowerSwitch:
    """Calls `cut` once, inside of the aimed request, or a few requests later."""

    def __init__(
        self, moment: Moment, cut: Callable[[], None], *, number: int, later: int = 0
    ) -> None:
        """Aim at the moment `number` of its kind, from 1 on, and `later` requests behind it."""
        self.moment = moment
        self.is_armed = False
        """Whether requests count; not during the setup of a machine."""
        self._cut = cut
        self._number = number
        self._later = later
        self._is_over = False

    @property
    def is_pulled(self) -> bool:
        """Whether the power was cut."""
        return self._is_over

    def pull(self) -> None:
        """Cut the power now, unless it is cut already; between two requests."""
        if not self._is_over:
            self._is_over = True
            self._cut()

    def wrote(self, data: bytes) -> None:
        """Count a write of `data` into the cache."""
        if not self._is_counting_down():
            self._saw(self.moment is Moment.WRITE or self._has_magic(data))

    def will_flush(self) -> None:
        """Count a flush that is about to begin."""
        if not self._is_counting_down():
            self._saw(self.moment is Moment.FLUSH)

    def flushed(self) -> None:
        """Count a flush that is done, and will be acknowledged."""
        if self._number > 0:
            self._saw(self.moment is Moment.FLUSHED)

    def _has_magic(self, data: bytes) -> bool:
        magic = _MAGICS.get(self.moment)
        if magic is None:
            return False
        return any(data.startswith(magic, at) for at in range(0, len(data), BLOCK_BYTES))

    def _saw(self, is_aimed_at: bool) -> None:
        if self.is_armed and is_aimed_at:
            self._number -= 1
            if self._number == 0 and self._later == 0:
                self.pull()

    def _is_counting_down(self) -> bool:
        """Return whether the moment is past; count a request towards the cut behind it."""
        if self._number > 0:
            return False
        self._later -= 1
        if self._later == 0:
            self.pull()
        return True


def aim(random: Random, cut: Callable[[], None]) -> PowerSwitch:
    """Return a switch that is aimed at a random moment."""
    moment = random.choice(list(Moment))
    return PowerSwitch(
        moment,
        cut,
        number=random.randint(1, _NUMBERS_MAX[moment]),
        later=random.choice([0, random.randint(1, _LATER_MAX)]),
    )
