"""Headers and footers of segments round-trip, and their damage is detected."""

import struct
from collections.abc import Callable
from functools import partial

import pytest
from crc32c import crc32c

from tidelog.logstore.segments.segment_format import (
    SEGMENT_FOOTER_SIZE,
    SEGMENT_HEADER_SIZE,
    SegmentFooter,
    SegmentHeader,
    parse_segment_footer,
    parse_segment_header,
)
from tidelog.wire.errors import DataDirectoryError

HEADER = SegmentHeader(b"sixteen bytes id", 4, 1234567890)
FOOTER = SegmentFooter(1234567999, 4096, 1_700_000_000_123, 1_700_000_009_999)
CLEANED = SegmentFooter(1234567999, 4096, 1_700_000_000_123, 1_700_000_009_999, 1_700_000_020_000)

PARTS: list[tuple[bytes, Callable[[bytes], object]]] = [
    (HEADER.to_bytes(), partial(parse_segment_header, name="it")),
    (FOOTER.to_bytes(), parse_segment_footer),
    (CLEANED.to_bytes(), parse_segment_footer),
]


def test_what_was_written_is_read() -> None:
    assert parse_segment_header(HEADER.to_bytes(), "it") == HEADER
    assert parse_segment_header(HEADER.to_bytes() + b"batches", "it") == HEADER
    assert parse_segment_footer(FOOTER.to_bytes()) == FOOTER
    assert parse_segment_footer(CLEANED.to_bytes()) == CLEANED
    assert len(HEADER.to_bytes()) == SEGMENT_HEADER_SIZE
    assert len(FOOTER.to_bytes()) == SEGMENT_FOOTER_SIZE


@pytest.mark.parametrize(("data", "parse"), PARTS)
def test_every_truncation_is_noticed(data: bytes, parse: Callable[[bytes], object]) -> None:
    for size in range(len(data)):
        assert parse(data[:size]) is None


@pytest.mark.invariant("I7")
@pytest.mark.parametrize(("data", "parse"), PARTS)
def test_every_flipped_bit_is_noticed(data: bytes, parse: Callable[[bytes], object]) -> None:
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        assert parse(bytes(damaged)) is None


def test_a_header_is_no_footer_and_a_footer_no_header() -> None:
    assert parse_segment_header(FOOTER.to_bytes(), "it") is None
    assert parse_segment_footer(HEADER.to_bytes()) is None
    assert parse_segment_footer(bytes(SEGMENT_FOOTER_SIZE)) is None
    assert parse_segment_footer(FOOTER.to_bytes() + b"\0") is None


def test_a_header_of_a_newer_version_is_refused_with_advice() -> None:
    data = HEADER.to_bytes()[:8] + struct.pack("<H", 2) + HEADER.to_bytes()[10:60]
    newer = data + struct.pack("<I", crc32c(data))

    with pytest.raises(DataDirectoryError, match="version 2, this tidelog reads 1; use the"):
        parse_segment_header(newer, "it")
