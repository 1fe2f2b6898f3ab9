"""Positions in a log: an offset, and where its bytes are."""

from typing import NamedTuple

import msgspec


class LogPosition(msgspec.Struct, frozen=True, gc=False):
    """A place between two batches."""

    offset: int
    segment_base_offset: int
    position: int


class OffsetPosition(NamedTuple):
    """A place in one segment (Kafka: OffsetPosition)."""

    offset: int
    position: int
    """In the file, where the batch of that offset begins or will begin."""
