"""Walk over one segment, from header to footer: valid batches, and bad ranges between them.

Decides what is bad and why; reads once, in pieces, through a `File`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tidelog.broker.inspection.rows import OFFSET_END
from tidelog.logstore.disk.disk import File
from tidelog.logstore.segments.gap_scan import Gap, ValidBatch, scan_for_gaps
from tidelog.logstore.segments.log_position import OffsetPosition
from tidelog.logstore.segments.segment_format import (
    SEGMENT_FOOTER_SIZE,
    SEGMENT_HEADER_SIZE,
    SegmentFooter,
    SegmentHeader,
    parse_segment_footer,
    parse_segment_header,
)
from tidelog.wire.batch.record_batch import (
    FORMAT_COLUMNAR,
    HEADER_SIZE,
    KNOWN_FORMATS,
    STORED_FLAGS,
    SYNC_MARKER,
    BatchHeader,
    has_valid_payload,
    parse_header,
)

_MARKER = SYNC_MARKER.to_bytes(4, "little")
_LARGEST_TO_CHECK_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class SegmentFrame:
    """Header and footer of a segment."""

    header: SegmentHeader | None
    """`None` if it is torn or damaged."""
    footer: SegmentFooter | None
    """`None` if the segment is not sealed, or its footer is damaged."""
    size_bytes: int
    """Size of the file in bytes."""

    @property
    def end_position(self) -> int:
        """Position of the end of the batches."""
        return self.size_bytes if self.footer is None else self.footer.end_position


@dataclass(frozen=True, slots=True)
class BadRange:
    """Bytes, offsets, or both, without a valid batch."""

    position: int
    end_position: int
    offset: int
    end_offset: int | None
    """`None` if the end of the bad range is unknown."""
    reason: str

    @property
    def is_at_the_end(self) -> bool:
        """Whether no valid batch follows: a torn tail, if it was never durable."""
        return self.end_offset is None


def read_frame(file: File, name: str) -> SegmentFrame:
    """Return header and footer; `name` is for messages.

    Raises:
        DataDirectoryError: A newer version wrote the file.
        OSError: The disk failed.
    """
    size = file.size()
    header = parse_segment_header(file.read_at(0, SEGMENT_HEADER_SIZE), name)
    position = size - SEGMENT_FOOTER_SIZE
    footer = None
    if position >= SEGMENT_HEADER_SIZE:
        footer = parse_segment_footer(file.read_at(position, SEGMENT_FOOTER_SIZE))
    if footer is not None and footer.end_position != position:
        footer = None
    return SegmentFrame(header, footer, size)


def walk(file: File, frame: SegmentFrame, base_offset: int) -> Iterator[ValidBatch | BadRange]:
    """Yield all valid batches that follow on each other, and the bad ranges between them.

    Raises:
        OSError: The disk failed.
    """
    footer = frame.footer
    end_offset = OFFSET_END if footer is None else footer.end_offset
    for found in scan_for_gaps(
        file,
        start=OffsetPosition(base_offset, SEGMENT_HEADER_SIZE),
        end=OffsetPosition(end_offset, frame.end_position),
    ):
        if isinstance(found, ValidBatch):
            version = version_problem(found.header)
            yield found if version is None else _newer(found, version)
        elif found.position < found.end_position or found.end_offset != OFFSET_END:
            yield _explained(file, found, frame)


def version_problem(header: BatchHeader) -> str | None:
    """Return the reason that this version cannot read a batch, `None` if it can."""
    if header.format_version not in KNOWN_FORMATS:
        return (
            f"the batch has format version {header.format_version}, this tidelog reads"
            f" up to {FORMAT_COLUMNAR}; use the version that wrote it, or a newer one"
        )
    if header.flags & ~STORED_FLAGS:
        return (
            f"the batch has flags {header.flags:#06x}, some of which this tidelog does not know;"
            " use the version that wrote it, or a newer one"
        )
    return None


def _newer(found: ValidBatch, reason: str) -> BadRange:
    end_position = found.position + found.header.size
    return BadRange(found.position, end_position, found.offset, found.end_offset, reason)


def _explained(file: File, gap: Gap, frame: SegmentFrame) -> BadRange:
    is_open = gap.end_offset == OFFSET_END
    return BadRange(
        gap.position,
        gap.end_position,
        gap.offset,
        None if is_open else gap.end_offset,
        _reason(file, gap, end=frame.end_position),
    )


def _reason(file: File, gap: Gap, *, end: int) -> str:  # noqa: PLR0911 - one for each thing
    """Return the problem at the place where a batch should begin."""
    position = gap.position
    if position == gap.end_position:
        return f"records are missing: offsets {gap.offset} to {gap.end_offset - 1}"
    head = file.read_at(position, min(HEADER_SIZE, end - position))
    if not any(head):
        return "zeros where a batch should begin"
    if not head.startswith(_MARKER[: len(head)]):
        return "no batch begins here"
    if len(head) < HEADER_SIZE:
        return f"a batch is cut off after {len(head)} bytes of its header"
    header = parse_header(head)
    if header is None:
        return "the header of a batch does not match its CRC-32C"
    if position + header.size > end:
        return f"a batch of {header.size} bytes is cut off after {end - position}"
    if header.size <= _LARGEST_TO_CHECK_BYTES and not has_valid_payload(
        header, file.read_at(position, header.size)
    ):
        return f"the payload of the batch at offset {header.base_offset} does not match its CRC-32C"
    return (
        f"the batch at offset {header.base_offset}, of leader epoch {header.leader_epoch}, does not"
        f" follow on offset {gap.offset - 1}, of leader epoch {gap.leader_epoch}"
    )
