"""Frames of a journal: the entries of a decision, cut to the size of records.

Pure: no clock, no I/O. A log rejects a record above its limit. A leader that cannot write what it
has applied would have to load everything again, with the same result: so no frame may ever be that
large.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from tidelog.wire.messages.queue_journal import AnyEntry, JournalFrame, size

FRAME_BYTES_MAX: Final = 512 * 1024
"""Maximum bytes of a frame; journals accept at least a mebibyte."""
RUNS_PER_ENTRY: Final = 10_000
"""Maximum runs of an entry: at 28 bytes each at most, far below the maximum of a frame."""
_ENVELOPE_BYTES: Final = 32
"""Maximum bytes of a frame in addition to its entries."""


def is_one_frame(entries: Sequence[AnyEntry]) -> bool:
    """Return whether these entries fit into one frame."""
    return _ENVELOPE_BYTES + sum(map(size, entries)) <= FRAME_BYTES_MAX


def frames_of(now_ms: int, entries: Sequence[AnyEntry]) -> Iterator[JournalFrame]:
    """Yield the entries of one decision, as one frame wherever that is small enough.

    A new leader may find only the first of several frames. So every prefix of `entries` must be a
    valid decision by itself.
    """
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
