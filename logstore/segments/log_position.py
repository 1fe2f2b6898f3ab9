"""Positions in a log: an offset and its byte position."""

from typing import NamedTuple

import msgspec


class LogPosition(msgspec.Struct, frozen=True, gc=False):
    """A position between two batches."""

    offset: int
    segment_base_offset: int
    position: int


class OffsetPosition(NamedTuple):
    """A position in one segment (Kafka: OffsetPosition)."""

    offset: int
    position: int
    """Byte position of the batch of that offset, written or not."""
