"""How what was decided is cut into frames that a journal takes.

Pure: no clock, no I/O. A log takes no record above its limit, and whoever cannot write down what it
applied has to load all anew and would come to the same again: so no frame may ever be that large.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from tidelog.wire.messages.queue_journal import AnyEntry, JournalFrame, size

FRAME_BYTES_MAX: Final = 512 * 1024
"""No frame is larger; journals take at least a mebibyte."""
RUNS_PER_ENTRY: Final = 10_000
"""At no more than 28 bytes each, an entry is far below what a frame may have."""
_ENVELOPE_BYTES: Final = 32
"""Of a frame, at most, besides its entries."""


def is_one_frame(entries: Sequence[AnyEntry]) -> bool:
    """Return whether these entries fit into one frame."""
    return _ENVELOPE_BYTES + sum(map(size, entries)) <= FRAME_BYTES_MAX


def frames_of(now_ms: int, entries: Sequence[AnyEntry]) -> Iterator[JournalFrame]:
    """Yield what was decided at once, as one frame wherever that is small enough.

    Who takes over may find only the first of several frames. So every beginning of `entries` must
    be something that could have been decided by itself.
    """
    if len(entries) == 1:
        yield JournalFrame(now_ms, list(entries))
        return
    part: list[AnyEntry] = []
    part_bytes = _ENVELOPE_BYTES
    for entry in entries:
        entry_bytes = size(entry)
        if part and part_bytes + entry_bytes > FRAME_BYTES_MAX:
            yield JournalFrame(now_ms, part)
            part, part_bytes = [], _ENVELOPE_BYTES
        part.append(entry)
        part_bytes += entry_bytes
    if part:
        yield JournalFrame(now_ms, part)
