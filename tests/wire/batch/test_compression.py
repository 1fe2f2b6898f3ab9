"""Payloads round-trip through compression, and never exceed their declared length."""

from collections.abc import Callable

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.memory import at_most_allocated
from tidelog.wire.batch.compression import CODEC_NAMES, Codec, compress, decompress
from tidelog.wire.errors import WireFormatError

MiB = 1 << 20
BOMB_BYTES = 64 * MiB
CODECS = list(CODEC_NAMES.values())
COMPRESSING = [Codec.LZ4, Codec.ZSTD]
PLAIN = b"some bytes that repeat, some bytes that repeat, some bytes that repeat"


def lz4(plain: bytes) -> bytes:
    return bytes(compress(Codec.LZ4, plain))


def zstd(plain: bytes) -> bytes:
    return bytes(compress(Codec.ZSTD, plain))


def zstd_without_size(plain: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_content_size=False).compress(plain)


@pytest.mark.parametrize("codec", CODECS)
@given(plain=st.binary(max_size=2000))
def test_a_payload_comes_back_as_it_was(codec: Codec, plain: bytes) -> None:
    packed = compress(codec, plain)

    assert decompress(codec, packed, uncompressed_length=len(plain)) == plain
    assert decompress(codec, memoryview(packed), uncompressed_length=len(plain)) == plain


@pytest.mark.parametrize("codec", CODECS)
def test_a_payload_cut_off_anywhere_is_refused(codec: Codec) -> None:
    packed = bytes(compress(codec, PLAIN))

    for length in range(len(packed)):
        with pytest.raises(WireFormatError):
            decompress(codec, packed[:length], uncompressed_length=len(PLAIN))


@pytest.mark.parametrize("codec", CODECS)
def test_trailing_bytes_are_refused(codec: Codec) -> None:
    packed = bytes(compress(codec, PLAIN))

    with pytest.raises(WireFormatError):
        decompress(codec, packed + b"\0", uncompressed_length=len(PLAIN))


def test_a_second_zstd_frame_is_refused() -> None:
    packed = bytes(compress(Codec.ZSTD, PLAIN))

    with pytest.raises(WireFormatError, match="unused data"):
        decompress(Codec.ZSTD, packed + packed, uncompressed_length=len(PLAIN))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("lie", [0, 1, len(PLAIN) - 1, len(PLAIN) + 1, 10 * len(PLAIN)])
def test_a_wrong_uncompressed_length_is_refused(codec: Codec, lie: int) -> None:
    packed = bytes(compress(codec, PLAIN))

    with pytest.raises(WireFormatError):
        decompress(codec, packed, uncompressed_length=lie)


def test_a_zstd_frame_may_leave_out_its_size() -> None:
    packed = zstd_without_size(PLAIN)

    assert decompress(Codec.ZSTD, packed, uncompressed_length=len(PLAIN)) == PLAIN
    for lie in (0, len(PLAIN) - 1, len(PLAIN) + 1):
        with pytest.raises(WireFormatError):
            decompress(Codec.ZSTD, packed, uncompressed_length=lie)


@pytest.mark.parametrize("said", [0, 1000, MiB])
@pytest.mark.parametrize(
    ("codec", "make_bomb"),
    [(Codec.LZ4, lz4), (Codec.ZSTD, zstd), (Codec.ZSTD, zstd_without_size)],
    ids=["lz4", "zstd", "zstd without size"],
)
def test_a_decompression_bomb_is_refused(
    codec: Codec, make_bomb: Callable[[bytes], bytes], said: int
) -> None:
    bomb = make_bomb(bytes(BOMB_BYTES))

    with at_most_allocated(2 * MiB), pytest.raises(WireFormatError):
        decompress(codec, bomb, uncompressed_length=said)


def test_a_zstd_frame_that_announces_gigabytes_allocates_nothing() -> None:
    packed = bytearray(compress(Codec.ZSTD, bytes(70_000)))
    assert packed[4] >> 6 == 2, "the frame has a content size of 4 bytes"
    at = packed.index((70_000).to_bytes(4, "little"))
    packed[at : at + 4] = (0xFFFF_FFF0).to_bytes(4, "little")

    with at_most_allocated(MiB), pytest.raises(WireFormatError, match="announces 4294967280"):
        decompress(Codec.ZSTD, bytes(packed), uncompressed_length=70_000)


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("length", [2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64])
def test_lengths_beyond_the_limit_of_a_library_are_refused(codec: Codec, length: int) -> None:
    with at_most_allocated(MiB), pytest.raises(WireFormatError):
        decompress(codec, compress(codec, PLAIN), uncompressed_length=length)


@pytest.mark.parametrize("codec", [3, 14, Codec.KAFKA_V2, 16, -1])
def test_an_unknown_codec_is_refused(codec: int) -> None:
    with pytest.raises(WireFormatError, match=f"codec {int(codec)} is not known"):
        decompress(codec, PLAIN, uncompressed_length=len(PLAIN))


@pytest.mark.parametrize("codec", COMPRESSING)
@given(garbage=st.binary(max_size=300), said=st.integers(0, 5000))
def test_garbage_is_refused_or_has_the_declared_length(
    codec: Codec, garbage: bytes, said: int
) -> None:
    try:
        plain = decompress(codec, garbage, uncompressed_length=said)
    except WireFormatError:
        return

    assert len(plain) == said
