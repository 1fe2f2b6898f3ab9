"""Length-prefixed frames: the unit of transfer on a connection.

Pure: no clock, no I/O.

    offset size field
         0    4 length of what follows this prefix: header and attachment
         4    4 correlation id, chosen by the client, repeated in the reply
         8    1 kind: 1 request, 2 reply, 3 error reply
         9    1 in a reply: code of the rate that throttles the client, 0 for none
        10    2 API key
        12    2 API version
        14    2 in a reply: milliseconds until the broker reads on, 65535 for longer; 0 for none
        16    4 header length
        20    4 CRC-32C of bytes 0 to 20 and of the header
        24      header: one msgpack message
                attachment: record batches, which carry their own checksums

All integers are little-endian. The CRC is needed because TCP's 16-bit checksum misses some
corruption, and a flipped bit in a partition number would append records to the wrong partition.
"""

import struct
from enum import IntEnum
from typing import final

import msgspec
from crc32c import crc32c

from tidelog.wire.env.connect_errors import TLS_TO_PLAIN
from tidelog.wire.errors import WireFormatError

_OF_TLS = b"\x16\x03"
"""First bytes of a TLS client."""
_FIELDS = struct.Struct("<IIBBHHHI")
_PREFIX = struct.Struct("<IIBBHHHII")
"""The fields and their CRC."""
_LENGTH = struct.Struct("<I")
_CRC = struct.Struct("<I")
_CRC_AT = _FIELDS.size
PREFIX_SIZE = _PREFIX.size
assert PREFIX_SIZE == 24  # noqa: PLR2004 - the format page says so

THROTTLE_MS_MAX = 0xFFFF
"""Longest announced time: 65.5 seconds. The next reply announces the rest."""

KiB = 1024
_BUFFER_SMALL = 1 * KiB
"""Buffer of a connection that sends nothing, or a hello alone: there may be thousands of them."""
_BUFFER_INITIAL = 16 * KiB
"""Buffer of a connection after its first bytes, however few the frames have."""
READ_AHEAD_BYTES = 128 * KiB
"""Space beyond the frame under way, so that many small frames arrive at once."""
_GROWTH = 4
"""A full buffer grows by this factor, so that all its moves copy a third of the frame at most."""


class FrameKind(IntEnum):
    """The kind of a frame."""

    REQUEST = 1
    REPLY = 2
    ERROR = 3
    """A reply whose header is an `ErrorDetail`."""


_KINDS = {int(kind): kind for kind in FrameKind}


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One whole frame. The views are valid until the decoder's next `get_buffer`."""

    kind: FrameKind
    api_key: int
    api_version: int
    correlation_id: int
    header: memoryview
    attachment: memoryview
    throttled_by: int = 0
    """Code of the rate that throttles the client, 0 for none; see `wire.config.quota_rates`."""
    throttle_ms: int = 0
    """Milliseconds until the broker reads on."""


def encode_frame(
    kind: FrameKind,
    *,
    api_key: int,
    api_version: int,
    correlation_id: int,
    header: bytes,
    attachment_length: int = 0,
    throttle: tuple[int, int] = (0, 0),
) -> bytes:
    """Return prefix and header; `attachment_length` bytes must follow them on the connection.

    `throttle` is the code of a rate, and the milliseconds until the broker reads on.
    """
    throttled_by, throttle_ms = throttle
    fields = _FIELDS.pack(
        len(header) + attachment_length,
        correlation_id,
        kind,
        throttled_by,
        api_key,
        api_version,
        min(THROTTLE_MS_MAX, throttle_ms),
        len(header),
    )
    return b"".join((fields, _CRC.pack(crc32c(header, crc32c(fields))), header))


