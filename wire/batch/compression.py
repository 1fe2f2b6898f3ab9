"""Compression codecs of a batch payload.

Pure: no clock, no I/O. The header's uncompressed length bounds decompression, so that a small
payload cannot exhaust memory.
"""

from enum import IntEnum

import lz4.block
import zstandard

from tidelog.wire.errors import WireFormatError


class Codec(IntEnum):
    """Compression of a payload; the flags of the batch header hold the number."""

    NONE = 0
    LZ4 = 1
    """One LZ4 block without the size prefix; the header has the uncompressed length."""
    ZSTD = 2
    """One Zstandard frame."""
    KAFKA_V2 = 15
    """Reserved for a verbatim Kafka v2 record batch; refused today."""


CODEC_NAMES = {"none": Codec.NONE, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}
"""Codecs by their names in settings, in the order of display."""

_ZSTD_LEVEL = 3
_LZ4_BLOCK_MAX = 0x7E00_0000
"""The format's own limit; the library accepts no larger number."""


def compress(codec: Codec, payload: bytes | memoryview) -> bytes | memoryview:
    """Return the payload compressed with `codec`."""
    if codec is Codec.NONE:
        return payload
    if codec is Codec.LZ4:
        return lz4.block.compress(payload, store_size=False)
    assert codec is Codec.ZSTD, f"cannot compress with {codec!r}"
    # A context holds state and must not be shared between threads. Creating it costs
    # microseconds, once per batch.
    return zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(payload)


def decompress(
    codec: int, payload: bytes | memoryview, *, uncompressed_length: int
) -> bytes | memoryview:
    """Return the decompressed payload, exactly `uncompressed_length` bytes.

    Raises:
        WireFormatError: The payload is damaged, of another length, or of an unknown codec.
    """
    try:
        if codec == Codec.NONE:
            plain = payload
        elif codec == Codec.LZ4:
            if uncompressed_length > _LZ4_BLOCK_MAX:
                raise WireFormatError(f"an LZ4 block cannot unpack to {uncompressed_length} bytes")
            plain = lz4.block.decompress(payload, uncompressed_size=uncompressed_length)
        elif codec == Codec.ZSTD:
            plain = _decompress_zstd(payload, uncompressed_length)
        else:
            raise WireFormatError(f"compression codec {codec} is not known to this version")
    except (lz4.block.LZ4BlockError, zstandard.ZstdError, ValueError) as error:
        raise WireFormatError(f"payload cannot be decompressed: {error}") from error
    if len(plain) != uncompressed_length:
        raise WireFormatError(
            f"payload has {len(plain)} bytes, its header says {uncompressed_length}"
        )
    return plain


def _decompress_zstd(payload: bytes | memoryview, uncompressed_length: int) -> bytes:
    # The library trusts the size in the frame more than `max_output_size`, so check it first.
    declared = zstandard.frame_content_size(payload)
    if declared not in (uncompressed_length, -1):
        raise WireFormatError(
            f"payload announces {declared} bytes, its header says {uncompressed_length}"
        )
    return zstandard.ZstdDecompressor().decompress(
        payload, max_output_size=uncompressed_length, allow_extra_data=False
    )
