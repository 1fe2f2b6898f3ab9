"""Tests of the walk over a segment, and of the reasons for its bad ranges."""

import pytest
from msgspec.structs import replace

from tests.broker.inspection.stored_logs import stored_log
from tests.logstore.logs import Opened, header_of
from tidelog.broker.inspection.segment_walk import (
    BadRange,
    SegmentFrame,
    read_frame,
    version_problem,
    walk,
)
from tidelog.logstore.segments.gap_scan import ValidBatch


def frame_of(opened: Opened) -> SegmentFrame:
    return read_frame(opened.disk.open(opened.path()), "it")


def walked(opened: Opened) -> list[ValidBatch | BadRange]:
    return list(walk(opened.disk.open(opened.path()), frame_of(opened), 0))


def reason_of(opened: Opened) -> str:
    (found,) = [each for each in walked(opened) if isinstance(each, BadRange)]
    return found.reason


def test_a_sealed_segment_has_only_valid_batches() -> None:
    opened = stored_log()

    frame = frame_of(opened)

    assert frame.header is not None
    assert frame.footer is not None
    assert [each.offset for each in walked(opened)] == list(range(frame.footer.end_offset))
    assert all(isinstance(each, ValidBatch) for each in walked(opened))


@pytest.mark.parametrize(
    ("position", "data", "reason"),
    [
        (0, b"\x00" * 88, "zeros where a batch should begin"),
        (0, b"what", "no batch begins here"),
        (40, b"\xff", "the header of a batch does not match its CRC-32C"),
        (95, b"\xff", "the payload of the batch at offset 1 does not match its CRC-32C"),
    ],
)
def test_a_bad_batch_has_a_reason(position: int, data: bytes, reason: str) -> None:
    opened = stored_log()
    second = walked(opened)[1]
    opened.disk.damage(opened.path(), second.position + position, data)

    assert reason_of(opened) == reason


def test_a_batch_of_a_newer_version_is_reported_as_such() -> None:
    header = header_of()

    assert version_problem(header) is None
    newer = version_problem(replace(header, format_version=3))
    assert newer is not None
    assert newer.startswith(
        "the batch has format version 3, this tidelog reads up to 2; use the version"
    )
    assert version_problem(replace(header, format_version=2)) is None
    flagged = version_problem(replace(header, flags=0x8000))
    assert flagged is not None
    assert "some of which this tidelog does not know" in flagged
