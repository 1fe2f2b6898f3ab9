"""Gap scan of a durable segment: its valid batches and its gaps.

Decides; reads through a `FileWindow`. Unlike `logstore.recovery.torn_tail` it need not tell damage
from a torn tail: all scanned bytes were once on disk.
"""

from collections.abc import Iterator

import msgspec

from tidelog.logstore.damage import DamagedRanges
from tidelog.logstore.disk.disk import File
from tidelog.logstore.leader_epochs import LeaderEpochs
from tidelog.logstore.segments.batch_scanner import FileWindow, Predecessor
from tidelog.logstore.segments.log_position import OffsetPosition
from tidelog.wire.batch.record_batch import BatchHeader


class ValidBatch(msgspec.Struct, frozen=True, gc=False):
    """A batch with right checksums at its right position."""

    position: int
    header: BatchHeader

    @property
    def offset(self) -> int:
        """Offset of the first record."""
        return self.header.base_offset

    @property
    def end_offset(self) -> int:
        """Offset after the last record."""
        return self.header.next_offset


class Gap(msgspec.Struct, frozen=True, gc=False):
    """Offsets without a good batch, and the bytes where their batches should be."""

    offset: int
    end_offset: int
    position: int
    end_position: int
    """Position of the next good batch, or else the end."""
    leader_epoch: int
    """Epoch of the batch before the gap, 0 if unknown."""
    behind: BatchHeader | None
    """The good batch after the gap, `None` if there is none in this segment."""


def scan_for_gaps(
    file: File,
    *,
    start: OffsetPosition,
    end: OffsetPosition,
    damage: DamagedRanges | None = None,
    leader_epochs: LeaderEpochs | None = None,
    chunk_bytes: int = 1 << 20,
) -> Iterator[ValidBatch | Gap]:
    """Yield all batches and gaps from `start` to `end`, in order.

    Offsets without a good batch are in a gap, also if they have no bytes. Bytes without a good
    batch are in a gap, also if they have no offsets. A batch is not good if it touches known
    `damage`, or has another epoch than in `leader_epochs`. The scan reads and checks payloads, and
    may block.

    Raises:
        OSError: The disk failed.
    """
    last, position = Predecessor(start.offset), start.position
    end_offset, end_position = end
    window = FileWindow(file, end=end_position, chunk_bytes=chunk_bytes)

    def fits(header: BatchHeader) -> bool:
        is_known = damage is not None and damage.touches(header.base_offset, header.next_offset)
        is_stale = leader_epochs is not None and not leader_epochs.wrote(
            header.leader_epoch, header.next_offset - 1
        )
        is_next = last.may_precede(header) and header.next_offset <= end_offset
        return is_next and not is_known and not is_stale

    while position < end_position:
        header = window.valid_header(position)
        gap_position = position
        if header is None or not fits(header):
            behind = window.find_behind(position, accepts=fits)
            if behind is None:
                break
            position, header = behind
        if header.base_offset > last.next_offset or position > gap_position:
            yield Gap(
                last.next_offset,
                header.base_offset,
                gap_position,
                position,
                last.leader_epoch,
                header,
            )
        yield ValidBatch(position, header)
        last = Predecessor(header.next_offset, header.leader_epoch, header.durable_position)
        position += header.size
    if last.next_offset < end_offset or position < end_position:
        yield Gap(last.next_offset, end_offset, position, end_position, last.leader_epoch, None)