@final
class FrameDecoder:
    """Incremental decoder: bytes in, frames out.

    The shell gets free space with `get_buffer`, receives into it, reports the number of bytes with
    `bytes_received`, and takes whole frames with `next_frame`. Frames are views of the buffer: no
    byte is copied between the socket and the consumer of the frame.

    Invariant: 0 <= start <= end <= len(buffer); unread bytes are buffer[start:end]. The next
    step needs `wanted` of them: a prefix, then prefix and header, then the whole frame.
    """

    def __init__(self, *, max_frame_bytes: int) -> None:
        """Refuse frames that announce more than `max_frame_bytes` bytes after the prefix."""
        self._max_frame_bytes = max_frame_bytes
        self._buffer = bytearray(_BUFFER_SMALL)
        self._view = memoryview(self._buffer)
        self._start: int = 0
        self._end: int = 0
        self._wanted: int = PREFIX_SIZE
        self.is_empty = True
        """Whether a frame has taken each received byte."""

    @property
    def buffered_bytes(self) -> int:
        """Received bytes that no frame has taken yet."""
        return self._end - self._start

    @property
    def capacity(self) -> int:
        """Size of the buffer in bytes."""
        return len(self._buffer)

    @property
    def capacity_wanted(self) -> int:
        """Size that the buffer needs for the next bytes, 16 KiB at least.

        It grows with the bytes that have arrived, not with those that a frame announces.
        """
        capacity = len(self._buffer)
        if self.is_full:
            return min(self._wanted + READ_AHEAD_BYTES, capacity * _GROWTH)
        return max(capacity, _BUFFER_INITIAL)

    @property
    def is_full(self) -> bool:
        """Whether the buffer has no room for the next bytes of the incomplete frame.

        A first, small buffer is never full: it grows to 16 KiB without a loan.
        """
        capacity = len(self._buffer)
        return self._end - self._start == capacity < self._wanted and capacity >= _BUFFER_INITIAL

    @property
    def missing_bytes(self) -> int:
        """Known number of bytes until the end of the incomplete frame, or of its next part."""
        return self._wanted - self._end + self._start

    def get_buffer(self) -> memoryview:
        """Return writable space for received bytes, at least one byte; ends all frames' views.

        Call it after `next_frame` has returned `None`. The buffer grows in steps while it is full,
        to the size of the incomplete frame, which `max_frame_bytes` bounds.
        """
        if self._end and len(self._buffer) < _BUFFER_INITIAL:
            self._move_to(bytearray(_BUFFER_INITIAL))
        if self._start == self._end:
            self._start = self._end = 0
        capacity = len(self._buffer)
        unread = self._end - self._start
        if unread == capacity < self._wanted:
            self._move_to(bytearray(self.capacity_wanted))
        elif capacity - self._start < min(self._wanted, capacity):
            self._view[:unread] = self._view[self._start : self._end]
            self._start, self._end = 0, unread
        free = self._view[self._end :]
        assert free, "whole frames must be taken before more is received"
        return free

    def get_room(self, *, is_lent: bool = False) -> memoryview | None:
        """Return space for the frame under way and some bytes beyond it; see `get_buffer`.

        `None` if the buffer `is_full`, unless the memory for a larger one `is_lent`.
        """
        if self.is_empty and len(self._buffer) >= _BUFFER_INITIAL:
            self._start = self._end = 0
            return self._view[: PREFIX_SIZE + READ_AHEAD_BYTES]
        if self.is_full and not is_lent:
            return None
        return self.get_buffer()[: self.missing_bytes + READ_AHEAD_BYTES]

    def limit(self, max_frame_bytes: int) -> None:
        """Refuse frames above another limit from now on."""
        self._max_frame_bytes = max_frame_bytes

    def shrink(self) -> None:
        """Release unused memory; `get_buffer` grows the buffer again."""
        needed = max(self._end - self._start, _BUFFER_SMALL)
        if len(self._buffer) > needed:
            self._move_to(bytearray(needed))

    def bytes_received(self, count: int) -> None:
        """Report `count` bytes that were written to the start of the last `get_buffer`."""
        assert 0 < count <= len(self._buffer) - self._end, f"{count} bytes received"
        self._end += count
        self.is_empty = False

    def next_frame(self) -> Frame | None:
        """Return the next whole frame, `None` when more bytes are needed.

        Raises:
            WireFormatError: The bytes are not a frame, or announce one above the limit. The
                decoder is useless afterwards.
        """
        start = self._start
        unread = self._end - start
        if unread < self._wanted:
            if _LENGTH.size <= unread < PREFIX_SIZE:
                # A server of another kind may send a short greeting, and then wait.
                (length,) = _LENGTH.unpack_from(self._view, start)
                if length > self._max_frame_bytes:
                    raise WireFormatError(self._why_not_a_frame(length))
            return None
        (
            length,
            correlation_id,
            kind_number,
            throttled_by,
            api_key,
            api_version,
            throttle_ms,
            header_length,
            crc,
        ) = _PREFIX.unpack_from(self._view, start)
        kind = _KINDS.get(kind_number)
        if kind is None or length > self._max_frame_bytes or header_length > length:
            raise WireFormatError(self._why_not_a_frame(length))
        header_start = start + PREFIX_SIZE
        header_end = header_start + header_length
        end = header_start + length
        if self._end < header_end:
            self._wanted = PREFIX_SIZE + header_length
            return None
        # Checked before waiting for the attachment, because its length may be corrupt.
        header = self._view[header_start:header_end]
        if crc32c(header, crc32c(self._view[start : start + _CRC_AT])) != crc:
            raise WireFormatError("a frame header does not match its CRC-32C")
        if self._end < end:
            self._wanted = PREFIX_SIZE + length
            return None
        self._start, self._wanted = end, PREFIX_SIZE
        self.is_empty = end == self._end
        attachment = self._view[header_end:end]
        return Frame(
            kind,
            api_key,
            api_version,
            correlation_id,
            header,
            attachment,
            throttled_by,
            throttle_ms,
        )

    def _move_to(self, buffer: bytearray) -> None:
        # A new object, not a resize: views of old frames keep the old buffer alive.
        unread = self._view[self._start : self._end]
        self._buffer = buffer
        self._view = memoryview(buffer)
        self._view[: len(unread)] = unread
        self._start, self._end = 0, len(unread)

    def _why_not_a_frame(self, length: int) -> str:
        first = bytes(self._view[self._start : min(self._start + 8, self._end)])
        if first.startswith(_OF_TLS):
            return TLS_TO_PLAIN
        if length > self._max_frame_bytes:
            return (
                f"a frame of {length} bytes is announced, the limit is {self._max_frame_bytes}"
                f" (is this a tidelog peer? the bytes begin with {first!r})"
            )
        return f"not a tidelog frame: the bytes begin with {first!r}"
