r"""The fixed parts of a segment file: its header, and its footer once it is sealed.

Pure: no clock, no I/O. `docs/formats/segment.md` has a worked example.

    header, 64 bytes                      footer, 64 bytes
     0   8 magic "TIDELOG\\n"              0   8 magic "TIDESEAL"
     8   2 format version                  8   8 end offset (exclusive)
    10   2 reserved, 0                    16   8 end position of the batches
    12  16 topic id                       24   8 largest timestamp
    28   4 partition                      32   8 time of sealing, Unix milliseconds
    32   8 base offset                    40  20 reserved, 0
    40  20 reserved, 0                    40   8 time of the first cleaning, 0 = never
    60   4 CRC-32C of bytes 0 to 60       48  12 reserved, 0
                                          60   4 CRC-32C of bytes 0 to 60

All integers are little-endian.
"""

import struct

import msgspec
from crc32c import crc32c

from tidelog.wire.errors import DataDirectoryError

FORMAT_VERSION = 1
HEADER_MAGIC = b"TIDELOG\n"
FOOTER_MAGIC = b"TIDESEAL"
_HEADER = struct.Struct("<8sHH16sIQ20x")
_FOOTER = struct.Struct("<8sQQqQQ12x")
_CRC = struct.Struct("<I")
SEGMENT_HEADER_SIZE = _HEADER.size + _CRC.size
SEGMENT_FOOTER_SIZE = _FOOTER.size + _CRC.size
assert SEGMENT_HEADER_SIZE == SEGMENT_FOOTER_SIZE


class SegmentHeader(msgspec.Struct, frozen=True):
    """The header of a segment file: topic, partition and base offset."""

    topic_id: bytes
    """16 bytes."""
    partition: int
    base_offset: int

    def to_bytes(self) -> bytes:
        """Return the header as it is stored."""
        data = _HEADER.pack(
            HEADER_MAGIC, FORMAT_VERSION, 0, self.topic_id, self.partition, self.base_offset
        )
        return data + _CRC.pack(crc32c(data))


class SegmentFooter(msgspec.Struct, frozen=True):
    """The footer of a sealed segment, from which a start knows it without a scan."""

    end_offset: int
    """Offset after the last record."""
    end_position: int
    """Position after the last batch, where the footer begins."""
    max_timestamp_ms: int
    sealed_at_ms: int
    cleaned_at_ms: int | None = None
    """Time of the first compaction that reached its end; `None` before that."""

    def to_bytes(self) -> bytes:
        """Return the footer as it is stored."""
        data = _FOOTER.pack(
            FOOTER_MAGIC,
            self.end_offset,
            self.end_position,
            self.max_timestamp_ms,
            self.sealed_at_ms,
            self.cleaned_at_ms or 0,
        )
        return data + _CRC.pack(crc32c(data))


def parse_segment_header(data: bytes, name: str) -> SegmentHeader | None:
    """Return the header at the start of `data`, `None` when it is torn or damaged.

    Args:
        data: The first bytes of a segment.
        name: Name of its file, for messages.

    Raises:
        DataDirectoryError: The file was written by a newer version.
    """
    if len(data) < SEGMENT_HEADER_SIZE:
        return None
    magic, version, _, topic_id, partition, base_offset = _HEADER.unpack_from(data)
    if magic != HEADER_MAGIC or not _has_valid_crc(data):
        return None
    if version != FORMAT_VERSION:
        raise DataDirectoryError(
            f"{name} has format version {version}, this tidelog reads {FORMAT_VERSION};"
            " use the version that wrote it, or a newer one"
        )
    return SegmentHeader(topic_id, partition, base_offset)


def parse_segment_footer(data: bytes) -> SegmentFooter | None:
    """Return the footer in `data`, exactly its size, `None` when there is none."""
    if len(data) != SEGMENT_FOOTER_SIZE:
        return None
    magic, end_offset, end_position, max_ms, sealed_ms, cleaned_ms = _FOOTER.unpack_from(data)
    if magic != FOOTER_MAGIC or not _has_valid_crc(data):
        return None
    return SegmentFooter(end_offset, end_position, max_ms, sealed_ms, cleaned_ms or None)


def _has_valid_crc(data: bytes) -> bool:
    covered = SEGMENT_HEADER_SIZE - _CRC.size
    return data[covered:SEGMENT_HEADER_SIZE] == _CRC.pack(crc32c(data[:covered]))
